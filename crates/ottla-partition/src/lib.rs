//! The partitions of a broker: their replicas and logs, what replicates them, and what maintains them.
//!
//! From below: `partition` is one partition, stepped by one thread at a time, and knows nothing else of this crate;
//! `partitions` is the map of them. `replication` fetches from leaders and asks the controller for another ISR.
//! `directory_move` moves a replica to another log directory, `cleaner` and `maintenance` are the threads that keep the
//! logs small. `local_replicas` follows the metadata: it opens, changes and deletes partitions.
//!
//! What decides is `ottla-replica` (the replica) and `ottla-log` (the log).
//!
//! Kafka: `Partition`, `ReplicaManager`, `ReplicaFetcherThread`, `LogCleaner`, `LogManager`.

// Tests use the system as they like.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod partition;

pub mod partitions;

pub mod replication;

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
