//! The throttles of a plan's moves.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::admin::EndpointType;
use ottla_client::{Admin, ClientError};

use crate::targets::{Partition, Phase, Seen, Targets};

/// Throttles all moves of the plan that are in progress or yet to be started.
pub(crate) async fn set(
    admin: &Admin,
    seen: &Seen,
    targets: &Targets,
    bytes_per_second: u64,
) -> Result<(), ClientError> {
    let moving = seen.phases.iter().filter(|(_, phase)| copies(phase));
    let moving: BTreeSet<&Partition> = moving.map(|(partition, _)| partition).collect();
    let mut proposed = targets.clone();
    proposed.retain(|partition, _| moving.contains(partition));
    // A broker that is emptied may be down, and cannot be configured.
    let running = admin.client().metadata();
    let current = proposed.keys().filter_map(|partition| {
        let mut sources = seen.descriptions.get(partition)?.replicas.clone();
        let ongoing = seen.ongoing.get(partition);
        sources.retain(|id| {
            let is_added = ongoing.is_some_and(|it| it.adding_replicas.contains(id));
            running.brokers.contains_key(id) && !is_added
        });
        Some((partition.clone(), sources))
    });
    let current = current.collect();
    let rate = i64::try_from(bytes_per_second).unwrap_or(i64::MAX);
    admin
        .limit_replication(&BTreeMap::new(), &current, &proposed, rate)
        .await?;
    Ok(())
}

/// Whether replicas are copied.
pub(crate) fn copies(phase: &Phase) -> bool {
    match phase {
        Phase::Waiting { added } | Phase::Moving { added } => !added.is_empty(),
        Phase::Elsewhere | Phase::Electing | Phase::Done => false,
    }
}

/// Removes the throttles from all brokers that run, and from the topics of these partitions. The
/// rate that a broker that is down keeps has no effect without throttled replicas.
pub(crate) async fn clear(admin: &Admin, targets: &Targets) -> Result<(), ClientError> {
    let cluster = admin.describe_cluster(EndpointType::Broker, false).await?;
    let brokers: BTreeSet<i32> = cluster.brokers.iter().map(|it| it.broker_id).collect();
    admin.clear_throttle_rates(&brokers).await?;
    let topics: BTreeSet<&str> = targets.keys().map(|(topic, _)| topic.as_str()).collect();
    let topics: Vec<&str> = topics.into_iter().collect();
    admin.clear_throttled_replicas(&topics).await
}
