//! The 61-byte header of a batch of magic 2 (KIP-98), and the 17 bytes that all formats share.
//!
//! ```text
//!  0 base offset i64        21 attributes i16         43 producer id i64
//!  8 batch length i32       23 last offset delta i32  51 producer epoch i16
//! 12 leader epoch i32       27 base timestamp i64     53 base sequence i32
//! 16 magic i8               35 max timestamp i64      57 record count i32
//! 17 crc u32 (CRC-32C from byte 21 to the end)        61 records
//! ```
//!
//! Parsing checks only what is needed to find the end of the batch. A header that was read is
//! written back byte for byte, whatever its other fields contain. Kafka: `DefaultRecordBatch`.

use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use crate::{Attributes, BatchError, CompressionType};

/// The fields that batches of every magic have at the same positions, enough to step from one batch
/// to the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchPrefix {
    /// For magic 2 the offset of the first record. For older magics, that of the last record in a
    /// compressed message.
    pub base_offset: Offset,
    /// Bytes that follow this field.
    pub batch_length: i32,
    pub magic: i8,
}

impl BatchPrefix {
    /// From the offset up to and including the magic.
    pub const SIZE: usize = 17;
    /// Offset and length, which `batch_length` does not count: `Records.LOG_OVERHEAD`.
    pub const LOG_OVERHEAD: usize = 12;
    /// The smallest `batch_length` of any format: an empty message of magic 0.
    pub const MIN_LENGTH: i32 = 14;

    /// Reads the prefix. Refuses a length that is too small for any format, and magics that Kafka
    /// also refuses.
    pub fn parse(bytes: &[u8]) -> Result<BatchPrefix, BatchError> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(BatchError::TruncatedHeader {
                needed: Self::SIZE,
                available: bytes.len(),
            });
        };
        let batch_length = i32::from_be_bytes(field(bytes, 8));
        if batch_length < Self::MIN_LENGTH {
            return Err(BatchError::TooSmall {
                batch_length,
                minimum: Self::MIN_LENGTH,
            });
        }
        let magic = bytes[16] as i8;
        if !(0..=2).contains(&magic) {
            return Err(BatchError::InvalidMagic { magic });
        }
        Ok(BatchPrefix {
            base_offset: Offset(i64::from_be_bytes(field(bytes, 0))),
            batch_length,
            magic,
        })
    }

    /// The size of the whole batch including offset and length.
    pub const fn size_in_bytes(&self) -> usize {
        Self::LOG_OVERHEAD + self.batch_length as usize
    }
}

/// The header of a batch of magic 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// The offset of the first record, assigned by the leader (0 from a producer). Compaction keeps it
    /// even if the first records are removed.
    pub base_offset: Offset,
    /// Bytes that follow this field: 49 and the records.
    pub batch_length: i32,
    /// The leader epoch of the append, assigned by the leader (-1 from a producer).
    pub partition_leader_epoch: LeaderEpoch,
    /// Always 2.
    pub magic: i8,
    /// CRC-32C from the attributes to the end of the records.
    pub crc: u32,
    pub attributes: Attributes,
    /// The last record's offset minus `base_offset`. Compaction does not change it.
    pub last_offset_delta: i32,
    /// The base of the records' timestamps; the delete horizon if the attributes say so.
    pub base_timestamp: Timestamp,
    /// The largest timestamp of the records, or the append time of all of them.
    pub max_timestamp: Timestamp,
    pub producer_id: ProducerId,
    pub producer_epoch: ProducerEpoch,
    /// The sequence of the first record, -1 without idempotence.
    pub base_sequence: Sequence,
    /// The number of records, which is less than `last_offset_delta + 1` after compaction.
    pub record_count: i32,
}

impl BatchHeader {
    /// The size of the header: `DefaultRecordBatch.RECORD_BATCH_OVERHEAD`.
    pub const SIZE: usize = 61;
    pub const MAGIC: i8 = 2;
    /// The start of the checksummed part.
    pub const CRC_START: usize = 21;
    /// The end of the attributes.
    const ATTRIBUTES_END: usize = 23;
    /// The `batch_length` of a batch without records.
    pub const MIN_LENGTH: i32 = (Self::SIZE - BatchPrefix::LOG_OVERHEAD) as i32;

