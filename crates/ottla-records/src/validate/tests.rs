use bytes::Bytes;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::*;
use crate::{BatchHeader, RecordBatchBuilder};

const NOW: Timestamp = Timestamp(1_000_000);

fn builder(codec: CompressionType) -> RecordBatchBuilder {
    RecordBatchBuilder::new(Compression::from(codec))
}

/// Three records at 999, 1001 and 1000 seconds.
fn three_records(codec: CompressionType) -> RecordBatch {
    let mut builder = builder(codec);
    builder.append(Timestamp(999_000), Some(b"a"), Some(b"first"), &[]);
    builder.append(Timestamp(1_001_000), Some(b"b"), None, &[]);
    builder.append(Timestamp(1_000_000), Some(b""), Some(b"third"), &[]);
    builder.build()
}

fn check(batch: RecordBatch, rules: &ValidationRules) -> Result<ValidatedBatch, Rejection> {
    check_from(AppendOrigin::Client, batch, rules)
}

fn check_from(
    origin: AppendOrigin,
    batch: RecordBatch,
    rules: &ValidationRules,
) -> Result<ValidatedBatch, Rejection> {
    let mut buffers = ValidationBuffers::default();
    validate(batch, rules, origin, &"topic-0", NOW, &mut buffers)
}

fn code(result: Result<ValidatedBatch, Rejection>) -> ErrorCode {
    result.expect_err("the batch is refused").error_code
}

/// Changes the header and updates the checksum.
fn with_header(mut batch: RecordBatch, change: impl FnOnce(&mut BatchHeader)) -> RecordBatch {
    change(&mut batch.header);
    batch.header.crc = batch.compute_crc();
    batch
}

#[test]
fn a_valid_batch_is_not_changed() {
    for codec in CompressionType::ALL {
        let batch = three_records(codec);
        let validated = check(batch.clone(), &ValidationRules::default()).unwrap();
        assert_eq!(validated.batch, batch, "{codec}");
        assert_eq!(
            validated.batch.body().as_ptr(),
            batch.body().as_ptr(),
            "{codec}"
        );
        assert!(!validated.recompressed);
        assert_eq!(validated.log_append_time, None);
    }
}

#[test]
fn a_wrong_max_timestamp_is_corrected() {
    for codec in CompressionType::ALL {
        let batch = with_header(three_records(codec), |header| {
            header.max_timestamp = Timestamp(5)
        });
        let validated = check(batch, &ValidationRules::default()).unwrap();
        assert_eq!(validated.batch.header.max_timestamp, Timestamp(1_001_000));
        assert_eq!(validated.batch.verify_crc(), Ok(()));
    }
}

#[test]
fn log_append_time_is_the_brokers() {
    let rules = ValidationRules {
        message_timestamp_type: TimestampType::LogAppendTime,
        message_timestamp_before_max_ms: 0,
        message_timestamp_after_max_ms: 0,
        ..Default::default()
    };
    for codec in CompressionType::ALL {
        let validated = check(three_records(codec), &rules).unwrap();
        assert_eq!(validated.log_append_time, Some(NOW));
        assert_eq!(validated.batch.verify_crc(), Ok(()));
        for record in validated.batch.records(1 << 20).unwrap() {
            assert_eq!(record.unwrap().timestamp, NOW);
        }
    }
}

#[test]
fn a_producer_may_not_claim_log_append_time() {
    let rules = ValidationRules {
        message_timestamp_type: TimestampType::LogAppendTime,
        ..Default::default()
    };
    let mut claimed = builder(CompressionType::None).log_append_time(NOW);
    claimed.append(NOW, None, Some(b"value"), &[]);
    let rejection = check(claimed.build(), &rules).unwrap_err();
    assert_eq!(rejection.error_code, ErrorCode::InvalidTimestamp);
    assert_eq!(rejection.record_errors.len(), 1);
}

