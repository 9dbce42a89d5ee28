//! What can happen to a replica, and what it asks for in return.

use ottla_records::RecordBatch;
use ottla_records::legacy::{AnyBatch, LegacyMessage};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch, Timestamp};

use crate::{
    AckOutcome, AlterPartition, AlteredPartition, EpochEnd, FollowerFetch, Leadership,
    ReplicaBroker, ReplicaSettings, RequiredAcks,
};

/// One batch that somebody wants in the log: a producer through Produce, or a coordinator inside the
/// broker. Both take the same path.
#[derive(Debug)]
pub struct Append<Ack> {
    /// Validated; its base offset and leader epoch are assigned here.
    pub batch: RecordBatch,
    pub required_acks: RequiredAcks,
    /// The leader epoch in which the writer believes; coordinators set it so that one of an older epoch
    /// cannot write into a newer one. Producers leave it out.
    pub expected_leader_epoch: Option<LeaderEpoch>,
    /// When to give up waiting, on the caller's clock.
    pub deadline_ms: u64,
    /// What the log's producer state says of the batch, looked up after everything ahead was written.
    pub verdict: ProducerVerdict,
    pub ack: Ack,
}

/// What the producer state of a log says of a batch (KIP-98).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerVerdict {
    /// Not from an idempotent producer, or the next in its sequence.
    InSequence,
    /// Appended before.
    Duplicate {
        base_offset: Offset,
        last_offset: Offset,
        log_append_time: Timestamp,
    },
    /// A gap in the sequence, a fenced producer epoch, …
    Refused(ErrorCode),
}

/// What a leader answered to a fetch of this replica.
#[derive(Clone, PartialEq, Debug)]
pub enum Fetched {
    /// Batches from the fetch offset on, checksums verified; none where there is nothing new.
    Records {
        batches: Vec<AnyBatch>,
        high_watermark: Offset,
        /// Of the leader.
        log_start_offset: Offset,
        /// Of the log here.
        local_log_start_offset: Offset,
    },
    /// The leader's log left this one's before the fetch offset (KIP-595).
    Diverging {
        /// The largest epoch at most the one fetched last that the leader knows, and where it ended there.
        leader: EpochEnd,
        /// What the log here says about `leader.leader_epoch`: `LeaderEpochs::end_offset_for`.
        local: Option<EpochEnd>,
    },
}

/// Where the log of the leader starts and ends, as ListOffsets says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaderOffsets {
    pub log_start_offset: Offset,
    pub log_end_offset: Offset,
}

/// Something that happened.
///
/// A caller gives a replica its next role only when what `WriteLog` asked for has been answered. After
/// `TruncateLog` and `TruncateLogFully` nothing else comes before their answer, `LogTruncated` or `TruncationRefused`, or `LogLost`.
#[derive(Debug)]
pub enum Event<Ack> {
    /// The metadata made this broker the leader, or changed the registration of a partition that it
    /// leads.
    LeaderElected {
        leadership: Leadership,
        now_ms: u64,
    },
    /// The settings of the topic changed.
    SettingsChanged(ReplicaSettings),
    /// The registration of a broker changed that holds a replica: it came back, was fenced, is shutting
    /// down, or is gone. All of them, as in `Leadership`. Means nothing to a replica that does not lead.
    BrokersChanged(Vec<ReplicaBroker>),
    /// The metadata made another broker the leader, or none (`BrokerId::NONE`), or changed the registration
    /// of a partition that another broker leads.
    FollowerOf {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
        partition_epoch: PartitionEpoch,
        settings: ReplicaSettings,
    },
    Append(Append<Ack>),
    /// All that `WriteLog` asked for, up to the record before `log_end_offset`, is in the file.
    LogWritten {
        log_end_offset: Offset,
    },
    /// The log ends at `log_end_offset`; what `WriteLog` asked for beyond it was refused.
    WriteRefused {
        log_end_offset: Offset,
    },
    /// Everything before this offset has reached the disk.
    Flushed {
        up_to: Offset,
    },
    /// A follower asked for records. The caller has had it checked with `Replica::check_follower_fetch`
    /// under the same run token, and answers what that says.
    FollowerFetched(FollowerFetch),
    /// The controller answered `Effect::AlterPartition`, or could not be asked.
    PartitionAltered {
        proposal: AlterPartition,
        result: Result<AlteredPartition, ErrorCode>,
    },
    /// The leader answered a fetch that `Effect::Fetch` ordered, or could not be asked.
    FetchAnswered {
        order: FetchPosition,
        result: Result<Fetched, ErrorCode>,
        now_ms: u64,
    },
    /// The leader answered `Effect::ListLeaderOffsets`, or could not be asked.
    LeaderOffsetsListed {
        leader_epoch: LeaderEpoch,
        result: Result<LeaderOffsets, ErrorCode>,
        now_ms: u64,
    },
    /// `TruncateLog` or `TruncateLogFully` is done.
    LogTruncated {
        log_start_offset: Offset,
        log_end_offset: Offset,
        /// The epoch of the log's last record that is left, from its leader epoch checkpoint.
        latest_epoch: Option<LeaderEpoch>,
    },
    /// `TruncateLog` or `TruncateLogFully` could not be done yet: the disk is full, or the process has no file handle left.
    /// The log is as it was.
    TruncationRefused,
    /// The clock says this now. A leader with other replicas in its ISR is told at least twice within
    /// `replica.lag.time.max.ms`, and every replica when `Replica::next_deadline_ms` is reached.
    ClockTicked {
        now_ms: u64,
    },
    /// The log directory went offline, or the replica is being removed. Final.
    LogLost,
}

