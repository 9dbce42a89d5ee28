//! FetchSnapshot (KIP-630): a part of a snapshot of the metadata log.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::fetch_snapshot_request;
use ottla_protocol::messages::fetch_snapshot_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionSnapshot, SnapshotId as WireSnapshotId, TopicSnapshot,
};
use ottla_protocol::messages::{FetchSnapshotRequest, FetchSnapshotResponse};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::envelope::{
    AnswerParts, METADATA_PARTITION, METADATA_TOPIC, NamedLeader, QuorumApi, Unusable,
    check_cluster_id, check_response, current_leader, directory, node_endpoints, only_partition,
};
use super::fetch::bytes_of;
use crate::message::{self, Request, Response};
use crate::snapshot::SnapshotId;
use crate::voter_set::ReplicaKey;

pub(super) fn request(
    fetch: message::FetchSnapshotRequest,
    cluster_id: Option<ByteString>,
) -> FetchSnapshotRequest {
    FetchSnapshotRequest {
        cluster_id,
        replica_id: fetch.replica.id.value(),
        max_bytes: fetch.max_bytes,
        topics: vec![fetch_snapshot_request::TopicSnapshot {
            name: ByteString::from_static(METADATA_TOPIC),
            partitions: vec![fetch_snapshot_request::PartitionSnapshot {
                partition: METADATA_PARTITION,
                current_leader_epoch: fetch.current_leader_epoch.value(),
                snapshot_id: fetch_snapshot_request::SnapshotId {
                    end_offset: fetch.snapshot.end_offset.value(),
                    epoch: fetch.snapshot.epoch.value(),
                    ..Default::default()
                },
                position: fetch.position,
                replica_directory_id: directory(fetch.replica.directory_id),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

impl QuorumApi for FetchSnapshotRequest {
    type Answer = FetchSnapshotResponse;

    fn read(self, cluster_id: &ByteString) -> Result<Request, FetchSnapshotResponse> {
        check_cluster_id(self.cluster_id.as_ref(), cluster_id).map_err(Self::refuse)?;
        let partition = only_partition!(self.topics, name, partitions, partition)
            .ok_or_else(|| Self::refuse(ErrorCode::InvalidRequest))?;
        Ok(Request::FetchSnapshot(message::FetchSnapshotRequest {
            replica: ReplicaKey::new(BrokerId(self.replica_id), partition.replica_directory_id),
            current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
            snapshot: SnapshotId {
                end_offset: Offset(partition.snapshot_id.end_offset),
                epoch: LeaderEpoch(partition.snapshot_id.epoch),
            },
            position: partition.position,
            max_bytes: self.max_bytes,
        }))
    }

    fn answer(response: Response, parts: AnswerParts<'_>) -> Option<FetchSnapshotResponse> {
        let Response::FetchSnapshot(part) = response else {
            return None;
        };
        let leader = NamedLeader::at(parts.listener_name, &part.current_leader);
        let snapshot = part.snapshot.unwrap_or(SnapshotId::BOOTSTRAP);
        Some(FetchSnapshotResponse {
            error_code: ErrorCode::None.code(),
            topics: vec![TopicSnapshot {
                name: ByteString::from_static(METADATA_TOPIC),
                partitions: vec![PartitionSnapshot {
                    index: METADATA_PARTITION,
                    error_code: part.error.code(),
                    snapshot_id: WireSnapshotId {
                        end_offset: snapshot.end_offset.value(),
                        epoch: snapshot.epoch.value(),
                        ..Default::default()
                    },
                    current_leader: LeaderIdAndEpoch {
                        leader_id: leader.id,
                        leader_epoch: leader.epoch,
                        ..Default::default()
                    },
                    size: part.size_bytes,
                    position: part.position,
                    unaligned_records: Some(parts.records),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            node_endpoints: node_endpoints!(leader, NodeEndpoint, parts.has_endpoints),
            ..Default::default()
        })
    }
}

pub(super) fn read_response(
    part: FetchSnapshotResponse,
    listener_name: &ByteString,
) -> Result<(message::FetchSnapshotResponse, Bytes), Unusable> {
    check_response(part.error_code)?;
    let nodes = part.node_endpoints;
    let partition =
        only_partition!(part.topics, name, partitions, index).ok_or(Unusable::OtherPartition)?;
    let leader = &partition.current_leader;
    let snapshot = &partition.snapshot_id;
    let bytes = bytes_of(partition.unaligned_records);
    let response = message::FetchSnapshotResponse {
        error: ErrorCode::from_code(partition.error_code),
        current_leader: current_leader!(leader, nodes, listener_name),
        snapshot: (snapshot.end_offset >= 0 && snapshot.epoch >= 0).then_some(SnapshotId {
            end_offset: Offset(snapshot.end_offset),
            epoch: LeaderEpoch(snapshot.epoch),
        }),
        size_bytes: partition.size,
        position: partition.position,
        length_bytes: bytes.len() as i64,
    };
    Ok((response, bytes))
}
