//! The aborted transactions of a log, for `read_committed` consumers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::TopicConfig;
use ottla_log::{Handles, Log, OpenParams};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder};
use ottla_types::{
    LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp, TopicPartition,
};

use crate::measure::{Row, best_of};

pub const BY_TRANSACTIONS: Row = Row {
    name: "transaction-index",
    operation: "finding the aborted transactions of 100 records in the middle of a segment",
    counted: "aborted transactions in the segment",
    smallest: 1_000,
    measure: by_transactions,
};

pub const BY_SEGMENTS: Row = Row {
    name: "transaction-index-segments",
    operation: "finding out that records at the start of a log have no aborted transactions",
    counted: "segments of the log",
    smallest: 5,
    measure: by_segments,
};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const SEARCHES: u32 = 1_000;
/// Of all transactions.
const PRODUCER: (ProducerId, ProducerEpoch) = (ProducerId(1), ProducerEpoch(0));

fn by_transactions(count: u64) -> Duration {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = open(dir.path());
    for sequence in 0..count as i32 {
        let batch = record(&log, |builder| {
            let (id, epoch) = PRODUCER;
            let sequence = Sequence(sequence);
            builder.producer(id, epoch, sequence).transactional(true)
        });
        append(&mut log, batch);
        let marker = EndTxnMarker {
            coordinator_epoch: 1,
        };
        let (id, epoch) = PRODUCER;
        let mut end = end_txn_batch(id, epoch, ControlRecordType::Abort, marker, NOW);
        end.assign_offset(log.log_end_offset(), LeaderEpoch(0));
        append(&mut log, end);
    }
    let reader = log.reader();
    // A transaction has a record and a marker.
    let from = Offset(count as i64);
    let to = Offset(from.0 + 100);
    best_of(SEARCHES, || {
        for _ in 0..SEARCHES {
            let found = reader.aborted_transactions(from, to).expect("an index");
            assert_eq!(found.len(), 50);
        }
    })
}

fn by_segments(count: u64) -> Duration {
    let dir = tempfile::tempdir().expect("a directory");
    let mut log = open(dir.path());
    for segment in 0..count {
        if segment > 0 {
            log.close_active_segment(NOW).expect("a new segment");
        }
        let batch = record(&log, |builder| builder);
        append(&mut log, batch);
    }
    let reader = log.reader();
    assert_eq!(reader.number_of_segments() as u64, count);
    best_of(SEARCHES, || {
        for _ in 0..SEARCHES {
            assert!(!std::hint::black_box(&reader).has_aborted_transactions(Offset(0)));
        }
    })
}

fn open(dir: &Path) -> Log {
    let (log, _) = Log::open(OpenParams {
        dir: dir.to_owned(),
        topic_partition: TopicPartition::new("orders", 0),
        config: Arc::new(TopicConfig::default()),
        recovery_point: Offset(0),
        log_start_offset: Offset(0),
        clean_shutdown: false,
        now: NOW,
        producer_id_expiration_ms: 86_400_000,
        random_seed: 1,
        handles: Handles::unlimited(),
        checkpoint_marks: Arc::default(),
    })
    .expect("a log");
    log
}

fn record(log: &Log, change: impl FnOnce(RecordBatchBuilder) -> RecordBatchBuilder) -> RecordBatch {
    let builder = RecordBatchBuilder::new(Compression::None)
        .base_offset(log.log_end_offset())
        .partition_leader_epoch(LeaderEpoch(0));
    let mut builder = change(builder);
    builder.append(NOW, None, Some(b"value"), &[]);
    builder.build()
}

fn append(log: &mut Log, batch: RecordBatch) {
    log.append(&[batch], NOW).expect("an append");
    let end = log.log_end_offset();
    log.set_high_watermark(end);
}
