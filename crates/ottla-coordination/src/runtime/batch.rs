//! The batches that a coordinator's writes are appended in.

use ottla_coordinator::{BATCH_HEADER_BYTES, PendingWrite, WriteKind};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{BatchHeader, Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{Sequence, Timestamp};

const _: () = assert!(BatchHeader::SIZE == BATCH_HEADER_BYTES);

/// The codec of an internal topic by its number in the broker's configuration, at its default
/// level.
pub fn compression_of(codec: i32) -> Compression {
    match codec {
        1 => Compression::Gzip { level: -1 },
        2 => Compression::Snappy,
        3 => Compression::Lz4 { level: 9 },
        4 => Compression::Zstd { level: 3 },
        _ => Compression::None,
    }
}

/// Whether the batch of a write is within `max.message.bytes`.
pub fn fits(
    write: &PendingWrite,
    compression: Compression,
    now: Timestamp,
    max_message_bytes: usize,
) -> bool {
    build(std::slice::from_ref(write), compression, now).size_in_bytes() <= max_message_bytes
}

/// Builds the batch of one transactional write or of several plain writes.
pub fn build(writes: &[PendingWrite], compression: Compression, now: Timestamp) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(compression);
    for write in writes {
        match write.kind {
            WriteKind::Plain => {}
            WriteKind::Transactional { producer, .. } => {
                builder = RecordBatchBuilder::new(compression)
                    .producer(producer.id, producer.epoch, Sequence::NONE)
                    .transactional(true);
            }
            WriteKind::EndTransaction { producer, marker } => {
                let kind = if marker.is_commit {
                    ControlRecordType::Commit
                } else {
                    ControlRecordType::Abort
                };
                let coordinator_epoch = marker.coordinator_epoch;
                let marker = EndTxnMarker { coordinator_epoch };
                return end_txn_batch(producer.id, producer.epoch, kind, marker, now);
            }
        }
        for (key, value) in &write.records {
            builder.append(now, Some(key), value.as_deref(), &[]);
        }
    }
    builder.build()
}
