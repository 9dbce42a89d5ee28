//! DescribeGroups: state and members of classic groups.

use std::sync::Arc;

use ottla_protocol::messages::describe_groups_response::DescribedGroup;
use ottla_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let version = context.api_version;
    let authorizer = &broker.authorizer;
    let mut groups = Vec::with_capacity(request.groups.len());
    for group_id in request.groups {
        if !authorizer.is_allowed(context, Operation::Describe, ResourceType::Group, &group_id) {
            groups.push(refused(group_id, ErrorCode::GroupAuthorizationFailed));
            continue;
        }
        let described = broker
            .groups
            .coordinator_of(&group_id)
            .and_then(|shard| shard.read(|groups| groups.describe_group(&group_id, version >= 6)));
        let mut group = described.unwrap_or_else(|error| refused(group_id, error));
        if version >= 3 && request.include_authorized_operations && group.error_code == 0 {
            group.authorized_operations =
                authorizer.authorized_operations(context, ResourceType::Group, &group.group_id);
        }
        groups.push(group);
    }
    DescribeGroupsResponse {
        groups,
        ..Default::default()
    }
}

fn refused(group_id: bytestring::ByteString, error: ErrorCode) -> DescribedGroup {
    DescribedGroup {
        group_id,
        error_code: error.code(),
        ..Default::default()
    }
}
