//! Share groups in transcripts: `a:0,1` are the partitions 0 and 1 of the topic `a`.

use ottla_protocol::coordinator_records::share_group_state_partition_metadata_value::TopicPartitionsInfo;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_protocol::messages::{
    AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponse, ShareGroupHeartbeatResponse,
};
use ottla_types::{ErrorCode, TopicId};

use super::consumer_text::partitions;
use crate::group::share::PartitionsOfTopics;
use crate::group::{DeletedShareGroups, InitializeShareState};
use crate::persister::InitializeState;

pub(super) fn heartbeat(response: &ShareGroupHeartbeatResponse) -> String {
    if response.error_code != 0 {
        let message = response.error_message.as_deref().unwrap_or("-");
        let error = ErrorCode::from_code(response.error_code).name();
        return format!("share heartbeat {error} {message}");
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
        "share heartbeat {}@{}{assignment}",
        response.member_id.as_deref().unwrap_or("-"),
        response.member_epoch
    )
}

pub(super) fn initialize(command: &InitializeShareState) -> String {
    format!(
        "initialize {}@{} {}",
        command.group_id,
        command.state_epoch,
        of_topics(&command.partitions)
    )
}

fn of_topics(topics: &PartitionsOfTopics) -> String {
    let topics: Vec<(TopicId, Vec<i32>)> = topics
        .iter()
        .map(|(topic_id, partitions)| (*topic_id, partitions.iter().copied().collect()))
        .collect();
    let topics = topics
        .iter()
        .map(|(topic_id, indexes)| (*topic_id, &**indexes));
    partitions(topics)
}

/// The refused partitions, then the requests to the share coordinators: `a:0@7` starts at offset 7.
pub(super) fn alter_offsets(
    response: &AlterShareGroupOffsetsResponse,
    initialize: &[InitializeState],
) -> String {
    let mut text = "alter share offsets".to_owned();
    if let Some(message) = &response.error_message {
        let error = ErrorCode::from_code(response.error_code).name();
        text.push_str(&format!(" {error} {message}"));
    }
    for topic in &response.responses {
        for partition in topic.partitions.iter().filter(|it| it.error_code != 0) {
            let error = ErrorCode::from_code(partition.error_code).name();
            let index = partition.partition_index;
            text.push_str(&format!(" {}-{index}={error}", topic.topic_name));
        }
    }
    for request in initialize {
        let key = &request.key;
        let partition = partitions([(key.topic_id, &[key.partition][..])].into_iter());
        let (epoch, offset) = (request.state_epoch, request.start_offset);
        text.push_str(&format!(" initialize@{epoch} {partition}@{offset}"));
    }
    text
}

/// The refused topics, then the requests to the share coordinators.
pub(super) fn delete_offsets(
    response: &DeleteShareGroupOffsetsResponse,
    delete: &PartitionsOfTopics,
) -> String {
    let mut text = "delete share offsets".to_owned();
    if let Some(message) = &response.error_message {
        let error = ErrorCode::from_code(response.error_code).name();
        text.push_str(&format!(" {error} {message}"));
    }
    for topic in &response.responses {
        let error = ErrorCode::from_code(topic.error_code).name();
        let message = topic.error_message.as_deref().unwrap_or("-");
        text.push_str(&format!(" {}={error} {message}", topic.topic_name));
    }
    format!("{text} delete {}", of_topics(delete))
}

pub(super) fn delete_groups(groups: &Result<DeletedShareGroups, ErrorCode>) -> String {
    let groups = match groups {
        Ok(groups) => groups.iter().map(|(group_id, delete)| match delete {
            Ok(delete) => format!(" {group_id} {}", of_topics(delete)),
            Err(error) => format!(" {group_id}={}", error.name()),
        }),
        Err(error) => return format!("delete share groups {}", error.name()),
    };
    format!("delete share groups{}", groups.collect::<String>())
}

fn states(topics: &[TopicPartitionsInfo]) -> String {
    partitions(
        topics
            .iter()
            .map(|topic| (topic.topic_id, &*topic.partitions)),
    )
}

/// The content of a record of a share group, if it is one.
pub(super) fn record(key: &GroupRecordKey, value: Option<&GroupRecordValue>) -> Option<String> {
    use GroupRecordKey as Key;
    use GroupRecordValue as Value;
    Some(match (key, value) {
        (Key::ShareGroupMetadata(key), None) => format!("share {} tombstone", key.group_id),
        (Key::ShareGroupMemberMetadata(key), None) => {
            format!("share {}/{} tombstone", key.group_id, key.member_id)
        }
        (Key::ShareGroupTargetAssignmentMetadata(key), None) => {
            format!("share {} target tombstone", key.group_id)
        }
        (Key::ShareGroupTargetAssignmentMember(key), None) => {
            format!("share {}/{} target tombstone", key.group_id, key.member_id)
        }
        (Key::ShareGroupCurrentMemberAssignment(key), None) => {
            format!("share {}/{} current tombstone", key.group_id, key.member_id)
        }
        (Key::ShareGroupStatePartitionMetadata(key), None) => {
            format!("share {} state tombstone", key.group_id)
        }
        (Key::ShareGroupMetadata(key), Some(Value::ShareGroupMetadata(value))) => {
            format!("share {} epoch {}", key.group_id, value.epoch)
        }
        (Key::ShareGroupMemberMetadata(key), Some(Value::ShareGroupMemberMetadata(value))) => {
            let topics = value.subscribed_topic_names.iter().map(|topic| &**topic);
            let topics: Vec<&str> = topics.collect();
            let (group_id, member_id) = (&key.group_id, &key.member_id);
            format!("share {group_id}/{member_id} wants [{}]", topics.join(", "))
        }
        (
            Key::ShareGroupTargetAssignmentMetadata(key),
            Some(Value::ShareGroupTargetAssignmentMetadata(value)),
        ) => format!(
            "share {} target epoch {}",
            key.group_id, value.assignment_epoch
        ),
        (
            Key::ShareGroupTargetAssignmentMember(key),
            Some(Value::ShareGroupTargetAssignmentMember(value)),
        ) => {
            let topics = value.topic_partitions.iter();
            let topics = topics.map(|topic| (topic.topic_id, &*topic.partitions));
            let (group_id, member_id) = (&key.group_id, &key.member_id);
            format!("share {group_id}/{member_id} target {}", partitions(topics))
        }
        (
            Key::ShareGroupCurrentMemberAssignment(key),
            Some(Value::ShareGroupCurrentMemberAssignment(value)),
        ) => {
            let topics = value.assigned_partitions.iter();
            let topics = topics.map(|topic| (topic.topic_id, &*topic.partitions));
            format!(
                "share {}/{} @{} after {}: {}",
                key.group_id,
                key.member_id,
                value.member_epoch,
                value.previous_member_epoch,
                partitions(topics)
            )
        }
        (
            Key::ShareGroupStatePartitionMetadata(key),
            Some(Value::ShareGroupStatePartitionMetadata(value)),
        ) => {
            let deleting = value.deleting_topics.iter().map(|topic| &*topic.topic_name);
            let deleting: Vec<&str> = deleting.collect();
            format!(
                "share {} initializing {} initialized {} deleting [{}]",
                key.group_id,
                states(&value.initializing_topics),
                states(&value.initialized_topics),
                deleting.join(", ")
            )
        }
        _ => return None,
    })
}
