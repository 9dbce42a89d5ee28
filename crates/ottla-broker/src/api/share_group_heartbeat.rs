//! ShareGroupHeartbeat: a member of a share group (KIP-932) says that it is alive and what has changed, and is told its
//! partitions.

use std::sync::Arc;

use ottla_coordinator::group::{Response, ShareHeartbeatContext, validate_share_heartbeat};
use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::ErrorCode;

use super::share_acknowledge::is_member_id;
use ottla_coordination::share_groups;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse {
    if !share_groups::are_enabled(&broker.share_groups) {
        return refused(ErrorCode::UnsupportedVersion, None);
    }
    let authorizer = &broker.authorizer;
    let group_id = request.group_id.clone();
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed, None);
    }
    if !is_member_id(&request.member_id) {
        return refused(ErrorCode::InvalidRequest, None);
    }
    let mut topics = request.subscribed_topic_names.iter().flatten();
    let is_visible =
        |topic: &_| authorizer.is_allowed(context, Operation::Describe, ResourceType::Topic, topic);
    if !topics.all(|topic| is_visible(topic)) {
        return refused(ErrorCode::TopicAuthorizationFailed, None);
    }
    if let Err(error) = validate_share_heartbeat(&request) {
        return refused(error.error, error.message);
    }
    let heartbeat = ShareHeartbeatContext {
        client_id: context.client_id(),
        client_host: context.client_host().into(),
    };
    let coordinator = match broker.groups.coordinator_of(&group_id) {
        Ok(coordinator) => coordinator,
        Err(error) => return refused(error, None),
    };
    let heard = coordinator.request(&broker.groups, |coordinator, to, now| {
        coordinator.handle_share_group_heartbeat(to, &request, &heartbeat, now)
    });
    match heard.await {
        Ok(Response::ShareGroupHeartbeat(response)) => response,
        Ok(_) => refused(ErrorCode::UnknownServerError, None),
        Err(error) => refused(error, None),
    }
}

fn refused(error: ErrorCode, message: Option<String>) -> ShareGroupHeartbeatResponse {
    ShareGroupHeartbeatResponse {
        error_code: error.code(),
        error_message: message.map(Into::into),
        ..Default::default()
    }
}
