//! The partitions of a broker: replicas and logs, replication and maintenance.
//!
//! `partition` is one partition, stepped by one thread at a time; it uses nothing else of this
//! crate. `partitions` is the map of them. `replication` fetches from leaders and proposes ISR
//! changes to the controller. `directory_move` moves a replica to another log directory; `cleaner`
//! and `maintenance` are the threads that keep logs small. `local_replicas` applies metadata
//! changes: it opens, changes and deletes partitions.
//!
//! The decisions are in `ottla-replica` (the replica) and `ottla-log` (the log).
//!
//! Kafka: `Partition`, `ReplicaManager`, `ReplicaFetcherThread`, `LogCleaner`, `LogManager`.

// Tests may use the system freely.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod partition;

pub mod partitions;

pub mod replication;

pub mod tiering;

pub mod cleaner;
pub mod maintenance;

pub mod directory_move;

pub mod local_replicas;

pub use partition::Partition;
pub use partition::host::PartitionHost;
pub use partitions::Partitions;
pub use replication::Replication;

#[cfg(any(test, feature = "test-host"))]
pub mod test_host;

#[cfg(test)]
mod simulated;
