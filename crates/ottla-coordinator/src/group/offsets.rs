//! Committed offsets, by group, topic and partition, with those of open transactions beside them.
//!
//! Never decides whether an offset may be committed or has expired.
//! Invariants: an offset that belongs to an uncommitted write is in `journal` of the coordinator, so
//! that it can be taken back; a group without offsets has no entry; `open_transactions` names exactly
//! the producers that have a pending offset for a partition.
//! Source: `OffsetMetadataManager.Offsets` and `OpenTransactions`, `OffsetAndMetadata`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytestring::ByteString;
use ottla_protocol::coordinator_records::OffsetCommitValue;
use ottla_types::TopicId;

use super::member::owned;
use crate::runtime::{Timeline, WriteId};

/// A committed offset with what was said about it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OffsetAndMetadata {
    pub(crate) committed_offset: i64,
    /// -1 if the client did not know it.
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: ByteString,
    pub(crate) commit_timestamp_ms: i64,
    /// Given by clients before OffsetCommit lost its retention time; overrides the broker's setting.
    pub(crate) expire_timestamp_ms: Option<i64>,
    /// Zero where the client or the broker that wrote it did not know it.
    pub(crate) topic_id: TopicId,
    /// Where in the log the commit stands: of two commits, the one with the higher offset counts.
    pub(crate) record_offset: i64,
}

impl OffsetAndMetadata {
    pub(crate) fn from_record(record_offset: i64, value: &OffsetCommitValue) -> Self {
        Self {
            committed_offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: owned(&value.metadata),
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: (value.expire_timestamp != -1).then_some(value.expire_timestamp),
            topic_id: value.topic_id,
            record_offset,
        }
    }
}

/// A partition of a topic, as offsets name it.
pub(crate) type TopicAndPartition = (ByteString, i32);

type GroupOffsets = BTreeMap<TopicAndPartition, Timeline<OffsetAndMetadata>>;
/// By group and partition: the producers with a pending offset.
type OpenTransactions = HashMap<ByteString, BTreeMap<TopicAndPartition, BTreeSet<i64>>>;

/// Where an offset waits for the end of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PendingOffset {
    pub(crate) producer_id: i64,
    pub(crate) group_id: ByteString,
    pub(crate) partition: TopicAndPartition,
}

/// The offsets of one producer that wait for the end of its transaction, by group.
#[derive(Debug, Default)]
pub(crate) struct PendingOffsets(
    BTreeMap<ByteString, BTreeMap<TopicAndPartition, OffsetAndMetadata>>,
);

