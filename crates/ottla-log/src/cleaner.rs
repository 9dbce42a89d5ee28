//! Compaction: of every key, only the newest record is kept.
//!
//! What is cleanable, how segments are grouped, and which records stay, are decisions over data
//! (`cleanable`, `grouping`, `batch_filter`, `transactions`); `clean` carries them out on the files of one
//! log, and [`Swap`](crate::Swap) puts the result in the place of what it covers. Never touches the active segment, nor
//! anything at or behind the first offset that is not stable.
//!
//! Invariants:
//! - A record keeps its offset, timestamp and headers, and a batch its first and last offset.
//! - The files of the new segment are on disk before any of those that it covers loses its name.
//! - The log is changed by the holder of its run token only, which does nothing that waits.
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
