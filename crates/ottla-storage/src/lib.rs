//! What lies on disk: log directories with their locks and checkpoints, the files of the metadata log, formatting, and
//! what can be found out about all of it before a start (preflight).
//!
//! Owns the directories; never owns the log of a partition beyond opening it and handing it out. Most of what is here
//! blocks on the disk: not for threads that serve sockets.

// Tests use the system as they like.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod format;
pub mod log_dirs;
pub mod metadata;
pub mod preflight;
mod random_ids;

pub use random_ids::random_uuid;
