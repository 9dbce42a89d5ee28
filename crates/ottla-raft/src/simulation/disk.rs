//! The disk of a simulated node: the written state, and the part that survives a crash.

use std::collections::BTreeMap;

use ottla_types::{LeaderEpoch, Offset};

use crate::{
    ControlRecord, ControlRecordHistory, EpochStart, KRaftVersion, LogBatch, LogState, SnapshotId,
    VoterSet,
};

/// One record.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Entry {
    pub epoch: LeaderEpoch,
    pub begins_batch: bool,
    pub value: Value,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Data(u64),
    Control(ControlRecord),
}

/// The content of a snapshot: everything up to its end.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SnapshotContent {
    /// From offset 0 on.
    pub entries: Vec<Entry>,
    pub kraft_version: KRaftVersion,
    pub voters: Option<VoterSet>,
}

impl SnapshotContent {
    /// Large enough that a download takes several requests.
    pub fn size_bytes(&self) -> i64 {
        self.entries.len() as i64 * 100 + 50
    }
}

#[derive(Clone, Default, Debug)]
pub(super) struct Disk {
    pub start_offset: i64,
    pub entries: Vec<Entry>,
    /// The part of the log that survives a crash, exclusive.
    pub flushed: i64,
    /// Incremented by a truncation: a flush started before says nothing about later records.
    pub generation: u64,
    pub snapshots: BTreeMap<SnapshotId, SnapshotContent>,
    pub partial: Option<(SnapshotId, i64)>,
    pub quorum_state: Option<String>,
}

impl Disk {
    pub fn end(&self) -> i64 {
        self.start_offset + self.entries.len() as i64
    }

    pub fn entry(&self, offset: i64) -> Option<&Entry> {
        let index = usize::try_from(offset - self.start_offset).ok()?;
        self.entries.get(index)
    }

    pub fn append(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.entries.extend(entries);
    }

    pub fn flush(&mut self) {
        self.flushed = self.end();
    }

    pub fn truncate(&mut self, end: i64) {
        self.entries.truncate((end - self.start_offset) as usize);
        self.flushed = self.flushed.min(end);
        self.generation += 1;
    }

    /// The entry at `offset`, in the log or in a snapshot.
    pub fn known(&self, offset: i64) -> Option<&Entry> {
        self.entry(offset).or_else(|| {
            let (_, newest) = self.snapshots.last_key_value()?;
            newest.entries.get(offset as usize)
        })
    }

    /// Whether the entry at `offset` survives a crash.
    pub fn is_durable(&self, offset: i64) -> bool {
        offset < self.flushed
            || self
                .snapshots
                .last_key_value()
                .is_some_and(|(id, _)| offset < id.end_offset.value())
    }

    /// Loses all or some of the unflushed records; whole batches survive.
    pub fn crash(&mut self, random: u64) {
        let lost = (self.end() - self.flushed).max(0);
        let kept = self.flushed + (random % (lost as u64 + 1)) as i64;
        let mut end = kept;
        while end > self.flushed && self.entry(end).is_some_and(|entry| !entry.begins_batch) {
            end -= 1;
        }
        self.truncate(end.max(self.start_offset));
        // Opening a log fsyncs its contents.
        self.flush();
        self.partial = None;
    }

    pub fn install(&mut self, id: SnapshotId) {
        self.snapshots.retain(|&other, _| other == id);
        self.start_offset = id.end_offset.value();
        self.entries.clear();
        self.flushed = self.start_offset;
        self.partial = None;
        self.generation += 1;
    }

    /// Takes a snapshot of everything up to `end`, and removes the log before it.
    pub fn snapshot(&mut self, end: i64, control: &ControlRecordHistory) -> Option<SnapshotId> {
        let last = self.entry(end - 1)?;
        let id = SnapshotId {
            end_offset: Offset(end),
            epoch: last.epoch,
        };
        let entries: Option<Vec<Entry>> =
            (0..end).map(|offset| self.known(offset).cloned()).collect();
        let content = SnapshotContent {
            entries: entries?,
            kraft_version: control.kraft_version_at(Offset(end - 1)),
            voters: control.voters_at(Offset(end - 1)).cloned(),
        };
        self.snapshots.insert(id, content);
        Some(id)
    }

    /// Deletes all snapshots except the newest, and the log before it.
    pub fn clean(&mut self) {
        let Some((&newest, _)) = self.snapshots.last_key_value() else {
            return;
        };
        self.snapshots.retain(|&id, _| id == newest);
        let dropped = newest.end_offset.value() - self.start_offset;
        if dropped > 0 {
            self.entries.drain(..dropped as usize);
            self.start_offset += dropped;
        }
    }

    pub fn log_state(&self) -> LogState {
        let mut epochs: Vec<EpochStart> = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            if epochs.last().is_none_or(|last| last.epoch < entry.epoch) {
                epochs.push(EpochStart {
                    epoch: entry.epoch,
                    start_offset: Offset(self.start_offset + index as i64),
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

    /// The control records of snapshot and log.
    pub fn control_records(&self, static_voters: VoterSet) -> ControlRecordHistory {
        let mut history = ControlRecordHistory::new(static_voters);
        if let Some((id, content)) = self.snapshots.last_key_value() {
            let offset = id.end_offset.plus(-1);
            history.set_kraft_version(offset, content.kraft_version);
            if let Some(voters) = &content.voters {
                history.set_voters(offset, voters.clone());
            }
        }
        let newest = self
            .snapshots
            .keys()
            .last()
            .map_or(0, |id| id.end_offset.value());
        for offset in newest.max(self.start_offset)..self.end() {
            if let Some(Value::Control(record)) = self.entry(offset).map(|entry| &entry.value) {
                history.add(Offset(offset), record).expect("was written");
            }
        }
        history
    }

    /// Whole batches from `offset` on.
    pub fn read(&self, offset: i64, batches: usize) -> Vec<Entry> {
        let mut read: Vec<Entry> = Vec::new();
        let mut count = 0;
        for entry in &self.entries[(offset - self.start_offset) as usize..] {
            count += usize::from(entry.begins_batch);
            if count > batches {
                break;
            }
            read.push(entry.clone());
        }
        read
    }
}

/// A peer's view of the records that it received at `offset`.
pub(super) fn batches_of(offset: i64, entries: &[Entry]) -> Vec<LogBatch> {
    let mut batches: Vec<LogBatch> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let offset = Offset(offset + index as i64);
        if entry.begins_batch {
            batches.push(LogBatch {
                base_offset: offset,
                last_offset: offset,
                epoch: entry.epoch,
                control_records: Vec::new(),
            });
        }
        let batch = batches.last_mut().expect("begins with a batch");
        batch.last_offset = offset;
        if let Value::Control(record) = &entry.value {
            batch.control_records.push((offset, record.clone()));
        }
    }
    batches
}