#[test]
fn timestamps_out_of_bounds_are_named_one_by_one() {
    for codec in CompressionType::ALL {
        let rules = ValidationRules {
            message_timestamp_before_max_ms: 500,
            message_timestamp_after_max_ms: 500,
            ..Default::default()
        };
        let rejection = check(three_records(codec), &rules).unwrap_err();
        assert_eq!(rejection.error_code, ErrorCode::InvalidTimestamp);
        let indexes: Vec<i32> = rejection
            .record_errors
            .iter()
            .map(|e| e.batch_index)
            .collect();
        assert_eq!(indexes, [0, 1]);
        assert_eq!(
            rejection.record_errors[1].message,
            "Timestamp 1001000 of message with offset 1 is out of range. The timestamp should be \
             within [999500, 1000500]"
        );
        assert!(rejection.message.contains("invalid timestamp"));

        // A bound is inclusive: a difference that equals it is valid.
        let rules = ValidationRules {
            message_timestamp_before_max_ms: 1000,
            message_timestamp_after_max_ms: 1000,
            ..Default::default()
        };
        assert!(check(three_records(codec), &rules).is_ok());
    }
}

#[test]
fn records_without_a_time_have_no_bounds() {
    let mut batch = builder(CompressionType::None);
    batch.append(Timestamp::NONE, None, Some(b"v"), &[]);
    let rules = ValidationRules {
        message_timestamp_before_max_ms: 0,
        message_timestamp_after_max_ms: 0,
        ..Default::default()
    };
    let validated = check(batch.build(), &rules).unwrap();
    assert_eq!(validated.batch.header.max_timestamp, Timestamp::NONE);
}

#[test]
fn compacted_topics_need_keys() {
    let rules = ValidationRules {
        compacted: true,
        ..Default::default()
    };
    for codec in CompressionType::ALL {
        assert!(check(three_records(codec), &rules).is_ok());
        let mut keyless = builder(codec);
        keyless.append(NOW, Some(b"key"), None, &[]);
        keyless.append(NOW, None, Some(b"value"), &[]);
        let rejection = check(keyless.build(), &rules).unwrap_err();
        assert_eq!(rejection.error_code, ErrorCode::InvalidRecord);
        assert_eq!(rejection.record_errors.len(), 1);
        assert_eq!(rejection.record_errors[0].batch_index, 1);
    }
}

#[test]
fn a_topics_codec_replaces_the_batchs() {
    for source in CompressionType::ALL {
        for target in CompressionType::ALL {
            let rules = ValidationRules {
                compression: Some(Compression::from(target)),
                ..Default::default()
            };
            let batch = with_header(three_records(source), |header| {
                (header.producer_id, header.producer_epoch) = (ProducerId(7), ProducerEpoch(1));
                header.base_sequence = Sequence(40);
            });
            let validated = check(batch.clone(), &rules).unwrap();
            assert_eq!(validated.recompressed, source != target);
            let stored = validated.batch;
            assert_eq!(stored.header.compression_type(), Ok(target));
            assert_eq!(stored.header.base_sequence, Sequence(40));
            assert_eq!(stored.verify_crc(), Ok(()));
            assert_eq!(
                RecordBatch::read(&mut stored.to_bytes()).as_ref(),
                Ok(&stored)
            );
            let records = |batch: &RecordBatch| -> Vec<_> {
                batch
                    .records(1 << 20)
                    .unwrap()
                    .map(Result::unwrap)
                    .collect()
            };
            assert_eq!(records(&stored), records(&batch), "{source} to {target}");
        }
    }
}

#[test]
fn sizes_are_bounded_before_and_after() {
    let rules = ValidationRules {
        max_message_bytes: 100,
        ..Default::default()
    };
    let mut large = builder(CompressionType::None);
    large.append(NOW, None, Some(&[7; 1000]), &[]);
    assert_eq!(
        code(check(large.build(), &rules)),
        ErrorCode::MessageTooLarge
    );

    let mut compressible = builder(CompressionType::Zstd);
    compressible.append(NOW, None, Some(&[7; 1000]), &[]);
    let compressed = compressible.build();
    assert!(check(compressed.clone(), &rules).is_ok());
    let uncompressed = ValidationRules {
        compression: Some(Compression::None),
        ..rules.clone()
    };
    assert_eq!(
        code(check(compressed.clone(), &uncompressed)),
        ErrorCode::MessageTooLarge
    );
    assert!(check_from(AppendOrigin::RaftLeader, compressed, &uncompressed).is_ok());
}

