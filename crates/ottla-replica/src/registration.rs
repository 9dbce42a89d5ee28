//! The metadata of a partition and of the brokers with its replicas, and the settings that affect
//! replication.
//!
//! Kafka: `PartitionRegistration`, `BrokerRegistration`, and the parts of `MetadataCache` that
//! `Partition` uses.

use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch};

/// Settings of the broker, fixed when the replica is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaConfig {
    pub broker_id: BrokerId,
    /// `replica.lag.time.max.ms`: how long a follower may lag and stay in sync.
    pub replica_lag_time_max_ms: u64,
    /// `replica.fetch.backoff.ms`: backoff of a follower after a failed fetch.
    pub replica_fetch_backoff_ms: u64,
}

impl ReplicaConfig {
    /// With Kafka's defaults.
    pub fn new(broker_id: BrokerId) -> ReplicaConfig {
        ReplicaConfig {
            broker_id,
            replica_lag_time_max_ms: 30_000,
            replica_fetch_backoff_ms: 1_000,
        }
    }
}

/// The registration of a partition that this broker leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leadership {
    pub leader_epoch: LeaderEpoch,
    /// Incremented with each change of the registration. An older registration than the known one
    /// is ignored, because the response to an AlterPartition may overtake the metadata.
    pub partition_epoch: PartitionEpoch,
    /// All replicas, including this one.
    pub replicas: Vec<BrokerId>,
    /// The committed ISR, including this replica.
    pub isr: Vec<BrokerId>,
    /// The registrations of the brokers with replicas. A missing broker is not registered.
    pub brokers: Vec<ReplicaBroker>,
    pub settings: ReplicaSettings,
}

/// The registration of a broker with a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaBroker {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub is_fenced: bool,
    pub is_in_controlled_shutdown: bool,
}

/// The topic settings that affect acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaSettings {
    /// `min.insync.replicas` of the topic; effectively at most the number of replicas.
    pub min_insync_replicas: usize,
    /// `flush.messages` of the topic.
    pub flush_messages: i64,
}

/// A leader epoch and its end offset (exclusive) in some replica's log. The current epoch ends at
/// the log end offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    pub leader_epoch: LeaderEpoch,
    pub end_offset: Offset,
}

/// Checks the leader epoch of a request against the current one (KIP-320); `None` is accepted.
pub(crate) fn check_leader_epoch(
    in_force: LeaderEpoch,
    named: Option<LeaderEpoch>,
) -> Result<(), ErrorCode> {
    match named {
        None => Ok(()),
        Some(named) if named < in_force => Err(ErrorCode::FencedLeaderEpoch),
        Some(named) if named > in_force => Err(ErrorCode::UnknownLeaderEpoch),
        Some(_) => Ok(()),
    }
}
