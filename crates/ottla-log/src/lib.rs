//! One partition's files: segments, indexes, epochs, producer state, recovery, retention,
//! compaction, in Kafka's format.
//!
//! Owns everything below a partition's directory and the formats of the checkpoint files beside it.
//! Never touches sockets, other partitions or the clock: time is an argument.
//!
//! Invariants:
//! - Bytes visible to readers are completely in the file and are never overwritten in place.
//! - A [`Log`] is changed by one thread at a time; [`LogReader`]s read concurrently.
//! - An append does nothing that can block for long (fsync, unlink): such work is handed out as a
//!   job.
//! - Bytes found on disk lead to an error or a decision, never to a panic.

mod batch_scan;
mod batch_tail;
pub mod checkpoint;
mod clean_logs;
mod cleaner;
mod disk;
mod disk_read;
mod error;
pub mod file_names;
mod force_again;
mod handles;
mod index;
mod jobs;
mod leader_epochs;
mod listing;
mod log;
mod open_files;
mod partition_dir;
mod producer_state;
mod reader;
mod region;
mod segment;
mod segment_file;
mod spare;
mod swap;
mod unlink;

pub use clean_logs::{CLEAN_LOGS_FILE, CleanLog, CleanLogs, CleanLogsError};
pub use cleaner::{
    CleanError, CleanerParams, CleanerStats, CleaningStopped, IoPace, LogAccess, LogToClean, clean,
};
pub use error::{
    AppendError, AppendErrorReason, CheckpointError, LogError, ReadError, StorageError,
    StorageErrorCause,
};
pub use force_again::force_again;
pub use handles::{HandleStats, Handles, LogFile, MayLack, retry_lacking};
pub use index::{AbortedTxn, TimestampOffset};
pub use jobs::{
    CloseJob, DeleteJob, FlushJob, Job, JobOutcome, SpareJob, WritebackJob, WrittenPages,
    observe_flushes,
};
pub use leader_epochs::{EpochEntry, LEADER_EPOCH_CHECKPOINT, LeaderEpochs};
pub use log::{
    AppendInfo, ClosedSegmentFiles, DEFAULT_WRITEBACK_BYTES, DamagedLog, LocalSegment, Log,
    LogStartOffsetError, OpenParams, RecoveryProgress, RecoveryReport, RemoteState, WholeSegment,
    whole_segments,
};
pub use producer_state::{
    AppendOrigin, BatchMetadata, CompletedTxn, LastRecord, ProducerError, ProducerStage,
    ProducerState, ProducerStateEntry, ProducerVerdict, TransactionStart, TransactionVersion,
    Verifications,
};
pub use reader::{LogReader, OffsetPosition, ReadResult, TimestampLookup, TimestampTarget};
pub use region::FileRegion;
pub use spare::SpareSegment;
pub use swap::Swap;
pub use unlink::UnlinkJob;
