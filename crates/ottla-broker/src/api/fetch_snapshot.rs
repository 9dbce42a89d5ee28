//! FetchSnapshot (KIP-630): a part of a snapshot of the metadata log.
//!
//! Kafka: `KafkaRaftClient.handleFetchSnapshotRequest`, `RaftUtil.singletonFetchSnapshotResponse`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::fetch_snapshot_response::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionSnapshot, SnapshotId, TopicSnapshot,
};
use ottla_protocol::messages::{FetchSnapshotRequest, FetchSnapshotResponse};
use ottla_raft::ReplicaKey;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use super::raft_responses::{NamedLeader, ask, check_cluster_id, node_endpoints};
use ottla_net::RequestContext;
use ottla_node::quorum::outgoing::{METADATA_PARTITION, METADATA_TOPIC, only_partition};
use ottla_node::quorum::served::ServedData;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FetchSnapshotRequest,
) -> FetchSnapshotResponse {
    let refused = |error: ErrorCode| FetchSnapshotResponse {
        error_code: error.code(),
        ..Default::default()
    };
    match ask(broker, request, read).await {
        Ok((ottla_raft::Response::FetchSnapshot(answer), data)) => {
            write(&answer, data, &context.listener().name, context.api_version)
        }
        Ok(_) => refused(ErrorCode::BrokerNotAvailable),
        Err(error) => refused(error),
    }
}

pub(crate) fn read(
    request: FetchSnapshotRequest,
    cluster_id: &ByteString,
) -> Result<ottla_raft::Request, ErrorCode> {
    check_cluster_id(request.cluster_id.as_ref(), cluster_id)?;
    let partition = only_partition(
        request.topics,
        |topic| (topic.name, topic.partitions),
        |partition| partition.partition,
    )
    .ok_or(ErrorCode::InvalidRequest)?;
    Ok(ottla_raft::Request::FetchSnapshot(
        ottla_raft::FetchSnapshotRequest {
            replica: ReplicaKey::new(BrokerId(request.replica_id), partition.replica_directory_id),
            current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
            snapshot: ottla_raft::SnapshotId {
                end_offset: Offset(partition.snapshot_id.end_offset),
                epoch: LeaderEpoch(partition.snapshot_id.epoch),
            },
            position: partition.position,
            max_bytes: request.max_bytes,
        },
    ))
}

pub(crate) fn write(
    answer: &ottla_raft::FetchSnapshotResponse,
    data: ServedData,
    listener_name: &str,
    api_version: i16,
) -> FetchSnapshotResponse {
    let leader = NamedLeader::at(listener_name, &answer.current_leader);
    let snapshot = answer.snapshot.unwrap_or(ottla_raft::SnapshotId::BOOTSTRAP);
    FetchSnapshotResponse {
        error_code: ErrorCode::None.code(),
        topics: vec![TopicSnapshot {
            name: ByteString::from_static(METADATA_TOPIC),
            partitions: vec![PartitionSnapshot {
                index: METADATA_PARTITION,
                error_code: answer.error.code(),
                snapshot_id: SnapshotId {
                    end_offset: snapshot.end_offset.value(),
                    epoch: snapshot.epoch.value(),
                    ..Default::default()
                },
                current_leader: LeaderIdAndEpoch {
                    leader_id: leader.id,
                    leader_epoch: leader.epoch,
                    ..Default::default()
                },
                size: answer.size_bytes,
                position: answer.position,
                unaligned_records: Some(data.into_records()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        node_endpoints: node_endpoints!(leader, NodeEndpoint, api_version >= 1),
        ..Default::default()
    }
}
