//! Heartbeat: a member reports that it is alive.

use std::sync::Arc;

use ottla_coordinator::group::Refused;
use ottla_protocol::messages::{HeartbeatRequest, HeartbeatResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let group_id = request.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return HeartbeatResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    let heard = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            coordinator.handle_heartbeat(to, request, now)
        });
    match heard.await {
        Ok(response) => response,
        // While the group is loading, the member is assumed to be alive.
        Err(ErrorCode::CoordinatorLoadInProgress) => HeartbeatResponse::default(),
        Err(error) => HeartbeatResponse::refused(error),
    }
}
