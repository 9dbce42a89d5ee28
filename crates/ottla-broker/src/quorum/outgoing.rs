//! What this node asks the others of the quorum, on the wire: requests in Kafka's words, and what their
//! responses say.
//!
//! The state machine knows neither cluster id nor topic and partition: they are put in here, and a response
//! that is about anything else counts as none. What travels beside the message, batches or the bytes of a
//! snapshot, is kept for the effect that asks for it.
//!
//! In Kafka: `RaftUtil`, `KafkaRaftClient.build*Request`, the first lines of `KafkaRaftClient.handle*Response`.

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::Records;
use ottla_protocol::messages::{
    AddRaftVoterRequest, AddRaftVoterResponse, ApiVersionsRequest, ApiVersionsResponse,
    BeginQuorumEpochRequest, BeginQuorumEpochResponse, EndQuorumEpochRequest,
    EndQuorumEpochResponse, FetchRequest, FetchResponse, FetchSnapshotRequest,
    FetchSnapshotResponse, RemoveRaftVoterRequest, RemoveRaftVoterResponse, UpdateRaftVoterRequest,
    UpdateRaftVoterResponse, VoteRequest, VoteResponse,
};
use ottla_protocol::messages::{
    add_raft_voter_request, begin_quorum_epoch_request, end_quorum_epoch_request, fetch_request,
    fetch_snapshot_request, update_raft_voter_request, vote_request,
};
use ottla_raft::{
    ControlRecord, CurrentLeader, FetchData, LogBatch, LogEnd, Request, Response, SnapshotId,
    VoterEndpoint,
};
use ottla_records::RecordBatch;
use ottla_types::{BrokerId, DirectoryId, ErrorCode, LeaderEpoch, Offset, Uuid};

use crate::metadata::record_batches::{
    ControlValue, MetadataBatch, MetadataBatchContent, MetadataReadError,
};

pub(crate) const METADATA_TOPIC: &str = "__cluster_metadata";
pub(crate) const METADATA_PARTITION: i32 = 0;

/// How long the leader may take for a change of the voters that this node asks for; it commits it with this
/// node's own fetches.
const VOTER_CHANGE_TIMEOUT_MS: i32 = 30_000;

/// A request as it is sent.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum WireRequest {
    Vote(VoteRequest),
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    EndQuorumEpoch(EndQuorumEpochRequest),
    Fetch(FetchRequest),
    FetchSnapshot(FetchSnapshotRequest),
    UpdateVoter(UpdateRaftVoterRequest),
    AddVoter(AddRaftVoterRequest),
    RemoveVoter(RemoveRaftVoterRequest),
    ApiVersions(ApiVersionsRequest),
}

/// A response as it came.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum WireResponse {
    Vote(VoteResponse),
    BeginQuorumEpoch(BeginQuorumEpochResponse),
    EndQuorumEpoch(EndQuorumEpochResponse),
    Fetch(FetchResponse),
    FetchSnapshot(FetchSnapshotResponse),
    UpdateVoter(UpdateRaftVoterResponse),
    AddVoter(AddRaftVoterResponse),
    RemoveVoter(RemoveRaftVoterResponse),
    ApiVersions(ApiVersionsResponse),
}

/// A response in the words of the state machine, with what came beside it.
#[derive(Debug)]
pub(crate) struct Received {
    pub response: Response,
    pub payload: Payload,
}

#[derive(Debug, Default)]
pub(crate) enum Payload {
    #[default]
    None,
    /// In the order of the log; each as it is written and as it is applied.
    Batches(Vec<(RecordBatch, MetadataBatch)>),
    /// A part of a snapshot.
    SnapshotBytes(Bytes),
}

/// Why a response is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    /// The whole response is an error.
    #[error("{0}")]
    Refused(ErrorCode),
    #[error("it answers for another topic or partition")]
    OtherPartition,
    #[error("its records cannot be read: {0}")]
    Corrupt(String),
    /// Whole batches that this release cannot decode: what they say cannot be skipped.
    #[error(
        "{0}; it was written by a newer release, or metadata.version is newer than this release"
    )]
    Undecodable(MetadataReadError),
}

