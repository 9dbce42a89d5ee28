//! The events and effects of a replica.

use ottla_records::RecordBatch;
use ottla_records::legacy::{AnyBatch, LegacyMessage};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch, Timestamp};

use crate::{
    AckOutcome, AlterPartition, AlteredPartition, EpochEnd, FollowerFetch, Leadership,
    ReplicaBroker, ReplicaSettings, RequiredAcks,
};

/// A batch to append, from a producer's Produce request or from a coordinator of this broker.
#[derive(Debug)]
pub struct Append<Ack> {
    /// Validated; the replica assigns base offset and leader epoch.
    pub batch: RecordBatch,
    pub required_acks: RequiredAcks,
    /// The leader epoch that the writer expects. Coordinators set it, so that one of an older epoch
    /// cannot write into a newer one. Producers do not.
    pub expected_leader_epoch: Option<LeaderEpoch>,
    /// The timeout, on the caller's clock.
    pub deadline_ms: u64,
    /// The verdict of the log's producer state, determined after earlier batches were processed.
    pub verdict: ProducerVerdict,
    pub ack: Ack,
}

/// The producer state's verdict on a batch (KIP-98).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerVerdict {
    /// Not from an idempotent producer, or next in sequence.
    InSequence,
    /// Already appended.
    Duplicate {
        base_offset: Offset,
        last_offset: Offset,
        log_append_time: Timestamp,
    },
    /// A gap in the sequence, a fenced producer epoch, …
    Refused(ErrorCode),
}

/// The leader's response to a fetch of this replica.
#[derive(Clone, PartialEq, Debug)]
pub enum Fetched {
    /// Batches from the fetch offset on, with verified checksums; empty if there is nothing new.
    Records {
        batches: Vec<AnyBatch>,
        high_watermark: Offset,
        /// The leader's log start offset.
        log_start_offset: Offset,
        /// The log start offset of this replica.
        local_log_start_offset: Offset,
    },
    /// The logs diverge before the fetch offset (KIP-595).
    Diverging {
        /// The leader's largest epoch up to the last fetched epoch, and its end offset there.
        leader: EpochEnd,
        /// `LeaderEpochs::end_offset_for(leader.leader_epoch)` of this replica's log.
        local: Option<EpochEnd>,
    },
}

/// The leader's log start and end offsets, from ListOffsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaderOffsets {
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
}

/// An event for a replica.
///
/// A caller changes the role of a replica only after its `WriteLog` effects were answered. After
/// `TruncateLog` or `TruncateLogFully`, the next event that concerns the log must be
/// `LogTruncated`, `TruncationRefused` or `LogLost`.
#[derive(Debug)]
pub enum Event<Ack> {
    /// This broker was elected leader, or the registration of a partition it leads changed.
    LeaderElected {
        leadership: Leadership,
        now_ms: u64,
    },
    /// The topic's settings changed.
    SettingsChanged(ReplicaSettings),
    /// The registration of a broker with a replica changed. Holds all such brokers, as in
    /// `Leadership`. Ignored by a replica that does not lead.
    BrokersChanged(Vec<ReplicaBroker>),
    /// Another broker, or none (`BrokerId::NONE`), was elected leader, or the registration of a
    /// partition that another broker leads changed.
    FollowerOf {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        settings: ReplicaSettings,
    },
    Append(Append<Ack>),
    /// All batches of `WriteLog` below `log_end_offset` are in the file.
    LogWritten {
        log_end_offset: Offset,
    },
    /// The log ends at `log_end_offset`; the later batches of `WriteLog` were refused.
    WriteRefused {
        log_end_offset: Offset,
    },
    /// Records before this offset are on disk.
    Flushed {
        up_to: Offset,
    },
    /// A follower fetched. The caller has called `Replica::check_follower_fetch` under the same run
    /// token, and responds accordingly.
    FollowerFetched(FollowerFetch),
    /// The controller's response to `Effect::AlterPartition`, or the failure to reach it.
    PartitionAltered {
        proposal: AlterPartition,
        result: Result<AlteredPartition, ErrorCode>,
    },
    /// The leader's response to a fetch of `Effect::Fetch`, or the failure to reach it.
    FetchAnswered {
        order: FetchPosition,
        result: Result<Fetched, ErrorCode>,
        now_ms: u64,
    },
    /// The leader's response to `Effect::ListLeaderOffsets`, or the failure to reach it.
    LeaderOffsetsListed {
        leader_epoch: LeaderEpoch,
        result: Result<LeaderOffsets, ErrorCode>,
        now_ms: u64,
    },
    /// The result of `Effect::FetchRemoteState`.
    RemoteStateFetched {
        leader_epoch: LeaderEpoch,
        result: Result<(), ErrorCode>,
        now_ms: u64,
    },
    /// `TruncateLog`, `TruncateLogFully` or `StartAfterRemoteLog` is done.
    LogTruncated {
        log_start_offset: Offset,
        log_end_offset: Offset,
        /// The latest epoch in the leader epoch checkpoint after the truncation.
        latest_epoch: Option<LeaderEpoch>,
    },
    /// `TruncateLog` or `TruncateLogFully` cannot be done yet: the disk is full or no file handle
    /// is left. The log is unchanged.
    TruncationRefused,
    /// The current time. Leaders with other replicas in the ISR need it at least twice per
    /// `replica.lag.time.max.ms`, and every replica at `Replica::next_deadline_ms`.
    ClockTicked {
        now_ms: u64,
    },
    /// The log directory failed, or the replica is being removed. Final.
    LogLost,
}

