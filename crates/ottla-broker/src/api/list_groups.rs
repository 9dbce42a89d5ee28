//! ListGroups: the groups that this broker coordinates.

use std::sync::Arc;

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{ListGroupsRequest, ListGroupsResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let mut groups = Vec::new();
    for shard in broker.groups.all_shards() {
        let listed =
            shard.read(|groups| groups.list_groups(&request.states_filter, &request.types_filter));
        match listed {
            Ok(listed) => groups.extend(listed),
            // The coordinator has just moved to another broker.
            Err(ErrorCode::NotCoordinator) => {}
            Err(error) => {
                return ListGroupsResponse::of_error(error);
            }
        }
    }
    let authorizer = &broker.authorizer;
    let (operation, cluster) = (Operation::Describe, ResourceType::Cluster);
    if !authorizer.is_allowed_quietly(context, operation, cluster, "kafka-cluster") {
        groups.retain(|group| {
            authorizer.is_allowed_quietly(context, operation, ResourceType::Group, &group.group_id)
        });
    }
    ListGroupsResponse {
        groups,
        ..Default::default()
    }
}
