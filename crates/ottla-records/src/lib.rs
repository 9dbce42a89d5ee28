//! Record batches of magic 2: read, validate, build, checksum and compress. Also reads magic 0 and
//! 1.
//!
//! This crate defines the byte format of records (KIP-98 and, for reading, the earlier message
//! sets) and the four codecs. It uses no files, sockets, clocks or threads: time is an argument.
//! Every length in a batch is checked against the available bytes before it is used.
//!
//! Invariants:
//! - A batch that was read is never copied: its body is a slice of the buffer that it arrived in.
//! - The base offset and the leader epoch are outside the checksum, so that assigning them changes
//!   only the 61 bytes of the header.
//! - No input, however malformed, leads to a panic, an endless loop, or an allocation beyond the
//!   caller's limit.
//!
//! Kafka: `org.apache.kafka.common.record` and `LogValidator`.

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

mod attributes;
mod batch;
mod builder;
mod compression;
mod compression_type;
pub mod control;
mod error;
mod header;
pub mod legacy;
mod record;
mod source;
mod validate;
mod varint;

pub use attributes::{Attributes, TimestampType};
pub use batch::{RecordBatch, RecordBatches};
pub use builder::{RecordBatchBuilder, replace_producer};
pub use compression::{Compression, CompressionLevels, InvalidLevel, decompress};
pub use compression_type::CompressionType;
pub use error::BatchError;
pub use header::{BatchHeader, BatchPrefix};
pub use record::{BatchRecords, HeaderIter, Headers, Record, RecordHeader, RecordIter, RecordView};
pub use validate::{
    AppendOrigin, RecordError, Rejection, ValidatedBatch, ValidationBuffers, ValidationRules,
    read_produced_batch, validate,
};

#[cfg(test)]
mod property_tests;
