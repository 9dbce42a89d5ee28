use ottla_protocol::messages::alter_partition_reassignments_request::ReassignableTopic;
use ottla_protocol::messages::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use ottla_protocol::metadata_records::{PartitionRecord, TopicRecord};
use ottla_types::Uuid;

use super::*;
use crate::test_support::{Cluster, directory};

/// Topic `t` with one partition on these brokers, all in sync.
fn cluster_of(brokers: &[i32], replicas: &[i32]) -> Cluster {
    cluster_in_sync(brokers, replicas, replicas)
}

/// The same with this ISR.
fn cluster_in_sync(brokers: &[i32], replicas: &[i32], isr: &[i32]) -> Cluster {
    let mut cluster = Cluster::with_brokers(brokers);
    let topic_id = Uuid::from_u128(77);
    cluster.apply(&[
        MetadataRecord::Topic(TopicRecord {
            name: "t".into(),
            topic_id,
            ..Default::default()
        }),
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition_id: 0,
            replicas: replicas.to_vec(),
            isr: isr.to_vec(),
            leader: isr[0],
            directories: replicas.iter().copied().map(directory).collect(),
            ..Default::default()
        }),
    ]);
    cluster
}

fn request(
    name: &'static str,
    index: i32,
    replicas: Option<&[i32]>,
) -> AlterPartitionReassignmentsRequest {
    AlterPartitionReassignmentsRequest {
        topics: vec![ReassignableTopic {
            name: name.into(),
            partitions: vec![ReassignablePartition {
                partition_index: index,
                replicas: replicas.map(<[i32]>::to_vec),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn outcome(decision: &Decision<AlterPartitionReassignmentsResponse>) -> (ErrorCode, Option<&str>) {
    let partition = &decision.response.responses[0].partitions[0];
    (
        ErrorCode::from_code(partition.error_code),
        partition.error_message.as_deref(),
    )
}

fn replicas_of(cluster: &Cluster) -> [Vec<i32>; 3] {
    let partition = cluster
        .image
        .topics
        .partition("t", PartitionIndex(0))
        .unwrap();
    [
        numbers(&partition.replicas),
        numbers(partition.adding_replicas()),
        numbers(partition.removing_replicas()),
    ]
}

#[test]
fn a_reassignment_is_listed_until_it_is_cancelled() {
    let mut cluster = cluster_of(&[1, 2, 3], &[1, 2]);
    let moved = alter_partition_reassignments(&cluster.context(), &request("t", 0, Some(&[3, 1])));
    assert_eq!(outcome(&moved), (ErrorCode::None, None));
    cluster.apply(&moved.records);
    assert_eq!(replicas_of(&cluster), [vec![3, 1, 2], vec![3], vec![2]]);

    for topics in [
        None,
        Some(vec![ListPartitionReassignmentsTopics {
            name: "t".into(),
            partition_indexes: vec![0, 5],
            ..Default::default()
        }]),
    ] {
        let list = ListPartitionReassignmentsRequest {
            topics,
            ..Default::default()
        };
        let listed = list_partition_reassignments(&cluster.image, &list);
        let partitions = &listed.topics[0].partitions;
        assert_eq!(partitions.len(), 1);
        assert_eq!(partitions[0].replicas, [3, 1, 2]);
        assert_eq!(partitions[0].adding_replicas, [3]);
        assert_eq!(partitions[0].removing_replicas, [2]);
    }

    let cancelled = alter_partition_reassignments(&cluster.context(), &request("t", 0, None));
    assert_eq!(outcome(&cancelled), (ErrorCode::None, None));
    cluster.apply(&cancelled.records);
    assert_eq!(replicas_of(&cluster), [vec![1, 2], vec![], vec![]]);
    let list = ListPartitionReassignmentsRequest::default();
    assert_eq!(
        list_partition_reassignments(&cluster.image, &list).topics,
        []
    );
}

/// Only an added replica is in sync, and a former one is eligible (KIP-966): the former one is
/// elected, whether or not unclean elections are permitted.
#[test]
fn a_cancelled_reassignment_elects_an_eligible_replica() {
    for unclean in ["false", "true"] {
        let mut cluster = cluster_in_sync(&[1, 2, 3], &[1, 2, 3], &[3])
            .with_feature("eligible.leader.replicas.version", 1)
            .with_setting("min.insync.replicas", "2")
            .with_setting("unclean.leader.election.enable", unclean);
        cluster.apply(&[MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id: Uuid::from_u128(77),
            partition_id: 0,
            adding_replicas: Some(vec![3]),
            eligible_leader_replicas: Some(vec![2]),
            ..Default::default()
        })]);
        let cancelled = alter_partition_reassignments(&cluster.context(), &request("t", 0, None));
        assert_eq!(outcome(&cancelled), (ErrorCode::None, None));
        cluster.apply(&cancelled.records);
        assert_eq!(replicas_of(&cluster), [vec![1, 2], vec![], vec![]]);
        let topics = &cluster.image.topics;
        let partition = topics.partition("t", PartitionIndex(0)).unwrap();
        assert_eq!(partition.leader, BrokerId(2));
        assert_eq!(partition.isr[..], [BrokerId(2)]);
        assert_eq!(partition.elr(), []);
    }
}

#[test]
fn a_new_order_of_replicas_applies_at_once() {
    let mut cluster = cluster_of(&[1, 2], &[1, 2]);
    let turned = alter_partition_reassignments(&cluster.context(), &request("t", 0, Some(&[2, 1])));
    cluster.apply(&turned.records);
    assert_eq!(replicas_of(&cluster), [vec![2, 1], vec![], vec![]]);
}

#[test]
fn the_responses_of_a_single_node() {
    let mut cluster = cluster_of(&[1], &[1]);
    for (name, index, replicas, error, message) in [
        (
            "nothing",
            0,
            Some(&[1][..]),
            ErrorCode::UnknownTopicOrPartition,
            Some("Unable to find a topic named nothing."),
        ),
        (
            "t",
            1,
            Some(&[1][..]),
            ErrorCode::UnknownTopicOrPartition,
            Some("Unable to find partition t:1."),
        ),
        ("t", 0, None, ErrorCode::NoReassignmentInProgress, None),
        (
            "t",
            0,
            Some(&[2][..]),
            ErrorCode::InvalidReplicaAssignment,
            Some(
                "The manual partition assignment includes broker 2, but no such broker is registered.",
            ),
        ),
        (
            "t",
            0,
            Some(&[][..]),
            ErrorCode::InvalidReplicaAssignment,
            Some("The manual partition assignment includes an empty replica list."),
        ),
        ("t", 0, Some(&[1][..]), ErrorCode::None, None),
    ] {
        let decision =
            alter_partition_reassignments(&cluster.context(), &request(name, index, replicas));
        assert_eq!(outcome(&decision), (error, message));
        assert_eq!(decision.records, []);
    }
}

#[test]
fn a_fixed_replication_factor_is_enforced() {
    let mut cluster = cluster_of(&[1, 2], &[1]);
    let mut grown = request("t", 0, Some(&[1, 2]));
    grown.allow_replication_factor_change = false;
    let decision = alter_partition_reassignments(&cluster.context(), &grown);
    assert_eq!(
        outcome(&decision),
        (
            ErrorCode::InvalidReplicationFactor,
            Some("The replication factor is changed from 1 to 2")
        )
    );
}

/// A reassignment that replaces another one. In Kafka a replica can then be both added and removed,
/// and neither reassignment completes.
#[test]
fn a_reassignment_is_replaced_by_the_next() {
    let all = [1, 2, 3, 4];
    let mut in_part = cluster_in_sync(&all, &[1, 2, 3], &[1, 3]);
    let mut whole = cluster_of(&all, &[1, 2]);
    let moves = |cluster: &mut Cluster, to: &[i32]| {
        let moved = alter_partition_reassignments(&cluster.context(), &request("t", 0, Some(to)));
        assert_eq!(outcome(&moved), (ErrorCode::None, None));
        cluster.apply(&moved.records);
        replicas_of(cluster)
    };
    // Broker 2 is not in sync, so 3 has to stay. Then 3 is a target again.
    let waits = moves(&mut in_part, &[1, 2]);
    assert_eq!(waits, [vec![1, 2, 3], vec![], vec![3]]);
    assert_eq!(
        moves(&mut in_part, &[1, 2, 3]),
        [vec![1, 2, 3], vec![], vec![]]
    );
    // A replica that was being added and is no longer a target is removed at once. A replica that
    // is still a target continues to be added.
    assert_eq!(
        moves(&mut whole, &[1, 2, 3]),
        [vec![1, 2, 3], vec![3], vec![]]
    );
    assert_eq!(
        moves(&mut whole, &[3, 4]),
        [vec![3, 4, 1, 2], vec![3, 4], vec![1, 2]]
    );
    assert_eq!(
        moves(&mut whole, &[1, 2, 4]),
        [vec![1, 2, 4], vec![4], vec![]]
    );
    assert_eq!(moves(&mut whole, &[2, 1]), [vec![2, 1], vec![], vec![]]);
}
