//! Vote (KIP-595, KIP-996): another voter asks for this one's vote, or whether it would be given.
//!
//! Kafka: `KafkaRaftClient.handleVoteRequest`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::vote_response::{NodeEndpoint, PartitionData, TopicData};
use ottla_protocol::messages::{VoteRequest, VoteResponse};
use ottla_raft::{LogEnd, ReplicaKey};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::raft_responses::{NamedLeader, ask, check_cluster_id, node_endpoints};
use ottla_net::RequestContext;
use ottla_node::quorum::outgoing::{METADATA_PARTITION, METADATA_TOPIC, only_partition};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: VoteRequest,
) -> VoteResponse {
    let refused = |error: ErrorCode| VoteResponse {
        error_code: error.code(),
        ..Default::default()
    };
    match ask(broker, request, read).await {
        Ok((ottla_raft::Response::Vote(answer), _)) => {
            write(&answer, &context.listener().name, context.api_version)
        }
        Ok(_) => refused(ErrorCode::BrokerNotAvailable),
        Err(error) => refused(error),
    }
}

pub(crate) fn read(
    request: VoteRequest,
    cluster_id: &ByteString,
) -> Result<ottla_raft::Request, ErrorCode> {
    check_cluster_id(request.cluster_id.as_ref(), cluster_id)?;
    let partition = only_partition(
        request.topics,
        |topic| (topic.topic_name, topic.partitions),
        |partition| partition.partition_index,
    )
    .ok_or(ErrorCode::InvalidRequest)?;
    Ok(ottla_raft::Request::Vote(ottla_raft::VoteRequest {
        epoch: LeaderEpoch(partition.replica_epoch),
        candidate: ReplicaKey::new(
            BrokerId(partition.replica_id),
            partition.replica_directory_id,
        ),
        voter: (request.voter_id >= 0)
            .then(|| ReplicaKey::new(BrokerId(request.voter_id), partition.voter_directory_id)),
        log_end: LogEnd {
            offset: Offset(partition.last_offset),
            epoch: LeaderEpoch(partition.last_offset_epoch),
        },
        pre_vote: partition.pre_vote,
    }))
}

pub(crate) fn write(
    answer: &ottla_raft::VoteResponse,
    listener_name: &str,
    api_version: i16,
) -> VoteResponse {
    let leader = NamedLeader::at(listener_name, &answer.current_leader);
    VoteResponse {
        error_code: ErrorCode::None.code(),
        topics: vec![TopicData {
            topic_name: ByteString::from_static(METADATA_TOPIC),
            partitions: vec![PartitionData {
                partition_index: METADATA_PARTITION,
                error_code: answer.error.code(),
                leader_id: leader.id,
                leader_epoch: leader.epoch,
                vote_granted: answer.is_granted,
                ..Default::default()
            }],
            ..Default::default()
        }],
        node_endpoints: node_endpoints!(leader, NodeEndpoint, api_version >= 1),
        ..Default::default()
    }
}
