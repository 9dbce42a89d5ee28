use bytes::Bytes;
use ottla_types::{Offset, Timestamp};
use proptest::prelude::*;

use super::{AnyBatch, LegacyMessage};
use crate::{BatchError, Compression, CompressionType, TimestampType};

const LIMIT: usize = 1 << 20;

/// A message as old brokers wrote it; magic 1 has a timestamp.
fn message(
    magic: u8,
    offset: i64,
    attributes: u8,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Vec<u8> {
    let mut body = vec![magic, attributes];
    if magic == 1 {
        body.extend(timestamp.to_be_bytes());
    }
    for part in [key, value] {
        let length = part.map_or(-1, |part| part.len() as i32);
        body.extend(length.to_be_bytes());
        body.extend(part.unwrap_or_default());
    }
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &body) as u32;
    let mut bytes = offset.to_be_bytes().to_vec();
    bytes.extend((body.len() as i32 + 4).to_be_bytes());
    bytes.extend(crc.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn read(bytes: Vec<u8>) -> LegacyMessage {
    let mut bytes = Bytes::from(bytes);
    let message = LegacyMessage::read(&mut bytes).unwrap();
    assert!(bytes.is_empty());
    assert_eq!(message.verify_crc(), Ok(()));
    message
}

fn wrapper(magic: u8, offset: i64, attributes: u8, inner: &[Vec<u8>]) -> LegacyMessage {
    let codec = CompressionType::from_id(attributes & 7).unwrap();
    let value = Compression::from(codec).compress(&inner.concat());
    read(message(magic, offset, attributes, 5000, None, Some(&value)))
}

fn offsets(message: &LegacyMessage) -> Vec<i64> {
    message
        .records(LIMIT)
        .unwrap()
        .iter()
        .map(|record| record.offset.0)
        .collect()
}

#[test]
fn single_messages_are_records() {
    for magic in [0, 1] {
        let message = read(message(magic, 42, 0, 1234, Some(b"key"), None));
        let records = message.records(LIMIT).unwrap();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].offset, Offset(42));
        assert_eq!(records[0].key.as_deref(), Some(&b"key"[..]));
        assert_eq!(records[0].value, None);
        let timestamp = if magic == 0 {
            Timestamp::NONE
        } else {
            Timestamp(1234)
        };
        assert_eq!(records[0].timestamp, timestamp);
    }
}

#[test]
fn offsets_inside_magic_1_are_relative_to_the_last() {
    let inner: Vec<_> = (0..3)
        .map(|i| message(1, i, 0, 100 + i, None, Some(b"v")))
        .collect();
    for codec in 1..4 {
        let wrapper = wrapper(1, 12, codec, &inner);
        assert_eq!(offsets(&wrapper), [10, 11, 12]);
        let records = wrapper.records(LIMIT).unwrap();
        let timestamps: Vec<i64> = records.iter().map(|record| record.timestamp.0).collect();
        assert_eq!(timestamps, [100, 101, 102]);
    }
    assert_eq!(
        offsets(&wrapper(1, 0, 1, &inner)),
        [0, 1, 2],
        "librdkafka's wrappers of offset 0"
    );
    assert!(wrapper(1, 1, 1, &inner).records(LIMIT).is_err());
}

#[test]
fn offsets_inside_magic_0_are_absolute() {
    let inner: Vec<_> = (7..10)
        .map(|i| message(0, i, 0, 0, None, Some(b"v")))
        .collect();
    assert_eq!(offsets(&wrapper(0, 9, 2, &inner)), [7, 8, 9]);
}

#[test]
fn log_append_time_is_inherited() {
    let inner = [
        message(1, 0, 0, 100, None, None),
        message(1, 1, 0, 101, None, None),
    ];
    let wrapper = wrapper(1, 1, 0x08 | 1, &inner);
    assert_eq!(wrapper.timestamp_type(), Some(TimestampType::LogAppendTime));
    let records = wrapper.records(LIMIT).unwrap();
    assert!(
        records
            .iter()
            .all(|record| record.timestamp == Timestamp(5000))
    );
}

#[test]
fn wrappers_that_make_no_sense_are_refused() {
    let plain = message(1, 0, 0, 0, None, None);
    let nested = wrapper(1, 0, 1, &[message(1, 0, 1, 0, None, Some(b"inner"))]);
    assert!(nested.records(LIMIT).is_err(), "compressed twice");
    assert!(wrapper(1, 0, 1, &[]).records(LIMIT).is_err(), "empty");
    let no_value = read(message(1, 0, 1, 0, None, None));
    assert!(no_value.records(LIMIT).is_err(), "no value");
    let zstd = wrapper(1, 0, 4, std::slice::from_ref(&plain));
    assert!(zstd.records(LIMIT).is_err(), "zstd");
    let bomb = wrapper(1, 0, 1, &[message(1, 0, 0, 0, None, Some(&[0; 100_000]))]);
    assert!(matches!(
        bomb.records(1000),
        Err(BatchError::DecompressedTooLarge { .. })
    ));
}

#[test]
fn damage_is_noticed() {
    let good = message(1, 3, 0, 0, Some(b"k"), Some(b"v"));
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let damaged = LegacyMessage::read(&mut Bytes::from(damaged)).unwrap();
    assert!(matches!(
        damaged.verify_crc(),
        Err(BatchError::WrongCrc { .. })
    ));
    for length in 0..good.len() {
        assert!(LegacyMessage::read(&mut Bytes::copy_from_slice(&good[..length])).is_err());
    }
}

#[test]
fn formats_may_follow_each_other() {
    let mut builder = crate::RecordBatchBuilder::new(Compression::None).base_offset(Offset(2));
    builder.append(Timestamp(3), None, Some(b"new"), &[]);
    let mut log = message(0, 0, 0, 0, None, Some(b"old"));
    log.extend(message(1, 1, 0, 2, None, Some(b"newer")));
    log.extend(builder.build().to_bytes());
    let mut bytes = Bytes::from(log);
    for (magic, value) in [(0, "old"), (1, "newer"), (2, "new")] {
        let batch = AnyBatch::read(&mut bytes).unwrap();
        assert_eq!(batch.magic(), magic);
        assert_eq!(batch.last_offset(), Offset(i64::from(magic)));
        assert_eq!(batch.verify_crc(), Ok(()));
        let records = batch.records(LIMIT).unwrap();
        assert_eq!(records[0].value.as_deref(), Some(value.as_bytes()));
    }
    assert!(bytes.is_empty());
}

proptest! {
    #[test]
    fn random_bytes_never_panic(mut bytes: Vec<u8>, magic in 0u8..3, attributes in 0u8..16) {
        if bytes.len() > 17 {
            let size = bytes.len() as i32 - 12;
            bytes[8..12].copy_from_slice(&size.to_be_bytes());
            (bytes[16], bytes[17]) = (magic, attributes);
        }
        if let Ok(batch) = AnyBatch::read(&mut Bytes::from(bytes)) {
            let _ = (batch.verify_crc(), batch.records(LIMIT));
        }
    }

    #[test]
    fn random_insides_never_panic(
        codec in 1u8..4,
        magic in 0u8..2,
        offset: i64,
        inner: Vec<(i64, u8, Option<Vec<u8>>)>,
        tail: Vec<u8>,
    ) {
        let mut inside: Vec<Vec<u8>> = inner
            .iter()
            .map(|(offset, attributes, value)| {
                message(magic, *offset, *attributes, 1, None, value.as_deref())
            })
            .collect();
        inside.push(tail);
        let _ = wrapper(magic, offset, codec, &inside).records(LIMIT);
    }
}
