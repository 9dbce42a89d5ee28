//! LeaveGroup: members leave, or are removed by an administrator.

use std::sync::Arc;

use ottla_coordinator::group::Refused;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let group_id = request.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return LeaveGroupResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    if context.api_version < 3 {
        request.members = vec![MemberIdentity {
            member_id: std::mem::take(&mut request.member_id),
            ..Default::default()
        }];
    }
    let left = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            coordinator.handle_leave(to, request, now)
        });
    match left.await {
        Ok(response) => for_version(context, response),
        Err(error) => LeaveGroupResponse::refused(error),
    }
}

/// Before version 3 there is one member, and its result is the result of the request.
fn for_version(context: &RequestContext, response: LeaveGroupResponse) -> LeaveGroupResponse {
    if context.api_version >= 3 {
        return response;
    }
    let of_member = response
        .members
        .first()
        .map_or(0, |member| member.error_code);
    let error_code = match response.error_code {
        0 => of_member,
        error_code => error_code,
    };
    LeaveGroupResponse {
        error_code,
        ..Default::default()
    }
}
