//! SyncGroup: the leader hands in the assignment, every member gets its part.

use std::sync::Arc;

use ottla_coordinator::group::Response;
use ottla_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    // From version 5 on the client has to say what it believes was agreed on (KIP-559).
    let says_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    if context.api_version >= 5 && !says_protocol {
        return refused(ErrorCode::InconsistentGroupProtocol);
    }
    let group_id = request.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed);
    }
    let coordinator = match broker.groups.coordinator_of(&group_id) {
        Ok(coordinator) => coordinator,
        Err(error) => return refused(error),
    };
    let synced = coordinator.request(&broker.groups, |coordinator, to, now| {
        coordinator.handle_sync(to, request, now)
    });
    match synced.await {
        Ok(Response::SyncGroup(response)) => for_version(context, response),
        Ok(_) => refused(ErrorCode::UnknownServerError),
        Err(error) => refused(error),
    }
}

fn refused(error: ErrorCode) -> SyncGroupResponse {
    SyncGroupResponse {
        error_code: error.code(),
        ..Default::default()
    }
}

/// Before version 5 the response does not repeat what was agreed on.
fn for_version(context: &RequestContext, mut response: SyncGroupResponse) -> SyncGroupResponse {
    if context.api_version < 5 {
        (response.protocol_type, response.protocol_name) = (None, None);
    }
    response
}
