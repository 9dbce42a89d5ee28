//! LeaveGroup: members go, or are removed by an administrator.

use std::sync::Arc;

use ottla_coordinator::group::Response;
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
        return refused(ErrorCode::GroupAuthorizationFailed);
    }
    if context.api_version < 3 {
        request.members = vec![MemberIdentity {
            member_id: std::mem::take(&mut request.member_id),
            ..Default::default()
        }];
    }
    let coordinator = match broker.groups.coordinator_of(&group_id) {
        Ok(coordinator) => coordinator,
        Err(error) => return refused(error),
    };
    let left = coordinator.request(&broker.groups, |coordinator, to, now| {
        coordinator.handle_leave(to, request, now)
    });
    match left.await {
        Ok(Response::LeaveGroup(response)) => for_version(context, response),
        Ok(_) => refused(ErrorCode::UnknownServerError),
        Err(error) => refused(error),
    }
}

fn refused(error: ErrorCode) -> LeaveGroupResponse {
    LeaveGroupResponse {
        error_code: error.code(),
        ..Default::default()
    }
}

/// Before version 3 there is one member, whose result is that of the request.
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
