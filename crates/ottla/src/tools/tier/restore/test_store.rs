//! A store in a directory with the segments of one partition, for tests.

use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_tiered::{LeaderEpochs, RemotePartition, RemoteSegment};
use ottla_tiered_storage::{LocalSettings, LocalTieredStorage};
use ottla_types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, Sequence, Timestamp};
use tempfile::TempDir;

use super::super::remote_log::tests;
use super::super::verify::epochs_of_all;
use super::reader::{Source, Throttle};

pub struct TestStore {
    dir: TempDir,
    store: LocalTieredStorage,
    partition: RemotePartition,
    segments: Vec<RemoteSegment>,
}

impl TestStore {
    pub fn new() -> TestStore {
        let dir = tempfile::tempdir().unwrap();
        let settings = LocalSettings {
            dir: dir.path().to_owned(),
            delete_enable: true,
            delete_on_close: false,
        };
        TestStore {
            store: LocalTieredStorage::open(&settings).unwrap(),
            dir,
            partition: tests::partition("t"),
            segments: Vec::new(),
        }
    }

    /// A segment with these offsets, epochs and batches.
    pub fn add(&mut self, start: i64, end: i64, epochs: &[(i32, i64)], batches: &[Vec<u8>]) {
        let id = self.segments.len() as u128 + 1;
        let state = ottla_tiered::RemoteLogSegmentState::CopySegmentFinished;
        let mut segment = tests::segment(id, start, end, state);
        let entry = |(epoch, offset): &(i32, i64)| ottla_tiered::EpochEntry::new(*epoch, *offset);
        segment.segment_leader_epochs = epochs.iter().map(entry).collect();
        let log = batches.concat();
        segment.segment_size_bytes = log.len() as i32;
        self.segments.push(segment);
        let path = self.log(self.segments.len() - 1);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, log).unwrap();
    }

    fn log(&self, index: usize) -> std::path::PathBuf {
        let (partition, segment) = (&self.partition, &self.segments[index]);
        let folder = format!(
            "kafka-tiered-storage/{}-{}-{}",
            partition.topic, partition.partition, partition.topic_id
        );
        let name = format!("{:020}-{}.log", segment.start_offset.0, segment.id);
        self.dir.path().join(folder).join(name)
    }

    pub fn remove(&self, index: usize) {
        std::fs::remove_file(self.log(index)).unwrap();
    }

    pub fn damage(&self, index: usize, at: usize) {
        let mut log = std::fs::read(self.log(index)).unwrap();
        log[at] ^= 1;
        std::fs::write(self.log(index), log).unwrap();
    }

    pub fn history(&self) -> LeaderEpochs {
        let all: Vec<&RemoteSegment> = self.segments.iter().collect();
        epochs_of_all(&all).unwrap()
    }

    pub fn source<'a>(&'a self, history: &'a LeaderEpochs, throttle: &'a Throttle) -> Source<'a> {
        Source {
            store: &self.store,
            partition: &self.partition,
            segments: &self.segments,
            history,
            throttle,
        }
    }
}

fn filled(mut builder: RecordBatchBuilder, base: i64, count: i64) -> Vec<u8> {
    for offset in base..base + count {
        builder.append(Timestamp(1000 + offset), Some(b"k"), Some(b"v"), &[]);
    }
    builder.build().to_bytes().to_vec()
}

/// A batch whose records have their offsets plus 1000 as timestamps.
pub fn data(base: i64, count: i64, epoch: i32) -> Vec<u8> {
    let builder = RecordBatchBuilder::new(Compression::None)
        .base_offset(Offset(base))
        .partition_leader_epoch(LeaderEpoch(epoch));
    filled(builder, base, count)
}

/// The same in a transaction, in epoch 0.
pub fn transactional(base: i64, count: i64, producer: i64) -> Vec<u8> {
    let builder = RecordBatchBuilder::new(Compression::None)
        .base_offset(Offset(base))
        .partition_leader_epoch(LeaderEpoch(0))
        .producer(ProducerId(producer), ProducerEpoch(0), Sequence(0))
        .transactional(true);
    filled(builder, base, count)
}

/// The end of a transaction, in epoch 0.
pub fn marker(offset: i64, producer: i64, kind: ControlRecordType) -> Vec<u8> {
    let marker = EndTxnMarker {
        coordinator_epoch: 0,
    };
    let now = Timestamp(1000 + offset);
    let mut batch = end_txn_batch(ProducerId(producer), ProducerEpoch(0), kind, marker, now);
    batch.assign_offset(Offset(offset), LeaderEpoch(0));
    batch.to_bytes().to_vec()
}
