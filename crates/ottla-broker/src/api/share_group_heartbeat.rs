//! ShareGroupHeartbeat: a member of a share group (KIP-932) reports that it is alive, sends its
//! changes, and receives its assignment.

use std::sync::Arc;

use ottla_coordinator::group::{Refused, ShareHeartbeatContext, validate_share_heartbeat};
use ottla_protocol::messages::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
use ottla_types::ErrorCode;

use super::consumer_group_heartbeat::JOINS;
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
        return ShareGroupHeartbeatResponse::refused(ErrorCode::UnsupportedVersion);
    }
    let authorizer = &broker.authorizer;
    let group_id = request.group_id.clone();
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return ShareGroupHeartbeatResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    if !is_member_id(&request.member_id) {
        return ShareGroupHeartbeatResponse::refused(ErrorCode::InvalidRequest);
    }
    let mut topics = request.subscribed_topic_names.iter().flatten();
    let is_visible =
        |topic: &_| authorizer.is_allowed(context, Operation::Describe, ResourceType::Topic, topic);
    if !topics.all(|topic| is_visible(topic)) {
        return ShareGroupHeartbeatResponse::refused(ErrorCode::TopicAuthorizationFailed);
    }
    if let Err(error) = validate_share_heartbeat(&request) {
        return ShareGroupHeartbeatResponse::refused(error);
    }
    if request.member_epoch == JOINS
        && let Err(error) = broker.context.check_heap()
    {
        return ShareGroupHeartbeatResponse::refused(error);
    }
    let heartbeat = ShareHeartbeatContext {
        client_id: context.client_id(),
        client_host: context.client_host().into(),
    };
    let heard = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            coordinator.handle_share_group_heartbeat(to, &request, &heartbeat, now)
        });
    heard
        .await
        .unwrap_or_else(ShareGroupHeartbeatResponse::refused)
}
