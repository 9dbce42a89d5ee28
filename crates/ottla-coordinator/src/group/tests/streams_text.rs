//! Streams groups in transcripts: `0:0,1` are the tasks 0 and 1 of subtopology 0; standby tasks
//! follow after a `/`.

use ottla_protocol::coordinator_records::streams_group_current_member_assignment_value::TaskIds as Current;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_protocol::messages::StreamsGroupHeartbeatResponse;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_types::ErrorCode;

use crate::group::streams::MemberState;

fn joined(parts: Vec<String>) -> String {
    if parts.is_empty() {
        "-".to_owned()
    } else {
        parts.join(" ")
    }
}

fn tasks<'a>(of: impl Iterator<Item = (&'a str, &'a [i32])>) -> String {
    let parts = of.map(|(name, indexes)| {
        let indexes: Vec<String> = indexes.iter().map(i32::to_string).collect();
        format!("{name}:{}", indexes.join(","))
    });
    joined(parts.collect())
}

/// Active tasks with the epochs in which they were assigned: `0:1@2`.
fn with_epochs(task_ids: &[Current]) -> String {
    let parts = task_ids.iter().flat_map(|it| {
        let epochs = it.assignment_epochs.iter().flatten();
        let with_epochs = it.partitions.iter().zip(epochs);
        with_epochs.map(|(index, epoch)| format!("{}:{index}@{epoch}", it.subtopology_id))
    });
    joined(parts.collect())
}

fn without_epochs(task_ids: &[Current]) -> String {
    tasks(
        task_ids
            .iter()
            .map(|it| (&*it.subtopology_id, &*it.partitions)),
    )
}

pub(super) fn heartbeat(
    response: &StreamsGroupHeartbeatResponse,
    topics_to_create: &[CreatableTopic],
) -> String {
    if response.error_code != 0 {
        let message = response.error_message.as_deref().unwrap_or("-");
        let error = ErrorCode::from_code(response.error_code).name();
        return format!("streams {error} {message}");
    }
    let mut text = format!("streams {}@{}", response.member_id, response.member_epoch);
    if let (Some(active), Some(standby), Some(_)) = (
        &response.active_tasks,
        &response.standby_tasks,
        &response.warmup_tasks,
    ) {
        let active = active
            .iter()
            .map(|it| (&*it.subtopology_id, &*it.partitions));
        let standby = standby
            .iter()
            .map(|it| (&*it.subtopology_id, &*it.partitions));
        text += &format!(" {} / {}", tasks(active), tasks(standby));
    }
    if let Some(endpoints) = &response.partitions_by_user_endpoint {
        text += &format!(" endpoints {}", response.endpoint_information_epoch);
        for it in endpoints {
            let active = it.active_partitions.iter();
            let active = active.map(|it| (&*it.topic, &*it.partitions));
            let standby = it.standby_partitions.iter();
            let standby = standby.map(|it| (&*it.topic, &*it.partitions));
            text += &format!(
                " [{}:{} {} / {}]",
                it.user_endpoint.host,
                it.user_endpoint.port,
                tasks(active),
                tasks(standby)
            );
        }
    }
    for status in response.status.iter().flatten() {
        text += &format!(" ({} {})", status.status_code, status.status_detail);
    }
    if !topics_to_create.is_empty() {
        text += " create";
        for topic in topics_to_create {
            text += &format!(" {}={}", topic.name, topic.num_partitions);
        }
    }
    text
}

pub(super) fn record(key: &GroupRecordKey, value: Option<&GroupRecordValue>) -> Option<String> {
    use GroupRecordKey as Key;
    use GroupRecordValue as Value;
    Some(match (key, value) {
        (Key::StreamsGroupMetadata(key), None) => format!("{} tombstone", key.group_id),
        (Key::StreamsGroupTopology(key), None) => format!("{} topology tombstone", key.group_id),
        (Key::StreamsGroupMemberMetadata(key), None) => {
            format!("{}/{} tombstone", key.group_id, key.member_id)
        }
        (Key::StreamsGroupTargetAssignmentMetadata(key), None) => {
            format!("{} target tombstone", key.group_id)
        }
        (Key::StreamsGroupTargetAssignmentMember(key), None) => {
            format!("{}/{} target tombstone", key.group_id, key.member_id)
        }
        (Key::StreamsGroupCurrentMemberAssignment(key), None) => {
            format!("{}/{} current tombstone", key.group_id, key.member_id)
        }
        (Key::StreamsGroupMetadata(key), Some(Value::StreamsGroupMetadata(value))) => {
            let configs = value.last_assignment_configs.iter().flatten();
            let configs: Vec<String> = configs
                .map(|it| format!("{}={}", it.key, it.value))
                .collect();
            format!(
                "{} epoch {} validated {} [{}]",
                key.group_id,
                value.epoch,
                value.validated_topology_epoch,
                configs.join(", ")
            )
        }
        (Key::StreamsGroupTopology(key), Some(Value::StreamsGroupTopology(value))) => {
            let ids: Vec<&str> = value
                .subtopologies
                .iter()
                .map(|it| &*it.subtopology_id)
                .collect();
            format!(
                "{} topology {} of {}",
                key.group_id,
                value.epoch,
                ids.join(", ")
            )
        }
        (Key::StreamsGroupMemberMetadata(key), Some(Value::StreamsGroupMemberMetadata(value))) => {
            let instance = value.instance_id.as_ref();
            let instance = instance.map_or_else(String::new, |it| format!(" ({it})"));
            format!(
                "{}/{}{instance} in {} by topology {}",
                key.group_id, key.member_id, value.process_id, value.topology_epoch
            )
        }
        (
            Key::StreamsGroupTargetAssignmentMetadata(key),
            Some(Value::StreamsGroupTargetAssignmentMetadata(value)),
        ) => format!("{} target epoch {}", key.group_id, value.assignment_epoch),
        (
            Key::StreamsGroupTargetAssignmentMember(key),
            Some(Value::StreamsGroupTargetAssignmentMember(value)),
        ) => {
            let active = value.active_tasks.iter();
            let active = active.map(|it| (&*it.subtopology_id, &*it.partitions));
            let standby = value.standby_tasks.iter();
            let standby = standby.map(|it| (&*it.subtopology_id, &*it.partitions));
            format!(
                "{}/{} target {} / {}",
                key.group_id,
                key.member_id,
                tasks(active),
                tasks(standby)
            )
        }
        (
            Key::StreamsGroupCurrentMemberAssignment(key),
            Some(Value::StreamsGroupCurrentMemberAssignment(value)),
        ) => {
            let mut text = format!(
                "{}/{} {:?}@{} after {}: {} / {}",
                key.group_id,
                key.member_id,
                MemberState::from_code(value.state),
                value.member_epoch,
                value.previous_member_epoch,
                with_epochs(&value.active_tasks),
                without_epochs(&value.standby_tasks),
            );
            let active = &value.active_tasks_pending_revocation;
            let standby = &value.standby_tasks_pending_revocation;
            if !active.is_empty() || !standby.is_empty() {
                text += &format!(
                    " gives up {} / {}",
                    with_epochs(active),
                    without_epochs(standby)
                );
            }
            text
        }
        _ => return None,
    })
}
