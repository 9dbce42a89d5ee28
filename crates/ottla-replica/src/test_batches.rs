//! Batches for the tests of this crate: headers without records, because a replica reads only
//! headers.

use bytes::Bytes;
use ottla_records::legacy::LegacyMessage;
use ottla_records::{BatchHeader, RecordBatch};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

/// Without a producer. `crc` is free to distinguish batches.
pub(crate) fn batch(base_offset: i64, records: i32, leader_epoch: i32, crc: u32) -> RecordBatch {
    let header = BatchHeader {
        base_offset: Offset(base_offset),
        batch_length: (BatchHeader::SIZE - 12) as i32,
        partition_leader_epoch: LeaderEpoch(leader_epoch),
        magic: 2,
        crc,
        attributes: Default::default(),
        last_offset_delta: records - 1,
        base_timestamp: Timestamp(0),
        max_timestamp: Timestamp(0),
        producer_id: ProducerId::NONE,
        producer_epoch: ProducerEpoch::NONE,
        base_sequence: Sequence::NONE,
        record_count: records,
    };
    RecordBatch::new(header, Bytes::new())
}

/// A message of magic 1 without key and value.
pub(crate) fn legacy(offset: i64) -> LegacyMessage {
    const SIZE: i32 = 22;
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend(SIZE.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend([1, 0]);
    bytes.extend([0; 8]);
    bytes.extend([(-1_i32).to_be_bytes(); 2].concat());
    LegacyMessage::read(&mut Bytes::from(bytes)).expect("a message")
}
