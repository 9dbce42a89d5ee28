//! Validates a heartbeat independently of the group. Source:
//! `GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequestIsUsingUnsupportedFeatures`,
//! `throwIfStreamsGroupHeartbeatRequestIsInvalid`, `throwIfInvalidTopology`.

use ottla_protocol::messages::StreamsGroupHeartbeatRequest;
use ottla_protocol::messages::streams_group_heartbeat_request::{TaskIds, Topology};
use ottla_types::ErrorCode;

use super::member::LEAVE_GROUP_STATIC_EPOCH;
use crate::group::modern::GroupError;

/// The rules of Kafka 4.4. Kafka 4.3.1 also refuses instance ids, warm-up tasks and task offsets.
pub fn validate_streams_heartbeat(
    request: &StreamsGroupHeartbeatRequest,
) -> Result<(), GroupError> {
    refuse_unsupported(request)?;

    refuse_blank(Some(&request.member_id), "MemberId can't be empty.")?;
    refuse_blank(Some(&request.group_id), "GroupId can't be empty.")?;
    refuse_blank(request.instance_id.as_deref(), "InstanceId can't be empty.")?;
    refuse_blank(request.rack_id.as_deref(), "RackId can't be empty.")?;
    let epoch = request.member_epoch;
    if epoch == 0 {
        refuse(
            request.rebalance_timeout_ms == -1,
            "RebalanceTimeoutMs must be provided in first request.",
        )?;
        let names_tasks =
            |tasks: &Option<Vec<TaskIds>>| tasks.as_ref().is_none_or(|tasks| !tasks.is_empty());
        refuse(
            names_tasks(&request.active_tasks),
            "ActiveTasks must be empty when (re-)joining.",
        )?;
        refuse(
            names_tasks(&request.standby_tasks),
            "StandbyTasks must be empty when (re-)joining.",
        )?;
        refuse(
            names_tasks(&request.warmup_tasks),
            "WarmupTasks must be empty when (re-)joining.",
        )?;
        match &request.topology {
            None => {
                return Err(invalid("Topology must be non-null when (re-)joining."));
            }
            Some(topology) => validate_topology(topology)?,
        }
    } else if epoch == LEAVE_GROUP_STATIC_EPOCH {
        refuse(request.instance_id.is_none(), "InstanceId can't be null.")?;
    } else if epoch < LEAVE_GROUP_STATIC_EPOCH {
        return Err(invalid(&format!(
            "MemberEpoch is {epoch}, but must be greater than or equal to -2."
        )));
    }

    let kinds = [
        &request.active_tasks,
        &request.standby_tasks,
        &request.warmup_tasks,
    ];
    let num_said = kinds.into_iter().flatten().count();
    refuse(
        num_said != 0 && num_said != kinds.len(),
        "If one task-type is non-null, all must be non-null.",
    )?;
    refuse(
        epoch != 0 && request.topology.is_some(),
        "Topology can only be provided when (re-)joining.",
    )
}

fn refuse_unsupported(request: &StreamsGroupHeartbeatRequest) -> Result<(), GroupError> {
    let mut subtopologies = request.topology.iter().flat_map(|it| &it.subtopologies);
    refuse(
        subtopologies.any(|it| !it.source_topic_regex.is_empty()),
        "Regular expressions for source topics are not supported yet.",
    )
}

/// A changelog topic always has one partition per task, so an application must not set its
/// partition count.
fn validate_topology(topology: &Topology) -> Result<(), GroupError> {
    let mut changelogs = topology
        .subtopologies
        .iter()
        .flat_map(|it| &it.state_changelog_topics);
    match changelogs.find(|topic| topic.partitions != 0) {
        None => Ok(()),
        Some(topic) => Err(GroupError::new(
            ErrorCode::StreamsInvalidTopology,
            format!(
                "Changelog topic {} must have an undefined partition count, but it is set to {}.",
                topic.name, topic.partitions
            ),
        )),
    }
}

fn invalid(message: &str) -> GroupError {
    GroupError::new(ErrorCode::InvalidRequest, message)
}

fn refuse(is_wrong: bool, message: &str) -> Result<(), GroupError> {
    if is_wrong {
        Err(invalid(message))
    } else {
        Ok(())
    }
}

fn refuse_blank(text: Option<&str>, message: &str) -> Result<(), GroupError> {
    // Java's `trim` removes all characters up to and including the space.
    let is_blank = |text: &str| text.chars().all(|letter| letter <= ' ');
    refuse(text.is_some_and(is_blank), message)
}
