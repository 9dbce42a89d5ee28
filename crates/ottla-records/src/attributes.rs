//! The attribute bits of a batch header, and the two enums encoded in them.
//!
//! ```text
//! | unused (7-15) | delete horizon (6) | control (5) | transactional (4) | timestamp type (3) | codec (0-2) |
//! ```
//!
//! The unused bits are preserved, so that a header that was read is written back byte for byte.

use std::fmt;

use crate::{BatchError, CompressionType};

/// Which clock sets the timestamps of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TimestampType {
    /// The producer, record by record.
    #[default]
    CreateTime,
    /// The broker: every record of the batch has the batch's `max_timestamp`.
    LogAppendTime,
}

impl TimestampType {
    /// The name in `message.timestamp.type`.
    pub const fn name(self) -> &'static str {
        match self {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }
}

impl fmt::Display for TimestampType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The attributes of a batch as encoded in its header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Attributes(pub i16);

const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
const DELETE_HORIZON: i16 = 0x40;

impl Attributes {
    /// The codec, or an error for an unassigned number.
    pub fn compression_type(self) -> Result<CompressionType, BatchError> {
        let id = (self.0 & CODEC_MASK) as u8;
        CompressionType::from_id(id).ok_or(BatchError::UnknownCompression { id })
    }

    pub const fn is_compressed(self) -> bool {
        self.0 & CODEC_MASK != 0
    }

    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    pub const fn is_transactional(self) -> bool {
        self.0 & TRANSACTIONAL != 0
    }

    /// Whether the records are control records: transaction markers or records of the quorum.
    pub const fn is_control(self) -> bool {
        self.0 & CONTROL != 0
    }

    /// Whether `base_timestamp` is the time from which the cleaner may drop the batch's tombstones and
    /// markers (KIP-534) instead of the first record's timestamp.
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & DELETE_HORIZON != 0
    }

    #[must_use]
    pub const fn with_compression_type(self, codec: CompressionType) -> Self {
        Self(self.0 & !CODEC_MASK | codec.id() as i16)
    }

    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with(
            LOG_APPEND_TIME,
            matches!(timestamp_type, TimestampType::LogAppendTime),
        )
    }

    #[must_use]
    pub const fn with_transactional(self, transactional: bool) -> Self {
        self.with(TRANSACTIONAL, transactional)
    }

    #[must_use]
    pub const fn with_control(self, control: bool) -> Self {
        self.with(CONTROL, control)
    }

    #[must_use]
    pub const fn with_delete_horizon(self, delete_horizon: bool) -> Self {
        self.with(DELETE_HORIZON, delete_horizon)
    }

    const fn with(self, bit: i16, on: bool) -> Self {
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attributes({:#06x}", self.0)?;
        match self.compression_type() {
            Ok(codec) => write!(f, ", {codec}")?,
            Err(_) => f.write_str(", unknown codec")?,
        }
        write!(f, ", {}", self.timestamp_type())?;
        for (on, name) in [
            (self.is_transactional(), ", transactional"),
            (self.is_control(), ", control"),
            (self.has_delete_horizon(), ", delete horizon"),
        ] {
            if on {
                f.write_str(name)?;
            }
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::{Attributes, CompressionType, TimestampType};

    #[test]
    fn bits_are_kafkas() {
        let attributes = Attributes::default()
            .with_compression_type(CompressionType::Zstd)
            .with_timestamp_type(TimestampType::LogAppendTime)
            .with_transactional(true)
            .with_control(true)
            .with_delete_horizon(true);
        assert_eq!(attributes, Attributes(0x7c));
        assert_eq!(attributes.with_transactional(false), Attributes(0x6c));
        assert_eq!(
            attributes.with_compression_type(CompressionType::None),
            Attributes(0x78)
        );
    }

    #[test]
    fn unused_bits_are_kept() {
        let attributes = Attributes(0x7f80_u16 as i16)
            .with_control(true)
            .with_control(false);
        assert_eq!(attributes, Attributes(0x7f80));
    }

    #[test]
    fn numbers_without_a_codec_are_refused() {
        for id in 5..8 {
            assert!(Attributes(id).compression_type().is_err());
        }
        assert_eq!(Attributes(3).compression_type(), Ok(CompressionType::Lz4));
    }

    #[test]
    fn names_come_back() {
        for codec in CompressionType::ALL {
            assert_eq!(CompressionType::from_name(codec.name()), Some(codec));
            assert_eq!(CompressionType::from_id(codec.id()), Some(codec));
        }
        assert_eq!(CompressionType::from_name("GZIP"), None);
    }
}