#[test]
fn bombs_are_given_up() {
    let rules = ValidationRules {
        max_decompressed_bytes: 1 << 20,
        ..Default::default()
    };
    for codec in CompressionType::ALL.into_iter().skip(1) {
        let mut bomb = builder(codec);
        bomb.append(NOW, None, Some(&vec![0; 2 << 20]), &[]);
        assert_eq!(
            code(check(bomb.build(), &rules)),
            ErrorCode::MessageTooLarge,
            "{codec}"
        );
    }
}

#[test]
fn one_record_of_a_compressed_batch_may_be_too_large() {
    let record = vec![7; 1000];
    let batch_of = |codec| {
        let mut batch = builder(codec);
        batch.append(NOW, None, Some(&record), &[]);
        batch.build()
    };
    // One byte each for attributes, timestamp delta, offset delta, key length and header count, and
    // two for the length of the value.
    let body_bytes = 1000 + 7;
    let rules = |max_decompressed_record_bytes| ValidationRules {
        max_decompressed_record_bytes,
        ..Default::default()
    };
    for codec in CompressionType::ALL {
        let batch = batch_of(codec);
        assert!(check(batch.clone(), &rules(body_bytes)).is_ok(), "{codec}");
        let refused = check(batch, &rules(body_bytes - 1));
        match codec {
            CompressionType::None => assert!(refused.is_ok()),
            _ => assert_eq!(code(refused), ErrorCode::InvalidRecord, "{codec}"),
        }
        let is_read = |limit| {
            let records = batch_of(codec).records(4096).unwrap().at_most(limit);
            let is_borrowed = records.iter().all(|record| record.is_ok());
            let owned: Result<Vec<_>, _> = records.collect();
            assert_eq!(is_borrowed, owned.is_ok(), "{codec}");
            is_borrowed
        };
        assert!(is_read(body_bytes), "{codec}");
        let is_plain = codec == CompressionType::None;
        assert_eq!(is_read(body_bytes - 1), is_plain, "{codec}");
    }
}

#[test]
fn headers_that_a_client_may_not_send() {
    let cases: [(&str, fn(&mut BatchHeader)); 6] = [
        ("base offset", |header| header.base_offset = Offset(1)),
        ("record count", |header| header.record_count = 0),
        ("offsets", |header| header.record_count = 2),
        ("last offset delta", |header| header.last_offset_delta = -1),
        ("control", |header| {
            header.attributes = header.attributes.with_control(true)
        }),
        ("sequence", |header| header.producer_id = ProducerId(3)),
    ];
    for (message, change) in cases {
        for codec in CompressionType::ALL {
            let batch = with_header(three_records(codec), change);
            let rejection = check(batch, &ValidationRules::default()).unwrap_err();
            assert_eq!(rejection.error_code, ErrorCode::InvalidRecord, "{message}");
            assert!(rejection.message.contains(message), "{}", rejection.message);
            assert!(rejection.record_errors.is_empty());
        }
    }
    let control = with_header(three_records(CompressionType::None), cases[4].1);
    let topic_codec = ValidationRules {
        compression: Some(Compression::Snappy),
        ..Default::default()
    };
    let stored = check_from(AppendOrigin::Coordinator, control, &topic_codec).unwrap();
    assert!(!stored.recompressed, "control records are not compressed");
}

#[test]
fn a_wrong_checksum_is_corrupt() {
    let mut batch = three_records(CompressionType::None);
    batch.header.crc ^= 1;
    assert_eq!(
        code(check(batch, &ValidationRules::default())),
        ErrorCode::CorruptMessage
    );
}

#[test]
fn the_count_must_be_that_of_the_records() {
    for codec in CompressionType::ALL {
        for count in [2, 4] {
            let batch = with_header(three_records(codec), |header| {
                header.record_count = count;
                header.last_offset_delta = count - 1;
            });
            let rejection = check(batch, &ValidationRules::default()).unwrap_err();
            assert_eq!(
                rejection.error_code,
                ErrorCode::InvalidRecord,
                "{codec} {count}"
            );
        }
    }
}

#[test]
fn offsets_must_count_up_from_zero() {
    for codec in CompressionType::ALL {
        let mut gap = builder(codec);
        gap.append_at(0, NOW, None, None, &[]);
        gap.append_at(2, NOW, None, None, &[]);
        let batch = with_header(gap.build(), |header| header.last_offset_delta = 1);
        assert_eq!(
            code(check(batch, &ValidationRules::default())),
            ErrorCode::InvalidRecord
        );
    }
}

