//! Validates a heartbeat independently of the group. Source:
//! `GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid`.

use ottla_protocol::messages::ShareGroupHeartbeatRequest;
use ottla_types::ErrorCode;

use super::member::LEAVE_GROUP_EPOCH;
use crate::group::modern::GroupError;

pub fn validate_share_heartbeat(request: &ShareGroupHeartbeatRequest) -> Result<(), GroupError> {
    let topics = request.subscribed_topic_names.as_deref();
    let refused = if is_blank(Some(&request.member_id)) {
        "MemberId can't be empty."
    } else if is_blank(Some(&request.group_id)) {
        "GroupId can't be empty."
    } else if is_blank(request.rack_id.as_deref()) {
        "RackId can't be empty."
    } else if request.member_epoch == 0 && topics.is_none_or(<[_]>::is_empty) {
        "SubscribedTopicNames must be set in first request."
    } else if request.member_epoch < LEAVE_GROUP_EPOCH {
        "MemberEpoch is invalid."
    } else {
        return Ok(());
    };
    Err(GroupError::new(ErrorCode::InvalidRequest, refused))
}

fn is_blank(text: Option<&str>) -> bool {
    // Java's `trim` removes all characters up to and including the space.
    text.is_some_and(|text| text.chars().all(|letter| letter <= ' '))
}
