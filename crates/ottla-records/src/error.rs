//! Errors in the bytes of a batch.

use ottla_types::ErrorCode;

use crate::CompressionType;

/// An invalid batch or record. Every variant maps to Kafka's error code: `CORRUPT_MESSAGE` where Kafka
/// throws `CorruptRecordException`, `INVALID_RECORD` for the rest.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BatchError {
    #[error("a batch header needs {needed} bytes, but only {available} are there")]
    TruncatedHeader { needed: usize, available: usize },
    #[error("batch length {batch_length} is below the minimum of {minimum}")]
    TooSmall { batch_length: i32, minimum: i32 },
    #[error("batch of {size} bytes, but only {available} are there")]
    TruncatedBatch { size: usize, available: usize },
    #[error("invalid magic {magic}: 0, 1 and 2 are known")]
    InvalidMagic { magic: i8 },
    #[error("magic {magic} is the message format before Kafka 0.11 and not a record batch")]
    LegacyMagic { magic: i8 },
    #[error("the stored checksum is {stored:#010x}, but the bytes give {computed:#010x}")]
    WrongCrc { stored: u32, computed: u32 },
    #[error("unknown compression codec {id}")]
    UnknownCompression { id: u8 },
    #[error("{codec} data cannot be decompressed: {reason}")]
    Decompression {
        codec: CompressionType,
        reason: String,
    },
    #[error("{codec} data would decompress to more than {limit} bytes")]
    DecompressedTooLarge {
        codec: CompressionType,
        limit: usize,
    },
    #[error("invalid record count {count}")]
    InvalidRecordCount { count: i32 },
    #[error("record {index} is malformed: {reason}")]
    MalformedRecord { index: i32, reason: &'static str },
    #[error(
        "record {index} decompresses to {size} bytes, more than \
         max.decompressed.message.bytes={limit}"
    )]
    RecordTooLarge {
        index: i32,
        size: usize,
        limit: usize,
    },
    #[error("bytes remain after the last of {count} records")]
    TrailingBytes { count: i32 },
    #[error("malformed message set: {0}")]
    MalformedMessageSet(&'static str),
    #[error("malformed control record: {0}")]
    MalformedControlRecord(String),
}

impl BatchError {
    /// The code that Kafka answers a produce request with.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            BatchError::TruncatedHeader { .. }
            | BatchError::TooSmall { .. }
            | BatchError::TruncatedBatch { .. }
            | BatchError::InvalidMagic { .. }
            | BatchError::WrongCrc { .. } => ErrorCode::CorruptMessage,
            BatchError::DecompressedTooLarge { .. } => ErrorCode::MessageTooLarge,
            BatchError::LegacyMagic { .. }
            | BatchError::UnknownCompression { .. }
            | BatchError::Decompression { .. }
            | BatchError::InvalidRecordCount { .. }
            | BatchError::MalformedRecord { .. }
            | BatchError::RecordTooLarge { .. }
            | BatchError::TrailingBytes { .. }
            | BatchError::MalformedMessageSet(_)
            | BatchError::MalformedControlRecord(_) => ErrorCode::InvalidRecord,
        }
    }
}
