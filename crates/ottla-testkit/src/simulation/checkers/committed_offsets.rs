//! The committed offset of a group never goes back, since nobody resets it: as the committed part of `__consumer_offsets` has it,
//! with the offsets of transactions where they end.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_coordinator::LogEntry;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_records::RecordBatch;
use ottla_types::{Offset, ProducerId, TopicIdPartition};

use super::Finding;
use crate::simulation::coordinator_shell::for_each_entry;

/// A group, and the partition that it reads.
type Of = (ByteString, ByteString, i32);

#[derive(Default)]
pub(crate) struct CommittedOffsets {
    committed: BTreeMap<Of, Offset>,
    /// Of open transactions, by the partition that has them and the producer.
    pending: BTreeMap<(TopicIdPartition, ProducerId), BTreeMap<Of, Offset>>,
    pub(super) finding: Finding,
}

impl CommittedOffsets {
    /// A batch of `__consumer_offsets` is committed; they come in their order.
    pub(crate) fn on_committed(&mut self, partition: TopicIdPartition, batch: &RecordBatch) {
        for_each_entry(batch, |entry| match entry {
            LogEntry::Record {
                producer_id,
                key,
                value,
                ..
            } => {
                let Ok(GroupRecordKey::OffsetCommit(key)) = GroupRecordKey::decode(key) else {
                    return;
                };
                let record_type = GroupRecordKey::OffsetCommit(key.clone()).record_type();
                let value = value.map(|value| GroupRecordValue::decode(record_type, value));
                let Some(Ok(GroupRecordValue::OffsetCommit(value))) = value else {
                    return;
                };
                let of = (key.group, key.topic, key.partition);
                let offset = Offset(value.offset);
                if producer_id == ProducerId::NONE {
                    self.advance(of, offset);
                } else {
                    let pending = self.pending.entry((partition, producer_id)).or_default();
                    pending.insert(of, offset);
                }
            }
            LogEntry::EndTransaction {
                producer_id,
                is_commit,
            } => {
                let pending = self.pending.remove(&(partition, producer_id));
                for (of, offset) in pending.unwrap_or_default() {
                    if is_commit {
                        self.advance(of, offset);
                    }
                }
            }
        });
    }

    fn advance(&mut self, of: Of, offset: Offset) {
        let known = *self.committed.entry(of.clone()).or_insert(offset);
        if offset < known {
            let (group, topic, partition) = &of;
            self.finding.report(|| {
                format!("the offset of group {group} for {topic}-{partition} goes back from {known} to {offset}")
            });
        }
        self.committed.insert(of, offset);
    }

    pub(crate) fn of(&self, group: &str, topic: &str, partition: i32) -> Offset {
        let of = (ByteString::from(group), ByteString::from(topic), partition);
        self.committed.get(&of).copied().unwrap_or_default()
    }
}
