//! The messages of the quorum: Kafka's requests and responses without version, cluster ID, topic
//! and partition, which the caller checks.
//!
//! Kafka: `RaftUtil`, `RaftRequest`, `RaftResponse`.

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::{LogEnd, ReplicaKey, SnapshotId, VoterEndpoint};

/// Identifies a received request until it is answered. Chosen by the caller, unique among waiting
/// requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u64);

#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    Vote(VoteRequest),
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    EndQuorumEpoch(EndQuorumEpochRequest),
    Fetch(FetchRequest),
    FetchSnapshot(FetchSnapshotRequest),
    UpdateVoter(UpdateVoterRequest),
    AddVoter(AddVoterRequest),
    RemoveVoter(RemoveVoterRequest),
    /// Only sent: asks a new voter for its supported levels of `kraft.version`.
    ApiVersions,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Response {
    Vote(VoteResponse),
    BeginQuorumEpoch(QuorumEpochResponse),
    EndQuorumEpoch(QuorumEpochResponse),
    Fetch(FetchResponse),
    FetchSnapshot(FetchSnapshotResponse),
    UpdateVoter(QuorumEpochResponse),
    AddVoter(VoterChangeResponse),
    RemoveVoter(VoterChangeResponse),
    ApiVersions(ApiVersionsResponse),
}

/// The leader, as far as the sender knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentLeader {
    pub leader: Option<BrokerId>,
    pub epoch: LeaderEpoch,
    /// All known endpoints. A response contains the endpoint of the listener that received the
    /// request.
    pub endpoints: Vec<VoterEndpoint>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VoteRequest {
    /// The epoch that the candidate wants to lead; for a pre-vote, its current epoch.
    pub epoch: LeaderEpoch,
    pub candidate: ReplicaKey,
    /// The intended receiver, if the sender knows it.
    pub voter: Option<ReplicaKey>,
    pub log_end: LogEnd,
    /// Only asks whether a vote would be granted (KIP-996).
    pub pre_vote: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VoteResponse {
    pub error: ErrorCode,
    pub current_leader: CurrentLeader,
    pub is_granted: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeginQuorumEpochRequest {
    pub leader: BrokerId,
    pub epoch: LeaderEpoch,
    pub endpoints: Vec<VoterEndpoint>,
    pub voter: Option<ReplicaKey>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndQuorumEpochRequest {
    pub leader: BrokerId,
    pub epoch: LeaderEpoch,
    pub endpoints: Vec<VoterEndpoint>,
    /// Voters, those with the longest log first.
    pub preferred_successors: Vec<ReplicaKey>,
}

/// A response that has only an error and the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuorumEpochResponse {
    pub error: ErrorCode,
    pub current_leader: CurrentLeader,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchRequest {
    /// An ID below 0 is not a replica but a reading tool.
    pub replica: ReplicaKey,
    pub current_leader_epoch: LeaderEpoch,
    /// The end of the replica's log. A voter has everything before it on disk.
    pub log_end: LogEnd,
    /// The replica's high watermark; -1 if unknown.
    pub high_watermark: Offset,
    pub max_bytes: i32,
    pub max_wait_ms: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct FetchResponse {
    pub error: ErrorCode,
    pub current_leader: CurrentLeader,
    pub log_start_offset: Offset,
    pub high_watermark: Option<Offset>,
    pub data: FetchData,
}

#[derive(Clone, PartialEq, Debug)]
pub enum FetchData {
    /// In a response to send: whole batches from this offset on, at least one, up to the log end
    /// and `max_bytes`. The sender reads them.
    ReadFrom {
        offset: Offset,
        max_bytes: i32,
    },
    /// In a received response: its batches. The receiver keeps the bytes for
    /// `Effect::AppendFetched`.
    Batches(Vec<LogBatch>),
    /// Nothing new.
    Empty,
    Diverging(LogEnd),
    Snapshot(SnapshotId),
}

/// A batch without its bytes. Its checksum was verified and it was decoded.
#[derive(Clone, PartialEq, Debug)]
pub struct LogBatch {
    pub base_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    pub epoch: LeaderEpoch,
    /// The control records that the quorum applies, with their offsets.
    pub control_records: Vec<(Offset, crate::ControlRecord)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchSnapshotRequest {
    pub replica: ReplicaKey,
    pub current_leader_epoch: LeaderEpoch,
    pub snapshot: SnapshotId,
    /// In bytes.
    pub position: i64,
    pub max_bytes: i32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchSnapshotResponse {
    pub error: ErrorCode,
    pub current_leader: CurrentLeader,
    /// `None` if the leader no longer has it.
    pub snapshot: Option<SnapshotId>,
    /// The size of the whole snapshot. In a response, the reader of the file sets it, and refuses a
    /// position after the end with `POSITION_OUT_OF_RANGE`.
    pub size_bytes: i64,
    pub position: i64,
    /// The number of bytes from `position` on. In a response to send it is the maximum for the
    /// reader of the file.
    pub length_bytes: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UpdateVoterRequest {
    pub current_leader_epoch: LeaderEpoch,
    pub voter: crate::Voter,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddVoterRequest {
    pub voter: ReplicaKey,
    pub endpoints: Vec<VoterEndpoint>,
    /// Respond when the change is committed, instead of when it is in the leader's log.
    pub ack_when_committed: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveVoterRequest {
    pub voter: ReplicaKey,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VoterChangeResponse {
    pub error: ErrorCode,
    pub message: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiVersionsResponse {
    pub error: ErrorCode,
    /// The supported levels of `kraft.version`, both inclusive.
    pub kraft_versions: Option<(i16, i16)>,
}
