//! The records of `__share_group_state`, in the version that Kafka 4.3.1 writes.
//! Source: `ShareCoordinatorRecordHelpers`.

use bytes::Bytes;
use ottla_protocol::EncodeError;
use ottla_protocol::coordinator_records::{
    ShareRecordKey, ShareRecordValue, ShareSnapshotKey, ShareUpdateKey,
};

use super::state::{Snapshot, Update};
use crate::persister::SharePartitionKey;
use crate::runtime::EncodeRecord;

const VALUE_VERSION: i16 = 0;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShareStateRecord {
    pub key: SharePartitionKey,
    pub change: Change,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Snapshot(Snapshot),
    Update(Update),
    /// The tombstone of the share partition, with the key of its snapshot.
    Deleted,
}

impl EncodeRecord for ShareStateRecord {
    fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        let SharePartitionKey {
            group_id,
            topic_id,
            partition,
        } = self.key.clone();
        let key = match &self.change {
            Change::Snapshot(_) | Change::Deleted => {
                ShareRecordKey::ShareSnapshot(ShareSnapshotKey {
                    group_id,
                    topic_id,
                    partition,
                })
            }
            Change::Update(_) => ShareRecordKey::ShareUpdate(ShareUpdateKey {
                group_id,
                topic_id,
                partition,
            }),
        };
        let value = match &self.change {
            Change::Snapshot(snapshot) => Some(ShareRecordValue::ShareSnapshot(snapshot.into())),
            Change::Update(update) => Some(ShareRecordValue::ShareUpdate(update.into())),
            Change::Deleted => None,
        };
        let value = value.map(|value| value.encode(VALUE_VERSION)).transpose()?;
        Ok((key.encode()?, value))
    }
}
