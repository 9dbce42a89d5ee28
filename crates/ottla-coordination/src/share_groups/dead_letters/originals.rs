//! The records that are copied to a dead-letter queue, read from the log that they come from.
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

/// How much is read at once; a larger batch is read as a whole.
const READ_BYTES: u64 = 64 << 10;

/// The originals of the first letters that are pending.
pub(super) struct Originals {
    pub(super) by_offset: BTreeMap<Offset, Original>,
    pub(super) bytes: usize,
    /// For how many letters originals were looked for.
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
        max_bytes: usize,
    ) -> ControlFlow<Offset> {
        let (mut next, last) = (range.first_offset, range.last_offset);
        while next <= last {
            let before = next;
            for batch in RecordBatch::read_all(read_at(reader, next)) {
                // The last batch of a read may be cut off; the next read starts with it.
                let Ok(batch) = batch else {
                    break;
                };
                if batch.header.base_offset > last {
                    return ControlFlow::Continue(());
                }
                self.take_from(&batch, next, last, max_bytes)?;
                next = next.max(batch.header.next_offset());
            }
            if next == before {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    fn take_from(
        &mut self,
        batch: &RecordBatch,
        first: Offset,
        last: Offset,
        max_bytes: usize,
    ) -> ControlFlow<Offset> {
        // A batch that decompresses to more would not leave room for its own records.
        let Ok(records) = batch.records(max_bytes) else {
            return ControlFlow::Continue(());
        };
        for record in records.iter() {
            let Ok(record) = record else {
                break;
            };
            let is_wanted = record.offset >= first && record.offset <= last;
            if !is_wanted || record.size_in_bytes > max_bytes {
                continue;
            }
            if self.bytes + record.size_in_bytes > max_bytes {
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

/// Reads the originals of letters, in their order, until there are `max_bytes` of them. Reads below
/// the high watermark, and may wait for the disk.
pub(super) fn read(reader: &LogReader, wanted: &[DeadLetters], max_bytes: usize) -> Originals {
    let mut originals = Originals {
        letters: 0,
        ..Originals::none()
    };
    for range in wanted {
        if let ControlFlow::Break(offset) = originals.read_range(reader, range, max_bytes) {
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
