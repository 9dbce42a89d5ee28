//! Fetch of the metadata log (KIP-595), as it is served on a listener of the controller: to the other voters,
//! and to brokers, which observe it.
//!
//! Kafka: `KafkaRaftClient.handleFetchRequest`, `RaftUtil.singletonFetchResponse`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
    SnapshotId,
};
use ottla_protocol::messages::{FetchRequest, FetchResponse};
use ottla_raft::{FetchData, LogEnd, ReplicaKey};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Uuid};

use super::raft_responses::{NamedLeader, ask, check_cluster_id, node_endpoints};
use ottla_net::RequestContext;
use ottla_node::quorum::outgoing::{METADATA_PARTITION, METADATA_TOPIC};
use ottla_node::quorum::served::ServedData;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FetchRequest,
) -> FetchResponse {
    let refused = |error: ErrorCode| FetchResponse {
        error_code: error.code(),
        ..Default::default()
    };
    let waiting = context.waited.begin();
    let answer = ask(broker, request, read).await;
    drop(waiting);
    match answer {
        Ok((ottla_raft::Response::Fetch(answer), data)) => {
            write(&answer, data, &context.listener().name, context.api_version)
        }
        Ok(_) => refused(ErrorCode::BrokerNotAvailable),
        Err(error) => refused(error),
    }
}

pub(crate) fn read(
    request: FetchRequest,
    cluster_id: &ByteString,
) -> Result<ottla_raft::Request, ErrorCode> {
    check_cluster_id(request.cluster_id.as_ref(), cluster_id)?;
    // From version 15 on in a place of its own.
    let replica_id = request.replica_id.max(request.replica_state.replica_id);
    let mut topics = request.topics;
    let topic = match (topics.pop(), topics.is_empty()) {
        (Some(topic), true) if topic.topic_id == Uuid::METADATA_TOPIC => topic,
        _ => return Err(ErrorCode::InvalidRequest),
    };
    let mut partitions = topic.partitions;
    let partition = match (partitions.pop(), partitions.is_empty()) {
        (Some(partition), true) if partition.partition == METADATA_PARTITION => partition,
        _ => return Err(ErrorCode::InvalidRequest),
    };
    let (offset, max_wait_ms) = match u64::try_from(request.max_wait_ms) {
        Ok(max_wait_ms) => (partition.fetch_offset, max_wait_ms),
        // Refused as a negative offset is, with the leader named.
        Err(_) => (-1, 0),
    };
    Ok(ottla_raft::Request::Fetch(ottla_raft::FetchRequest {
        replica: ReplicaKey::new(BrokerId(replica_id), partition.replica_directory_id),
        current_leader_epoch: LeaderEpoch(partition.current_leader_epoch),
        log_end: LogEnd {
            offset: Offset(offset),
            epoch: LeaderEpoch(partition.last_fetched_epoch),
        },
        high_watermark: Offset(partition.high_watermark),
        max_bytes: request.max_bytes,
        max_wait_ms,
    }))
}

pub(crate) fn write(
    answer: &ottla_raft::FetchResponse,
    data: ServedData,
    listener_name: &str,
    api_version: i16,
) -> FetchResponse {
    let leader = NamedLeader::at(listener_name, &answer.current_leader);
    let mut partition = PartitionData {
        partition_index: METADATA_PARTITION,
        error_code: answer.error.code(),
        high_watermark: answer.high_watermark.unwrap_or(Offset(-1)).value(),
        log_start_offset: answer.log_start_offset.value(),
        current_leader: LeaderIdAndEpoch {
            leader_id: leader.id,
            leader_epoch: leader.epoch,
            ..Default::default()
        },
        records: Some(data.into_records()),
        ..Default::default()
    };
    match answer.data {
        FetchData::Diverging(end) => {
            partition.diverging_epoch = EpochEndOffset {
                epoch: end.epoch.value(),
                end_offset: end.offset.value(),
                ..Default::default()
            };
        }
        FetchData::Snapshot(id) => {
            partition.snapshot_id = SnapshotId {
                end_offset: id.end_offset.value(),
                epoch: id.epoch.value(),
                ..Default::default()
            };
        }
        FetchData::ReadFrom { .. } | FetchData::Batches(_) | FetchData::Empty => {}
    }
    FetchResponse {
        error_code: ErrorCode::None.code(),
        responses: vec![FetchableTopicResponse {
            topic: ByteString::from_static(METADATA_TOPIC),
            topic_id: Uuid::METADATA_TOPIC,
            partitions: vec![partition],
            ..Default::default()
        }],
        node_endpoints: node_endpoints!(leader, NodeEndpoint, api_version >= 17),
        ..Default::default()
    }
}
