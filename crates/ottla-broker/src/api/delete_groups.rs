//! DeleteGroups: deletes groups without members, and their offsets. The offsets of a share group
//! are at the share coordinators, which are asked first; if they could not delete all of them, the
//! group is kept.

use std::collections::HashSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::group::GroupCoordinator;
use ottla_protocol::messages::delete_groups_response::DeletableGroupResult;
use ottla_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse};
use ottla_types::ErrorCode;

use ottla_coordination::share_groups;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;
use ottla_coordination::at_once::each_at_once;
use ottla_coordination::runtime::Shard;

/// The maximum number of partitions of `__consumer_offsets` that one request processes at a time,
/// and of share groups in each of them.
const PARTITIONS_AT_ONCE: usize = 16;
const GROUPS_AT_ONCE: usize = 16;

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
    let by_partition = broker.groups.by_partition(allowed);
    let deleted = each_at_once(
        PARTITIONS_AT_ONCE,
        by_partition,
        |(partition, group_ids)| {
            let broker = Arc::clone(broker);
            async move { delete(&broker, partition, group_ids).await }
        },
    );
    let mut results: Vec<_> = deleted.await.into_iter().flatten().flatten().collect();
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
    mut group_ids: Vec<ByteString>,
) -> Vec<DeletableGroupResult> {
    let all_failed = |group_ids: Vec<ByteString>, error| {
        let group_ids = group_ids.into_iter();
        group_ids.map(|group_id| failed(group_id, error)).collect()
    };
    let coordinator = match broker.groups.shard(partition) {
        Ok(coordinator) => coordinator,
        Err(error) => return all_failed(group_ids, error),
    };
    let refused = match delete_share_state(broker, &coordinator, &group_ids).await {
        Ok(refused) => refused,
        Err(error) => return all_failed(group_ids, error),
    };
    let (refused_ids, mut results): (HashSet<ByteString>, Vec<DeletableGroupResult>) = refused
        .into_iter()
        .map(|(group_id, error)| (group_id.clone(), failed(group_id, error)))
        .unzip();
    group_ids.retain(|group_id| !refused_ids.contains(group_id));
    if group_ids.is_empty() {
        return results;
    }
    let deleted = coordinator.request(&broker.groups, |coordinator, to, now| {
        coordinator.handle_delete_groups(to, &group_ids, now)
    });
    let deleted = deleted.await;
    results.extend(deleted.unwrap_or_else(|error| all_failed(group_ids, error)));
    results
}

/// Deletes the state of those groups that are share groups. Returns the groups that cannot be
/// deleted.
async fn delete_share_state(
    broker: &Arc<Broker>,
    coordinator: &Arc<Shard<GroupCoordinator>>,
    group_ids: &[ByteString],
) -> Result<Vec<(ByteString, ErrorCode)>, ErrorCode> {
    let begun = coordinator.request(&broker.groups, |groups, to, now| {
        groups.begin_delete_share_groups(to, group_ids, now)
    });
    let groups = begun.await??;
    let group_ids: Vec<ByteString> = groups.iter().map(|(id, _)| id.clone()).collect();
    let deleted = each_at_once(GROUPS_AT_ONCE, groups, |(group_id, partitions)| {
        let broker = Arc::clone(broker);
        async move {
            let coordinators = &broker.share_groups.coordinators;
            let topics = share_groups::delete_state(coordinators, &group_id, &partitions?).await;
            topics.into_iter().try_for_each(|(_, deleted)| deleted)
        }
    });
    let deleted = group_ids.into_iter().zip(deleted.await);
    let refused = deleted.filter_map(|(group_id, deleted)| {
        let deleted = deleted.unwrap_or(Err(ErrorCode::UnknownServerError));
        deleted.err().map(|error| (group_id, error))
    });
    Ok(refused.collect())
}

fn failed(group_id: ByteString, error: ErrorCode) -> DeletableGroupResult {
    DeletableGroupResult {
        group_id,
        error_code: error.code(),
        ..Default::default()
    }
}
