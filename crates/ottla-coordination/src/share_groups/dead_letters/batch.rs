//! The records of a dead-letter queue: context headers, and the key and value of the original if
//! they are copied. Kafka: `ShareGroupDLQStateManager.ProduceRequestHandler.topicProduceData`.

use std::collections::VecDeque;

use bytes::Bytes;
use ottla_coordinator::dead_letter_queue::LetterSource;
use ottla_coordinator::share_partition::DeadLetters;
use ottla_records::{Compression, RecordBatchBuilder, RecordHeader};
use ottla_types::{Offset, Timestamp};

use super::originals::Originals;
use super::size_limits::SizeLimits;

/// A batch for the queue.
pub(super) struct Composed {
    pub(super) records: Bytes,
    /// The number of pending letters that it holds.
    pub(super) letters: i64,
}

/// Composes a batch from the first letters that are pending. A letter that is too large for the queue
/// with its original has only headers. If even those are too large, the queue refuses it.
pub(super) fn compose(
    source: LetterSource<'_>,
    pending: &VecDeque<DeadLetters>,
    originals: &Originals,
    limits: SizeLimits,
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
        if size > limits.batch_bytes && !builder.is_empty() {
            break;
        }
        let (key, value) = match size > limits.message_bytes {
            true => (None, None),
            false => (key, value),
        };
        builder.append(now, key, value, &headers);
        count += 1;
    }
    Composed {
        records: builder.build_in_place(),
        letters: count,
    }
}

#[cfg(test)]
mod tests {
    use ottla_coordinator::share_partition::DeadLetterCause;
    use ottla_records::RecordBatch;
    use ottla_types::PartitionIndex;

    use super::super::originals::Original;
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
        let batch = RecordBatch::read(&mut composed.records.clone()).expect("a batch");
        batch.verify_crc().expect("its checksum");
        batch
    }

    #[test]
    fn a_letter_without_copy_has_only_headers() {
        let now = Timestamp(5);
        let limits = SizeLimits::of_queue(1 << 20);
        let composed = compose(SOURCE, &pending(), &Originals::none(), limits, now);
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
        let sized = |bytes| compose(SOURCE, &pending(), &none, SizeLimits::of_queue(bytes), now);
        let whole = sized(1 << 20);
        let bytes = batch_of(&whole).size_in_bytes();
        let exact = sized(bytes);
        assert_eq!(exact.letters, 3);
        let smaller = sized(bytes - 1);
        assert_eq!(smaller.letters, 2);
        let alone = sized(1);
        assert_eq!(alone.letters, 1, "or nothing would ever be written");
    }

    #[test]
    fn unread_letters_wait_for_the_next_batch() {
        let some = Originals {
            letters: 2,
            ..Originals::none()
        };
        let limits = SizeLimits::of_queue(1 << 20);
        let composed = compose(SOURCE, &pending(), &some, limits, Timestamp(5));
        assert_eq!(composed.letters, 2);
    }

    #[test]
    fn a_letter_that_is_too_large_with_its_original_has_only_headers() {
        let original = |size| Original {
            key: None,
            value: Some(vec![b'x'; size].into()),
        };
        let originals = Originals {
            by_offset: [(Offset(4), original(900)), (Offset(5), original(10))].into(),
            ..Originals::none()
        };
        let value_of = |composed: &Composed| {
            let records = batch_of(composed).records(1 << 20).expect("records");
            let first = records.iter().next().expect("a letter").expect("a record");
            first.value.map(<[u8]>::len)
        };
        let limits = SizeLimits::of_queue(1000);
        let mut pending = pending();
        let first = compose(SOURCE, &pending, &originals, limits, Timestamp(5));
        assert_eq!(value_of(&first), None, "its headers leave no room");
        let larger = SizeLimits::of_queue(2000);
        let first = compose(SOURCE, &pending, &originals, larger, Timestamp(5));
        assert_eq!(value_of(&first), Some(900));
        pending[0].first_offset = Offset(5);
        let next = compose(SOURCE, &pending, &originals, limits, Timestamp(5));
        assert_eq!(value_of(&next), Some(10));
    }
}
