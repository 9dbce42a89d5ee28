//! One batch of magic 2: its header, and its records as a slice of the buffer it was read from.
//!
//! Assigning offset and leader epoch changes only the part of the header that the checksum does not
//! cover. A batch is written to disk as header and body in one vectored write. Reading a sequence
//! of batches ends silently at a truncated one, as in Kafka's `ByteBufferLogInputStream`, because
//! fetch responses can end like that.

use bytes::Bytes;
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use crate::{
    BatchError, BatchHeader, BatchPrefix, BatchRecords, CompressionType, TimestampType, decompress,
};

/// A record batch. Cloning shares the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordBatch {
    pub header: BatchHeader,
    /// The bytes after the header; compressed if the attributes say so.
    body: Bytes,
}

impl RecordBatch {
    /// Combines header and body. The length in the header must match the body.
    pub fn new(header: BatchHeader, body: Bytes) -> RecordBatch {
        assert_eq!(
            header.size_in_bytes(),
            BatchHeader::SIZE + body.len(),
            "the length in the header is not that of the body"
        );
        RecordBatch { header, body }
    }

    /// Splits one batch off the front of `bytes`; an error if it is incomplete.
    pub fn read(bytes: &mut Bytes) -> Result<RecordBatch, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let size = header.size_in_bytes();
        if bytes.len() < size {
            return Err(BatchError::TruncatedBatch {
                size,
                available: bytes.len(),
            });
        }
        let mut batch = bytes.split_to(size);
        let body = batch.split_off(BatchHeader::SIZE);
        Ok(RecordBatch { header, body })
    }

    /// All batches in `bytes`, one after the other. A truncated batch at the end is skipped (see
    /// [`RecordBatches::remaining`]); an invalid batch is an error and ends the sequence.
    pub fn read_all(bytes: Bytes) -> RecordBatches {
        RecordBatches {
            remaining: bytes,
            failed: false,
        }
    }

    /// The bytes after the header, compressed if the attributes say so.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The records, decompressed if necessary. More than `limit` bytes of them are an error. The
    /// checksum is not verified.
    pub fn records(&self, limit: usize) -> Result<BatchRecords, BatchError> {
        let bytes = match self.header.compression_type()? {
            CompressionType::None => self.body.clone(),
            // Kafka ignores the body of a batch without records.
            _ if self.header.record_count == 0 => Bytes::new(),
            codec => decompress(codec, &self.body, limit)?,
        };
        BatchRecords::new(self.header, bytes)
    }

    /// The size of header and body.
    pub fn size_in_bytes(&self) -> usize {
        BatchHeader::SIZE + self.body.len()
    }

    /// The whole batch in one buffer. Copies the body: for tools, tests and requests that carry a single
    /// small batch. Logs write `header.to_bytes()` and `body()` in one vectored write instead.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = Vec::with_capacity(self.size_in_bytes());
        bytes.extend_from_slice(&self.header.to_bytes());
        bytes.extend_from_slice(&self.body);
        Bytes::from(bytes)
    }

    /// The checksum from the attributes to the end of the body, as the header should contain it.
    pub fn compute_crc(&self) -> u32 {
        self.header.compute_crc(&self.body)
    }

    /// Whether the stored checksum is that of the bytes.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        let computed = self.compute_crc();
        if computed != self.header.crc {
            return Err(BatchError::WrongCrc {
                stored: self.header.crc,
                computed,
            });
        }
        Ok(())
    }

    /// Sets the offset and the leader epoch of the batch. The checksum stays valid.
    pub fn assign_offset(&mut self, base_offset: Offset, leader_epoch: LeaderEpoch) {
        self.header.assign_offset(base_offset, leader_epoch);
    }

    /// Sets the timestamp type of the batch and its largest timestamp. The checksum covers both and
    /// is recomputed if something changed.
    pub fn set_max_timestamp(&mut self, timestamp_type: TimestampType, max_timestamp: Timestamp) {
        let attributes = self.header.attributes.with_timestamp_type(timestamp_type);
        if attributes == self.header.attributes && max_timestamp == self.header.max_timestamp {
            return;
        }
        self.header.attributes = attributes;
        self.header.max_timestamp = max_timestamp;
        self.header.crc = self.compute_crc();
    }
}

/// The batches of a buffer, in order. See [`RecordBatch::read_all`].
#[derive(Clone, Debug)]
pub struct RecordBatches {
    remaining: Bytes,
    failed: bool,
}