/// An action of the caller, to be executed in the order returned.
#[derive(Debug, PartialEq)]
pub enum Effect<Ack> {
    /// Adds the epoch to the leader epoch checkpoint with this start offset.
    AssignLeaderEpoch {
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
    },
    /// Appends this batch; answered by `LogWritten` or `WriteRefused`. Adjacent batches may be
    /// written together.
    WriteLog { batch: RecordBatch },
    /// The same for a message of an old format from the leader's log. Adjacent writes have an old
    /// format too.
    WriteLegacy { message: LegacyMessage },
    /// Flushes the log at least up to this offset; answered by `Flushed` or `LogLost`. If the log
    /// is truncated during the flush, `Flushed` has the offset up to which the remaining log is on
    /// disk.
    Flush { up_to: Offset },
    /// Advances the high watermark (exclusive) for consumers.
    AdvanceHighWatermark { high_watermark: Offset },
    /// The leader's high watermark, limited to this log. It may be lower than the current one,
    /// because a new leader knows less at first.
    FollowHighWatermark { high_watermark: Offset },
    /// The leader's log start offset: removes earlier records, if there are any.
    IncrementLogStartOffset { log_start_offset: Offset },
    /// The smallest log start offset of the live followers has moved to here, so a DeleteRecords
    /// may be complete. It waits for `Replica::low_watermark`.
    MoveLowWatermark { of_followers: Offset },
    /// Completes an append.
    ReleaseAck { ack: Ack, outcome: AckOutcome },
    /// Proposes an ISR to the controller; answered once by `PartitionAltered`. Proposals of one
    /// partition are sent in order, each after the previous one was answered: only the controller
    /// can tell that a proposal was not applied. One that is repeated right after its answer waits
    /// a little (Kafka: 50 ms).
    AlterPartition(AlterPartition),
    /// Fetches from this position until there is a response; answered by `FetchAnswered`, after
    /// which nothing is fetched until the next `Fetch`. Replaces the previous position.
    Fetch(FetchPosition),
    /// Stops fetching; the response to a fetch in flight is ignored.
    StopFetching,
    /// Asks the leader for its log end offset and then for its log start offset; answered by
    /// `LeaderOffsetsListed`.
    ListLeaderOffsets {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
    },
    /// Removes all records from this offset on, and the leader epochs that start at or after it
    /// even if there are no such records; answered by `LogTruncated`.
    TruncateLog { to: Offset },
    /// Removes all records and continues at this offset; answered by `LogTruncated`.
    TruncateLogFully { start_at: Offset },
    /// The next records of the leader are only in remote storage (KIP-405): gets the state before
    /// the first local record of the leader. Answered by `RemoteStateFetched`.
    FetchRemoteState {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
    },
    /// Removes all records and continues with the state that was fetched; answered by
    /// `LogTruncated`.
    StartAfterRemoteLog,
}

/// A fetch position for the fetcher of this leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchPosition {
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    /// The log end offset, or the first one that a crash may have taken.
    pub fetch_offset: Offset,
    /// The latest epoch in the log, with which the leader detects divergence. `None` if the end of
    /// the log is in doubt.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// At its last fetch it had everything below the leader's high watermark: such a replica is
    /// never throttled.
    pub is_in_sync: bool,
}
