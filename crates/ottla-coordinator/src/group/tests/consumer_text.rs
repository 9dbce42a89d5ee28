//! Consumer groups in transcripts: `a:0,1` are the partitions 0 and 1 of the topic `a`.

use ottla_protocol::coordinator_records::consumer_group_current_member_assignment_value::TopicPartitions;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_protocol::messages::ConsumerGroupHeartbeatResponse;
use ottla_types::{ErrorCode, TopicId};

use crate::group::modern::MemberState;

/// The topic name from which the test images make the id.
fn name_of(id: TopicId) -> String {
    let bytes: Vec<u8> = id.0.into_iter().take_while(|byte| *byte != 0).collect();
    String::from_utf8(bytes).expect("an id made of a name")
}

pub(super) fn partitions<'a>(topics: impl Iterator<Item = (TopicId, &'a [i32])>) -> String {
    let topics: Vec<String> = topics
        .map(|(id, partitions)| {
            let indexes: Vec<String> = partitions.iter().map(i32::to_string).collect();
            format!("{}:{}", name_of(id), indexes.join(","))
        })
        .collect();
    if topics.is_empty() {
        "-".to_owned()
    } else {
        topics.join(" ")
    }
}

pub(super) fn heartbeat(response: &ConsumerGroupHeartbeatResponse) -> String {
    if response.error_code != 0 {
        let message = response.error_message.as_deref().unwrap_or("-");
        let error = ErrorCode::from_code(response.error_code).name();
        return format!("heartbeat {error} {message}");
    }
    let assignment = match &response.assignment {
        None => String::new(),
        Some(assignment) => {
            let topics = assignment.topic_partitions.iter();
            let topics = topics.map(|topic| (topic.topic_id, &*topic.partitions));
            format!(" {}", partitions(topics))
        }
    };
    format!(
        "heartbeat {}@{}{assignment}",
        response.member_id.as_deref().unwrap_or("-"),
        response.member_epoch
    )
}

/// Partitions with the epochs in which they were assigned: `a:0@2`.
fn with_epochs(topics: &[TopicPartitions]) -> String {
    let partitions: Vec<String> = topics
        .iter()
        .flat_map(|topic| {
            let epochs = topic.assignment_epochs.iter().flatten();
            let name = name_of(topic.topic_id);
            let with_epochs = topic.partitions.iter().zip(epochs);
            with_epochs.map(move |(partition, epoch)| format!("{name}:{partition}@{epoch}"))
        })
        .collect();
    if partitions.is_empty() {
        "-".to_owned()
    } else {
        partitions.join(" ")
    }
}

pub(super) fn record(key: &GroupRecordKey, value: Option<&GroupRecordValue>) -> String {
    use GroupRecordKey as Key;
    use GroupRecordValue as Value;
    let Some(value) = value else {
        return match key {
            Key::ConsumerGroupMetadata(key) => format!("{} tombstone", key.group_id),
            Key::ConsumerGroupPartitionMetadata(key) => {
                format!("{} topics tombstone", key.group_id)
            }
            Key::ConsumerGroupMemberMetadata(key) => {
                format!("{}/{} tombstone", key.group_id, key.member_id)
            }
            Key::ConsumerGroupTargetAssignmentMetadata(key) => {
                format!("{} target tombstone", key.group_id)
            }
            Key::ConsumerGroupTargetAssignmentMember(key) => {
                format!("{}/{} target tombstone", key.group_id, key.member_id)
            }
            Key::ConsumerGroupCurrentMemberAssignment(key) => {
                format!("{}/{} current tombstone", key.group_id, key.member_id)
            }
            Key::ConsumerGroupRegularExpression(key) => {
                format!("{} `{}` tombstone", key.group_id, key.regular_expression)
            }
            other => panic!("an unexpected tombstone: {other:?}"),
        };
    };
    match (key, value) {
        (Key::ConsumerGroupMetadata(key), Value::ConsumerGroupMetadata(value)) => {
            format!("{} epoch {}", key.group_id, value.epoch)
        }
        (Key::ConsumerGroupMemberMetadata(key), Value::ConsumerGroupMemberMetadata(value)) => {
            let mut text = format!("{}/{}", key.group_id, key.member_id);
            if let Some(instance_id) = &value.instance_id {
                text += &format!(" ({instance_id})");
            }
            let topics: Vec<&str> = value
                .subscribed_topic_names
                .iter()
                .map(|topic| &**topic)
                .collect();
            text += &format!(" wants [{}]", topics.join(", "));
            if let Some(regex) = value
                .subscribed_topic_regex
                .as_deref()
                .filter(|it| !it.is_empty())
            {
                text += &format!(" `{regex}`");
            }
            if let Some(assignor) = &value.server_assignor {
                text += &format!(" by {assignor}");
            }
            if let Some(classic) = &value.classic_member_metadata {
                text += &format!(" classic {}", classic.supported_protocols[0].name);
            }
            text
        }
        (
            Key::ConsumerGroupTargetAssignmentMetadata(key),
            Value::ConsumerGroupTargetAssignmentMetadata(value),
        ) => format!("{} target epoch {}", key.group_id, value.assignment_epoch),
        (
            Key::ConsumerGroupTargetAssignmentMember(key),
            Value::ConsumerGroupTargetAssignmentMember(value),
        ) => {
            let topics = value.topic_partitions.iter();
            let topics = topics.map(|topic| (topic.topic_id, &*topic.partitions));
            format!(
                "{}/{} target {}",
                key.group_id,
                key.member_id,
                partitions(topics)
            )
        }
        (
            Key::ConsumerGroupCurrentMemberAssignment(key),
            Value::ConsumerGroupCurrentMemberAssignment(value),
        ) => {
            let mut text = format!(
                "{}/{} {:?}@{} after {}: {}",
                key.group_id,
                key.member_id,
                MemberState::from_code(value.state),
                value.member_epoch,
                value.previous_member_epoch,
                with_epochs(&value.assigned_partitions),
            );
            if !value.partitions_pending_revocation.is_empty() {
                let revoking = with_epochs(&value.partitions_pending_revocation);
                text += &format!(" gives up {revoking}");
            }
            text
        }
        (
            Key::ConsumerGroupRegularExpression(key),
            Value::ConsumerGroupRegularExpression(value),
        ) => {
            let topics: Vec<&str> = value.topics.iter().map(|topic| &**topic).collect();
            format!(
                "{} `{}` is [{}]",
                key.group_id,
                key.regular_expression,
                topics.join(", ")
            )
        }
        other => panic!("an unexpected record: {other:?}"),
    }
}
