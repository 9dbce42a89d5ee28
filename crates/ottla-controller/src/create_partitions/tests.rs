use ottla_protocol::messages::create_partitions_request::CreatePartitionsAssignment;
use ottla_protocol::metadata_records::{PartitionRecord, TopicRecord};
use ottla_types::Uuid;

use super::*;
use crate::test_support::{Cluster, directory};

const TOPIC: Uuid = Uuid::from_u128(1001);

fn partition(partition_id: i32, leader: i32) -> MetadataRecord {
    MetadataRecord::Partition(PartitionRecord {
        partition_id,
        topic_id: TOPIC,
        replicas: vec![leader],
        isr: vec![leader],
        leader,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: vec![directory(leader)],
        ..Default::default()
    })
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::with_brokers(&[1, 2]);
    let topic = MetadataRecord::Topic(TopicRecord {
        name: "orders".into(),
        topic_id: TOPIC,
        ..Default::default()
    });
    cluster.apply(&[topic, partition(0, 1), partition(1, 1)]);
    cluster
}

fn grow(name: &'static str, count: i32, assignments: Option<&[&[i32]]>) -> CreatePartitionsTopic {
    CreatePartitionsTopic {
        name: name.into(),
        count,
        assignments: assignments.map(|assignments| {
            assignments
                .iter()
                .map(|broker_ids| CreatePartitionsAssignment {
                    broker_ids: broker_ids.to_vec(),
                    ..Default::default()
                })
                .collect()
        }),
        ..Default::default()
    }
}

fn decide(
    topics: Vec<CreatePartitionsTopic>,
    validate_only: bool,
) -> Decision<CreatePartitionsResponse> {
    create_partitions(
        &mut cluster().context(),
        &CreatePartitionsRequest {
            topics,
            validate_only,
            ..Default::default()
        },
    )
}

#[test]
fn new_partitions_get_the_next_indexes() {
    let decision = decide(vec![grow("orders", 4, Some(&[&[2], &[1]]))], false);
    assert_eq!(decision.records, [partition(2, 2), partition(3, 1)]);
    assert_eq!(decision.response.results[0].error_code, 0);

    let placed = decide(vec![grow("orders", 3, None)], false);
    assert_eq!(placed.records.len(), 1);
    assert_eq!(decide(vec![grow("orders", 3, None)], true).records, []);
}

#[test]
fn invalid_requests_are_refused() {
    let error = |topic| {
        let decision = decide(vec![topic], false);
        assert_eq!(decision.records, []);
        let result = &decision.response.results[0];
        (
            ErrorCode::from_code(result.error_code),
            result
                .error_message
                .as_ref()
                .map(|message| message.to_string())
                .unwrap_or_default(),
        )
    };
    assert_eq!(
        error(grow("nothing", 3, None)),
        (ErrorCode::UnknownTopicOrPartition, String::new())
    );
    assert_eq!(
        error(grow("orders", 2, None)),
        (
            ErrorCode::InvalidPartitions,
            "Topic already has 2 partition(s).".to_owned()
        )
    );
    assert_eq!(
        error(grow("orders", 1, None)),
        (
            ErrorCode::InvalidPartitions,
            "The topic orders currently has 2 partition(s); 1 would not be an increase.".to_owned()
        )
    );
    assert_eq!(
        error(grow("orders", -5, None)).0,
        ErrorCode::InvalidPartitions
    );
    assert_eq!(
        error(grow("orders", 4, Some(&[&[1]]))),
        (
            ErrorCode::InvalidReplicaAssignment,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
                .to_owned()
        )
    );
    assert_eq!(
        error(grow("orders", 3, Some(&[&[1, 2]]))).0,
        ErrorCode::InvalidReplicaAssignment
    );
    assert_eq!(
        error(grow("orders", i32::MAX, None)).0,
        ErrorCode::PolicyViolation
    );
}

#[test]
fn a_duplicate_topic_is_not_changed() {
    let decision = decide(
        vec![grow("orders", 3, None), grow("orders", 4, None)],
        false,
    );
    assert_eq!(decision.records, []);
    assert_eq!(decision.response.results.len(), 1);
    assert_eq!(
        decision.response.results[0].error_code,
        ErrorCode::InvalidRequest.code()
    );
}