#[test]
fn every_prefix_of_the_records_is_refused() {
    let whole = three_records(CompressionType::None);
    for length in 0..whole.body().len() {
        let mut cut = RecordBatch::new(
            BatchHeader {
                batch_length: BatchHeader::MIN_LENGTH + length as i32,
                ..whole.header
            },
            whole.body().slice(..length),
        );
        cut.header.crc = cut.compute_crc();
        assert_eq!(
            code(check(cut, &ValidationRules::default())),
            ErrorCode::InvalidRecord
        );
    }
}

#[test]
fn unknown_codecs_are_refused() {
    let batch = with_header(three_records(CompressionType::None), |header| {
        header.attributes.0 |= 6;
    });
    assert_eq!(
        code(check(batch, &ValidationRules::default())),
        ErrorCode::InvalidRecord
    );
}

#[test]
fn rejected_records_are_listed_up_to_a_bound() {
    let mut many = builder(CompressionType::Zstd);
    for _ in 0..MAX_RECORD_ERRORS + 5 {
        many.append(NOW, None, None, &[]);
    }
    let rules = ValidationRules {
        compacted: true,
        ..Default::default()
    };
    let rejection = check(many.build(), &rules).unwrap_err();
    assert_eq!(rejection.record_errors.len(), MAX_RECORD_ERRORS);
    assert!(rejection.message.contains("10005 record errors"));
}

#[test]
fn a_produce_request_holds_one_batch() {
    let batch = three_records(CompressionType::Lz4);
    let one = batch.to_bytes();
    let code = |records: Vec<u8>| {
        read_produced_batch(Bytes::from(records))
            .unwrap_err()
            .error_code
    };
    assert_eq!(read_produced_batch(one.clone()), Ok(batch));
    assert_eq!(code(Vec::new()), ErrorCode::InvalidRecord);
    assert_eq!(
        code([one.clone(), one.clone()].concat()),
        ErrorCode::InvalidRecord
    );
    assert_eq!(
        code(one[..one.len() - 1].to_vec()),
        ErrorCode::InvalidRecord
    );
    let mut old = one.to_vec();
    old[16] = 1;
    assert_eq!(code(old.clone()), ErrorCode::InvalidRecord);
    old[16] = 5;
    assert_eq!(code(old), ErrorCode::CorruptMessage);
    let followed = [one.to_vec(), vec![0; 11]].concat();
    assert!(read_produced_batch(Bytes::from(followed)).is_ok());
}

#[test]
fn validated_batches_are_placed_without_a_new_checksum() {
    let validated = check(
        three_records(CompressionType::None),
        &ValidationRules::default(),
    );
    let mut batch = validated.unwrap().batch;
    let crc = batch.header.crc;
    batch.assign_offset(Offset(500), LeaderEpoch(3));
    assert_eq!(batch.header.crc, crc);
    assert_eq!(batch.verify_crc(), Ok(()));
    let offsets: Vec<i64> = batch
        .records(1 << 20)
        .unwrap()
        .map(|record| record.unwrap().offset.0)
        .collect();
    assert_eq!(offsets, [500, 501, 502]);
}

#[test]
fn buffers_that_met_a_broken_batch_serve_the_next() {
    let mut buffers = ValidationBuffers::default();
    let rules = ValidationRules::default();
    let origin = AppendOrigin::Client;
    for codec in CompressionType::ALL.into_iter().skip(1) {
        let good = three_records(codec);
        let cut = good.body().slice(..good.body().len() - 3);
        let batch_length = BatchHeader::MIN_LENGTH + cut.len() as i32;
        let broken = with_header(
            RecordBatch::new(
                BatchHeader {
                    batch_length,
                    ..good.header
                },
                cut,
            ),
            |_| (),
        );
        for _ in 0..2 {
            let refused = validate(broken.clone(), &rules, origin, &"t-0", NOW, &mut buffers);
            assert_eq!(code(refused), ErrorCode::InvalidRecord, "{codec}");
            let accepted = validate(good.clone(), &rules, origin, &"t-0", NOW, &mut buffers);
            assert!(accepted.is_ok(), "{codec}");
        }
    }
}