impl PendingOffsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = (&ByteString, &TopicAndPartition, &OffsetAndMetadata)> {
        self.0.iter().flat_map(|(group_id, by_partition)| {
            by_partition
                .iter()
                .map(move |(partition, offset)| (group_id, partition, offset))
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Offsets {
    by_group: BTreeMap<ByteString, GroupOffsets>,
    /// By producer id: offsets that wait for the end of the producer's transaction.
    pending: BTreeMap<i64, PendingOffsets>,
    open_transactions: OpenTransactions,
}

impl Offsets {
    /// Sets or removes an offset as part of `write`. The caller writes it into the journal.
    pub(crate) fn set(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        partition: &TopicAndPartition,
        offset: Option<OffsetAndMetadata>,
    ) {
        self.slot(group_id, partition).set(write, offset);
    }

    pub(crate) fn set_committed(
        &mut self,
        group_id: &ByteString,
        partition: &TopicAndPartition,
        offset: Option<OffsetAndMetadata>,
    ) {
        self.slot(group_id, partition).set_committed(offset);
        self.drop_vacant(group_id, partition);
    }

    pub(crate) fn commit(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) {
        self.slot(group_id, partition).commit(write);
        self.drop_vacant(group_id, partition);
    }

    pub(crate) fn revert(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) {
        self.slot(group_id, partition).revert(write);
        self.drop_vacant(group_id, partition);
    }

    /// An offset as decided last, whether or not it is committed yet.
    pub(crate) fn latest(
        &self,
        group_id: &str,
        partition: &TopicAndPartition,
    ) -> Option<&OffsetAndMetadata> {
        self.by_group.get(group_id)?.get(partition)?.latest()
    }

    /// An offset as readers may see it.
    pub(crate) fn committed(
        &self,
        group_id: &str,
        partition: &TopicAndPartition,
    ) -> Option<&OffsetAndMetadata> {
        self.by_group.get(group_id)?.get(partition)?.committed()
    }

    /// All offsets of a group as decided last, ordered by topic and partition.
    pub(crate) fn latest_of_group(
        &self,
        group_id: &str,
    ) -> impl Iterator<Item = (&TopicAndPartition, &OffsetAndMetadata)> {
        let offsets = self.by_group.get(group_id).into_iter().flatten();
        offsets.filter_map(|(partition, slot)| Some((partition, slot.latest()?)))
    }

    /// All offsets of a group as readers may see them, ordered by topic and partition.
    pub(crate) fn committed_of_group(
        &self,
        group_id: &str,
    ) -> impl Iterator<Item = (&TopicAndPartition, &OffsetAndMetadata)> {
        let offsets = self.by_group.get(group_id).into_iter().flatten();
        offsets.filter_map(|(partition, slot)| Some((partition, slot.committed()?)))
    }

    pub(crate) fn group_ids(&self) -> impl Iterator<Item = &ByteString> {
        self.by_group.keys()
    }

    // Open transactions

    /// Keeps an offset until the transaction of its producer ends. Returns the one that it replaces.
    pub(crate) fn add_pending(
        &mut self,
        pending: &PendingOffset,
        offset: OffsetAndMetadata,
    ) -> Option<OffsetAndMetadata> {
        let PendingOffset {
            producer_id,
            group_id,
            partition,
        } = pending;
        let by_partition = self.open_transactions.entry(group_id.clone()).or_default();
        let producers = by_partition.entry(partition.clone()).or_default();
        producers.insert(*producer_id);
        let by_group = self.pending.entry(*producer_id).or_default();
        let by_partition = by_group.0.entry(group_id.clone()).or_default();
        by_partition.insert(partition.clone(), offset)
    }

    /// Undoes `add_pending`.
    pub(crate) fn take_back_pending(
        &mut self,
        pending: &PendingOffset,
        replaced: Option<OffsetAndMetadata>,
    ) {
        if let Some(replaced) = replaced {
            self.add_pending(pending, replaced);
            return;
        }
        self.remove_pending(pending);
        self.close(&pending.group_id, &pending.partition, pending.producer_id);
    }

    /// The transaction of a producer has ended. Returns what waited for that.
    pub(crate) fn close_transaction(&mut self, producer_id: i64) -> PendingOffsets {
        let ended = self.pending.remove(&producer_id).unwrap_or_default();
        for (group_id, partition, _) in ended.iter() {
            Self::close_in(
                &mut self.open_transactions,
                group_id,
                partition,
                producer_id,
            );
        }
        ended
    }

    /// Undoes `close_transaction`.
    pub(crate) fn reopen_transaction(&mut self, producer_id: i64, offsets: PendingOffsets) {
        for (group_id, partition, offset) in offsets.iter() {
            let pending = PendingOffset {
                producer_id,
                group_id: group_id.clone(),
                partition: partition.clone(),
            };
            self.add_pending(&pending, offset.clone());
        }
    }

    pub(crate) fn has_open_transaction(&self, group_id: &str) -> bool {
        self.open_transactions.contains_key(group_id)
    }

    pub(crate) fn is_pending(&self, group_id: &str, partition: &TopicAndPartition) -> bool {
        let by_partition = self.open_transactions.get(group_id);
        by_partition.is_some_and(|by_partition| by_partition.contains_key(partition))
    }

    pub(crate) fn pending_of_group(
        &self,
        group_id: &str,
    ) -> impl Iterator<Item = &TopicAndPartition> {
        let by_partition = self.open_transactions.get(group_id);
        by_partition.into_iter().flat_map(BTreeMap::keys)
    }

    /// Partitions with a pending offset that `matches`, with their groups.
    pub(crate) fn pending_matching(
        &self,
        mut matches: impl FnMut(&TopicAndPartition, &OffsetAndMetadata) -> bool,
    ) -> Vec<(ByteString, TopicAndPartition)> {
        let mut found = Vec::new();
        for (group_id, partition, offset) in self.pending.values().flat_map(PendingOffsets::iter) {
            if matches(partition, offset) {
                found.push((group_id.clone(), partition.clone()));
            }
        }
        found
    }

    /// A tombstone takes the offsets of open transactions with it. Returns them.
    pub(crate) fn forget_pending(
        &mut self,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) -> Vec<(PendingOffset, OffsetAndMetadata)> {
        let Some(by_partition) = self.open_transactions.get_mut(group_id) else {
            return Vec::new();
        };
        let producers = by_partition.remove(partition).unwrap_or_default();
        if by_partition.is_empty() {
            self.open_transactions.remove(group_id);
        }
        let mut forgotten = Vec::with_capacity(producers.len());
        for producer_id in producers {
            let pending = PendingOffset {
                producer_id,
                group_id: group_id.clone(),
                partition: partition.clone(),
            };
            if let Some(offset) = self.remove_pending(&pending) {
                forgotten.push((pending, offset));
            }
        }
        forgotten
    }

    fn remove_pending(&mut self, pending: &PendingOffset) -> Option<OffsetAndMetadata> {
        let by_group = self.pending.get_mut(&pending.producer_id)?;
        let by_partition = by_group.0.get_mut(&pending.group_id)?;
        let removed = by_partition.remove(&pending.partition);
        if by_partition.is_empty() {
            by_group.0.remove(&pending.group_id);
        }
        if by_group.is_empty() {
            self.pending.remove(&pending.producer_id);
        }
        removed
    }

    fn close(&mut self, group_id: &ByteString, partition: &TopicAndPartition, producer_id: i64) {
        Self::close_in(
            &mut self.open_transactions,
            group_id,
            partition,
            producer_id,
        );
    }

    fn close_in(
        open_transactions: &mut OpenTransactions,
        group_id: &ByteString,
        partition: &TopicAndPartition,
        producer_id: i64,
    ) {
        let Some(by_partition) = open_transactions.get_mut(group_id) else {
            return;
        };
        if let Some(producers) = by_partition.get_mut(partition) {
            producers.remove(&producer_id);
            if producers.is_empty() {
                by_partition.remove(partition);
            }
        }
        if by_partition.is_empty() {
            open_transactions.remove(group_id);
        }
    }

    fn slot(
        &mut self,
        group_id: &ByteString,
        partition: &TopicAndPartition,
    ) -> &mut Timeline<OffsetAndMetadata> {
        let offsets = self.by_group.entry(group_id.clone()).or_default();
        offsets.entry(partition.clone()).or_default()
    }

    fn drop_vacant(&mut self, group_id: &ByteString, partition: &TopicAndPartition) {
        let Some(offsets) = self.by_group.get_mut(group_id) else {
            return;
        };
        if offsets.get(partition).is_some_and(Timeline::is_vacant) {
            offsets.remove(partition);
        }
        if offsets.is_empty() {
            self.by_group.remove(group_id);
        }
    }
}
