//! EndQuorumEpoch (KIP-595): a leader hands over leadership.

use bytestring::ByteString;
use ottla_protocol::messages::end_quorum_epoch_request::{self, LeaderEndpoint, ReplicaInfo};
use ottla_protocol::messages::{EndQuorumEpochRequest, EndQuorumEpochResponse};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use super::envelope::{
    AnswerParts, METADATA_PARTITION, METADATA_TOPIC, QuorumApi, check_cluster_id, directory,
    only_partition, partition_response, read_epoch_response, voter_endpoints, wire_endpoints,
};
use crate::message::{self, Request, Response};
use crate::voter_set::ReplicaKey;

pub(super) fn request(
    end: &message::EndQuorumEpochRequest,
    cluster_id: Option<ByteString>,
) -> EndQuorumEpochRequest {
    let successors = end.preferred_successors.iter();
    EndQuorumEpochRequest {
        cluster_id,
        topics: vec![end_quorum_epoch_request::TopicData {
            topic_name: ByteString::from_static(METADATA_TOPIC),
            partitions: vec![end_quorum_epoch_request::PartitionData {
                partition_index: METADATA_PARTITION,
                leader_id: end.leader.value(),
                leader_epoch: end.epoch.value(),
                // For the version without directory IDs.
                preferred_successors: successors.clone().map(|key| key.id.value()).collect(),
                preferred_candidates: successors
                    .map(|key| ReplicaInfo {
                        candidate_id: key.id.value(),
                        candidate_directory_id: directory(key.directory_id),
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
        leader_endpoints: wire_endpoints!(end.endpoints.iter().cloned(), LeaderEndpoint),
        ..Default::default()
    }
}

impl QuorumApi for EndQuorumEpochRequest {
    type Answer = EndQuorumEpochResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, EndQuorumEpochResponse> {
        check_cluster_id(self.cluster_id.as_ref(), cluster_id).map_err(Self::refuse)?;
        let partition = only_partition!(self.topics, topic_name, partitions, partition_index)
            .ok_or_else(|| Self::refuse(ErrorCode::InvalidRequest))?;
        let by_id = partition.preferred_successors.iter().map(|id| ReplicaKey {
            id: BrokerId(*id),
            directory_id: None,
        });
        let candidates = partition.preferred_candidates.iter();
        let preferred_successors = if partition.preferred_candidates.is_empty() {
            by_id.collect()
        } else {
            candidates
                .map(|it| ReplicaKey::new(BrokerId(it.candidate_id), it.candidate_directory_id))
                .collect()
        };
        Ok(Request::EndQuorumEpoch(message::EndQuorumEpochRequest {
            leader: BrokerId(partition.leader_id),
            epoch: LeaderEpoch(partition.leader_epoch),
            endpoints: voter_endpoints!(self.leader_endpoints),
            preferred_successors,
        }))
    }

    fn answer(response: Response, parts: AnswerParts<'_>) -> Option<EndQuorumEpochResponse> {
        let Response::EndQuorumEpoch(end) = response else {
            return None;
        };
        Some(partition_response!(
            EndQuorumEpochResponse,
            end_quorum_epoch_response,
            end,
            parts
        ))
    }
}

read_epoch_response!(EndQuorumEpochResponse);
