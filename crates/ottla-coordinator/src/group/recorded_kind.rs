//! The kind of group that a record belongs to, for all kinds except classic groups.

use bytestring::ByteString;
use ottla_protocol::coordinator_records::GroupRecordKey as Key;
use ottla_protocol::coordinator_records::GroupRecordValue;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordedKind {
    Consumer,
    Share,
    Streams,
}

/// The group of a record, unless it belongs to a classic group or is an offset.
pub(super) fn recorded_group_of(key: &Key) -> Option<(RecordedKind, &ByteString)> {
    use RecordedKind::{Consumer, Share, Streams};
    Some(match key {
        Key::ConsumerGroupMetadata(key) => (Consumer, &key.group_id),
        Key::ConsumerGroupPartitionMetadata(key) => (Consumer, &key.group_id),
        Key::ConsumerGroupMemberMetadata(key) => (Consumer, &key.group_id),
        Key::ConsumerGroupTargetAssignmentMetadata(key) => (Consumer, &key.group_id),
        Key::ConsumerGroupTargetAssignmentMember(key) => (Consumer, &key.group_id),
        Key::ConsumerGroupCurrentMemberAssignment(key) => (Consumer, &key.group_id),
        Key::ConsumerGroupRegularExpression(key) => (Consumer, &key.group_id),
        Key::ShareGroupMetadata(key) => (Share, &key.group_id),
        Key::ShareGroupMemberMetadata(key) => (Share, &key.group_id),
        Key::ShareGroupTargetAssignmentMetadata(key) => (Share, &key.group_id),
        Key::ShareGroupTargetAssignmentMember(key) => (Share, &key.group_id),
        Key::ShareGroupCurrentMemberAssignment(key) => (Share, &key.group_id),
        Key::ShareGroupStatePartitionMetadata(key) => (Share, &key.group_id),
        Key::StreamsGroupMetadata(key) => (Streams, &key.group_id),
        Key::StreamsGroupTopology(key) => (Streams, &key.group_id),
        Key::StreamsGroupMemberMetadata(key) => (Streams, &key.group_id),
        Key::StreamsGroupTargetAssignmentMetadata(key) => (Streams, &key.group_id),
        Key::StreamsGroupTargetAssignmentMember(key) => (Streams, &key.group_id),
        Key::StreamsGroupCurrentMemberAssignment(key) => (Streams, &key.group_id),
        _ => return None,
    })
}

/// Whether a record is the tombstone of a group.
pub(super) fn is_end_of_group(key: &Key, value: Option<&GroupRecordValue>) -> bool {
    value.is_none()
        && matches!(
            key,
            Key::ConsumerGroupMetadata(_)
                | Key::ShareGroupMetadata(_)
                | Key::StreamsGroupMetadata(_)
        )
}
