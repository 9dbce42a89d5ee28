use ottla_protocol::messages::assign_replicas_to_dirs_request as request;
use ottla_protocol::metadata_records::{
    BrokerRegistrationChangeRecord, PartitionRecord, TopicRecord,
};
use ottla_types::Uuid;

use super::*;
use crate::test_support::{Cluster, SINGLE_NODE_EPOCH, directory};

const TOPIC: Uuid = Uuid::from_u128(2001);
const SECOND: Uuid = Uuid::from_u128(3001);

/// Two partitions without known directories. Broker 1 leads both, and broker 2 is a follower of the
/// second.
fn cluster() -> Cluster {
    let mut cluster = Cluster::with_brokers(&[1, 2]);
    let partition = |index, replicas: Vec<i32>| {
        MetadataRecord::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id: index,
            isr: replicas.clone(),
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![Uuid::DIRECTORY_UNASSIGNED; replicas.len()],
            replicas,
            ..Default::default()
        })
    };
    cluster.apply(&[
        MetadataRecord::BrokerRegistrationChange(BrokerRegistrationChangeRecord {
            broker_id: 1,
            broker_epoch: SINGLE_NODE_EPOCH,
            log_dirs: vec![directory(1), SECOND],
            ..Default::default()
        }),
        MetadataRecord::Topic(TopicRecord {
            name: "orders".into(),
            topic_id: TOPIC,
            ..Default::default()
        }),
        partition(0, vec![1]),
        partition(1, vec![1, 2]),
    ]);
    cluster
}

fn assign_to(directory: Uuid, topic_id: Uuid, partitions: &[i32]) -> AssignReplicasToDirsRequest {
    AssignReplicasToDirsRequest {
        broker_id: 1,
        broker_epoch: SINGLE_NODE_EPOCH,
        directories: vec![request::DirectoryData {
            id: directory,
            topics: vec![request::TopicData {
                topic_id,
                partitions: partitions
                    .iter()
                    .map(|&partition_index| request::PartitionData {
                        partition_index,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn change(partition_id: i32, set: impl FnOnce(&mut PartitionChangeRecord)) -> MetadataRecord {
    let mut change = PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id,
        ..Default::default()
    };
    set(&mut change);
    MetadataRecord::PartitionChange(change)
}

fn errors(response: &AssignReplicasToDirsResponse) -> Vec<(i32, ErrorCode)> {
    let topics = response.directories.iter().flat_map(|dir| &dir.topics);
    let partitions = topics.flat_map(|topic| &topic.partitions);
    let error = |partition: &PartitionData| ErrorCode::from_code(partition.error_code);
    partitions
        .map(|partition| (partition.partition_index, error(partition)))
        .collect()
}

#[test]
fn an_assignment_changes_only_the_directory() {
    let mut cluster = cluster();
    let request = assign_to(SECOND, TOPIC, &[0, 1]);
    let decision = assign_replicas_to_dirs(&cluster.context(), &request);
    let directories = |known: Vec<Uuid>| {
        move |change: &mut PartitionChangeRecord| change.directories = Some(known)
    };
    assert_eq!(
        decision.records,
        [
            change(0, directories(vec![SECOND])),
            change(1, directories(vec![SECOND, Uuid::DIRECTORY_UNASSIGNED])),
        ]
    );
    assert_eq!(
        errors(&decision.response),
        [(0, ErrorCode::None), (1, ErrorCode::None)]
    );
    cluster.apply(&decision.records);
    let again = assign_replicas_to_dirs(&cluster.context(), &request);
    assert_eq!(again.records, [], "it is there already");
    assert_eq!(again.response, decision.response);
}

#[test]
fn a_replica_in_a_failed_directory_loses_the_leadership() {
    let mut cluster = cluster();
    let lost = Uuid::from_u128(4001);
    let decision = assign_replicas_to_dirs(&cluster.context(), &assign_to(lost, TOPIC, &[0, 1]));
    assert_eq!(
        decision.records,
        [
            change(0, |change| change.directories = Some(vec![lost])),
            change(1, |change| {
                change.directories = Some(vec![lost, Uuid::DIRECTORY_UNASSIGNED]);
            }),
            change(0, |change| change.leader = -1),
            change(1, |change| {
                change.isr = Some(vec![2]);
                change.leader = 2;
            }),
        ]
    );
}

#[test]
fn unknown_replicas_are_refused_individually() {
    let mut cluster = cluster();
    let mut of_second = assign_to(SECOND, TOPIC, &[0, 1, 7]);
    of_second.broker_id = 2;
    of_second.broker_epoch = 102;
    let decision = assign_replicas_to_dirs(&cluster.context(), &of_second);
    assert_eq!(
        errors(&decision.response),
        [
            (0, ErrorCode::NotLeaderOrFollower),
            (1, ErrorCode::None),
            (7, ErrorCode::UnknownTopicOrPartition)
        ]
    );
    let unknown = assign_to(SECOND, Uuid::from_u128(9), &[0]);
    let decision = assign_replicas_to_dirs(&cluster.context(), &unknown);
    assert_eq!(errors(&decision.response), [(0, ErrorCode::UnknownTopicId)]);
    assert_eq!(decision.records, []);
    let mut stale = assign_to(SECOND, TOPIC, &[0]);
    stale.broker_epoch = 1;
    let decision = assign_replicas_to_dirs(&cluster.context(), &stale);
    assert_eq!(
        decision.response.error_code,
        ErrorCode::StaleBrokerEpoch.code()
    );
    let mut old = Cluster::single_node().with_feature("metadata.version", 16);
    let decision = assign_replicas_to_dirs(&old.context(), &assign_to(SECOND, TOPIC, &[0]));
    assert_eq!(
        decision.response.error_code,
        ErrorCode::UnsupportedVersion.code()
    );
}
