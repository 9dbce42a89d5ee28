//! A broker with its replica, its copy of the metadata, and its tasks.

use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp};

use super::store::{Record, Topic, apply};
use crate::test_segments::partition;
use crate::{
    EpochEntry, LeaderEpochs, LocalSegment, LogView, Operation, Origin, PartitionTasks,
    RemoteLogMetadataCache, TaskKind, TaskSettings,
};

pub(super) struct Broker {
    pub(super) id: usize,
    pub(super) is_up: bool,
    /// Counts the starts; answers to an earlier process are lost.
    pub(super) process: u64,
    /// All records of the replica from offset 0, also deleted ones.
    pub(super) records: Vec<Record>,
    pub(super) log_start: i64,
    /// The log start offset that a restarted process finds.
    pub(super) log_start_checkpoint: i64,
    pub(super) local_start: i64,
    /// The base offsets of the local segments.
    pub(super) bases: Vec<i64>,
    pub(super) segment_records: i64,
    pub(super) epochs: LeaderEpochs,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    pub(super) highest_remote: i64,
    pub(super) cache: RemoteLogMetadataCache,
    /// How much of the topic has been read, and how much of it must be.
    pub(super) applied: usize,
    pub(super) ready_at: usize,
    /// Tasks that wait until their record has been read back.
    pub(super) reading_back: Vec<(usize, TaskKind, Operation)>,
    pub(super) tasks: PartitionTasks,
}

pub(super) const INTERVAL_MS: i64 = 60;

fn new_tasks(id: usize) -> PartitionTasks {
    let origin = Origin {
        partition: partition(),
        broker_id: BrokerId(id as i32),
    };
    let settings = TaskSettings {
        interval_ms: INTERVAL_MS,
        custom_metadata_max_bytes: 128,
    };
    PartitionTasks::new(origin, settings)
}

impl Broker {
    pub(super) fn new(id: usize, segment_records: i64) -> Broker {
        Broker {
            id,
            is_up: true,
            process: 0,
            records: Vec::new(),
            log_start: 0,
            log_start_checkpoint: 0,
            local_start: 0,
            bases: vec![0],
            segment_records,
            epochs: LeaderEpochs::default(),
            high_watermark: 0,
            last_stable_offset: 0,
            highest_remote: -1,
            cache: RemoteLogMetadataCache::new(),
            applied: 0,
            ready_at: 0,
            reading_back: Vec::new(),
            tasks: new_tasks(id),
        }
    }

    /// Restarts the process with the state on its disk.
    pub(super) fn restart(&mut self, topic: &Topic) {
        self.is_up = true;
        self.process += 1;
        self.log_start = self.log_start_checkpoint;
        self.local_start = self.bases[0].max(self.log_start);
        self.high_watermark = self.high_watermark.max(self.log_start);
        self.highest_remote = -1;
        self.cache = RemoteLogMetadataCache::new();
        self.applied = 0;
        self.ready_at = topic.records.len();
        self.reading_back.clear();
        self.tasks = new_tasks(self.id);
    }

    pub(super) fn end(&self) -> i64 {
        self.records.len() as i64
    }

    pub(super) fn ready_cache(&self) -> Option<&RemoteLogMetadataCache> {
        self.cache.is_initialized().then_some(&self.cache)
    }

    pub(super) fn view(&self) -> LogView {
        let next = |index: usize| self.bases.get(index + 1).copied().unwrap_or(self.end());
        let segments = self.bases.iter().enumerate().map(|(index, &base)| {
            let last = self.records.get(next(index).max(1) as usize - 1);
            LocalSegment {
                base_offset: Offset(base),
                size_bytes: (next(index) - base) as u32,
                largest_timestamp: Timestamp(last.map_or(0, |record| record.time)),
                is_txn_index_empty: true,
                has_producer_snapshot: true,
            }
        });
        LogView {
            log_start_offset: Offset(self.log_start),
            local_log_start_offset: Offset(self.local_start),
            log_end_offset: Offset(self.end()),
            high_watermark: Offset(self.high_watermark),
            last_stable_offset: Offset(self.last_stable_offset),
            highest_remote_offset: Offset(self.highest_remote),
            leader_epochs: self.epochs.clone(),
            segments: segments.collect(),
        }
    }

    pub(super) fn assign_epoch(&mut self, epoch: i32, start: i64) {
        if self.epochs.latest().is_none_or(|it| it.epoch.0 < epoch) {
            let entries = self.epochs.entries().iter().copied();
            let kept = entries.filter(|entry| entry.start_offset.0 < start);
            self.epochs = kept.chain([EpochEntry::new(epoch, start)]).collect();
        }
    }

    pub(super) fn append(&mut self, record: Record) {
        let base = *self.bases.last().expect("there is an active segment");
        if self.end() - base >= self.segment_records {
            self.bases.push(self.end());
        }
        self.assign_epoch(record.epoch, self.end());
        self.records.push(record);
    }

    pub(super) fn roll(&mut self) {
        if self.bases.last() != Some(&self.end()) {
            self.bases.push(self.end());
        }
    }

    pub(super) fn truncate(&mut self, to: i64) {
        self.records.truncate(to as usize);
        self.epochs.truncate_from_end(Offset(to));
        self.bases.retain(|base| *base < to);
        if self.bases.is_empty() {
            self.bases.push(to);
        }
        self.local_start = self.local_start.min(to);
        self.log_start = self.log_start.min(to);
        self.highest_remote = self.highest_remote.min(to - 1);
        self.high_watermark = self.high_watermark.min(to);
        self.last_stable_offset = self.last_stable_offset.min(to);
    }

    /// Refused above the high watermark.
    pub(super) fn increment_log_start(&mut self, to: i64) {
        if to > self.log_start && to <= self.high_watermark {
            self.log_start = to;
            self.local_start = self.local_start.max(to);
            self.epochs.truncate_from_start(Offset(to));
        }
    }

    pub(super) fn delete_local(&mut self, segments: usize) {
        if segments == self.bases.len() {
            self.roll();
        }
        self.bases.drain(..segments);
        self.local_start = self.local_start.max(self.bases[0]);
    }

    /// Reads a part of the topic.
    pub(super) fn read_topic(&mut self, topic: &Topic, up_to: usize) {
        let end = topic.records.len().min(self.applied + up_to);
        for record in &topic.records[self.applied..end] {
            apply(&mut self.cache, record);
        }
        self.applied = end;
        if self.applied >= self.ready_at {
            self.cache.mark_initialized();
        }
    }

    /// Where the replica and another one part.
    pub(super) fn common_end(&self, other: &Broker) -> i64 {
        let shorter = self.end().min(other.end()) as usize;
        let is_same = |at: usize| self.records[at] == other.records[at];
        (0..shorter)
            .rev()
            .find(|at| is_same(*at))
            .map_or(0, |at| at as i64 + 1)
    }

    pub(super) fn epoch_at(&self, offset: i64) -> LeaderEpoch {
        let epoch = self.epochs.epoch_for(Offset(offset));
        epoch.unwrap_or(LeaderEpoch::UNKNOWN)
    }
}
