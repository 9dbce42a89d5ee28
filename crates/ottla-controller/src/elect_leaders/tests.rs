use ottla_protocol::messages::elect_leaders_request::TopicPartitions;
use ottla_protocol::metadata_records::{
    ConfigRecord, PartitionChangeRecord, PartitionRecord, TopicRecord,
};
use ottla_types::Uuid;

use super::*;
use crate::test_support::{Cluster, directory};

const TOPIC: Uuid = Uuid::from_u128(1001);

/// Partition 0 is led by its preferred replica, 1 by another replica, 2 has no leader.
fn cluster() -> Cluster {
    let mut cluster = Cluster::with_brokers(&[1, 2]);
    cluster.apply(&[MetadataRecord::Topic(TopicRecord {
        name: "orders".into(),
        topic_id: TOPIC,
        ..Default::default()
    })]);
    for (partition_id, isr, leader) in [(0, vec![1, 2], 1), (1, vec![1, 2], 2), (2, vec![2], -1)] {
        cluster.apply(&[MetadataRecord::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id,
            replicas: vec![1, 2],
            isr,
            leader,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![directory(1), directory(2)],
            ..Default::default()
        })]);
    }
    cluster
}

fn elect_named(
    cluster: &mut Cluster,
    election_type: i8,
    topic: &'static str,
    partitions: &[i32],
) -> (Vec<MetadataRecord>, Vec<(i32, ErrorCode)>) {
    let request = ElectLeadersRequest {
        election_type,
        topic_partitions: Some(vec![TopicPartitions {
            topic: topic.into(),
            partitions: partitions.to_vec(),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let decision = elect_leaders(&cluster.context(), &request);
    let results = decision.response.replica_election_results[0]
        .partition_result
        .iter()
        .map(|result| (result.partition_id, ErrorCode::from_code(result.error_code)))
        .collect();
    (decision.records, results)
}

fn elected(partition_id: i32, leader: i32) -> MetadataRecord {
    MetadataRecord::PartitionChange(PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id,
        leader,
        ..Default::default()
    })
}

#[test]
fn the_preferred_leader_is_elected() {
    let (records, results) = elect_named(&mut cluster(), 0, "orders", &[0, 1, 7]);
    assert_eq!(records, [elected(1, 1)]);
    assert_eq!(
        results,
        [
            (0, ErrorCode::ElectionNotNeeded),
            (1, ErrorCode::None),
            (7, ErrorCode::UnknownTopicOrPartition)
        ]
    );
    let (_, results) = elect_named(&mut cluster(), 0, "nothing", &[0]);
    assert_eq!(results, [(0, ErrorCode::UnknownTopicOrPartition)]);
    let (records, results) = elect_named(&mut cluster().fence(1), 0, "orders", &[1]);
    assert_eq!(
        (records, results),
        (vec![], vec![(1, ErrorCode::PreferredLeaderNotAvailable)])
    );
}

#[test]
fn an_unclean_election_is_for_partitions_without_a_leader() {
    let mut cluster = cluster().fence(2);
    let (records, results) = elect_named(&mut cluster, 1, "orders", &[0, 2]);
    assert_eq!(
        records,
        [MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id: TOPIC,
            partition_id: 2,
            leader: 1,
            isr: Some(vec![1]),
            leader_recovery_state: 1,
            ..Default::default()
        })]
    );
    assert_eq!(
        results,
        [(0, ErrorCode::ElectionNotNeeded), (2, ErrorCode::None)]
    );
    let (_, results) = elect_named(&mut cluster.fence(1), 1, "orders", &[2]);
    assert_eq!(results, [(2, ErrorCode::EligibleLeadersNotAvailable)]);
}

#[test]
fn all_partitions_names_only_those_that_change() {
    let request = ElectLeadersRequest {
        election_type: 0,
        topic_partitions: None,
        ..Default::default()
    };
    let decision = elect_leaders(&cluster().context(), &request);
    assert_eq!(decision.records, [elected(1, 1), elected(2, 2)]);
    let named: Vec<_> = decision.response.replica_election_results[0]
        .partition_result
        .iter()
        .map(|result| result.partition_id)
        .collect();
    assert_eq!(named, [1, 2]);
    let unknown = ElectLeadersRequest {
        election_type: 5,
        ..request
    };
    let decision = elect_leaders(&cluster().context(), &unknown);
    assert_eq!(
        decision.response.error_code,
        ErrorCode::InvalidRequest.code()
    );
    // Without partitions, not even the election type is checked.
    let none = ElectLeadersRequest {
        topic_partitions: Some(Vec::new()),
        ..unknown
    };
    let decision = elect_leaders(&cluster().context(), &none);
    assert_eq!(decision.response.error_code, 0);
}

#[test]
fn unclean_elections_obey_the_configuration() {
    let mut cluster = cluster().fence(2);
    assert_eq!(elect_unclean_leaders(&cluster.context()), []);
    cluster.apply(&[MetadataRecord::Config(ConfigRecord {
        resource_type: 2,
        resource_name: "orders".into(),
        name: "unclean.leader.election.enable".into(),
        value: Some("true".into()),
        ..Default::default()
    })]);
    assert_eq!(elect_unclean_leaders(&cluster.context()).len(), 1);
}
