//! The throttles of a reassignment, and their removal in the words of Kafka's tool.

use std::collections::BTreeSet;

use ottla_client::admin::EndpointType;
use ottla_client::{Admin, ClientError};

use super::assignment_file::Partition;

/// Limits moves between log directories of these brokers to this many bytes per second.
pub(super) async fn limit_log_dir_moves(
    admin: &Admin,
    brokers: &BTreeSet<i32>,
    bytes_per_second: i64,
) -> Result<(), ClientError> {
    admin.limit_log_dir_moves(brokers, bytes_per_second).await?;
    println!("The replica-alter-dir throttle limit was set to {bytes_per_second} B/s");
    Ok(())
}

/// Removes the throttles from all brokers of the cluster, the brokers named here, and the topics of
/// these partitions. The source brokers of a finished move are no longer known. Prints the messages
/// of Kafka's tool.
pub(in crate::tools) async fn clear(
    admin: &Admin,
    nodes: EndpointType,
    targets: &[(Partition, Vec<i32>)],
    tell: impl Fn(String),
) -> Result<(), ClientError> {
    let cluster = admin.describe_cluster(nodes, false).await?;
    let mut brokers: BTreeSet<i32> = cluster.brokers.iter().map(|it| it.broker_id).collect();
    brokers.extend(targets.iter().flat_map(|(_, replicas)| replicas));
    let ids: Vec<String> = brokers.iter().map(ToString::to_string).collect();
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    tell(format!(
        "Clearing broker-level throttles on broker{} {}",
        plural(ids.len()),
        ids.join(",")
    ));
    admin.clear_throttle_rates(&brokers).await?;
    let topics: BTreeSet<&str> = targets
        .iter()
        .map(|((topic, _), _)| topic.as_str())
        .collect();
    let names: Vec<&str> = topics.iter().copied().collect();
    tell(format!(
        "Clearing topic-level throttles on topic{} {}",
        plural(names.len()),
        names.join(",")
    ));
    admin.clear_throttled_replicas(&names).await
}
