//! The metadata log on this node: its batches, its snapshots.
//!
//! What the records mean is known by `ottla-metadata`; who may append, and up to where the log is
//! committed, by `ottla-raft`. Here are the files. Nothing here may run on a thread that serves
//! connections: it reads, writes and forces files to disk.

pub mod forced_mark;
pub mod record_batches;

pub mod snapshot_file;

pub mod metadata_log;

pub mod static_voters;
