//! DescribeQuorum (KIP-595): the leader and the replicas of the metadata log, and the progress of
//! each.
//!
//! Only the leader knows it. If the leader is another node, a broker forwards the request to it,
//! and a controller returns an error.
//!
//! Kafka: `KafkaRaftClient.handleDescribeQuorumRequest`,
//! `RaftUtil.singletonDescribeQuorumResponse`.

use std::sync::Arc;

use ottla_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use ottla_protocol::messages::{DescribeQuorumRequest, DescribeQuorumResponse};
use ottla_raft::wire::METADATA_TOPIC;
use ottla_types::{ErrorCode, Offset};

use ottla_net::RequestContext;
use ottla_node::quorum::served::QuorumDescription;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse {
    let refused = |error: ErrorCode| DescribeQuorumResponse {
        error_code: error.code(),
        error_message: None,
        ..Default::default()
    };
    if let Err(error) = broker.authorize(context) {
        return refused(error);
    }
    if let Some(channel) = broker.node.controller_elsewhere(context) {
        let answer = channel.forward(context, &request).await;
        return answer.unwrap_or_else(refused);
    }
    let Some(quorum) = broker.node.quorum() else {
        return refused(ErrorCode::NotController);
    };
    let described = quorum.describe().await;
    let now_ms = broker.timestamp().value();
    let refused = |partition_index, error: ErrorCode| PartitionData {
        partition_index,
        error_code: error.code(),
        error_message: None,
        ..Default::default()
    };
    let topics = request
        .topics
        .into_iter()
        .map(|topic| TopicData {
            partitions: topic
                .partitions
                .iter()
                .map(|partition| {
                    let index = partition.partition_index;
                    let is_metadata = &*topic.topic_name == METADATA_TOPIC && index == 0;
                    match (&described, is_metadata) {
                        (Some(described), true) => {
                            metadata_partition(described, now_ms, context.api_version)
                        }
                        (None, true) => refused(index, ErrorCode::NotLeaderOrFollower),
                        (_, false) => refused(index, ErrorCode::UnknownTopicOrPartition),
                    }
                })
                .collect(),
            topic_name: topic.topic_name,
            ..Default::default()
        })
        .collect();
    let voters = described
        .iter()
        .flat_map(|described| described.voters.voters());
    DescribeQuorumResponse {
        topics,
        nodes: voters
            // Older versions do not contain nodes.
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

fn metadata_partition(
    described: &QuorumDescription,
    now_ms: i64,
    api_version: i16,
) -> PartitionData {
    let state = |state: &ottla_raft::ReplicaState| {
        let is_leader = state.key.id == described.leader;
        let time = |at: Option<u64>| match is_leader {
            true => now_ms,
            false => at.map_or(-1, |at| at as i64),
        };
        ReplicaState {
            replica_id: state.key.id.value(),
            replica_directory_id: state
                .key
                .directory_id
                .filter(|_| api_version >= 2)
                .unwrap_or_default(),
            log_end_offset: state.end_offset.unwrap_or(Offset(-1)).value(),
            last_fetch_timestamp: time(state.last_fetch_ms),
            last_caught_up_timestamp: time(state.last_caught_up_ms),
            ..Default::default()
        }
    };
    PartitionData {
        partition_index: 0,
        error_code: ErrorCode::None.code(),
        error_message: None,
        leader_id: described.leader.value(),
        leader_epoch: described.epoch.value(),
        high_watermark: described.high_watermark.value(),
        current_voters: described.voter_states.iter().map(state).collect(),
        observers: described.observer_states.iter().map(state).collect(),
        ..Default::default()
    }
}
