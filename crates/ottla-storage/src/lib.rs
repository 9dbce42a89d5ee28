//! The state on disk: log directories with their locks and checkpoints, the files of the metadata
//! log, formatting, and the checks before a start (preflight).
//!
//! Owns the directories; opens the logs of partitions and hands them out. Most functions block on
//! the disk: not for threads that serve sockets.

// Tests may use the system freely.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod format;
pub mod log_dirs;
pub mod metadata;
pub mod preflight;
mod random_ids;

pub use random_ids::random_uuid;
