//! Vote (KIP-595, KIP-996): a candidate asks a voter for its vote, or whether it would grant it.

use bytestring::ByteString;
use ottla_protocol::messages::vote_request;
use ottla_protocol::messages::{VoteRequest, VoteResponse};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::envelope::{
    AnswerParts, METADATA_PARTITION, METADATA_TOPIC, QuorumApi, Unusable, check_cluster_id,
    check_response, current_leader, directory, only_partition, partition_response,
};
use crate::log_state::LogEnd;
use crate::message::{self, Request, Response};
use crate::voter_set::ReplicaKey;

pub(super) fn request(vote: message::VoteRequest, cluster_id: Option<ByteString>) -> VoteRequest {
    VoteRequest {
        cluster_id,
        voter_id: vote.voter.map_or(-1, |voter| voter.id.value()),
        topics: vec![vote_request::TopicData {
            topic_name: ByteString::from_static(METADATA_TOPIC),
            partitions: vec![vote_request::PartitionData {
                partition_index: METADATA_PARTITION,
                replica_epoch: vote.epoch.value(),
                replica_id: vote.candidate.id.value(),
                replica_directory_id: directory(vote.candidate.directory_id),
                voter_directory_id: directory(vote.voter.and_then(|voter| voter.directory_id)),
                last_offset_epoch: vote.log_end.epoch.value(),
                last_offset: vote.log_end.offset.value(),
                pre_vote: vote.pre_vote,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

impl QuorumApi for VoteRequest {
    type Answer = VoteResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, VoteResponse> {
        check_cluster_id(self.cluster_id.as_ref(), cluster_id).map_err(Self::refuse)?;
        let partition = only_partition!(self.topics, topic_name, partitions, partition_index)
            .ok_or_else(|| Self::refuse(ErrorCode::InvalidRequest))?;
        Ok(Request::Vote(message::VoteRequest {
            epoch: LeaderEpoch(partition.replica_epoch),
            candidate: ReplicaKey::new(
                BrokerId(partition.replica_id),
                partition.replica_directory_id,
            ),
            voter: (self.voter_id >= 0)
                .then(|| ReplicaKey::new(BrokerId(self.voter_id), partition.voter_directory_id)),
            log_end: LogEnd {
                offset: Offset(partition.last_offset),
                epoch: LeaderEpoch(partition.last_offset_epoch),
            },
            pre_vote: partition.pre_vote,
        }))
    }

    fn answer(response: Response, parts: AnswerParts<'_>) -> Option<VoteResponse> {
        let Response::Vote(vote) = response else {
            return None;
        };
        Some(
            partition_response!(VoteResponse, vote_response, vote, parts, vote_granted: vote.is_granted),
        )
    }
}

pub(super) fn read_response(
    vote: VoteResponse,
    listener_name: &ByteString,
) -> Result<message::VoteResponse, Unusable> {
    check_response(vote.error_code)?;
    let nodes = vote.node_endpoints;
    let partition = only_partition!(vote.topics, topic_name, partitions, partition_index)
        .ok_or(Unusable::OtherPartition)?;
    Ok(message::VoteResponse {
        error: ErrorCode::from_code(partition.error_code),
        current_leader: current_leader!(partition, nodes, listener_name),
        is_granted: partition.vote_granted,
    })
}
