//! BeginQuorumEpoch (KIP-595): a new leader announces itself to the voters.

use bytestring::ByteString;
use ottla_protocol::messages::begin_quorum_epoch_request::{self, LeaderEndpoint};
use ottla_protocol::messages::{BeginQuorumEpochRequest, BeginQuorumEpochResponse};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use super::envelope::{
    AnswerParts, METADATA_PARTITION, METADATA_TOPIC, QuorumApi, check_cluster_id, directory,
    only_partition, partition_response, read_epoch_response, voter_endpoints, wire_endpoints,
};
use crate::message::{self, Request, Response};
use crate::voter_set::ReplicaKey;

pub(super) fn request(
    begin: message::BeginQuorumEpochRequest,
    cluster_id: Option<ByteString>,
) -> BeginQuorumEpochRequest {
    BeginQuorumEpochRequest {
        cluster_id,
        voter_id: begin.voter.map_or(-1, |voter| voter.id.value()),
        topics: vec![begin_quorum_epoch_request::TopicData {
            topic_name: ByteString::from_static(METADATA_TOPIC),
            partitions: vec![begin_quorum_epoch_request::PartitionData {
                partition_index: METADATA_PARTITION,
                voter_directory_id: directory(begin.voter.and_then(|voter| voter.directory_id)),
                leader_id: begin.leader.value(),
                leader_epoch: begin.epoch.value(),
                ..Default::default()
            }],
            ..Default::default()
        }],
        leader_endpoints: wire_endpoints!(begin.endpoints, LeaderEndpoint),
        ..Default::default()
    }
}

impl QuorumApi for BeginQuorumEpochRequest {
    type Answer = BeginQuorumEpochResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, BeginQuorumEpochResponse> {
        check_cluster_id(self.cluster_id.as_ref(), cluster_id).map_err(Self::refuse)?;
        let partition = only_partition!(self.topics, topic_name, partitions, partition_index)
            .ok_or_else(|| Self::refuse(ErrorCode::InvalidRequest))?;
        Ok(Request::BeginQuorumEpoch(
            message::BeginQuorumEpochRequest {
                leader: BrokerId(partition.leader_id),
                epoch: LeaderEpoch(partition.leader_epoch),
                endpoints: voter_endpoints!(self.leader_endpoints),
                voter: (self.voter_id >= 0).then(|| {
                    ReplicaKey::new(BrokerId(self.voter_id), partition.voter_directory_id)
                }),
            },
        ))
    }

    fn answer(response: Response, parts: AnswerParts<'_>) -> Option<BeginQuorumEpochResponse> {
        let Response::BeginQuorumEpoch(begin) = response else {
            return None;
        };
        Some(partition_response!(
            BeginQuorumEpochResponse,
            begin_quorum_epoch_response,
            begin,
            parts
        ))
    }
}

read_epoch_response!(BeginQuorumEpochResponse);
