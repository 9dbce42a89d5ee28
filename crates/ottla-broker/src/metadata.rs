//! The metadata log on this node: its batches, its snapshots, and what follows from a new image.
//!
//! What the records mean is known by `ottla-metadata`; who may append, and up to where the log is
//! committed, by `ottla-raft`. Here are the files. Nothing here may run on a thread that serves
//! connections: it reads, writes and forces files to disk.

pub(crate) mod record_batches;

pub(crate) mod snapshot_file;

pub(crate) mod metadata_log;

pub(crate) mod publish;
