//! What the nodes of a quorum say to each other: Kafka's requests and responses without their versions,
//! cluster id, topic and partition, all of which whoever reads the socket checks.
//!
//! In Kafka: `RaftUtil`, `RaftRequest`, `RaftResponse`.

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::{LogEnd, ReplicaKey, SnapshotId, VoterEndpoint};

/// Names a request that came in, for its answer. Given by the caller, unique while the request waits.
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
    /// Only ever sent: which levels of `kraft.version` does a new voter support?
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

/// Who leads, as far as the sender knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CurrentLeader {
    pub leader: Option<BrokerId>,
    pub epoch: LeaderEpoch,
    /// All that are known. A response names the one of the listener that it is sent from.
    pub endpoints: Vec<VoterEndpoint>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VoteRequest {
    /// The epoch that the candidate wants to lead; with `pre_vote` the one that it is in.
    pub epoch: LeaderEpoch,
    pub candidate: ReplicaKey,
    /// Whom the request is meant for, where the sender can say.
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
    /// Voters, those that have most of the log first.
    pub preferred_successors: Vec<ReplicaKey>,
}

/// The answer to all that need no more than an error and the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuorumEpochResponse {
    pub error: ErrorCode,
    pub current_leader: CurrentLeader,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchRequest {
    /// An id below 0 is no replica: a tool that reads.
    pub replica: ReplicaKey,
    pub current_leader_epoch: LeaderEpoch,
    /// The end of the replica's log. A voter has everything before it on disk.
    pub log_end: LogEnd,
    /// What the replica knows as committed; -1 for nothing.
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
    /// In an answer to give: whole batches from this offset on, at least one, up to the end of the log and
    /// `max_bytes` where more than one. Whoever sends it reads them.
    ReadFrom {
        offset: Offset,
        max_bytes: i32,
    },
    /// In an answer received: what its records are. Whoever received it keeps the bytes for
    /// `Effect::AppendFetched`.
    Batches(Vec<LogBatch>),
    /// Nothing new.
    Empty,
    Diverging(LogEnd),
    Snapshot(SnapshotId),
}

/// A batch of the log, without its bytes. Only what passed its checksum and could be decoded is one.
#[derive(Clone, PartialEq, Debug)]
pub struct LogBatch {
    pub base_offset: Offset,
    /// Inclusive.
    pub last_offset: Offset,
    pub epoch: LeaderEpoch,
    /// The control records that mean something here, with their offsets.
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
    /// `None` where the leader does not name one: it has it no more.
    pub snapshot: Option<SnapshotId>,
    /// Of the whole snapshot. An answer to give leaves that to whoever reads the file, who also refuses a
    /// position beyond it with `POSITION_OUT_OF_RANGE`.
    pub size_bytes: i64,
    pub position: i64,
    /// How many bytes come with it from `position` on; an answer to give leaves that to whoever reads the
    /// file: at most this many.
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
    /// Answer when the change is committed, and not already when it is in the leader's log.
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
    /// The levels of `kraft.version` that are supported, both included.
    pub kraft_versions: Option<(i16, i16)>,
}
