//! Loads the log into a coordinator before it accepts requests. Every record is committed by then.
//!
//! Records with unknown types or versions are skipped, as in Kafka. Source:
//! `ShareCoordinatorShard.replay`, `ShareCoordinatorRecordSerde`.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::DecodeError;
use ottla_protocol::coordinator_records::{ShareRecordKey, ShareRecordValue};
use ottla_types::{Offset, TopicId};

use super::coordinator::{RecordKind, ShareCoordinator};
use super::record::{Change, ShareStateRecord};
use crate::persister::SharePartitionKey;
use crate::runtime::ReplayError;

impl ShareCoordinator {
    pub fn replay(
        &mut self,
        offset: Offset,
        key: &Bytes,
        value: Option<&Bytes>,
    ) -> Result<(), ReplayError> {
        let key =
            ShareRecordKey::decode(key).map_err(|error| ReplayError::Key { offset, error })?;
        let record_type = key.record_type();
        let key = match key {
            ShareRecordKey::ShareSnapshot(key) => {
                partition_key(&key.group_id, key.topic_id, key.partition)
            }
            ShareRecordKey::ShareUpdate(key) => {
                partition_key(&key.group_id, key.topic_id, key.partition)
            }
            ShareRecordKey::Unknown { .. } => return Ok(()),
        };
        let change = match value {
            None => Change::Deleted,
            Some(value) => match ShareRecordValue::decode(record_type, value) {
                Ok(ShareRecordValue::ShareSnapshot(value)) => Change::Snapshot((&value).into()),
                Ok(ShareRecordValue::ShareUpdate(value)) => Change::Update((&value).into()),
                Ok(ShareRecordValue::Unknown { .. }) | Err(DecodeError::UnknownRecord { .. }) => {
                    return Ok(());
                }
                Err(error) => return Err(ReplayError::Value { offset, error }),
            },
        };
        let kind = RecordKind::from(&change);
        let record = ShareStateRecord { key, change };
        match self.after(&record) {
            Some(state) => {
                let slot = self.states.entry(record.key.clone()).or_default();
                slot.set_committed(Some(state));
            }
            None => {
                self.states.remove(&record.key);
            }
        }
        self.note_offset(&record.key, kind, offset);
        Ok(())
    }
}

/// Copied, so that the key does not keep the buffer of its batch in memory.
fn partition_key(group_id: &ByteString, topic_id: TopicId, partition: i32) -> SharePartitionKey {
    SharePartitionKey {
        group_id: ByteString::from(group_id.to_string()),
        topic_id,
        partition,
    }
}
