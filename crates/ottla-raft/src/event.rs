//! What can happen to a node of the quorum, what it asks for in return, and what it is started with.

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::{
    ControlRecord, ControlRecordHistory, ElectionState, KRaftVersion, LogState, Node, Request,
    RequestId, Response, SnapshotId, Voter, VoterSet,
};

/// When an event happens, and the only randomness that its handling may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Milliseconds of a clock that never goes back.
    pub now_ms: u64,
    pub random: u64,
}

/// Something that happened. The log ends where the last effect or `LogAppended` left it whenever an event
/// other than `LogAppended` and `LogFlushed` is handed in.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The first event.
    Started,
    /// The time that `Quorum::wake_at_ms` named has come, or any other.
    Ticked,
    RequestReceived {
        request_id: RequestId,
        request: Request,
    },
    ResponseReceived {
        from: BrokerId,
        correlation_id: u64,
        response: Response,
    },
    /// There is no response: no connection, no version in common (`UNSUPPORTED_VERSION`), no answer that
    /// could be decoded, or the same as an error of the whole response.
    RequestFailed {
        from: BrokerId,
        correlation_id: u64,
        error: ErrorCode,
    },
    /// The leader's log was appended to by its own node, under the current epoch; other replicas may have it
    /// from now on. It cannot be taken back any more but by losing the lead.
    LogAppended { end_offset: Offset },
    /// The log is on disk up to `end_offset`, exclusive. Implies `LogAppended`.
    LogFlushed { end_offset: Offset },
    /// `Effect::InstallSnapshot` was carried out; what the snapshot's control records say.
    SnapshotInstalled {
        snapshot: SnapshotId,
        kraft_version: KRaftVersion,
        voters: Option<VoterSet>,
    },
    /// Snapshots were written or deleted here, and the log begins at `log_start_offset`.
    SnapshotsChanged {
        snapshots: Vec<SnapshotId>,
        log_start_offset: Offset,
    },
    /// The controller of this node cannot go on leading in `epoch`.
    ResignRequested { epoch: LeaderEpoch },
    /// `kraft.version` is to be raised in `epoch`: appends what does it, unless
    /// `Quorum::check_kraft_version_upgrade` says that it cannot be, or is.
    KRaftVersionUpgradeRequested {
        epoch: LeaderEpoch,
        version: KRaftVersion,
    },
    /// The node stops, and gives the lead away first; answered by `Effect::CompleteShutdown`.
    ShutdownRequested { timeout_ms: u64 },
}

/// What the shell has to do. In their order, each finished before the next is begun: what an effect relies on
/// stands before it. One that fails, fails the node: nothing that stands behind it may be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Write `quorum-state` durably.
    PersistElectionState(ElectionState),
    /// This node leads. Note in the leader-epoch checkpoint that `epoch` begins at `start_offset`, append the
    /// records there as one control batch, flush, and report `LogFlushed`.
    StartEpoch {
        epoch: LeaderEpoch,
        start_offset: Offset,
        records: Vec<ControlRecord>,
    },
    /// Append the records at `base_offset` as one control batch of the leader's, flush, report `LogFlushed`.
    AppendControlRecords {
        epoch: LeaderEpoch,
        base_offset: Offset,
        records: Vec<ControlRecord>,
    },
    /// Append what came with the Fetch response just handed in, up to `end_offset` (exclusive; whole
    /// batches), noting where epochs begin. With `flush` force it to disk: the next Fetch vouches for it.
    AppendFetched { end_offset: Offset, flush: bool },
    /// Cut the log back to `end_offset`, durably.
    TruncateLog { end_offset: Offset },
    /// Begin a partial snapshot; one that was begun earlier is given up.
    CreateSnapshot(SnapshotId),
    /// Append what came with the FetchSnapshot response just handed in to the partial snapshot.
    AppendSnapshot {
        snapshot: SnapshotId,
        position: i64,
        length_bytes: i64,
    },
    /// The partial snapshot is whole: make it durable under its name, where it does not stand already.
    /// Empty the log and have it begin at the snapshot's end, forget older snapshots, and report
    /// `SnapshotInstalled` as the next event.
    InstallSnapshot(SnapshotId),
    /// Everything below is committed: it may be applied and answered.
    AdvanceHighWatermark(Offset),
    /// This node leads and everything of earlier epochs is committed: requests may be served.
    ActivateLeader(LeaderEpoch),
    /// This node leads no longer. What is not committed may still become so, or be cut off.
    DeactivateLeader(LeaderEpoch),
    /// Another node leads in `epoch`, or nobody is known to.
    ChangeLeader {
        leader: Option<BrokerId>,
        epoch: LeaderEpoch,
    },
    /// Send the request; report `ResponseReceived` or `RequestFailed` with `to.id` and the correlation id.
    Send {
        to: Node,
        correlation_id: u64,
        request: Request,
    },
    /// Answer a request.
    Respond {
        request_id: RequestId,
        response: Response,
    },
    /// Say what was refused: a message that no correct peer sends. Nothing follows from it.
    Report {
        from: BrokerId,
        refusal: &'static str,
    },
    /// `ShutdownRequested` is done with, by handing over or by its timeout.
    CompleteShutdown { timed_out: bool },
}

/// `controller.quorum.*`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuorumConfig {
    pub election_timeout_ms: u64,
    pub fetch_timeout_ms: u64,
    pub election_backoff_max_ms: u64,
    pub request_timeout_ms: u64,
    pub retry_backoff_ms: u64,
    pub fetch_max_bytes: i32,
    pub fetch_snapshot_max_bytes: i32,
    /// `controller.quorum.auto.join.enable`
    pub auto_join: bool,
}

impl Default for QuorumConfig {
    /// Kafka's defaults.
    fn default() -> QuorumConfig {
        QuorumConfig {
            election_timeout_ms: 1_000,
            fetch_timeout_ms: 2_000,
            election_backoff_max_ms: 1_000,
            request_timeout_ms: 2_000,
            retry_backoff_ms: 20,
            fetch_max_bytes: 1024 * 1024,
            fetch_snapshot_max_bytes: 1024 * 1024,
            auto_join: false,
        }
    }
}

/// What a node starts with.
#[derive(Clone, PartialEq, Debug)]
pub struct QuorumOptions {
    pub config: QuorumConfig,
    /// This node: key, endpoints of its controller listeners, supported versions. A broker has no such
    /// endpoints.
    pub local: Voter,
    /// Whether this node is a controller, and so flushes what it fetches and may be made a voter.
    pub can_become_voter: bool,
    /// The name of the listener by which the nodes of the quorum reach each other.
    pub listener_name: bytestring::ByteString,
    /// `controller.quorum.bootstrap.servers`, or the configured voters; `Quorum::bootstrap_id` numbers them.
    pub bootstrap_servers: Vec<Node>,
    /// Configured voters, and what snapshot and log say.
    pub control_records: ControlRecordHistory,
    /// What `quorum-state` says, if the file exists.
    pub election: Option<ElectionState>,
    pub log: LogState,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QuorumError {
    #[error("the last epoch of the metadata log is {0}, and there is none after it")]
    NoEpochLeft(LeaderEpoch),
    #[error(
        "no controller is configured: give controller.quorum.bootstrap.servers or \
         controller.quorum.voters"
    )]
    NobodyToAsk,
}
