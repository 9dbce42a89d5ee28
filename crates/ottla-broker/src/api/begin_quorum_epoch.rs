//! BeginQuorumEpoch (KIP-595): a new leader of the metadata quorum makes itself known.
//!
//! Kafka: `KafkaRaftClient.handleBeginQuorumEpochRequest`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::begin_quorum_epoch_response::{
    NodeEndpoint, PartitionData, TopicData,
};
use ottla_protocol::messages::{BeginQuorumEpochRequest, BeginQuorumEpochResponse};
use ottla_raft::ReplicaKey;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use super::raft_responses::{NamedLeader, ask, check_cluster_id, node_endpoints, voter_endpoints};
use ottla_net::RequestContext;
use ottla_node::quorum::outgoing::{METADATA_PARTITION, METADATA_TOPIC, only_partition};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: BeginQuorumEpochRequest,
) -> BeginQuorumEpochResponse {
    let refused = |error: ErrorCode| BeginQuorumEpochResponse {
        error_code: error.code(),
        ..Default::default()
    };
    match ask(broker, request, read).await {
        Ok((ottla_raft::Response::BeginQuorumEpoch(answer), _)) => {
            write(&answer, &context.listener().name, context.api_version)
        }
        Ok(_) => refused(ErrorCode::BrokerNotAvailable),
        Err(error) => refused(error),
    }
}

pub(crate) fn read(
    request: BeginQuorumEpochRequest,
    cluster_id: &ByteString,
) -> Result<ottla_raft::Request, ErrorCode> {
    check_cluster_id(request.cluster_id.as_ref(), cluster_id)?;
    let partition = only_partition(
        request.topics,
        |topic| (topic.topic_name, topic.partitions),
        |partition| partition.partition_index,
    )
    .ok_or(ErrorCode::InvalidRequest)?;
    Ok(ottla_raft::Request::BeginQuorumEpoch(
        ottla_raft::BeginQuorumEpochRequest {
            leader: BrokerId(partition.leader_id),
            epoch: LeaderEpoch(partition.leader_epoch),
            endpoints: voter_endpoints!(request.leader_endpoints),
            voter: (request.voter_id >= 0)
                .then(|| ReplicaKey::new(BrokerId(request.voter_id), partition.voter_directory_id)),
        },
    ))
}

pub(crate) fn write(
    answer: &ottla_raft::QuorumEpochResponse,
    listener_name: &str,
    api_version: i16,
) -> BeginQuorumEpochResponse {
    let leader = NamedLeader::at(listener_name, &answer.current_leader);
    BeginQuorumEpochResponse {
        error_code: ErrorCode::None.code(),
        topics: vec![TopicData {
            topic_name: ByteString::from_static(METADATA_TOPIC),
            partitions: vec![PartitionData {
                partition_index: METADATA_PARTITION,
                error_code: answer.error.code(),
                leader_id: leader.id,
                leader_epoch: leader.epoch,
                ..Default::default()
            }],
            ..Default::default()
        }],
        node_endpoints: node_endpoints!(leader, NodeEndpoint, api_version >= 1),
        ..Default::default()
    }
}