impl Unusable {
    /// What the state machine is told.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            Unusable::Refused(error) => *error,
            Unusable::OtherPartition => ErrorCode::InvalidRequest,
            Unusable::Corrupt(_) | Unusable::Undecodable(_) => ErrorCode::CorruptMessage,
        }
    }
}

fn directory(id: Option<DirectoryId>) -> Uuid {
    id.unwrap_or_default()
}

/// The endpoints of a voter in one of the generated types.
macro_rules! wire_endpoints {
    ($endpoints:expr, $($endpoint:ident)::+) => {
        $endpoints
            .into_iter()
            .map(|endpoint| $($endpoint)::+ {
                name: endpoint.name,
                host: endpoint.host,
                port: endpoint.port,
                ..Default::default()
            })
            .collect()
    };
}

impl WireRequest {
    pub fn new(request: Request, cluster_id: &ByteString) -> WireRequest {
        let cluster_id = Some(cluster_id.clone());
        match request {
            Request::Vote(vote) => WireRequest::Vote(VoteRequest {
                cluster_id,
                voter_id: vote.voter.map_or(-1, |voter| voter.id.value()),
                topics: vec![vote_request::TopicData {
                    topic_name: ByteString::from_static(METADATA_TOPIC),
                    partitions: vec![vote_request::PartitionData {
                        partition_index: METADATA_PARTITION,
                        replica_epoch: vote.epoch.value(),
                        replica_id: vote.candidate.id.value(),
                        replica_directory_id: directory(vote.candidate.directory_id),
                        voter_directory_id: directory(
                            vote.voter.and_then(|voter| voter.directory_id),
                        ),
                        last_offset_epoch: vote.log_end.epoch.value(),
                        last_offset: vote.log_end.offset.value(),
                        pre_vote: vote.pre_vote,
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            }),
            Request::BeginQuorumEpoch(begin) => {
                WireRequest::BeginQuorumEpoch(BeginQuorumEpochRequest {
                    cluster_id,
                    voter_id: begin.voter.map_or(-1, |voter| voter.id.value()),
                    topics: vec![begin_quorum_epoch_request::TopicData {
                        topic_name: ByteString::from_static(METADATA_TOPIC),
                        partitions: vec![begin_quorum_epoch_request::PartitionData {
                            partition_index: METADATA_PARTITION,
                            voter_directory_id: directory(
                                begin.voter.and_then(|voter| voter.directory_id),
                            ),
                            leader_id: begin.leader.value(),
                            leader_epoch: begin.epoch.value(),
                            ..Default::default()
                        }],
                        ..Default::default()
                    }],
                    leader_endpoints: wire_endpoints!(
                        begin.endpoints,
                        begin_quorum_epoch_request::LeaderEndpoint
                    ),
                    ..Default::default()
                })
            }
            Request::EndQuorumEpoch(end) => WireRequest::EndQuorumEpoch(EndQuorumEpochRequest {
                cluster_id,
                topics: vec![end_quorum_epoch_request::TopicData {
                    topic_name: ByteString::from_static(METADATA_TOPIC),
                    partitions: vec![end_quorum_epoch_request::PartitionData {
                        partition_index: METADATA_PARTITION,
                        leader_id: end.leader.value(),
                        leader_epoch: end.epoch.value(),
                        preferred_successors: end
                            .preferred_successors
                            .iter()
                            .map(|key| key.id.value())
                            .collect(),
                        preferred_candidates: end
                            .preferred_successors
                            .iter()
                            .map(|key| end_quorum_epoch_request::ReplicaInfo {
                                candidate_id: key.id.value(),
                                candidate_directory_id: directory(key.directory_id),
                                ..Default::default()
                            })
                            .collect(),
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                leader_endpoints: wire_endpoints!(
                    end.endpoints,
                    end_quorum_epoch_request::LeaderEndpoint
                ),
                ..Default::default()
            }),
            Request::Fetch(fetch) => WireRequest::Fetch(FetchRequest {
                cluster_id,
                replica_state: fetch_request::ReplicaState {
                    replica_id: fetch.replica.id.value(),
                    ..Default::default()
                },
                max_wait_ms: fetch.max_wait_ms.min(i32::MAX as u64) as i32,
                max_bytes: fetch.max_bytes,
                topics: vec![fetch_request::FetchTopic {
                    topic: ByteString::from_static(METADATA_TOPIC),
                    topic_id: Uuid::METADATA_TOPIC,
                    partitions: vec![fetch_request::FetchPartition {
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
            }),
            Request::FetchSnapshot(fetch) => WireRequest::FetchSnapshot(FetchSnapshotRequest {
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
            }),
            Request::UpdateVoter(update) => {
                let (min, max) = update.voter.supported_kraft_versions;
                WireRequest::UpdateVoter(UpdateRaftVoterRequest {
                    cluster_id,
                    current_leader_epoch: update.current_leader_epoch.value(),
                    voter_id: update.voter.key.id.value(),
                    voter_directory_id: directory(update.voter.key.directory_id),
                    listeners: wire_endpoints!(
                        update.voter.endpoints,
                        update_raft_voter_request::Listener
                    ),
                    kraft_version_feature: update_raft_voter_request::KRaftVersionFeature {
                        min_supported_version: min,
                        max_supported_version: max,
                        ..Default::default()
                    },
                    ..Default::default()
                })
            }
            Request::AddVoter(add) => WireRequest::AddVoter(AddRaftVoterRequest {
                cluster_id,
                timeout_ms: VOTER_CHANGE_TIMEOUT_MS,
                voter_id: add.voter.id.value(),
                voter_directory_id: directory(add.voter.directory_id),
                listeners: wire_endpoints!(add.endpoints, add_raft_voter_request::Listener),
                ack_when_committed: add.ack_when_committed,
                ..Default::default()
            }),
            Request::RemoveVoter(remove) => WireRequest::RemoveVoter(RemoveRaftVoterRequest {
                cluster_id,
                voter_id: remove.voter.id.value(),
                voter_directory_id: directory(remove.voter.directory_id),
                ..Default::default()
            }),
            Request::ApiVersions => WireRequest::ApiVersions(ApiVersionsRequest {
                client_software_name: ByteString::from_static("ottla"),
                client_software_version: ByteString::from_static(env!("CARGO_PKG_VERSION")),
                ..Default::default()
            }),
        }
    }
}

/// The only topic of a list and its only partition, if they are those of the metadata log.
macro_rules! only_partition {
    ($topics:expr, $name:ident, $partitions:ident, $index:ident) => {{
        let mut topics = $topics;
        match (topics.pop(), topics.is_empty()) {
            (Some(mut topic), true)
                if &*topic.$name == $crate::quorum::outgoing::METADATA_TOPIC =>
            {
                match (topic.$partitions.pop(), topic.$partitions.is_empty()) {
                    (Some(partition), true)
                        if partition.$index == $crate::quorum::outgoing::METADATA_PARTITION =>
                    {
                        Some(partition)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }};
}
pub(crate) use only_partition;

/// Who leads by what a response says. It names the leader's address at the listener that was asked.
macro_rules! current_leader {
    ($leader_id:expr, $epoch:expr, $nodes:expr, $listener:expr) => {{
        let leader = ($leader_id >= 0).then_some(BrokerId($leader_id));
        let endpoints = $nodes
            .iter()
            .filter(|node| leader == Some(BrokerId(node.node_id)))
            .filter_map(|node| {
                Some(VoterEndpoint {
                    name: $listener.clone(),
                    host: node.host.clone(),
                    port: u16::try_from(node.port).ok()?,
                })
            })
            .take(1)
            .collect();
        CurrentLeader {
            leader,
            epoch: LeaderEpoch($epoch),
            endpoints,
        }
    }};
}

fn whole(error_code: i16) -> Result<(), Unusable> {
    match ErrorCode::from_code(error_code) {
        ErrorCode::None => Ok(()),
        error => Err(Unusable::Refused(error)),
    }
}

impl WireResponse {
    /// `listener_name`: of the listener at which the nodes of the quorum reach each other.
    pub fn read(self, listener_name: &ByteString) -> Result<Received, Unusable> {
        let mut payload = Payload::None;
        let response = match self {
            WireResponse::Vote(vote) => {
                whole(vote.error_code)?;
                let nodes = vote.node_endpoints;
                let partition =
                    only_partition!(vote.topics, topic_name, partitions, partition_index)
                        .ok_or(Unusable::OtherPartition)?;
                Response::Vote(ottla_raft::VoteResponse {
                    error: ErrorCode::from_code(partition.error_code),
                    current_leader: current_leader!(
                        partition.leader_id,
                        partition.leader_epoch,
                        nodes,
                        listener_name
                    ),
                    is_granted: partition.vote_granted,
                })
            }
            WireResponse::BeginQuorumEpoch(begin) => {
                whole(begin.error_code)?;
                let nodes = begin.node_endpoints;
                let partition =
                    only_partition!(begin.topics, topic_name, partitions, partition_index)
                        .ok_or(Unusable::OtherPartition)?;
                Response::BeginQuorumEpoch(ottla_raft::QuorumEpochResponse {
                    error: ErrorCode::from_code(partition.error_code),
                    current_leader: current_leader!(
                        partition.leader_id,
                        partition.leader_epoch,
                        nodes,
                        listener_name
                    ),
                })
            }
            WireResponse::EndQuorumEpoch(end) => {
                whole(end.error_code)?;
                let nodes = end.node_endpoints;
                let partition =
                    only_partition!(end.topics, topic_name, partitions, partition_index)
                        .ok_or(Unusable::OtherPartition)?;
                Response::EndQuorumEpoch(ottla_raft::QuorumEpochResponse {
                    error: ErrorCode::from_code(partition.error_code),
                    current_leader: current_leader!(
                        partition.leader_id,
                        partition.leader_epoch,
                        nodes,
                        listener_name
                    ),
                })
            }
            WireResponse::Fetch(fetch) => {
                let (response, batches) = read_fetch(fetch, listener_name)?;
                if !batches.is_empty() {
                    payload = Payload::Batches(batches);
                }
                Response::Fetch(response)
            }
            WireResponse::FetchSnapshot(part) => {
                let (response, bytes) = read_fetch_snapshot(part, listener_name)?;
                payload = Payload::SnapshotBytes(bytes);
                Response::FetchSnapshot(response)
            }
            WireResponse::UpdateVoter(update) => {
                let leader = update.current_leader;
                let id = (leader.leader_id >= 0).then_some(BrokerId(leader.leader_id));
                let port = u16::try_from(leader.port).ok().filter(|port| *port > 0);
                let endpoints = match (id, port) {
                    (Some(_), Some(port)) if !leader.host.is_empty() => vec![VoterEndpoint {
                        name: listener_name.clone(),
                        host: leader.host,
                        port,
                    }],
                    _ => Vec::new(),
                };
                Response::UpdateVoter(ottla_raft::QuorumEpochResponse {
                    error: ErrorCode::from_code(update.error_code),
                    current_leader: CurrentLeader {
                        leader: id,
                        epoch: LeaderEpoch(leader.leader_epoch),
                        endpoints,
                    },
                })
            }
            WireResponse::AddVoter(add) => Response::AddVoter(ottla_raft::VoterChangeResponse {
                error: ErrorCode::from_code(add.error_code),
                message: add.error_message.map(|message| message.to_string()),
            }),
            WireResponse::RemoveVoter(remove) => {
                Response::RemoveVoter(ottla_raft::VoterChangeResponse {
                    error: ErrorCode::from_code(remove.error_code),
                    message: remove.error_message.map(|message| message.to_string()),
                })
            }
            WireResponse::ApiVersions(versions) => {
                let kraft_versions = versions
                    .supported_features
                    .iter()
                    .find(|feature| &*feature.name == ottla_metadata::feature::KRAFT_VERSION.name)
                    .map(|feature| (feature.min_version, feature.max_version));
                Response::ApiVersions(ottla_raft::ApiVersionsResponse {
                    error: ErrorCode::from_code(versions.error_code),
                    kraft_versions,
                })
            }
        };
        Ok(Received { response, payload })
    }
}

type ReadBatches = Vec<(RecordBatch, MetadataBatch)>;

fn read_fetch(
    fetch: FetchResponse,
    listener_name: &ByteString,
) -> Result<(ottla_raft::FetchResponse, ReadBatches), Unusable> {
    whole(fetch.error_code)?;
    let nodes = fetch.node_endpoints;
    let mut topics = fetch.responses;
    let topic = match (topics.pop(), topics.is_empty()) {
        // Versions of Fetch without the id name the topic.
        (Some(topic), true)
            if topic.topic_id == Uuid::METADATA_TOPIC || &*topic.topic == METADATA_TOPIC =>
        {
            topic
        }
        _ => return Err(Unusable::OtherPartition),
    };
    let mut partitions = topic.partitions;
    let partition = match (partitions.pop(), partitions.is_empty()) {
        (Some(partition), true) if partition.partition_index == METADATA_PARTITION => partition,
        _ => return Err(Unusable::OtherPartition),
    };
    let (diverging, snapshot) = (&partition.diverging_epoch, &partition.snapshot_id);
    let mut batches = Vec::new();
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
        let bytes = match partition.records {
            Some(Records::Bytes(bytes)) => bytes,
            // Only in what is sent.
            Some(Records::File(_)) | None => Bytes::new(),
        };
        batches = read_batches(bytes)?;
        match batches.is_empty() {
            true => FetchData::Empty,
            false => {
                FetchData::Batches(batches.iter().map(|(_, batch)| log_batch(batch)).collect())
            }
        }
    };
    let leader = &partition.current_leader;
    let response = ottla_raft::FetchResponse {
        error: ErrorCode::from_code(partition.error_code),
        current_leader: current_leader!(
            leader.leader_id,
            leader.leader_epoch,
            nodes,
            listener_name
        ),
        log_start_offset: Offset(partition.log_start_offset),
        high_watermark: (partition.high_watermark >= 0).then_some(Offset(partition.high_watermark)),
        data,
    };
    Ok((response, batches))
}

/// Decodes whole batches; one that is cut off at the end comes again.
fn read_batches(bytes: Bytes) -> Result<ReadBatches, Unusable> {
    let mut batches = Vec::new();
    for batch in RecordBatch::read_all(bytes) {
        let batch = batch.map_err(|error| Unusable::Corrupt(error.to_string()))?;
        let decoded = MetadataBatch::read(&batch).map_err(|error| match error {
            MetadataReadError::Batch { .. } => Unusable::Corrupt(error.to_string()),
            MetadataReadError::Record { .. } | MetadataReadError::NoValue(_) => {
                Unusable::Undecodable(error)
            }
        })?;
        batches.push((batch, decoded));
    }
    Ok(batches)
}

/// What the state machine has to know of a batch.
fn log_batch(batch: &MetadataBatch) -> LogBatch {
    let mut control_records = Vec::new();
    if let MetadataBatchContent::Control(values) = &batch.content {
        let mut offset = batch.base_offset;
        for value in values {
            if let Some(record) = control_record(value) {
                control_records.push((offset, record));
            }
            offset = offset.plus(1);
        }
    }
    LogBatch {
        base_offset: batch.base_offset,
        last_offset: batch.last_offset,
        epoch: batch.epoch,
        control_records,
    }
}

/// What of the control records of the log the quorum acts by.
pub(crate) fn control_record(value: &ControlValue) -> Option<ControlRecord> {
    match value {
        ControlValue::LeaderChange(record) => Some(ControlRecord::LeaderChange(record.clone())),
        ControlValue::KRaftVersion(record) => Some(ControlRecord::KRaftVersion(record.clone())),
        ControlValue::Voters(record) => Some(ControlRecord::Voters(record.clone())),
        ControlValue::SnapshotHeader(_) | ControlValue::SnapshotFooter(_) => None,
    }
}

fn read_fetch_snapshot(
    part: FetchSnapshotResponse,
    listener_name: &ByteString,
) -> Result<(ottla_raft::FetchSnapshotResponse, Bytes), Unusable> {
    whole(part.error_code)?;
    let nodes = part.node_endpoints;
    let partition =
        only_partition!(part.topics, name, partitions, index).ok_or(Unusable::OtherPartition)?;
    let leader = &partition.current_leader;
    let snapshot = &partition.snapshot_id;
    let bytes = match partition.unaligned_records {
        Some(Records::Bytes(bytes)) => bytes,
        Some(Records::File(_)) | None => Bytes::new(),
    };
    let response = ottla_raft::FetchSnapshotResponse {
        error: ErrorCode::from_code(partition.error_code),
        current_leader: current_leader!(
            leader.leader_id,
            leader.leader_epoch,
            nodes,
            listener_name
        ),
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
