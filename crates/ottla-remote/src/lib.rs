//! Tiered storage of a broker (KIP-405): the shell around the decisions in `ottla-tiered`.
//!
//! `metadata_topic` writes and reads `__remote_log_metadata`. `partition_task` runs the tasks of
//! one partition: it hands the decisions a view of the log, and carries out their effects at the
//! topic, the store (`uploading`) and the log. `reading` reads records that only the store has.
//! `remote_tier` is their shared state, `stores` runs the work at the store on threads of its own,
//! `turns` limits how much of it runs, `tier_metrics` has the counters, `throttle_times` what the
//! quotas hold back. `remote_logs` gives partitions their roles when the metadata changes.
//!
//! Threads that serve connections only decide, and append to and read from local logs. Threads of
//! the store never touch a local log but for the files of closed segments.
//!
//! Kafka: `RemoteLogManager`, `TopicBasedRemoteLogMetadataManager`.

#![forbid(unsafe_code)]
// Tests may use files and threads directly.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod settings;

mod batches;
mod wire;

mod metadata_partitions;
mod metadata_topic;

mod segment_bytes;
mod stores;
mod turns;

mod throttle_times;
mod tier_metrics;

mod remote_tier;

mod uploading;

mod partition_task;

mod reading;

mod remote_logs;

mod remote_state;

pub use metadata_partitions::MetadataPartitions;
pub use reading::{AdmittedRead, RemoteReadError, RemoteRecords, RemoteRequest};
pub use remote_logs::RemoteLogs;
pub use settings::check_settings;
pub use throttle_times::ThrottleTime;
pub use tier_metrics::{RetentionUse, TierCounter, TierCounts, TierGauges, TierNumbers};
