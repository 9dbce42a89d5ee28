//! Tiered storage (KIP-405) without I/O: formats, the metadata of remote segments, and decisions.
//!
//! Owns the messages of `__remote_log_metadata`, the cache that a broker builds from them, and what
//! Kafka's remote log manager decides: which segments are copied, read, expired and deleted, and
//! how far local segments may go. Never touches a store, a log, the topic, a clock or a thread:
//! time and random IDs are arguments, and the work of others is returned as effects.
//!
//! Kafka: `org.apache.kafka.server.log.remote`.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type
    )
)]

mod leader_epochs;
mod segment_id;
mod segment_state;

mod remote_segment;

mod metadata_record;
mod metadata_topic;

mod metadata_cache;
mod metadata_store;

mod log_view;

#[cfg(not(any(test, feature = "planted-bugs")))]
mod planted;
#[cfg(any(test, feature = "planted-bugs"))]
pub mod planted;

mod lineage;

mod task;

mod deletion;

mod copy_task;

mod expiry;

mod expiration_task;

mod partition_deletion;

mod partition_tasks;

mod local_retention;

mod quota;

mod remote_index;

mod remote_read;

mod auxiliary_state;

#[cfg(test)]
mod test_segments;

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod kafka_cases;

pub use auxiliary_state::{
    AuxiliaryEffect, AuxiliaryEvent, AuxiliaryFailure, AuxiliaryState, FetchedIndex, ListedOffset,
    OffsetAndEpoch, Restart,
};
pub use copy_task::{CopyDelay, CopyLag, CopyTask};
pub use expiration_task::{DeleteLag, ExpirationTask};
pub use expiry::{Expiry, Leading, Retention, expire};
pub use leader_epochs::{EpochEntry, LeaderEpochs, LeaderEpochsError};
pub use lineage::{first_offset, highest_remote_offset, is_within_leader_epochs};
pub use local_retention::{LocalExpiry, LocalRetention};
pub use log_view::{LocalSegment, LogView};
pub use metadata_cache::{NotApplied, RemoteLogMetadataCache, RemoteLogStats};
pub use metadata_record::{RemoteLogMetadata, RemoteLogMetadataError};
pub use metadata_store::{RemotePartitionMetadataStore, StoreError};
pub use metadata_topic::{REMOTE_LOG_METADATA_TOPIC, metadata_partition};
pub use partition_deletion::PartitionDeletion;
pub use partition_tasks::{
    PartitionTasks, TaskKind, TaskSettings, TierRole, TieringChange, TopicTiering,
};
pub use quota::RemoteQuota;
pub use remote_index::{AbortedTransaction, OffsetIndex, TimeIndex, collect_aborted};
pub use remote_read::{
    AbortedRange, ReadEffect, ReadEvent, RemoteRead, TimestampSearch, find_timestamp,
};
pub use remote_segment::{
    CustomMetadata, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata, RemoteSegment, RemoteSegmentError, RemoteSegmentUpdate,
};
pub use segment_id::{RemoteLogSegmentId, RemotePartition};
pub use segment_state::{RemoteLogSegmentState, RemotePartitionDeleteState};
pub use task::{
    Operation, Origin, PublishFailure, RunOutcome, StoreFailure, TaskEffect, TaskEvent, TaskTime,
    Upload,
};
