//! What the metadata says of a partition and of the brokers that hold its replicas, and the settings that
//! decide about replication, as a replica is told of them.
//!
//! Kafka: `PartitionRegistration`, `BrokerRegistration`, and what `Partition` asks `MetadataCache` for.

use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, PartitionEpoch};

/// What a replica is told of its broker once, when it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaConfig {
    pub broker_id: BrokerId,
    /// `replica.lag.time.max.ms`: how long a follower may go without having caught up and stay in sync.
    pub replica_lag_time_max_ms: u64,
    /// `replica.fetch.backoff.ms`: how long a follower waits after its leader refused a fetch.
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

/// The registration of a partition that this broker leads, as the metadata has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leadership {
    pub leader_epoch: LeaderEpoch,
    /// Raised with each change of the registration. One that is older than what is known is skipped: the
    /// answer to an AlterPartition may overtake the metadata.
    pub partition_epoch: PartitionEpoch,
    /// All replicas, this one included.
    pub replicas: Vec<BrokerId>,
    /// The replicas that the controller has committed as in sync, this one included.
    pub isr: Vec<BrokerId>,
    /// The registrations of the brokers that hold replicas. One that is missing here is not registered.
    pub brokers: Vec<ReplicaBroker>,
    pub settings: ReplicaSettings,
}

/// The registration of a broker that holds a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaBroker {
    pub broker_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub is_fenced: bool,
    pub is_in_controlled_shutdown: bool,
}

/// The settings of the topic that decide about acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaSettings {
    /// `min.insync.replicas` of the topic. What counts is at most the number of replicas.
    pub min_insync_replicas: usize,
    /// `flush.messages` of the topic.
    pub flush_messages: i64,
}

/// A leader epoch and the offset at which it ended (exclusive), in the log of whoever says so. The end of
/// the epoch that is still written to is the log end offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochEnd {
    pub leader_epoch: LeaderEpoch,
    pub end_offset: Offset,
}

/// Whether a request that names a leader epoch means the one in force (KIP-320). A request that names none is taken.
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
