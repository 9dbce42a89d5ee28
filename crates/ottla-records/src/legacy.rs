//! Message sets of magic 0 and 1, which old segments can still contain. They are only read, never written: Kafka 4
//! accepts no produce request old enough to carry them.
//!
//! ```text
//! offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | [timestamp i64, magic 1] | key i32 + bytes | value i32 + bytes
//! ```
//!
//! The checksum is CRC-32 (not CRC-32C) from the magic on. A compressed message is a wrapper whose value is
//! a message set. In a wrapper of magic 1 the offset is that of the last message inside, and the offsets
//! inside are relative to its base; under `LogAppendTime` the wrapper's timestamp is that of all messages
//! inside. In a wrapper of magic 0 the offsets inside are absolute. Kafka: `AbstractLegacyRecordBatch`,
//! `LegacyRecord`.

use bytes::Bytes;
use ottla_types::{Offset, Timestamp};

use crate::compression::decompress_magic_0;
use crate::{
    Attributes, BatchError, BatchPrefix, CompressionType, Record, RecordBatch, TimestampType,
    decompress,
};

/// One message of magic 0 or 1 as stored in a log: a record, or a wrapper with compressed records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LegacyMessage {
    /// The message's own offset; in a wrapper, that of the last message inside.
    pub offset: Offset,
    /// 0 or 1.
    pub magic: i8,
    pub crc: u32,
    /// Codec and, for magic 1, timestamp type, with the same bits as in a batch.
    pub attributes: Attributes,
    /// -1 in magic 0.
    pub timestamp: Timestamp,
    pub key: Option<Bytes>,
    /// In a wrapper, the compressed messages.
    pub value: Option<Bytes>,
    /// The bytes that the checksum covers, from the magic to the end.
    checksummed: Bytes,
}

/// Offset and size, which precede the message itself.
const LOG_OVERHEAD: usize = BatchPrefix::LOG_OVERHEAD;
const CRC_SIZE: usize = 4;

impl LegacyMessage {
    /// Splits one message off the front of `bytes`; an error if it is incomplete.
    pub fn read(bytes: &mut Bytes) -> Result<LegacyMessage, BatchError> {
        let prefix = BatchPrefix::parse(bytes)?;
        if prefix.magic > 1 {
            return Err(BatchError::InvalidMagic {
                magic: prefix.magic,
            });
        }
        let size = prefix.size_in_bytes();
        if bytes.len() < size {
            return Err(BatchError::TruncatedBatch {
                size,
                available: bytes.len(),
            });
        }
        let message = bytes.split_to(size).slice(LOG_OVERHEAD..);
        let mut fields = Fields(message.clone());
        let crc = u32::from_be_bytes(fields.array()?);
        let [magic, attributes] = fields.array()?;
        let timestamp = match magic {
            0 => Timestamp::NONE,
            _ => Timestamp(i64::from_be_bytes(fields.array()?)),
        };
        Ok(LegacyMessage {
            offset: prefix.base_offset,
            magic: prefix.magic,
            crc,
            attributes: Attributes(i16::from(attributes)),
            timestamp,
            key: fields.nullable_bytes()?,
            value: fields.nullable_bytes()?,
            checksummed: message.slice(CRC_SIZE..),
        })
    }

    /// The size of the message including offset and size field.
    pub fn size_in_bytes(&self) -> usize {
        LOG_OVERHEAD + CRC_SIZE + self.checksummed.len()
    }

