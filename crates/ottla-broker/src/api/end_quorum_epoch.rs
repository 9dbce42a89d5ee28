//! EndQuorumEpoch (KIP-595): the leader of the metadata quorum gives the lead away.
//!
//! Kafka: `KafkaRaftClient.handleEndQuorumEpochRequest`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::end_quorum_epoch_response::{NodeEndpoint, PartitionData, TopicData};
use ottla_protocol::messages::{EndQuorumEpochRequest, EndQuorumEpochResponse};
use ottla_raft::ReplicaKey;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use super::raft_responses::{NamedLeader, ask, check_cluster_id, node_endpoints, voter_endpoints};
use ottla_net::RequestContext;
use ottla_node::quorum::outgoing::{METADATA_PARTITION, METADATA_TOPIC, only_partition};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: EndQuorumEpochRequest,
) -> EndQuorumEpochResponse {
    let refused = |error: ErrorCode| EndQuorumEpochResponse {
        error_code: error.code(),
        ..Default::default()
    };
    match ask(broker, request, read).await {
        Ok((ottla_raft::Response::EndQuorumEpoch(answer), _)) => {
            write(&answer, &context.listener().name, context.api_version)
        }
        Ok(_) => refused(ErrorCode::BrokerNotAvailable),
        Err(error) => refused(error),
    }
}

pub(crate) fn read(
    request: EndQuorumEpochRequest,
    cluster_id: &ByteString,
) -> Result<ottla_raft::Request, ErrorCode> {
    check_cluster_id(request.cluster_id.as_ref(), cluster_id)?;
    let partition = only_partition(
        request.topics,
        |topic| (topic.topic_name, topic.partitions),
        |partition| partition.partition_index,
    )
    .ok_or(ErrorCode::InvalidRequest)?;
    // Version 0 knows no directories.
    let by_id = partition.preferred_successors.iter().map(|id| ReplicaKey {
        id: BrokerId(*id),
        directory_id: None,
    });
    let preferred_successors = match partition.preferred_candidates.is_empty() {
        true => by_id.collect(),
        false => partition
            .preferred_candidates
            .iter()
            .map(|candidate| {
                ReplicaKey::new(
                    BrokerId(candidate.candidate_id),
                    candidate.candidate_directory_id,
                )
            })
            .collect(),
    };
    Ok(ottla_raft::Request::EndQuorumEpoch(
        ottla_raft::EndQuorumEpochRequest {
            leader: BrokerId(partition.leader_id),
            epoch: LeaderEpoch(partition.leader_epoch),
            endpoints: voter_endpoints!(request.leader_endpoints),
            preferred_successors,
        },
    ))
}

pub(crate) fn write(
    answer: &ottla_raft::QuorumEpochResponse,
    listener_name: &str,
    api_version: i16,
) -> EndQuorumEpochResponse {
    let leader = NamedLeader::at(listener_name, &answer.current_leader);
    EndQuorumEpochResponse {
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
