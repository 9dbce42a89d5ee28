//! The records that are copied to a dead-letter queue, read from the local log that they come from.
//!
//! A letter whose original is not in the log any more, cannot be read or is too large for the queue
//! has only headers. Kafka: `ShareGroupDLQRecordFetcher`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use ottla_coordinator::share_partition::DeadLetters;
use ottla_log::LogReader;
use ottla_records::RecordBatch;
use ottla_types::Offset;

use super::size_limits::SizeLimits;

/// How much is read at once; a larger batch is read as a whole.
pub(super) const READ_BYTES: u64 = 64 << 10;

/// The originals of the first letters that are pending.
pub(super) struct Originals {
    pub(super) by_offset: BTreeMap<Offset, Original>,
    pub(super) bytes: usize,
    /// The number of letters whose originals were read. The batch has at most this many.
    pub(super) letters: i64,
}

pub(super) struct Original {
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
}

impl Originals {
    /// All letters have only headers.
    pub(super) fn none() -> Originals {
        Originals {
            by_offset: BTreeMap::new(),
            bytes: 0,
            letters: i64::MAX,
        }
    }

    pub(super) fn of(&self, offset: Offset) -> Option<&Original> {
        self.by_offset.get(&offset)
    }

    /// Reads the originals of one range. Breaks at the first one for which there is no room.
    fn read_range(
        &mut self,
        reader: &LogReader,
        range: &DeadLetters,
        limits: SizeLimits,
    ) -> ControlFlow<Offset> {
        let (mut next, last) = (range.first_offset, range.last_offset);
        loop {
            // The log may have dropped the first records since the last read and still have the
            // others.
            next = next.max(reader.local_log_start_offset());
            if next > last {
                break;
            }
            let before = next;
            for batch in RecordBatch::read_all(read_at(reader, next)) {
                // The last batch of a read may be cut off; the next read starts with it.
                let Ok(batch) = batch else {
                    break;
                };
                if batch.header.base_offset > last {
                    return ControlFlow::Continue(());
                }
                self.take_from(&batch, next, last, limits)?;
                next = next.max(batch.header.next_offset());
            }
            if next == before {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes the records of a batch. Breaks at the first one for which there is no room.
    pub(super) fn take_from(
        &mut self,
        batch: &RecordBatch,
        first: Offset,
        last: Offset,
        limits: SizeLimits,
    ) -> ControlFlow<Offset> {
        // A member that acquires a range acquires the marker of a transaction in it as well.
        if batch.header.is_control() {
            return ControlFlow::Continue(());
        }
        // A batch that decompresses to more would not leave room for its own records.
        let Ok(records) = batch.records(limits.message_bytes) else {
            return ControlFlow::Continue(());
        };
        for record in records.iter() {
            let Ok(record) = record else {
                break;
            };
            let is_wanted = record.offset >= first && record.offset <= last;
            if !is_wanted || record.size_in_bytes > limits.message_bytes {
                continue;
            }
            if self.bytes > 0 && self.bytes + record.size_in_bytes > limits.batch_bytes {
                return ControlFlow::Break(record.offset);
            }
            self.bytes += record.size_in_bytes;
            let original = Original {
                key: record.key.map(Bytes::copy_from_slice),
                value: record.value.map(Bytes::copy_from_slice),
            };
            self.by_offset.insert(record.offset, original);
        }
        ControlFlow::Continue(())
    }
}

/// Reads the originals of letters, in their order, until there are `batch_bytes` of them. Reads below
/// the high watermark, and may wait for the disk.
pub(super) fn read(reader: &LogReader, wanted: &[DeadLetters], limits: SizeLimits) -> Originals {
    let mut originals = Originals {
        letters: 0,
        ..Originals::none()
    };
    for range in wanted {
        if let ControlFlow::Break(offset) = originals.read_range(reader, range, limits) {
            originals.letters += offset.0 - range.first_offset.0;
            break;
        }
        originals.letters += range.last_offset.0 - range.first_offset.0 + 1;
    }
    originals
}

/// Empty if nothing can be read there.
fn read_at(reader: &LogReader, offset: Offset) -> Bytes {
    let read = reader.read(offset, READ_BYTES, reader.high_watermark(), true);
    let Ok(Some(region)) = read.map(|read| read.region) else {
        return Bytes::new();
    };
    region.read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::{ProducerEpoch, ProducerId, Timestamp};

    use super::*;

    const LIMITS: SizeLimits = SizeLimits {
        batch_bytes: 250,
        message_bytes: 1000,
    };

    fn nothing_yet() -> Originals {
        Originals {
            letters: 0,
            ..Originals::none()
        }
    }

    #[test]
    fn a_marker_is_no_original() {
        let (id, epoch) = (ProducerId(1), ProducerEpoch(0));
        let marker = EndTxnMarker {
            coordinator_epoch: 0,
        };
        let batch = end_txn_batch(id, epoch, ControlRecordType::Commit, marker, Timestamp(1));
        let mut originals = nothing_yet();
        let taken = originals.take_from(&batch, Offset(0), Offset(0), LIMITS);
        assert_eq!(taken, ControlFlow::Continue(()));
        assert!(originals.by_offset.is_empty());
    }

    #[test]
    fn a_large_original_is_taken_alone() {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        for size in [100, 100, 500, 5000, 10] {
            let value = vec![b'x'; size];
            builder.append(Timestamp(1), None, Some(value.as_slice()), &[]);
        }
        let batch = builder.build();
        let mut first = nothing_yet();
        let taken = first.take_from(&batch, Offset(0), Offset(4), LIMITS);
        assert_eq!(taken, ControlFlow::Break(Offset(2)));
        assert_eq!(first.by_offset.len(), 2);
        let mut second = nothing_yet();
        let taken = second.take_from(&batch, Offset(2), Offset(4), LIMITS);
        // The queue takes no record as large as the one at offset 3.
        assert_eq!(taken, ControlFlow::Break(Offset(4)));
        assert_eq!(Vec::from_iter(second.by_offset.keys()), [&Offset(2)]);
    }
}
