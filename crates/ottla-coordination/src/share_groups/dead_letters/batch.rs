//! The records of a dead-letter queue: context headers, and the key and value of the original if
//! they are copied. Kafka: `ShareGroupDLQStateManager.ProduceRequestHandler.topicProduceData`.

use std::collections::VecDeque;

use bytes::Bytes;
use ottla_coordinator::dead_letter_queue::LetterSource;
use ottla_coordinator::share_partition::DeadLetters;
use ottla_protocol::Records;
use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
use ottla_types::{Offset, Timestamp};

use super::originals::Originals;

/// A batch for the queue.
pub(super) struct Composed {
    pub(super) records: Records,
    /// How many letters it holds, of those that were pending.
    pub(super) letters: i64,
}

/// Composes a batch of at most `max_message_bytes` from the first letters that are pending. One
/// letter alone may be larger, and is refused by the queue.
pub(super) fn compose(
    source: LetterSource<'_>,
    pending: &VecDeque<DeadLetters>,
    originals: &Originals,
    max_message_bytes: usize,
    now: Timestamp,
) -> Composed {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    let letters = pending.iter().flat_map(|range| {
        let offsets = range.first_offset.0..=range.last_offset.0;
        offsets.map(move |offset| (Offset(offset), range))
    });
    let mut count = 0;
    for (offset, range) in letters {
        if count >= originals.letters {
            break;
        }
        let original = originals.of(offset);
        let key = original.and_then(|original| original.key.as_deref());
        let value = original.and_then(|original| original.value.as_deref());
        let headers = source.headers(offset, range).map(|(key, value)| {
            let (key, value) = (Bytes::from_static(key.as_bytes()), Bytes::from(value));
            RecordHeader::new(key, Some(value))
        });
        let size = builder.uncompressed_size_with(now, key, value, &headers);
        if size > max_message_bytes && !builder.is_empty() {
            break;
        }
        builder.append(now, key, value, &headers);
        count += 1;
    }
    Composed {
        records: Records::Bytes(builder.build_in_place()),
        letters: count,
    }
}

#[cfg(test)]
mod tests {
    use ottla_coordinator::share_partition::DeadLetterCause;
    use ottla_records::RecordBatch;
    use ottla_types::PartitionIndex;

    use super::*;

    const SOURCE: LetterSource<'static> = LetterSource {
        group_id: "g",
        topic: "orders",
        partition: PartitionIndex(3),
    };

    fn pending() -> VecDeque<DeadLetters> {
        let range = |first, last, delivery_count, cause| DeadLetters {
            first_offset: Offset(first),
            last_offset: Offset(last),
            delivery_count,
            cause,
        };
        VecDeque::from([
            range(4, 5, 1, DeadLetterCause::Rejected),
            range(9, 9, 5, DeadLetterCause::DeliveryCountExceeded),
        ])
    }

    fn batch_of(composed: &Composed) -> RecordBatch {
        let Records::Bytes(bytes) = &composed.records else {
            panic!("it was just built");
        };
        let batch = RecordBatch::read(&mut bytes.clone()).expect("a batch");
        batch.verify_crc().expect("its checksum");
        batch
    }

    #[test]
    fn a_letter_without_copy_has_only_headers() {
        let now = Timestamp(5);
        let composed = compose(SOURCE, &pending(), &Originals::none(), 1 << 20, now);
        assert_eq!(composed.letters, 3);
        let records = batch_of(&composed).records(1 << 20).expect("records");
        let offsets = [("4", "1"), ("5", "1"), ("9", "5")];
        for (record, (offset, delivery_count)) in records.iter().zip(offsets) {
            let record = record.expect("a record");
            assert_eq!((record.key, record.value), (None, None));
            assert_eq!(record.timestamp, now);
            let headers: Vec<(&[u8], Option<&[u8]>)> = record.headers.iter().collect();
            assert_eq!(headers.len(), 6);
            let of_offset = ("__dlq.errors.offset".as_bytes(), Some(offset.as_bytes()));
            assert_eq!(headers[2], of_offset);
            assert_eq!(headers[4].1, Some(delivery_count.as_bytes()));
        }
    }

    #[test]
    fn a_batch_is_as_large_as_the_queue_allows() {
        let now = Timestamp(5);
        let none = Originals::none();
        let whole = compose(SOURCE, &pending(), &none, 1 << 20, now);
        let bytes = batch_of(&whole).size_in_bytes();
        let exact = compose(SOURCE, &pending(), &none, bytes, now);
        assert_eq!(exact.letters, 3);
        let smaller = compose(SOURCE, &pending(), &none, bytes - 1, now);
        assert_eq!(smaller.letters, 2);
        let alone = compose(SOURCE, &pending(), &none, 1, now);
        assert_eq!(alone.letters, 1, "or nothing would ever be written");
    }

    #[test]
    fn what_was_not_read_yet_waits_for_the_next_batch() {
        let some = Originals {
            letters: 2,
            ..Originals::none()
        };
        let composed = compose(SOURCE, &pending(), &some, 1 << 20, Timestamp(5));
        assert_eq!(composed.letters, 2);
    }
}
