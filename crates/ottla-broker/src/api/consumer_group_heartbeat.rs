//! ConsumerGroupHeartbeat: a member of a group with the consumer protocol (KIP-848) reports that it
//! is alive, sends its changes, and receives its assignment.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::group::{HeartbeatContext, Refused, Requester, validate_heartbeat};
use ottla_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use ottla_types::{ErrorCode, Uuid};

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

/// The epoch of a joining member.
pub(crate) const JOINS: i32 = 0;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    if !broker.groups.serves_consumer_protocol() {
        return ConsumerGroupHeartbeatResponse::refused(ErrorCode::UnsupportedVersion);
    }
    let authorizer = &broker.authorizer;
    let group_id = request.group_id.clone();
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return ConsumerGroupHeartbeatResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    let mut topics = request.subscribed_topic_names.iter().flatten();
    let is_visible =
        |topic: &_| authorizer.is_allowed(context, Operation::Describe, ResourceType::Topic, topic);
    if !topics.all(|topic| is_visible(topic)) {
        return ConsumerGroupHeartbeatResponse::refused(ErrorCode::TopicAuthorizationFailed);
    }
    // From version 1 on, members generate their IDs themselves.
    let requires_member_id = context.api_version >= 1;
    let assignors = &broker.config().group_consumer_assignors;
    if let Err(error) = validate_heartbeat(&request, requires_member_id, assignors) {
        return ConsumerGroupHeartbeatResponse::refused(error);
    }
    if request.member_epoch == JOINS
        && let Err(error) = broker.context.check_heap()
    {
        return ConsumerGroupHeartbeatResponse::refused(error);
    }
    let heartbeat = HeartbeatContext {
        client_id: context.client_id(),
        client_host: context.client_host().into(),
        new_member_id: match request.member_id.is_empty() {
            true => Uuid(ottla_sync::random::random("member ids"))
                .to_string()
                .into(),
            false => ByteString::new(),
        },
        requester: Requester::new(context.clone()),
    };
    let heard = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            coordinator.handle_consumer_group_heartbeat(to, request, heartbeat, now)
        });
    heard
        .await
        .unwrap_or_else(ConsumerGroupHeartbeatResponse::refused)
}
