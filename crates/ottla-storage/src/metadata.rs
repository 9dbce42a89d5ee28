//! The metadata log on this node: its batches and snapshots.
//!
//! `ottla-metadata` interprets the records; `ottla-raft` decides about appends and commits. This
//! module has the files. Not for threads that serve connections: it reads, writes and fsyncs files.

pub mod forced_mark;
pub mod record_batches;

pub mod snapshot_file;

pub mod metadata_log;

pub mod static_voters;
