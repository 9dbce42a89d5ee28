use ottla_protocol::messages::alter_partition_request::TopicData as RequestedTopic;
use ottla_protocol::metadata_records::{PartitionChangeRecord, PartitionRecord, TopicRecord};
use ottla_types::Uuid;

use super::*;
use crate::test_support::{Cluster, SINGLE_NODE_EPOCH, directory};

const TOPIC: Uuid = Uuid::from_u128(1001);

fn cluster() -> Cluster {
    let mut cluster = Cluster::with_brokers(&[1, 2, 3]).fence(3);
    cluster.apply(&[
        MetadataRecord::Topic(TopicRecord {
            name: "orders".into(),
            topic_id: TOPIC,
            ..Default::default()
        }),
        MetadataRecord::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id: 0,
            replicas: vec![1, 2, 3],
            isr: vec![1],
            leader: 1,
            leader_epoch: 5,
            partition_epoch: 9,
            directories: vec![directory(1), directory(2), directory(3)],
            ..Default::default()
        }),
    ]);
    cluster
}

fn requested(isr: &[(i32, i64)]) -> RequestedPartition {
    RequestedPartition {
        partition_index: 0,
        leader_epoch: 5,
        partition_epoch: 9,
        new_isr_with_epochs: isr
            .iter()
            .map(|&(broker_id, broker_epoch)| BrokerState {
                broker_id,
                broker_epoch,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn alter(partition: RequestedPartition) -> (Vec<MetadataRecord>, PartitionData) {
    let request = AlterPartitionRequest {
        broker_id: 1,
        broker_epoch: SINGLE_NODE_EPOCH,
        topics: vec![RequestedTopic {
            topic_id: TOPIC,
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    };
    let decision = alter_partition(&cluster().context(), &request);
    assert_eq!(decision.response.error_code, 0);
    (
        decision.records,
        decision.response.topics[0].partitions[0].clone(),
    )
}

fn error(partition: RequestedPartition) -> ErrorCode {
    let (records, data) = alter(partition);
    assert_eq!(records, []);
    ErrorCode::from_code(data.error_code)
}

#[test]
fn the_isr_grows() {
    let (records, data) = alter(requested(&[(1, 101), (2, 102)]));
    assert_eq!(
        records,
        [MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id: TOPIC,
            partition_id: 0,
            isr: Some(vec![1, 2]),
            ..Default::default()
        })]
    );
    assert_eq!(
        (data.leader_id, data.leader_epoch, data.partition_epoch),
        (1, 5, 10)
    );
    assert_eq!(data.isr, [1, 2]);

    let without_epochs = RequestedPartition {
        new_isr: vec![1, 2],
        ..requested(&[])
    };
    assert_eq!(alter(without_epochs).0, records);
}

#[test]
fn invalid_changes_are_refused() {
    let base = || requested(&[(1, -1)]);
    let with_epochs = |leader_epoch, partition_epoch| RequestedPartition {
        leader_epoch,
        partition_epoch,
        ..base()
    };
    assert_eq!(error(with_epochs(6, 9)), ErrorCode::NotController);
    assert_eq!(error(with_epochs(5, 10)), ErrorCode::NotController);
    assert_eq!(error(with_epochs(4, 9)), ErrorCode::FencedLeaderEpoch);
    assert_eq!(error(with_epochs(5, 8)), ErrorCode::InvalidUpdateVersion);
    assert_eq!(
        error(requested(&[(2, -1)])),
        ErrorCode::InvalidRequest,
        "without the leader"
    );
    assert_eq!(
        error(requested(&[(1, -1), (1, -1)])),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        error(requested(&[(1, -1), (9, -1)])),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        error(requested(&[(1, -1), (3, -1)])),
        ErrorCode::IneligibleReplica,
        "3 is fenced"
    );
    assert_eq!(
        error(requested(&[(1, -1), (2, 7)])),
        ErrorCode::IneligibleReplica,
        "an older incarnation"
    );
    assert_eq!(
        error(RequestedPartition {
            leader_recovery_state: 1,
            ..base()
        }),
        ErrorCode::InvalidRequest
    );
    assert_eq!(
        error(RequestedPartition {
            partition_index: 4,
            ..base()
        }),
        ErrorCode::UnknownTopicOrPartition
    );
}

#[test]
fn a_stale_broker_gets_one_error_for_the_request() {
    let request = AlterPartitionRequest {
        broker_id: 1,
        broker_epoch: 5,
        ..Default::default()
    };
    let decision = alter_partition(&cluster().context(), &request);
    assert_eq!(
        decision.response.error_code,
        ErrorCode::StaleBrokerEpoch.code()
    );
}