/// Something to do, in the order in which it stands.
#[derive(Debug, PartialEq)]
pub enum Effect<Ack> {
    /// Note in the leader epoch checkpoint that this epoch starts at this offset.
    AssignLeaderEpoch {
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
    },
    /// Append this batch; answered by `LogWritten` or `WriteRefused`. Neighbours may be written at once.
    WriteLog { batch: RecordBatch },
    /// The same for a message of an old format, which stands in the leader's log. Its neighbours are such as well.
    WriteLegacy { message: LegacyMessage },
    /// Flush the log at least up to here; answered by `Flushed`, or `LogLost`. Where the log is cut meanwhile, `Flushed`
    /// says how far what is in it now is on the disk.
    Flush { up_to: Offset },
    /// Let consumers read up to here (exclusive).
    AdvanceHighWatermark { high_watermark: Offset },
    /// The leader's high watermark as far as the log here reaches. It may lie before the one that was in
    /// force: a new leader knows of less at first.
    FollowHighWatermark { high_watermark: Offset },
    /// The leader's log starts here: forget what is before, if there is anything.
    IncrementLogStartOffset { log_start_offset: Offset },
    /// The smallest log start offset of the followers whose brokers are alive has moved up to here: a
    /// DeleteRecords may be done. What it waits for is `Replica::low_watermark`.
    MoveLowWatermark { of_followers: Offset },
    /// Answer whoever waits.
    ReleaseAck { ack: Ack, outcome: AckOutcome },
    /// Have the controller commit another ISR; answered by `PartitionAltered`, once. Proposals of one
    /// partition are sent in order, a newer one after the older one was answered: nobody but the controller
    /// may say of a proposal that it was not applied. One that comes again right after its answer waits a
    /// little (Kafka: 50 ms).
    AlterPartition(AlterPartition),
    /// A standing order: fetch from here, again and again where the leader has nothing to say; answered by
    /// `FetchAnswered`, after which nothing is fetched until the next order. It takes the place of the one
    /// before.
    Fetch(FetchPosition),
    /// Forget the order; the answer to a fetch that is under way comes to nothing.
    StopFetching,
    /// Ask the leader where its log ends, and then where it starts; answered by `LeaderOffsetsListed`.
    ListLeaderOffsets {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
    },
    /// Remove all records from this offset on, and the leader epochs that begin there or behind, also where
    /// there are no records to remove; answered by `LogTruncated`.
    TruncateLog { to: Offset },
    /// Remove all records and go on at this offset; answered by `LogTruncated`.
    TruncateLogFully { start_at: Offset },
}

/// Where to fetch from, for the fetcher of this leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchPosition {
    pub leader: BrokerId,
    pub leader_epoch: LeaderEpoch,
    /// The log end offset.
    pub fetch_offset: Offset,
    /// The epoch at the end of the log, by which the leader finds out whether the logs agree.
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// It had all below the leader's high watermark when it fetched last: such a one is never throttled.
    pub is_in_sync: bool,
}