impl RecordBatches {
    /// The unread bytes: empty after the last batch, or a truncated batch.
    pub fn remaining(&self) -> &Bytes {
        &self.remaining
    }
}

impl Iterator for RecordBatches {
    type Item = Result<RecordBatch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.remaining.len() < BatchPrefix::SIZE {
            return None;
        }
        match RecordBatch::read(&mut self.remaining) {
            Ok(batch) => Some(Ok(batch)),
            Err(BatchError::TruncatedBatch { .. } | BatchError::TruncatedHeader { .. }) => {
                self.failed = true;
                None
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

    use super::RecordBatch;
    use crate::{Attributes, BatchError, BatchHeader, TimestampType};

    fn batch(body: &'static [u8]) -> RecordBatch {
        let header = BatchHeader {
            base_offset: Offset(0),
            batch_length: BatchHeader::MIN_LENGTH + body.len() as i32,
            partition_leader_epoch: LeaderEpoch::UNKNOWN,
            magic: BatchHeader::MAGIC,
            crc: 0,
            attributes: Attributes::default(),
            last_offset_delta: 0,
            base_timestamp: Timestamp(5),
            max_timestamp: Timestamp(5),
            producer_id: ProducerId::NONE,
            producer_epoch: ProducerEpoch::NONE,
            base_sequence: Sequence::NONE,
            record_count: 1,
        };
        let mut batch = RecordBatch::new(header, Bytes::from_static(body));
        batch.header.crc = batch.compute_crc();
        batch
    }

    #[test]
    fn checksum_is_castagnoli() {
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, b"123456789");
        assert_eq!(crc, 0xe306_9283);
        let batch = batch(b"records");
        let whole = batch.to_bytes();
        let joined = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &whole[21..]);
        assert_eq!(u64::from(batch.compute_crc()), joined);
    }

    #[test]
    fn assigning_the_offset_keeps_the_checksum_and_shares_the_body() {
        let original = batch(b"records");
        let mut moved = original.clone();
        moved.assign_offset(Offset(1 << 40), LeaderEpoch(7));
        assert_eq!(moved.verify_crc(), Ok(()));
        assert_eq!(moved.body().as_ptr(), original.body().as_ptr());
        assert_ne!(moved.to_bytes(), original.to_bytes());
    }

    #[test]
    fn a_new_max_timestamp_gets_a_new_checksum() {
        let mut batch = batch(b"records");
        let before = batch.header.crc;
        batch.set_max_timestamp(TimestampType::LogAppendTime, Timestamp(9));
        assert_ne!(batch.header.crc, before);
        assert_eq!(batch.verify_crc(), Ok(()));
        assert_eq!(batch.header.max_timestamp, Timestamp(9));
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let mut bytes = batch(b"records").to_bytes().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        let damaged = RecordBatch::read(&mut Bytes::from(bytes)).unwrap();
        assert!(matches!(
            damaged.verify_crc(),
            Err(BatchError::WrongCrc { .. })
        ));
    }

    #[test]
    fn batches_follow_each_other_and_a_cut_one_is_left_out() {
        let (first, second) = (batch(b"one"), batch(b"second"));
        let mut bytes = [first.to_bytes(), second.to_bytes()].concat();
        let whole = RecordBatch::read_all(Bytes::from(bytes.clone()));
        assert_eq!(
            whole.collect::<Result<Vec<_>, _>>(),
            Ok(vec![first.clone(), second])
        );

        for cut in 1..first.size_in_bytes() {
            bytes.truncate(first.size_in_bytes() + 67 - cut.min(67));
            let mut batches = RecordBatch::read_all(Bytes::from(bytes.clone()));
            assert_eq!(batches.next(), Some(Ok(first.clone())));
            assert_eq!(batches.next(), None);
            assert_eq!(
                batches.remaining().len(),
                bytes.len() - first.size_in_bytes()
            );
        }
    }

    #[test]
    fn an_unreadable_batch_ends_the_sequence() {
        let mut bytes = batch(b"one").to_bytes().to_vec();
        bytes[16] = 9;
        let mut batches = RecordBatch::read_all(Bytes::from(bytes));
        assert_eq!(
            batches.next(),
            Some(Err(BatchError::InvalidMagic { magic: 9 }))
        );
        assert_eq!(batches.next(), None);
    }
}