    /// The message as it was read, in one buffer.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.size_in_bytes());
        bytes.extend_from_slice(&self.offset.0.to_be_bytes());
        let size = (CRC_SIZE + self.checksummed.len()) as i32;
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.extend_from_slice(&self.crc.to_be_bytes());
        bytes.extend_from_slice(&self.checksummed);
        Bytes::from(bytes)
    }

    /// The timestamp type; `None` for magic 0, which has no timestamps.
    pub fn timestamp_type(&self) -> Option<TimestampType> {
        (self.magic > 0).then(|| self.attributes.timestamp_type())
    }

    pub fn compression_type(&self) -> Result<CompressionType, BatchError> {
        match self.attributes.compression_type()? {
            CompressionType::Zstd => Err(BatchError::MalformedMessageSet(
                "zstd came after the message formats that it claims",
            )),
            codec => Ok(codec),
        }
    }

    /// Whether the stored checksum is that of the bytes.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let algorithm = crc_fast::CrcAlgorithm::Crc32IsoHdlc;
        let computed = crc_fast::checksum(algorithm, &self.checksummed) as u32;
        if computed != self.crc {
            return Err(BatchError::WrongCrc {
                stored: self.crc,
                computed,
            });
        }
        Ok(())
    }

    /// The records: the message itself, or those inside a wrapper, at most `limit` bytes of them.
    /// Checksums of the messages inside are not verified.
    pub fn records(&self, limit: usize) -> Result<Vec<Record>, BatchError> {
        match self.compression_type()? {
            CompressionType::None => Ok(vec![self.to_record(self.offset, self.timestamp)]),
            codec => self.records_inside(codec, limit),
        }
    }

    fn to_record(&self, offset: Offset, timestamp: Timestamp) -> Record {
        Record {
            offset,
            timestamp,
            key: self.key.clone(),
            value: self.value.clone(),
            headers: Vec::new(),
        }
    }

    fn records_inside(
        &self,
        codec: CompressionType,
        limit: usize,
    ) -> Result<Vec<Record>, BatchError> {
        let messages = self.messages_inside(codec, limit)?;
        let last = messages.last().ok_or(BatchError::MalformedMessageSet(
            "a compressed message holds no messages",
        ))?;
        let base_offset = match (self.magic, self.offset) {
            (0, _) => Offset::ZERO,
            // Some versions of librdkafka left the wrapper's offset at 0.
            (_, Offset::ZERO) => Offset::ZERO,
            (_, wrapper) if wrapper < last.offset => {
                return Err(BatchError::MalformedMessageSet(
                    "the offset of a compressed message is below that of its last message",
                ));
            }
            (_, wrapper) => Offset(wrapper.0.wrapping_sub(last.offset.0)),
        };
        let records = messages.iter().map(|message| {
            if message.attributes.is_compressed() {
                return Err(BatchError::MalformedMessageSet(
                    "a message inside a compressed one is compressed again",
                ));
            }
            let offset = Offset(base_offset.0.wrapping_add(message.offset.0));
            Ok(message.to_record(offset, self.timestamp_inside(message)))
        });
        records.collect()
    }

    fn messages_inside(
        &self,
        codec: CompressionType,
        limit: usize,
    ) -> Result<Vec<LegacyMessage>, BatchError> {
        let value = self
            .value
            .as_deref()
            .ok_or(BatchError::MalformedMessageSet(
                "a compressed message has no value",
            ))?;
        let mut bytes = match self.magic {
            0 => decompress_magic_0(codec, value, limit)?,
            _ => decompress(codec, value, limit)?,
        };
        let mut messages = Vec::new();
        loop {
            match LegacyMessage::read(&mut bytes) {
                Ok(message) => messages.push(message),
                // Kafka ends silently at a truncated message.
                Err(BatchError::TruncatedHeader { .. } | BatchError::TruncatedBatch { .. }) => {
                    return Ok(messages);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn timestamp_inside(&self, message: &LegacyMessage) -> Timestamp {
        if message.magic == 1 && self.timestamp_type() == Some(TimestampType::LogAppendTime) {
            self.timestamp
        } else {
            message.timestamp
        }
    }
}

/// The fields of a message, read in order.
struct Fields(Bytes);

impl Fields {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BatchError> {
        let array = *self.0.first_chunk::<N>().ok_or(ENDS_EARLY)?;
        self.0 = self.0.slice(N..);
        Ok(array)
    }

    fn nullable_bytes(&mut self) -> Result<Option<Bytes>, BatchError> {
        let Ok(length) = usize::try_from(i32::from_be_bytes(self.array()?)) else {
            return Ok(None);
        };
        if length > self.0.len() {
            return Err(ENDS_EARLY);
        }
        Ok(Some(self.0.split_to(length)))
    }
}

const ENDS_EARLY: BatchError = BatchError::MalformedMessageSet("a message ends within its fields");

/// A batch of any magic, for readers of old logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnyBatch {
    Current(RecordBatch),
    Legacy(LegacyMessage),
}

impl AnyBatch {
    /// Splits one batch or message off the front of `bytes`; an error if it is incomplete.
    pub fn read(bytes: &mut Bytes) -> Result<AnyBatch, BatchError> {
        match BatchPrefix::parse(bytes)?.magic {
            0 | 1 => LegacyMessage::read(bytes).map(AnyBatch::Legacy),
            _ => RecordBatch::read(bytes).map(AnyBatch::Current),
        }
    }

    pub fn magic(&self) -> i8 {
        match self {
            AnyBatch::Current(batch) => batch.header.magic,
            AnyBatch::Legacy(message) => message.magic,
        }
    }

    pub fn last_offset(&self) -> Offset {
        match self {
            AnyBatch::Current(batch) => batch.header.last_offset(),
            AnyBatch::Legacy(message) => message.offset,
        }
    }

    pub fn max_timestamp(&self) -> Timestamp {
        match self {
            AnyBatch::Current(batch) => batch.header.max_timestamp,
            AnyBatch::Legacy(message) => message.timestamp,
        }
    }

    pub fn size_in_bytes(&self) -> usize {
        match self {
            AnyBatch::Current(batch) => batch.size_in_bytes(),
            AnyBatch::Legacy(message) => message.size_in_bytes(),
        }
    }

    pub fn verify_crc(&self) -> Result<(), BatchError> {
        match self {
            AnyBatch::Current(batch) => batch.verify_crc(),
            AnyBatch::Legacy(message) => message.verify_crc(),
        }
    }

    /// The records, decompressed, at most `limit` bytes of them.
    pub fn records(&self, limit: usize) -> Result<Vec<Record>, BatchError> {
        self.records_of_at_most(usize::MAX, limit)
    }

    /// As [`AnyBatch::records`]. A larger record of a compressed batch is an error, in message
    /// format 2 as in Kafka.
    pub fn records_of_at_most(
        &self,
        max_record_bytes: usize,
        limit: usize,
    ) -> Result<Vec<Record>, BatchError> {
        match self {
            AnyBatch::Current(batch) => batch.records(limit)?.at_most(max_record_bytes).collect(),
            AnyBatch::Legacy(message) => message.records(limit),
        }
    }
}

#[cfg(test)]
mod tests;
