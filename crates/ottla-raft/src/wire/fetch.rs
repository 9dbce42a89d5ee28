//! Fetch of the metadata log (KIP-595), by other voters and by observing brokers.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::Records;
use ottla_protocol::messages::fetch_request::{self, FetchPartition, FetchTopic};
use ottla_protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
    SnapshotId as WireSnapshotId,
};
use ottla_protocol::messages::{FetchRequest, FetchResponse};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Uuid};

use super::envelope::{
    AnswerParts, METADATA_PARTITION, METADATA_TOPIC, NamedLeader, QuorumApi, Unusable,
    check_cluster_id, check_response, current_leader, directory, node_endpoints, only,
};
use crate::log_state::LogEnd;
use crate::message::{self, FetchData, LogBatch, Request, Response};
use crate::snapshot::SnapshotId;
use crate::voter_set::ReplicaKey;

pub(super) fn request(
    fetch: message::FetchRequest,
    cluster_id: Option<ByteString>,
) -> FetchRequest {
    FetchRequest {
        cluster_id,
        replica_state: fetch_request::ReplicaState {
            replica_id: fetch.replica.id.value(),
            ..Default::default()
        },
        max_wait_ms: fetch.max_wait_ms.min(i32::MAX as u64) as i32,
        max_bytes: fetch.max_bytes,
        topics: vec![FetchTopic {
            topic: ByteString::from_static(METADATA_TOPIC),
            topic_id: Uuid::METADATA_TOPIC,
            partitions: vec![FetchPartition {
                partition: METADATA_PARTITION,
                current_leader_epoch: fetch.current_leader_epoch.value(),
                fetch_offset: fetch.log_end.offset.value(),
                last_fetched_epoch: fetch.log_end.epoch.value(),
                partition_max_bytes: fetch.max_bytes,
                replica_directory_id: directory(fetch.replica.directory_id),
                high_watermark: fetch.high_watermark.value(),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

impl QuorumApi for FetchRequest {
    type Answer = FetchResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, FetchResponse> {
        check_cluster_id(self.cluster_id.as_ref(), cluster_id).map_err(Self::refuse)?;
        // Newer versions have a separate field for it.
        let replica_id = self.replica_id.max(self.replica_state.replica_id);
        let partition = only(self.topics)
            .filter(|topic| topic.topic_id == Uuid::METADATA_TOPIC)
            .and_then(|topic| only(topic.partitions))
            .filter(|partition| partition.partition == METADATA_PARTITION)
            .ok_or_else(|| Self::refuse(ErrorCode::InvalidRequest))?;
        let (offset, max_wait_ms) = match u64::try_from(self.max_wait_ms) {
            Ok(max_wait_ms) => (partition.fetch_offset, max_wait_ms),
            // Refused like a negative offset, with the leader included.
            Err(_) => (-1, 0),
        };
        Ok(Request::Fetch(message::FetchRequest {
            replica: ReplicaKey::new(BrokerId(replica_id), partition.replica_directory_id),
            current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
            log_end: LogEnd {
                offset: Offset(offset),
                epoch: LeaderEpoch(partition.last_fetched_epoch),
            },
            high_watermark: Offset(partition.high_watermark),
            max_bytes: self.max_bytes,
            max_wait_ms,
        }))
    }

    fn answer(response: Response, parts: AnswerParts<'_>) -> Option<FetchResponse> {
        let Response::Fetch(fetch) = response else {
            return None;
        };
        let leader = NamedLeader::at(parts.listener_name, &fetch.current_leader);
        let mut partition = PartitionData {
            partition_index: METADATA_PARTITION,
            error_code: fetch.error.code(),
            high_watermark: fetch.high_watermark.unwrap_or(Offset(-1)).value(),
            log_start_offset: fetch.log_start_offset.value(),
            current_leader: LeaderIdAndEpoch {
                leader_id: leader.id,
                leader_epoch: leader.epoch,
                ..Default::default()
            },
            // Kafka never omits them.
            records: Some(parts.records),
            ..Default::default()
        };
        match fetch.data {
            FetchData::Diverging(end) => {
                partition.diverging_epoch = EpochEndOffset {
                    epoch: end.epoch.value(),
                    end_offset: end.offset.value(),
                    ..Default::default()
                };
            }
            FetchData::Snapshot(id) => {
                partition.snapshot_id = WireSnapshotId {
                    end_offset: id.end_offset.value(),
                    epoch: id.epoch.value(),
                    ..Default::default()
                };
            }
            FetchData::ReadFrom { .. } | FetchData::Batches(_) | FetchData::Empty => {}
        }
        Some(FetchResponse {
            error_code: ErrorCode::None.code(),
            responses: vec![FetchableTopicResponse {
                topic: ByteString::from_static(METADATA_TOPIC),
                topic_id: Uuid::METADATA_TOPIC,
                partitions: vec![partition],
                ..Default::default()
            }],
            node_endpoints: node_endpoints!(leader, NodeEndpoint, parts.has_endpoints),
            ..Default::default()
        })
    }
}

pub(super) fn read_response(
    fetch: FetchResponse,
    listener_name: &ByteString,
    read_batches: impl FnOnce(Bytes) -> Result<Vec<LogBatch>, Unusable>,
) -> Result<message::FetchResponse, Unusable> {
    check_response(fetch.error_code)?;
    let nodes = fetch.node_endpoints;
    let partition = only(fetch.responses)
        // Versions without topic IDs have the name.
        .filter(|topic| topic.topic_id == Uuid::METADATA_TOPIC || &*topic.topic == METADATA_TOPIC)
        .and_then(|topic| only(topic.partitions))
        .filter(|partition| partition.partition_index == METADATA_PARTITION)
        .ok_or(Unusable::OtherPartition)?;
    let (diverging, snapshot) = (&partition.diverging_epoch, &partition.snapshot_id);
    let data = if diverging.epoch != -1 || diverging.end_offset != -1 {
        FetchData::Diverging(LogEnd {
            offset: Offset(diverging.end_offset),
            epoch: LeaderEpoch(diverging.epoch),
        })
    } else if snapshot.epoch != -1 || snapshot.end_offset != -1 {
        FetchData::Snapshot(SnapshotId {
            end_offset: Offset(snapshot.end_offset),
            epoch: LeaderEpoch(snapshot.epoch),
        })
    } else {
        let batches = read_batches(bytes_of(partition.records))?;
        if batches.is_empty() {
            FetchData::Empty
        } else {
            FetchData::Batches(batches)
        }
    };
    let leader = &partition.current_leader;
    Ok(message::FetchResponse {
        error: ErrorCode::from_code(partition.error_code),
        current_leader: current_leader!(leader, nodes, listener_name),
        log_start_offset: Offset(partition.log_start_offset),
        high_watermark: (partition.high_watermark >= 0).then_some(Offset(partition.high_watermark)),
        data,
    })
}

/// The records of a received response; file regions occur only in responses to send.
pub(super) fn bytes_of(records: Option<Records>) -> Bytes {
    match records {
        Some(Records::Bytes(bytes)) => bytes,
        Some(Records::File(_)) | None => Bytes::new(),
    }
}
