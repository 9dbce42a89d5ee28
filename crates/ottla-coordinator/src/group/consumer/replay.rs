//! Applies records to a consumer group. This is the only way in which its state changes, both for
//! decisions and for loading.
//!
//! Source: the `replay` methods of `GroupMetadataManager`.

use bytestring::ByteString;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_types::Timestamp;

use super::group::ConsumerGroup;
use super::member::ConsumerGroupMember;
use super::topic_regex::ResolvedRegex;
use crate::group::member::owned;
use crate::group::modern::Assignment;
use crate::group::recorded::{RecordedGroup, apply_record};

impl RecordedGroup for ConsumerGroup {
    type Member = ConsumerGroupMember;

    const KIND: &'static str = "consumer";
    const CAPITALIZED_KIND: &'static str = "Consumer";

    fn new(group_id: ByteString) -> Self {
        ConsumerGroup::new(group_id)
    }

    fn apply(&mut self, key: &GroupRecordKey, value: Option<&GroupRecordValue>, _now: Timestamp) {
        use GroupRecordKey as Key;
        use GroupRecordValue as Value;
        apply_record! {
            self, key, value;
            member: ConsumerGroupMemberMetadata,
            current: ConsumerGroupCurrentMemberAssignment,
            target: ConsumerGroupTargetAssignmentMember(value) => {
                Assignment::from_iter(value.topic_partitions.iter().flat_map(|topic| {
                    topic.partitions.iter().map(move |index| (topic.topic_id, *index))
                }))
            },
            target_metadata: ConsumerGroupTargetAssignmentMetadata;
            (Key::ConsumerGroupMetadata(_), Some(Value::ConsumerGroupMetadata(value))) => {
                self.group_epoch = value.epoch;
                self.metadata_hash = value.metadata_hash;
            }
            (Key::ConsumerGroupPartitionMetadata(_), value) => {
                self.has_subscription_metadata_record = value.is_some();
            }
            (
                Key::ConsumerGroupRegularExpression(key),
                Some(Value::ConsumerGroupRegularExpression(value)),
            ) => {
                let resolved = ResolvedRegex {
                    topics: value.topics.iter().map(owned).collect(),
                    version: value.version,
                    timestamp_ms: value.timestamp,
                };
                self.put_resolved_regex(owned(&key.regular_expression), resolved);
            }
            (Key::ConsumerGroupRegularExpression(key), None) => {
                self.drop_resolved_regex(&key.regular_expression);
            }
        }
    }
}
