//! Loads the log into a coordinator before it accepts requests.
//!
//! Committed records are visible at once, and uncommitted ones
//! (`GroupCoordinator::begin_uncommitted`) when they are committed. Records with types of newer
//! Kafka versions are ignored. Source: `GroupCoordinatorShard.replay`,
//! `GroupMetadataManager.replay`, `OffsetMetadataManager.replay`, `CoordinatorLoaderImpl`.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::coordinator_records::{
    GroupMetadataValue, GroupRecordKey, GroupRecordValue, OffsetCommitValue,
};
use ottla_types::{Offset, ProducerId, Timestamp};

use super::classic_group::ClassicGroup;
use super::coordinator::{Group, GroupCoordinator};
use super::member::owned;
use super::offsets::{OffsetAndMetadata, PendingOffset};
use super::recorded_kind::recorded_group_of;
use crate::runtime::ReplayError;

impl GroupCoordinator {
    /// Applies one record of a data batch. `producer_id` is that of a transactional batch, whose
    /// offsets count from the end of the transaction, otherwise `ProducerId::NONE`.
    pub fn replay(
        &mut self,
        offset: Offset,
        producer_id: ProducerId,
        key: &Bytes,
        value: Option<&Bytes>,
        now: Timestamp,
    ) -> Result<(), ReplayError> {
        self.next_record_offset = offset.value() + 1;
        let key =
            GroupRecordKey::decode(key).map_err(|error| ReplayError::Key { offset, error })?;
        let decode = |value| {
            GroupRecordValue::decode(key.record_type(), value)
                .map_err(|error| ReplayError::Value { offset, error })
        };
        match &key {
            GroupRecordKey::LegacyOffsetCommit(key) => {
                let value = match value.map(decode).transpose()? {
                    Some(GroupRecordValue::LegacyOffsetCommit(value)) => Some(OffsetCommitValue {
                        offset: value.offset,
                        metadata: value.metadata,
                        commit_timestamp: value.commit_timestamp,
                        ..Default::default()
                    }),
                    _ => None,
                };
                let (group, partition) = (owned(&key.group), (owned(&key.topic), key.partition));
                self.replay_offset(offset, producer_id, group, partition, value, now);
            }
            GroupRecordKey::OffsetCommit(key) => {
                let value = match value.map(decode).transpose()? {
                    Some(GroupRecordValue::OffsetCommit(value)) => Some(value),
                    _ => None,
                };
                let (group, partition) = (owned(&key.group), (owned(&key.topic), key.partition));
                self.replay_offset(offset, producer_id, group, partition, value, now);
            }
            GroupRecordKey::GroupMetadata(key) => match value.map(decode).transpose()? {
                Some(GroupRecordValue::GroupMetadata(value)) => {
                    self.replay_group(offset, owned(&key.group), &value)?;
                }
                _ => self.replay_group_as(&owned(&key.group), None),
            },
            key => {
                // Otherwise it has a type of a newer Kafka version.
                if let Some((kind, group_id)) = recorded_group_of(key) {
                    let value = value.map(decode).transpose()?;
                    let group = (kind, &owned(group_id));
                    self.apply_to_group(self.replaying, group, key, value.as_ref(), now);
                }
            }
        }
        Ok(())
    }

    /// Applies the control record that ends a transaction.
    pub fn replay_end_transaction_marker(&mut self, producer_id: ProducerId, is_commit: bool) {
        let ended = self.offsets.close_transaction(producer_id.value());
        for (group_id, partition, offset) in ended.iter().filter(|_| is_commit) {
            let existing = self.offsets.latest(group_id, partition);
            let is_newer =
                existing.is_none_or(|existing| offset.record_offset > existing.record_offset);
            if is_newer {
                self.replay_offset_as(group_id, partition, Some(offset.clone()));
            }
        }
    }

    fn replay_offset(
        &mut self,
        offset: Offset,
        producer_id: ProducerId,
        group_id: ByteString,
        partition: (ByteString, i32),
        value: Option<OffsetCommitValue>,
        now: Timestamp,
    ) {
        let Some(value) = value else {
            self.replay_offset_as(&group_id, &partition, None);
            self.offsets.forget_pending(&group_id, &partition);
            return;
        };
        if self.group(&group_id).is_none() {
            let group = ClassicGroup::empty(group_id.clone(), now.value());
            self.replay_group_as(&group_id, Some(Group::Classic(group)));
        }
        let committed = OffsetAndMetadata::from_record(offset.value(), &value);
        if producer_id == ProducerId::NONE {
            self.replay_offset_as(&group_id, &partition, Some(committed));
        } else {
            let pending = PendingOffset {
                producer_id: producer_id.value(),
                group_id,
                partition,
            };
            self.offsets.add_pending(&pending, committed);
        }
    }

    fn replay_group(
        &mut self,
        offset: Offset,
        group_id: ByteString,
        value: &GroupMetadataValue,
    ) -> Result<(), ReplayError> {
        let Some(group) = ClassicGroup::from_record(group_id.clone(), value) else {
            let what = format!("describes group {group_id} in a way that contradicts itself");
            return Err(ReplayError::Invalid { offset, what });
        };
        self.replay_group_as(&group_id, Some(Group::Classic(group)));
        Ok(())
    }
}
