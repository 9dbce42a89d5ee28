//! DescribeQuorum (KIP-595): who leads and votes on the metadata log.
//!
//! Kafka: `KafkaRaftClient.handleDescribeQuorumRequest`.

use std::sync::Arc;

use ottla_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use ottla_protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse};
use ottla_types::ErrorCode;

use crate::controller::QuorumStatus;
use crate::{Broker, RequestContext};

const METADATA_TOPIC: &str = "__cluster_metadata";

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    let Some(controller) = broker.controller() else {
        return DescribeQuorumResponse {
            error_code: ErrorCode::NotController.code(),
            error_message: None,
            ..Default::default()
        };
    };
    let status = controller.status();
    let now_ms = broker.timestamp().value();
    let topics = request
        .topics
        .into_iter()
        .map(|topic| TopicData {
            partitions: topic
                .partitions
                .iter()
                .map(|partition| {
                    let is_metadata =
                        &*topic.topic_name == METADATA_TOPIC && partition.partition_index == 0;
                    match is_metadata {
                        true => metadata_partition(&status, now_ms),
                        false => PartitionData {
                            partition_index: partition.partition_index,
                            error_code: ErrorCode::UnknownTopicOrPartition.code(),
                            error_message: None,
                            ..Default::default()
                        },
                    }
                })
                .collect(),
            topic_name: topic.topic_name,
            ..Default::default()
        })
        .collect();
    DescribeQuorumResponse {
        topics,
        nodes: status
            .voters
            .voters()
            // Older versions have no room for them.
            .filter(|_| context.api_version >= 2)
            .map(|voter| Node {
                node_id: voter.key.id.value(),
                listeners: voter
                    .endpoints
                    .iter()
                    .map(|endpoint| Listener {
                        name: endpoint.name.clone(),
                        host: endpoint.host.clone(),
                        port: endpoint.port,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            })
            .collect(),
        error_message: None,
        ..Default::default()
    }
}

fn metadata_partition(status: &QuorumStatus, now_ms: i64) -> PartitionData {
    PartitionData {
        partition_index: 0,
        error_code: ErrorCode::None.code(),
        error_message: None,
        leader_id: status.leader.map_or(-1, |leader| leader.value()),
        leader_epoch: status.epoch.value(),
        high_watermark: status.high_watermark.value(),
        current_voters: status
            .voters
            .voters()
            .map(|voter| {
                let is_leader = status.leader == Some(voter.key.id);
                ReplicaState {
                    replica_id: voter.key.id.value(),
                    replica_directory_id: voter.key.directory_id.unwrap_or_default(),
                    log_end_offset: if is_leader {
                        status.log_end_offset.value()
                    } else {
                        -1
                    },
                    last_fetch_timestamp: if is_leader { now_ms } else { -1 },
                    last_caught_up_timestamp: if is_leader { now_ms } else { -1 },
                    ..Default::default()
                }
            })
            .collect(),
        observers: Vec::new(),
        ..Default::default()
    }
}