    /// Reads a header from the front of `bytes`, which may continue with the records. Refuses other
    /// magics and a length below that of an empty batch; does not verify the checksum.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let prefix = BatchPrefix::parse(bytes)?;
        if prefix.magic != Self::MAGIC {
            return Err(BatchError::LegacyMagic {
                magic: prefix.magic,
            });
        }
        if prefix.batch_length < Self::MIN_LENGTH {
            return Err(BatchError::TooSmall {
                batch_length: prefix.batch_length,
                minimum: Self::MIN_LENGTH,
            });
        }
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(BatchError::TruncatedHeader {
                needed: Self::SIZE,
                available: bytes.len(),
            });
        };
        Ok(BatchHeader {
            base_offset: prefix.base_offset,
            batch_length: prefix.batch_length,
            partition_leader_epoch: LeaderEpoch(i32::from_be_bytes(field(bytes, 12))),
            magic: prefix.magic,
            crc: u32::from_be_bytes(field(bytes, 17)),
            attributes: Attributes(i16::from_be_bytes(field(bytes, 21))),
            last_offset_delta: i32::from_be_bytes(field(bytes, 23)),
            base_timestamp: Timestamp(i64::from_be_bytes(field(bytes, 27))),
            max_timestamp: Timestamp(i64::from_be_bytes(field(bytes, 35))),
            producer_id: ProducerId(i64::from_be_bytes(field(bytes, 43))),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field(bytes, 51))),
            base_sequence: Sequence(i32::from_be_bytes(field(bytes, 53))),
            record_count: i32::from_be_bytes(field(bytes, 57)),
        })
    }

    /// The attributes of the batch at the front of `bytes`, without its other fields. `None` if
    /// `bytes` end before them or have another magic.
    pub fn peek_attributes(bytes: &[u8]) -> Option<Attributes> {
        let bytes = bytes.first_chunk::<{ Self::ATTRIBUTES_END }>()?;
        (bytes[16] as i8 == Self::MAGIC).then(|| Attributes(i16::from_be_bytes(field(bytes, 21))))
    }

    /// The header as encoded on the wire and on disk.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.batch_length.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.partition_leader_epoch.0.to_be_bytes());
        bytes[16] = self.magic as u8;
        bytes[17..21].copy_from_slice(&self.crc.to_be_bytes());
        bytes[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.0.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.0.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.0.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.0.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        bytes
    }

    /// The checksum for a header with this body.
    pub(crate) fn compute_crc(&self, body: &[u8]) -> u32 {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&self.to_bytes()[Self::CRC_START..]);
        digest.update(body);
        digest.finalize() as u32
    }

    /// The size of header and records.
    pub const fn size_in_bytes(&self) -> usize {
        BatchPrefix::LOG_OVERHEAD + self.batch_length as usize
    }

    /// The offset of the last record, even if compaction has removed it.
    pub const fn last_offset(&self) -> Offset {
        Offset(
            self.base_offset
                .0
                .wrapping_add(self.last_offset_delta as i64),
        )
    }

    /// The offset after the batch.
    pub const fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.wrapping_add(1))
    }

    /// Moves the batch to `base_offset`, which the checksum does not cover.
    pub const fn assign_offset(&mut self, base_offset: Offset, leader_epoch: LeaderEpoch) {
        self.base_offset = base_offset;
        self.partition_leader_epoch = leader_epoch;
    }

    pub const fn has_producer_id(&self) -> bool {
        self.producer_id.0 > ProducerId::NONE.0
    }

    /// The sequence of the last record, -1 without idempotence.
    pub const fn last_sequence(&self) -> Sequence {
        if self.base_sequence.0 == Sequence::NONE.0 || self.last_offset_delta < 0 {
            self.base_sequence
        } else {
            self.base_sequence.plus(self.last_offset_delta)
        }
    }

    pub fn compression_type(&self) -> Result<CompressionType, BatchError> {
        self.attributes.compression_type()
    }

    pub const fn is_transactional(&self) -> bool {
        self.attributes.is_transactional()
    }

    pub const fn is_control(&self) -> bool {
        self.attributes.is_control()
    }

    /// The time from which the cleaner may drop the batch's tombstones and markers (KIP-534).
    pub const fn delete_horizon(&self) -> Option<Timestamp> {
        if self.attributes.has_delete_horizon() {
            Some(self.base_timestamp)
        } else {
            None
        }
    }
}

