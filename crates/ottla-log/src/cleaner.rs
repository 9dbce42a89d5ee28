//! Compaction: keeps only the newest record of each key.
//!
//! Decisions over data are pure: the cleanable section, the groups of segments and the records to
//! keep (`cleanable`, `grouping`, `batch_filter`, `transactions`). `clean` carries them out on the
//! files of one log, and [`Swap`](crate::Swap) replaces the old segments by the cleaned one. Never
//! touches the active segment, nor anything at or after the first unstable offset.
//!
//! Invariants:
//! - A record keeps its offset, timestamp and headers; a batch keeps its first and last offset.
//! - The files of the new segment are on disk before any file it replaces is renamed.
//! - Only the holder of the run token changes the log, and nothing it does for the cleaner blocks.
//!
//! Kafka: `LogCleaner`, `LogCleanerManager`, `Cleaner`.

mod batch_filter;
mod clean;
mod clean_error;
mod cleanable;
mod cleaned_segment;
mod grouping;
mod offset_map;
mod slot_table;
mod transactions;

pub use clean::{CleanerParams, CleanerStats, IoPace, LogAccess, clean};
pub use clean_error::{CleanError, CleaningStopped};
pub use cleanable::LogToClean;
