//! JoinGroup: a consumer joins its group, and waits for the generation that it becomes a member of.

use std::sync::Arc;

use ottla_coordinator::group::{JoinContext, Refused, Requester};
use ottla_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

/// A member that joins with more metadata than this, and than before, needs memory as a new one does:
/// no other bound is below the size of a request.
const MUCH_METADATA: usize = 16 * 1024;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: JoinGroupRequest,
) -> JoinGroupResponse {
    let version = context.api_version;
    let group_id = request.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return refused(context, ErrorCode::GroupAuthorizationFailed);
    }
    // A new member has no ID yet.
    let may_grow = request.member_id.is_empty() || metadata_bytes(&request) > MUCH_METADATA;
    if version == 0 {
        request.rebalance_timeout_ms = request.session_timeout_ms;
    }
    let join = JoinContext {
        client_id: context.client_id(),
        client_host: context.client_host().into(),
        requires_known_member_id: version >= 4,
        supports_skipping_assignment: version >= 9,
        random: ottla_sync::random::random("member ids"),
        requester: Requester::new(context.clone()),
    };
    let joined = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            if may_grow
                && broker.context.is_heap_full()
                && coordinator.grows_with_join(&request)
                && let Err(error) = broker.context.check_heap()
            {
                return coordinator.refuse_join(to, &request, error);
            }
            let outcome = coordinator.handle_join(to, request, join, now);
            // Until the other members join, which may take minutes.
            context.release_decoded();
            outcome
        });
    let joined = {
        let _waiting = context.waited.begin();
        joined.await
    };
    match joined {
        Ok(response) => for_version(context, response),
        Err(error) => refused(context, error),
    }
}

/// What the group keeps of the request, roughly.
fn metadata_bytes(request: &JoinGroupRequest) -> usize {
    let protocols = request.protocols.iter();
    let bytes = protocols.map(|it| size_of_val(it) + it.name.len() + it.metadata.len());
    bytes.sum()
}

fn refused(context: &RequestContext, error: ErrorCode) -> JoinGroupResponse {
    for_version(context, JoinGroupResponse::refused(error))
}

/// Before version 7 a protocol name is never null, and may be empty. From version 7 on it is never
/// empty, and may be null.
fn for_version(context: &RequestContext, mut response: JoinGroupResponse) -> JoinGroupResponse {
    let protocol_name = response.protocol_name.unwrap_or_default();
    if context.api_version < 7 {
        response.protocol_type = None;
        response.protocol_name = Some(protocol_name);
    } else {
        response.protocol_name = Some(protocol_name).filter(|name| !name.is_empty());
    }
    response
}
