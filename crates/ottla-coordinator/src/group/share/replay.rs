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
use crate::group::recorded::{RecordedGroup, apply_record};

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
        apply_record! {
            self, key, value;
            member: ShareGroupMemberMetadata,
            current: ShareGroupCurrentMemberAssignment,
            target: ShareGroupTargetAssignmentMember(value) => {
                Assignment::from_iter(value.topic_partitions.iter().flat_map(|topic| {
                    topic.partitions.iter().map(move |index| (topic.topic_id, *index))
                }))
            },
            target_metadata: ShareGroupTargetAssignmentMetadata;
            (Key::ShareGroupMetadata(_), Some(Value::ShareGroupMetadata(value))) => {
                self.group_epoch = value.epoch;
                self.metadata_hash = value.metadata_hash;
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
        }
    }
}
