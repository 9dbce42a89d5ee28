//! The metadata log of one simulated node: what is written, and what of it survives a loss of power.
//!
//! Mirrors `metadata/metadata_log.rs` of the broker. A batch is whole or not there: what a crash tears fails its checksum
//! when the log is opened again.

use std::collections::BTreeMap;

use ottla_metadata::Provenance;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{
    ControlRecord, ControlRecordHistory, EpochStart, KRaftVersion, LogBatch, LogState, SnapshotId,
    VoterSet,
};
use ottla_types::{LeaderEpoch, Offset, Timestamp};

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct MetadataBatch {
    pub base_offset: i64,
    pub epoch: LeaderEpoch,
    pub content: Content,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Content {
    Records(Vec<MetadataRecord>),
    Control(Vec<ControlRecord>),
}

impl MetadataBatch {
    /// Exclusive.
    pub(crate) fn end(&self) -> i64 {
        let count = match &self.content {
            Content::Records(records) => records.len(),
            Content::Control(records) => records.len(),
        };
        self.base_offset + count as i64
    }

    pub(crate) fn provenance(&self) -> Provenance {
        Provenance {
            last_contained_offset: Offset(self.end() - 1),
            last_contained_epoch: self.epoch,
            last_contained_log_time: Timestamp(0),
        }
    }

    pub(crate) fn records(&self) -> Vec<MetadataRecord> {
        match &self.content {
            Content::Records(records) => records.clone(),
            Content::Control(_) => Vec::new(),
        }
    }

    /// What a peer can tell of the batch.
    pub(crate) fn described(&self) -> LogBatch {
        let control_records = match &self.content {
            Content::Records(_) => Vec::new(),
            Content::Control(records) => records
                .iter()
                .enumerate()
                .map(|(index, record)| (Offset(self.base_offset + index as i64), record.clone()))
                .collect(),
        };
        LogBatch {
            base_offset: Offset(self.base_offset),
            last_offset: Offset(self.end() - 1),
            epoch: self.epoch,
            control_records,
        }
    }
}

/// What a snapshot holds: everything up to its end.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SnapshotContent {
    pub records: Vec<MetadataRecord>,
    pub kraft_version: KRaftVersion,
    pub voters: Option<VoterSet>,
}

impl SnapshotContent {
    /// So that a download takes several requests.
    pub(crate) fn size_bytes(&self) -> i64 {
        self.records.len() as i64 * 100 + 50
    }
}

#[derive(Clone, Default, Debug)]
pub(crate) struct MetadataLog {
    start_offset: i64,
    batches: Vec<MetadataBatch>,
    /// Up to where the log survives a loss of power, exclusive.
    flushed: i64,
    pub snapshots: BTreeMap<SnapshotId, SnapshotContent>,
    pub partial_snapshot: Option<(SnapshotId, i64)>,
    /// `quorum-state`
    pub quorum_state: Option<String>,
}

impl MetadataLog {
    pub(crate) fn start(&self) -> i64 {
        self.start_offset
    }

    pub(crate) fn end(&self) -> i64 {
        self.batches
            .last()
            .map_or(self.start_offset, MetadataBatch::end)
    }

    pub(crate) fn batches(&self) -> &[MetadataBatch] {
        &self.batches
    }

    /// Whole batches that begin at `offset` or behind it.
    pub(crate) fn batches_from(&self, offset: i64) -> &[MetadataBatch] {
        let first = self
            .batches
            .partition_point(|batch| batch.base_offset < offset);
        &self.batches[first..]
    }

    pub(crate) fn append(&mut self, batch: MetadataBatch) {
        assert_eq!(
            batch.base_offset,
            self.end(),
            "the mirror of the log is wrong"
        );
        self.batches.push(batch);
    }

    pub(crate) fn flush(&mut self) {
        self.flushed = self.end();
    }

    pub(crate) fn truncate(&mut self, end: i64) -> Vec<MetadataBatch> {
        let kept = self.batches.partition_point(|batch| batch.end() <= end);
        let cut = self.batches.split_off(kept);
        self.flushed = self.flushed.min(self.end());
        cut
    }

    /// Keeps what a loss of power leaves: what was forced to disk, and by chance some of the rest.
    pub(crate) fn lose_unflushed(&mut self, random: u64) {
        let unflushed = self.batches_from(self.flushed).len() as u64;
        let kept = random % (unflushed + 1);
        let flushed_count = self.batches.len() as u64 - unflushed;
        self.batches.truncate((flushed_count + kept) as usize);
    }

    /// Opening a log forces to disk what is found in it.
    pub(crate) fn open(&mut self) {
        if let Some((&id, _)) = self.snapshots.last_key_value()
            && id.end_offset.value() > self.end()
        {
            // A snapshot that was put in place just before the end.
            self.install(id);
        }
        self.partial_snapshot = None;
        self.flush();
    }

    pub(crate) fn install(&mut self, id: SnapshotId) {
        self.snapshots.retain(|&other, _| other == id);
        self.start_offset = id.end_offset.value();
        self.batches.clear();
        self.flushed = self.start_offset;
        self.partial_snapshot = None;
    }

    /// Adds a snapshot, and forgets older ones and the log before it.
    pub(crate) fn add_snapshot(&mut self, id: SnapshotId, content: SnapshotContent) {
        self.snapshots.insert(id, content);
        self.snapshots.retain(|&other, _| other == id);
        let end = id.end_offset.value();
        let gone = self.batches.partition_point(|batch| batch.end() <= end);
        self.batches.drain(..gone);
        self.start_offset = self.start_offset.max(end);
        self.flushed = self.flushed.max(self.start_offset);
    }

    pub(crate) fn state(&self) -> LogState {
        let mut epochs: Vec<EpochStart> = Vec::new();
        for batch in &self.batches {
            if epochs.last().is_none_or(|last| last.epoch < batch.epoch) {
                epochs.push(EpochStart {
                    epoch: batch.epoch,
                    start_offset: Offset(batch.base_offset),
                });
            }
        }
        LogState::new(
            Offset(self.start_offset),
            Offset(self.end()),
            epochs,
            self.snapshots.keys().copied(),
        )
    }

    /// What the control records of snapshot and log say.
    pub(crate) fn control_records(&self, static_voters: VoterSet) -> ControlRecordHistory {
        let mut history = ControlRecordHistory::new(static_voters);
        if let Some((id, content)) = self.snapshots.last_key_value() {
            let offset = id.end_offset.plus(-1);
            history.set_kraft_version(offset, content.kraft_version);
            if let Some(voters) = &content.voters {
                history.set_voters(offset, voters.clone());
            }
        }
        for batch in &self.batches {
            for (offset, record) in &batch.described().control_records {
                history.add(*offset, record).expect("it was written here");
            }
        }
        history
    }
}
