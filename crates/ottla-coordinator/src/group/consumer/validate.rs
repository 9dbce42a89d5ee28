//! Validates a heartbeat independently of the group. Source:
//! `GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid`.

use ottla_protocol::messages::ConsumerGroupHeartbeatRequest;
use ottla_types::ErrorCode;

use super::member::{LEAVE_GROUP_EPOCH, LEAVE_GROUP_STATIC_EPOCH};
use crate::group::modern::GroupError;

/// `requires_member_id` says whether clients generate their member ids. `assignors` are the
/// available ones.
pub fn validate_heartbeat(
    request: &ConsumerGroupHeartbeatRequest,
    requires_member_id: bool,
    assignors: &[String],
) -> Result<(), GroupError> {
    let epoch = request.member_epoch;
    if requires_member_id || epoch > 0 || epoch == LEAVE_GROUP_EPOCH {
        refuse_blank(Some(&request.member_id), "MemberId can't be empty.")?;
    }
    refuse_blank(Some(&request.group_id), "GroupId can't be empty.")?;
    refuse_blank(request.instance_id.as_deref(), "InstanceId can't be empty.")?;
    refuse_blank(request.rack_id.as_deref(), "RackId can't be empty.")?;

    if epoch == 0 {
        if request.rebalance_timeout_ms == -1 {
            return Err(invalid(
                "RebalanceTimeoutMs must be provided in first request.",
            ));
        }
        if request
            .topic_partitions
            .as_ref()
            .is_none_or(|it| !it.is_empty())
        {
            return Err(invalid("TopicPartitions must be empty when (re-)joining."));
        }
        // An empty list or an empty expression is a subscription to nothing.
        if request.subscribed_topic_names.is_none() && request.subscribed_topic_regex.is_none() {
            return Err(invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when \
                 (re-)joining.",
            ));
        }
    } else if epoch == LEAVE_GROUP_STATIC_EPOCH {
        if request.instance_id.is_none() {
            return Err(invalid("InstanceId can't be null."));
        }
    } else if epoch < LEAVE_GROUP_STATIC_EPOCH {
        return Err(invalid("MemberEpoch is invalid."));
    }

    match &request.server_assignor {
        Some(asked) if !assignors.iter().any(|name| **name == **asked) => Err(GroupError::new(
            ErrorCode::UnsupportedAssignor,
            format!(
                "ServerAssignor {asked} is not supported. Supported assignors: {}.",
                assignors.join(", ")
            ),
        )),
        _ => Ok(()),
    }
}

fn invalid(message: &str) -> GroupError {
    GroupError::new(ErrorCode::InvalidRequest, message)
}

fn refuse_blank(text: Option<&str>, message: &str) -> Result<(), GroupError> {
    // Java's `trim` removes all characters up to and including the space.
    match text {
        Some(text) if text.chars().all(|letter| letter <= ' ') => Err(invalid(message)),
        _ => Ok(()),
    }
}
