//! What can happen to a replica, and what it asks for in return.

use ottla_records::RecordBatch;
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Timestamp};

use crate::{AckOutcome, RequiredAcks};

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

/// The registration of a partition that this broker leads, as the metadata has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leadership {
    pub leader_epoch: LeaderEpoch,
    /// All replicas, this one included.
    pub replicas: Vec<BrokerId>,
    /// In-sync replicas, this one included; with changes still pending at the controller, the larger
    /// set (Kafka's "maximal ISR").
    pub isr: Vec<BrokerId>,
    pub settings: ReplicaSettings,
}

/// The settings of the topic that decide about acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaSettings {
    /// `min.insync.replicas` of the topic. What counts is at most the number of replicas.
    pub min_insync_replicas: usize,
    /// `flush.messages` of the topic.
    pub flush_messages: i64,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<Ack> {
    /// The metadata made this broker the leader, or changed the registration of a partition that it
    /// leads.
    LeaderElected(Leadership),
    /// The settings of the topic changed. Means nothing to a replica that does not lead.
    SettingsChanged(ReplicaSettings),
    /// The metadata made another broker the leader.
    FollowerOf {
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
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
    /// A follower asked for records from this offset on, so it has everything before it.
    FollowerFetched {
        follower: BrokerId,
        log_end_offset: Offset,
    },
    /// The clock says this now.
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
    /// Flush the log at least up to here; answered by `Flushed`, or `LogLost`.
    Flush { up_to: Offset },
    /// Let consumers read up to here (exclusive).
    AdvanceHighWatermark { high_watermark: Offset },
    /// Answer whoever waits.
    ReleaseAck { ack: Ack, outcome: AckOutcome },
}