/// The `N` bytes at `at`, which lie within a fixed-size header by construction.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

#[cfg(test)]
mod tests {
    use ottla_types::{Offset, Sequence};

    use super::{BatchHeader, BatchPrefix};
    use crate::BatchError;

    fn arbitrary_header(seed: u8) -> [u8; BatchHeader::SIZE] {
        let mut bytes = [0u8; BatchHeader::SIZE];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = seed
                .wrapping_mul(31)
                .wrapping_add((index as u8).wrapping_mul(97));
        }
        bytes[8..12].copy_from_slice(&(49 + i32::from(seed)).to_be_bytes());
        bytes[16] = 2;
        bytes
    }

    #[test]
    fn parsed_headers_are_written_back_unchanged() {
        for seed in 0..=255 {
            let bytes = arbitrary_header(seed);
            assert_eq!(BatchHeader::parse(&bytes).unwrap().to_bytes(), bytes);
        }
    }

    #[test]
    fn short_input_is_an_error_at_every_length() {
        let bytes = arbitrary_header(1);
        for length in 0..BatchHeader::SIZE {
            assert!(matches!(
                BatchHeader::parse(&bytes[..length]),
                Err(BatchError::TruncatedHeader { .. })
            ));
        }
    }

    #[test]
    fn peeked_attributes_are_those_of_the_header() {
        for seed in 0..=255 {
            let mut bytes = arbitrary_header(seed);
            let attributes = BatchHeader::parse(&bytes).unwrap().attributes;
            assert_eq!(BatchHeader::peek_attributes(&bytes), Some(attributes));
            assert_eq!(BatchHeader::peek_attributes(&bytes[..22]), None);
            bytes[16] = 1;
            assert_eq!(BatchHeader::peek_attributes(&bytes), None);
        }
    }

    #[test]
    fn lengths_and_magics_are_checked() {
        let mut bytes = arbitrary_header(1);
        bytes[8..12].copy_from_slice(&48i32.to_be_bytes());
        let too_small = BatchHeader::parse(&bytes);
        assert_eq!(
            too_small,
            Err(BatchError::TooSmall {
                batch_length: 48,
                minimum: 49
            })
        );
        bytes[8..12].copy_from_slice(&(-1i32).to_be_bytes());
        assert!(matches!(
            BatchPrefix::parse(&bytes),
            Err(BatchError::TooSmall { .. })
        ));

        let mut bytes = arbitrary_header(1);
        bytes[16] = 1;
        assert_eq!(
            BatchHeader::parse(&bytes),
            Err(BatchError::LegacyMagic { magic: 1 })
        );
        bytes[16] = 3;
        assert_eq!(
            BatchHeader::parse(&bytes),
            Err(BatchError::InvalidMagic { magic: 3 })
        );
        bytes[16] = 0xff;
        assert_eq!(
            BatchHeader::parse(&bytes),
            Err(BatchError::InvalidMagic { magic: -1 })
        );
    }

    #[test]
    fn ends_are_derived_from_deltas() {
        let mut header = BatchHeader::parse(&arbitrary_header(9)).unwrap();
        header.base_offset = Offset(100);
        header.last_offset_delta = 9;
        header.base_sequence = Sequence(i32::MAX);
        assert_eq!(header.last_offset(), Offset(109));
        assert_eq!(header.next_offset(), Offset(110));
        assert_eq!(header.last_sequence(), Sequence(8));
        header.base_sequence = Sequence::NONE;
        assert_eq!(header.last_sequence(), Sequence::NONE);
    }
}
