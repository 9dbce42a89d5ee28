//! The current leader in the error of a partition, so that the client need not ask for it (KIP-951).

use ottla_metadata::{MetadataImage, PartitionRegistration};
use ottla_types::{ErrorCode, PartitionIndex, TopicId};

/// The partition, if its error means that another broker leads it.
pub(super) fn led_elsewhere(
    image: &MetadataImage,
    topic_id: TopicId,
    partition: PartitionIndex,
    error: ErrorCode,
) -> Option<&PartitionRegistration> {
    match error {
        ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch => {
            image.topics.by_id(topic_id)?.partition(partition)
        }
        _ => None,
    }
}

/// Names the leader of `$partition`, a [`PartitionRegistration`], in `$answer`, and once in
/// `$node_endpoints` its address at the listener of the request.
macro_rules! name_leader {
    ($image:expr, $context:expr, $partition:expr, $answer:expr, $node_endpoints:expr) => {{
        let (id, epoch) = ($partition.leader, $partition.leader_epoch);
        $answer.current_leader = LeaderIdAndEpoch {
            leader_id: id.0,
            leader_epoch: epoch.0,
            ..Default::default()
        };
        let is_named = $node_endpoints.iter().any(|node| node.node_id == id.0);
        let leader = $image.cluster.broker(id).filter(|_| !is_named);
        if let Some(leader) = leader
            && let Some(endpoint) = leader.listener(&$context.listener().name)
        {
            $node_endpoints.push(NodeEndpoint {
                node_id: id.0,
                host: endpoint.host.clone(),
                port: endpoint.port.into(),
                rack: leader.rack.clone(),
                ..Default::default()
            });
        }
    }};
}
pub(super) use name_leader;
