//! Record batches: view, validate, build, checksum, compress. Magic 2, and reading of magic 0 and 1.
//!
//! Owns the byte format of records (KIP-98 and, for reading, the message sets before it) and the four
//! codecs. Never touches files, sockets, clocks or threads: time is an argument, and every length in
//! a batch is checked against the available bytes before it is used.
//!
//! Invariants:
//! - A batch that was read is never copied: its body is a slice of the buffer it came in.
//! - The partition leader and its epoch lie outside the checksum, so that assigning them changes only
//!   the 61 bytes of the header.
//! - No input, however broken, leads to a panic, an endless loop, or an allocation beyond the limit that
//!   the caller gave.
//!
//! Kafka does the same in `org.apache.kafka.common.record` and in `LogValidator`.

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
