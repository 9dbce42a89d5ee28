//! A partition's directory: a segment, its indexes, its leader epochs and a producer snapshot, opened after a clean
//! stop or a crash, read from one end to the other, looked up by time, closed and opened again, with the same result.
//!
//! The input begins with how it is opened and the lengths of the small files; the segment is the rest. Half of
//! the time the checksums of batches are corrected, because an attacker can compute them and the fuzzer cannot.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ottla_config::TopicConfig;
use ottla_log::{LEADER_EPOCH_CHECKPOINT, Log, LogReader, OpenParams, TimestampTarget};
use ottla_records::RecordBatch;
use ottla_types::{Offset, Timestamp, TopicPartition};

const SMALL_FILES: [&str; 5] = [
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000003.snapshot",
    LEADER_EPOCH_CHECKPOINT,
];

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first_chunk::<3>() else { return };
    let Some((lengths, mut rest)) = rest.split_first_chunk::<5>() else { return };
    let &[flags, recovery_point, start] = how;
    let dir = tempfile::tempdir().expect("a directory");
    for (name, length) in SMALL_FILES.iter().zip(lengths) {
        let (bytes, behind) = rest.split_at(usize::from(*length).min(rest.len()));
        rest = behind;
        if !bytes.is_empty() {
            fs::write(dir.path().join(name), bytes).expect("a file");
        }
    }
    let segment = match flags & 1 == 0 {
        true => with_checksums(rest),
        false => rest.to_vec(),
    };
    fs::write(dir.path().join("00000000000000000000.log"), segment).expect("a file");
    check(dir.path(), flags & 2 != 0, recovery_point.into(), start.into());
});

fn check(dir: &Path, clean_shutdown: bool, recovery_point: i64, log_start_offset: i64) {
    let open = |clean_shutdown, recovery_point| {
        Log::open(OpenParams {
            dir: dir.to_owned(),
            topic_partition: TopicPartition::new("fuzz", 0),
            config: Arc::new(TopicConfig::default()),
            recovery_point: Offset(recovery_point),
            log_start_offset: Offset(log_start_offset),
            clean_shutdown,
            now: Timestamp(1_700_000_000_000),
            producer_id_expiration_ms: 86_400_000,
            random_seed: 7,
            handles: ottla_log::Handles::unlimited(),
            checkpoint_marks: Arc::default(),
        })
    };
    let Ok((log, _)) = open(clean_shutdown, recovery_point) else { return };
    let end = log.log_end_offset();
    assert!(log.log_start_offset() <= end);
    let all_checked = !clean_shutdown && recovery_point == 0;
    read_all(&log.reader(), all_checked);
    let Ok(recovery_point) = log.close() else { return };
    let (log, report) = open(true, recovery_point.0).expect("it was closed in an orderly way");
    assert_eq!(log.log_end_offset(), end);
    assert_eq!(report.bytes_truncated, 0);
}

/// Each read begins after the previous one, or fails. If the whole segment was checked, its offsets increase. Data that
/// was forced to disk is trusted, as in Kafka.
fn read_all(reader: &LogReader, all_checked: bool) {
    let end = reader.log_end_offset();
    let mut from = reader.log_start_offset();
    while from < end {
        let Ok(read) = reader.read(from, 256, end, true) else { return };
        let _ = reader.aborted_transactions_of(from, &read);
        let Some(region) = read.region else { break };
        let Ok(bytes) = region.read() else { return };
        let last = RecordBatch::read_all(bytes).map_while(Result::ok).last();
        let Some(last) = last else { break };
        let next = last.header.last_offset().plus(1);
        if next <= from {
            assert!(!all_checked, "a read from {from} ends at {next}");
            break;
        }
        from = next;
    }
    for target in [TimestampTarget::MaxTimestamp, TimestampTarget::At(Timestamp(1_000))] {
        let _ = reader.offset_for_timestamp(target);
    }
}

fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut all = Bytes::copy_from_slice(bytes);
    let mut mended = Vec::with_capacity(bytes.len());
    let whole = all.clone();
    for batch in RecordBatch::read_all(whole) {
        let Ok(mut batch) = batch else { break };
        batch.header.crc = batch.compute_crc();
        let batch = batch.to_bytes();
        let _ = all.split_to(batch.len().min(all.len()));
        mended.extend_from_slice(&batch);
    }
    mended.extend_from_slice(&all);
    mended
}
