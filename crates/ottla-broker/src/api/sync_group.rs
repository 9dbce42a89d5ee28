//! SyncGroup: the leader submits the assignment, and every member receives its part.

use std::sync::Arc;

use ottla_coordinator::group::Refused;
use ottla_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    // From version 5 on, the client must send the protocol that it expects (KIP-559).
    let says_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    if context.api_version >= 5 && !says_protocol {
        return SyncGroupResponse::refused(ErrorCode::InconsistentGroupProtocol);
    }
    let group_id = request.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return SyncGroupResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    let synced = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            let outcome = coordinator.handle_sync(to, request, now);
            // Until the leader has sent its assignment.
            context.release_decoded();
            outcome
        });
    let synced = {
        let _waiting = context.waited.begin();
        synced.await
    };
    match synced {
        Ok(response) => for_version(context, response),
        Err(error) => SyncGroupResponse::refused(error),
    }
}

/// Before version 5 the response does not contain the protocol.
fn for_version(context: &RequestContext, mut response: SyncGroupResponse) -> SyncGroupResponse {
    if context.api_version < 5 {
        (response.protocol_type, response.protocol_name) = (None, None);
    }
    response
}
