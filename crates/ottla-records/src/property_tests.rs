//! Properties of all batches: a built batch reads back, and no bytes cause a panic.

use bytes::Bytes;
use ottla_types::{Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::{
    AppendOrigin, BatchHeader, Compression, CompressionType, Record, RecordBatch,
    RecordBatchBuilder, RecordHeader, ValidationBuffers, ValidationRules, validate,
};

const LIMIT: usize = 16 << 20;

fn bytes(length: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..length).prop_map(Bytes::from)
}

fn header() -> impl Strategy<Value = RecordHeader> {
    (bytes(20), option::of(bytes(40))).prop_map(|(key, value)| RecordHeader { key, value })
}

fn record() -> impl Strategy<Value = Record> {
    let timestamp = prop_oneof![Just(-1), 0..10_000i64, any::<i64>()];
    let value = prop_oneof![
        bytes(200),
        (0usize..100_000).prop_map(|n| Bytes::from(vec![b'x'; n]))
    ];
    (
        timestamp,
        option::of(bytes(50)),
        option::of(value),
        vec(header(), 0..4),
    )
        .prop_map(|(timestamp, key, value, headers)| Record {
            offset: Offset(0),
            timestamp: Timestamp(timestamp),
            key,
            value,
            headers,
        })
}

fn codec() -> impl Strategy<Value = CompressionType> {
    (0u8..5).prop_map(|id| CompressionType::from_id(id).unwrap())
}

fn build(codec: CompressionType, base_offset: i64, records: &mut [Record]) -> RecordBatch {
    let mut builder = RecordBatchBuilder::new(Compression::from(codec))
        .base_offset(Offset(base_offset))
        .producer(ProducerId(5), ProducerEpoch(2), Sequence(i32::MAX));
    for (delta, record) in records.iter_mut().enumerate() {
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        let expected =
            builder.uncompressed_size_with(record.timestamp, key, value, &record.headers);
        builder.append(record.timestamp, key, value, &record.headers);
        assert_eq!(builder.uncompressed_size(), expected);
        record.offset = Offset(base_offset + delta as i64);
    }
    builder.build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn built_batches_are_read_back(
        codec in codec(),
        base_offset in 0..i64::MAX / 2,
        mut records in vec(record(), 1..20),
    ) {
        let batch = build(codec, base_offset, &mut records);
        prop_assert_eq!(batch.verify_crc(), Ok(()));
        let read = RecordBatch::read(&mut batch.to_bytes()).unwrap();
        prop_assert_eq!(&read, &batch);
        let owned: Vec<Record> = read.records(LIMIT).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(&owned, &records);

        let decompressed = read.records(LIMIT).unwrap();
        let mut size = 0;
        for (view, record) in decompressed.iter().zip(&records) {
            let view = view.unwrap();
            prop_assert_eq!(view.offset, record.offset);
            prop_assert_eq!(view.timestamp, record.timestamp);
            prop_assert_eq!(view.key, record.key.as_deref());
            prop_assert_eq!(view.value, record.value.as_deref());
            prop_assert_eq!(view.headers.len(), record.headers.len());
            for ((key, value), header) in view.headers.into_iter().zip(&record.headers) {
                prop_assert_eq!(key, &header.key[..]);
                prop_assert_eq!(value, header.value.as_deref());
            }
            size += view.size_in_bytes;
        }
        prop_assert_eq!(size, decompressed.bytes().len());
    }

    /// Validation of a stream, validation of a slice and iteration give the same result.
    #[test]
    fn built_batches_are_valid(codec in codec(), mut records in vec(record(), 1..20)) {
        let batch = build(codec, 0, &mut records);
        let rules = ValidationRules {
            message_timestamp_after_max_ms: i64::MAX,
            max_message_bytes: LIMIT,
            ..Default::default()
        };
        let mut buffers = ValidationBuffers::default();
        // Every timestamp is within bounds if the bounds are maximal, or absent.
        let now = Timestamp(0);
        let in_bounds = records.iter().all(|record| record.timestamp.0 != i64::MIN);
        prop_assume!(in_bounds);
        let result = validate(batch, &rules, AppendOrigin::Client, &"t-0", now, &mut buffers);
        let validated = result.unwrap();
        let max = records.iter().map(|record| record.timestamp).max().unwrap().max(Timestamp::NONE);
        prop_assert_eq!(validated.batch.header.max_timestamp, max);
    }

    #[test]
    fn flipped_bits_never_panic_and_never_pass_the_checksum(
        codec in codec(),
        mut records in vec(record(), 1..6),
        at: prop::sample::Index,
        bit in 0u8..8,
    ) {
        let original = build(codec, 0, &mut records);
        let mut bytes = original.to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let Ok(batch) = RecordBatch::read(&mut Bytes::from(bytes)) else {
            return Ok(());
        };
        if at >= BatchHeader::CRC_START {
            prop_assert!(batch.verify_crc().is_err());
        }
        survive(batch);
    }

    #[test]
    fn random_records_never_panic(codec in codec(), count: i32, attributes: i16, body: Vec<u8>) {
        let mut batch = build(codec, 0, &mut []);
        batch.header.attributes.0 = attributes & !7 | i16::from(codec.id());
        batch.header.record_count = count;
        batch.header.last_offset_delta = count.wrapping_sub(1);
        batch.header.batch_length = BatchHeader::MIN_LENGTH + body.len() as i32;
        let compressed = Compression::from(codec).compress(&body);
        for body in [body, compressed] {
            let batch_length = BatchHeader::MIN_LENGTH + body.len() as i32;
            let header = BatchHeader { batch_length, ..batch.header };
            survive(RecordBatch::new(header, Bytes::from(body)));
        }
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300), magic in 0u8..4) {
        if bytes.len() > 16 {
            bytes[8..11].fill(0);
            bytes[16] = magic;
        }
        for batch in RecordBatch::read_all(Bytes::from(bytes)).flatten() {
            survive(batch);
        }
    }
}

/// Calls everything that a batch supports, with a correct checksum.
fn survive(mut batch: RecordBatch) {
    let _ = (
        batch.header.last_offset(),
        batch.header.next_offset(),
        batch.header.last_sequence(),
    );
    if let Ok(records) = batch.records(LIMIT) {
        for view in records.iter().flatten() {
            for header in view.headers {
                std::hint::black_box(header);
            }
        }
        assert!(records.take(10_000).filter(Result::is_err).count() <= 1);
    }
    batch.header.crc = batch.compute_crc();
    for origin in [AppendOrigin::Client, AppendOrigin::Coordinator] {
        for compression in [None, Some(Compression::None), Some(Compression::Snappy)] {
            let rules = ValidationRules {
                compression,
                ..Default::default()
            };
            let mut buffers = ValidationBuffers::default();
            let _ = validate(
                batch.clone(),
                &rules,
                origin,
                &"t-0",
                Timestamp(0),
                &mut buffers,
            );
        }
    }
}
