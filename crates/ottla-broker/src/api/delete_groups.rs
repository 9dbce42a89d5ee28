//! DeleteGroups: groups without members go, with their offsets.

use std::collections::HashSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::group::Response;
use ottla_protocol::messages::delete_groups_response::DeletableGroupResult;
use ottla_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};
use ottla_types::ErrorCode;

use crate::{Broker, Operation, RequestContext, ResourceType};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut seen = HashSet::new();
    let distinct = request
        .groups_names
        .into_iter()
        .filter(|group_id| seen.insert(group_id.clone()));
    let (allowed, refused): (Vec<ByteString>, Vec<ByteString>) = distinct.partition(|group_id| {
        let authorizer = &broker.authorizer;
        authorizer.is_allowed(context, Operation::Delete, ResourceType::Group, group_id)
    });
    let mut results = Vec::new();
    for (partition, group_ids) in broker.groups.by_partition(broker, allowed) {
        results.extend(delete(broker, partition, group_ids).await);
    }
    let refused = refused.into_iter();
    results.extend(refused.map(|group_id| failed(group_id, ErrorCode::GroupAuthorizationFailed)));
    DeleteGroupsResponse {
        results,
        ..Default::default()
    }
}

async fn delete(
    broker: &Arc<Broker>,
    partition: i32,
    group_ids: Vec<ByteString>,
) -> Vec<DeletableGroupResult> {
    let deleted = match broker.groups.shard(partition) {
        Ok(coordinator) => {
            let deleted = coordinator.request(broker, |coordinator, to, now| {
                coordinator.handle_delete_groups(to, &group_ids, now)
            });
            deleted.await
        }
        Err(error) => Err(error),
    };
    let error = match deleted {
        Ok(Response::DeleteGroups(results)) => return results,
        Ok(_) => ErrorCode::UnknownServerError,
        Err(error) => error,
    };
    let group_ids = group_ids.into_iter();
    group_ids.map(|group_id| failed(group_id, error)).collect()
}

fn failed(group_id: ByteString, error: ErrorCode) -> DeletableGroupResult {
    DeletableGroupResult {
        group_id,
        error_code: error.code(),
        ..Default::default()
    }
}
