//! Applies records to a share group. This is the only way in which its state changes, both for
//! decisions and for loading.
//!
//! Source: the `replay` methods of `GroupMetadataManager`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_types::Timestamp;

use super::group::ShareGroup;
use super::member::ShareGroupMember;
use super::state_partitions::StatePartitions;
use crate::group::member::owned;
use crate::group::modern::Assignment;
use crate::group::recorded::RecordedGroup;

impl RecordedGroup for ShareGroup {
    type Member = ShareGroupMember;

    const KIND: &'static str = "share";
    const CAPITALIZED_KIND: &'static str = "Share";

    fn new(group_id: ByteString) -> Self {
        ShareGroup::new(group_id)
    }

    fn apply(&mut self, key: &GroupRecordKey, value: Option<&GroupRecordValue>, now: Timestamp) {
        use GroupRecordKey as Key;
        use GroupRecordValue as Value;
        match (key, value) {
            (Key::ShareGroupMetadata(_), Some(Value::ShareGroupMetadata(value))) => {
                self.group_epoch = value.epoch;
                self.metadata_hash = value.metadata_hash;
            }
            (Key::ShareGroupMemberMetadata(key), Some(Value::ShareGroupMemberMetadata(value))) => {
                let member = self.member_or_new(&key.member_id).with_metadata(value);
                self.put_member(member);
            }
            (Key::ShareGroupMemberMetadata(key), None) => self.drop_member(&key.member_id),
            (
                Key::ShareGroupTargetAssignmentMetadata(_),
                Some(Value::ShareGroupTargetAssignmentMetadata(value)),
            ) => self
                .target
                .set_metadata(value.assignment_epoch, value.assignment_timestamp),
            (Key::ShareGroupTargetAssignmentMetadata(_), None) => self.target.clear_metadata(),
            (
                Key::ShareGroupTargetAssignmentMember(key),
                Some(Value::ShareGroupTargetAssignmentMember(value)),
            ) => {
                let partitions = value.topic_partitions.iter().flat_map(|topic| {
                    let topic_id = topic.topic_id;
                    topic.partitions.iter().map(move |index| (topic_id, *index))
                });
                let assignment: Assignment = partitions.collect();
                self.target.set(owned(&key.member_id), Arc::new(assignment));
            }
            (Key::ShareGroupTargetAssignmentMember(key), None) => {
                self.target.remove(&key.member_id);
            }
            (
                Key::ShareGroupCurrentMemberAssignment(key),
                Some(Value::ShareGroupCurrentMemberAssignment(value)),
            ) => {
                let member = self
                    .member_or_new(&key.member_id)
                    .with_current_assignment(value);
                self.put_member(member);
            }
            (Key::ShareGroupCurrentMemberAssignment(key), None) => {
                self.drop_current_assignment(&key.member_id);
            }
            (
                Key::ShareGroupStatePartitionMetadata(_),
                Some(Value::ShareGroupStatePartitionMetadata(value)),
            ) => {
                self.recorded_state =
                    Some(Arc::new(StatePartitions::from_record(value, now.value())))
            }
            (Key::ShareGroupStatePartitionMetadata(_), None) => {
                self.recorded_state = None;
            }
            // A record of another kind, or a value that does not match its key.
            _ => {}
        }
    }
}
