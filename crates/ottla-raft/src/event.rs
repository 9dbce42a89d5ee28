//! The events and effects of a node of the quorum, and its options.

use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::{
    ControlRecord, ControlRecordHistory, ElectionState, KRaftVersion, LogState, Node, Request,
    RequestId, Response, SnapshotId, Voter, VoterSet,
};

/// The time of an event and the only randomness that its handling may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Milliseconds of a monotonic clock.
    pub now_ms: u64,
    pub random: u64,
}

/// An event. When an event other than `LogAppended` and `LogFlushed` is passed in, the log must end
/// where the last effect or `LogAppended` left it.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The first event.
    Started,
    /// The time of `Quorum::wake_at_ms` has come; harmless at any other time.
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
    /// There is no response: no connection, no common version (`UNSUPPORTED_VERSION`), or a
    /// response that cannot be decoded; or the response as a whole is an error.
    RequestFailed {
        from: BrokerId,
        correlation_id: u64,
        error: ErrorCode,
    },
    /// The leader's node appended to its log in the current epoch. Other replicas may have the
    /// records from now on, so they can only be removed by losing leadership.
    LogAppended { end_offset: Offset },
    /// The log is on disk up to `end_offset`, exclusive. Implies `LogAppended`.
    LogFlushed { end_offset: Offset },
    /// `Effect::InstallSnapshot` is complete; holds the snapshot's control records.
    SnapshotInstalled {
        snapshot: SnapshotId,
        kraft_version: KRaftVersion,
        voters: Option<VoterSet>,
    },
    /// Snapshots were written or deleted here; the log now starts at `log_start_offset`.
    SnapshotsChanged {
        snapshots: Vec<SnapshotId>,
        log_start_offset: Offset,
    },
    /// The controller of this node cannot lead in `epoch` any longer.
    ResignRequested { epoch: LeaderEpoch },
    /// Raises `kraft.version` in `epoch` by appending the records for it, unless
    /// `Quorum::check_kraft_version_upgrade` refuses it or finds nothing to do.
    KRaftVersionUpgradeRequested {
        epoch: LeaderEpoch,
        version: KRaftVersion,
    },
    /// The node is stopping and hands leadership over first; answered by
    /// `Effect::CompleteShutdown`.
    ShutdownRequested { timeout_ms: u64 },
}

/// An action of the shell. Effects are executed in order, each completed before the next. If one
/// fails, the node fails and the later ones must not be executed.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Writes `quorum-state` durably.
    PersistElectionState(ElectionState),
    /// This node leads. Adds `epoch` with `start_offset` to the leader epoch checkpoint, appends
    /// the records there as one control batch, flushes, and reports `LogFlushed`.
    StartEpoch {
        epoch: LeaderEpoch,
        start_offset: Offset,
        records: Vec<ControlRecord>,
    },
    /// Appends the records at `base_offset` as one control batch of the leader, flushes, and
    /// reports `LogFlushed`.
    AppendControlRecords {
        epoch: LeaderEpoch,
        base_offset: Offset,
        records: Vec<ControlRecord>,
    },
    /// Appends the records of the Fetch response just passed in, up to `end_offset` (exclusive;
    /// whole batches), and records the epochs. With `flush`, fsyncs the log, because the next Fetch
    /// vouches for it.
    AppendFetched { end_offset: Offset, flush: bool },
    /// Truncates the log to `end_offset`, durably.
    TruncateLog { end_offset: Offset },
    /// Starts a partial snapshot; an earlier partial snapshot is discarded.
    CreateSnapshot(SnapshotId),
    /// Appends the bytes of the FetchSnapshot response just passed in to the partial snapshot.
    AppendSnapshot {
        snapshot: SnapshotId,
        position: i64,
        length_bytes: i64,
    },
    /// The partial snapshot is complete: renames it durably, unless the snapshot already exists;
    /// empties the log so that it starts at the snapshot's end, removes older snapshots, and
    /// reports `SnapshotInstalled` as the next event.
    InstallSnapshot(SnapshotId),
    /// Everything below is committed and may be applied and answered.
    AdvanceHighWatermark(Offset),
    /// This node leads and everything of earlier epochs is committed: requests may be served.
    ActivateLeader(LeaderEpoch),
    /// This node no longer leads. Uncommitted records may still be committed or truncated.
    DeactivateLeader(LeaderEpoch),
    /// Another node leads in `epoch`, or the leader is unknown.
    ChangeLeader {
        leader: Option<BrokerId>,
        epoch: LeaderEpoch,
    },
    /// Sends a request; its result is reported by `ResponseReceived` or `RequestFailed` with
    /// `to.id` and the correlation ID.
    Send {
        to: Node,
        correlation_id: u64,
        request: Request,
    },
    /// Responds to a request.
    Respond {
        request_id: RequestId,
        response: Response,
    },
    /// Logs a message that no correct peer sends and that was refused. It has no other effect.
    Report {
        from: BrokerId,
        refusal: &'static str,
    },
    /// `ShutdownRequested` is complete, after a handover or a timeout.
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

/// Options of a node.
#[derive(Clone, PartialEq, Debug)]
pub struct QuorumOptions {
    pub config: QuorumConfig,
    /// This node: replica key, endpoints of its controller listeners, supported versions. A broker
    /// has no such endpoints.
    pub local: Voter,
    /// Whether this node is a controller. A controller flushes fetched records and may become a
    /// voter.
    pub can_become_voter: bool,
    /// The listener name that the nodes of the quorum use among themselves.
    pub listener_name: bytestring::ByteString,
    /// `controller.quorum.bootstrap.servers`, or the configured voters; `Quorum::bootstrap_id`
    /// numbers them.
    pub bootstrap_servers: Vec<Node>,
    /// The configured voters, and the control records of snapshot and log.
    pub control_records: ControlRecordHistory,
    /// The content of `quorum-state`, if the file exists.
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
