//! Heartbeat: a member says that it is alive.

use std::sync::Arc;

use ottla_coordinator::group::Response;
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
        return response(ErrorCode::GroupAuthorizationFailed);
    }
    let coordinator = match broker.groups.coordinator_of(&group_id) {
        Ok(coordinator) => coordinator,
        Err(error) => return response(error),
    };
    let heard = coordinator.request(&broker.groups, |coordinator, to, now| {
        coordinator.handle_heartbeat(to, request, now)
    });
    match heard.await {
        Ok(Response::Heartbeat(response)) => response,
        Ok(_) => response(ErrorCode::UnknownServerError),
        // Nothing speaks against the member while its group is being read.
        Err(ErrorCode::CoordinatorLoadInProgress) => response(ErrorCode::None),
        Err(error) => response(error),
    }
}

fn response(error: ErrorCode) -> HeartbeatResponse {
    HeartbeatResponse {
        error_code: error.code(),
        ..Default::default()
    }
}
