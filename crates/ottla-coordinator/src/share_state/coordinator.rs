//! The share coordinator of one partition of `__share_group_state`.
//!
//! Decisions are based on the latest state. Replies wait until everything that was decided before
//! them is committed, and are errors if it fails. Invariants: `outstanding` is ordered by write;
//! all records of a share partition are in this partition of the topic. Source:
//! `ShareCoordinatorShard`, `CoordinatorRuntime`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};

use super::config::ShareCoordinatorConfig;
use super::outcome::{Command, Outcome, Response, StateError, TimerKey};
use super::record::{Change, ShareStateRecord};
use super::state::ShareState;
use crate::persister::SharePartitionKey;
use crate::runtime::{
    Coordinator, LogEntry, Reply, ReplyTo, Timeline, TimerChange, Write, WriteId, WriteKind,
    error_after_append,
};

pub struct ShareCoordinator {
    pub(super) config: Arc<ShareCoordinatorConfig>,
    pub(super) states: BTreeMap<SharePartitionKey, Timeline<ShareState>>,
    outstanding: VecDeque<Outstanding>,
    next_write: WriteId,
    /// The log offset of the newest committed snapshot of each share partition.
    pub(super) snapshot_offsets: BTreeMap<SharePartitionKey, Offset>,
    /// The log offset of the newest committed tombstone.
    pub(super) last_tombstone: Option<Offset>,
    /// The offset of the last prune command.
    pub(super) pruned_to: Option<Offset>,
}

/// An uncommitted write.
struct Outstanding {
    id: WriteId,
    /// The share partitions that it changes, in the order of its records.
    changes: Vec<(SharePartitionKey, RecordKind)>,
    /// The offset of its first record, when it is appended.
    base_offset: Option<Offset>,
    replies: Vec<Reply<Response>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    Snapshot,
    Update,
    Tombstone,
}

impl From<&Change> for RecordKind {
    fn from(change: &Change) -> Self {
        match change {
            Change::Snapshot(_) => RecordKind::Snapshot,
            Change::Update(_) => RecordKind::Update,
            Change::Deleted => RecordKind::Tombstone,
        }
    }
}

impl ShareCoordinator {
    /// An empty coordinator: replay the log, then call `on_loaded`.
    pub fn new(config: Arc<ShareCoordinatorConfig>) -> Self {
        ShareCoordinator {
            config,
            states: BTreeMap::new(),
            outstanding: VecDeque::new(),
            next_write: WriteId(1),
            snapshot_offsets: BTreeMap::new(),
            last_tombstone: None,
            pruned_to: None,
        }
    }

    // For the handlers

    pub(super) fn latest(&self, key: &SharePartitionKey) -> Option<&ShareState> {
        self.states.get(key)?.latest()
    }

    /// The state of a share partition, for a leader in this epoch. `uninitialized` is the error if
    /// there is none.
    pub(super) fn state_for_leader(
        &self,
        key: &SharePartitionKey,
        leader_epoch: LeaderEpoch,
        uninitialized: StateError,
    ) -> Result<&ShareState, StateError> {
        if key.partition < 0 {
            return Err(StateError::NEGATIVE_PARTITION);
        }
        let state = self.latest(key).ok_or(uninitialized)?;
        state.check_leader_epoch(leader_epoch)?;
        Ok(state)
    }

    /// Replies when everything that was decided so far is committed.
    pub(super) fn answer<T>(&mut self, to: ReplyTo<T>, response: T) -> Outcome
    where
        Response: From<T>,
    {
        let mut outcome = Outcome::default();
        let reply = to.with(response);
        match self.outstanding.back_mut() {
            Some(write) => write.replies.push(reply),
            None => outcome.replies.push(reply),
        }
        outcome
    }

    /// Decides on records, and replies when they are committed.
    pub(super) fn write(
        &mut self,
        records: Vec<ShareStateRecord>,
        reply: Option<Reply<Response>>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let id = self.next_write;
        self.next_write = WriteId(id.0 + 1);
        for record in &records {
            let state = self.after(record);
            self.states
                .entry(record.key.clone())
                .or_default()
                .set(id, state);
        }
        self.outstanding.push_back(Outstanding {
            id,
            changes: records
                .iter()
                .map(|record| (record.key.clone(), RecordKind::from(&record.change)))
                .collect(),
            base_offset: None,
            replies: reply.into_iter().collect(),
        });
        outcome.writes.push(Write {
            id,
            kind: WriteKind::Plain,
            records,
        });
        outcome
    }

    /// The state of the record's share partition after the record.
    pub(super) fn after(&self, record: &ShareStateRecord) -> Option<ShareState> {
        let before = self.latest(&record.key);
        let limit = self.config.snapshot_update_records_per_snapshot;
        match &record.change {
            Change::Snapshot(snapshot) => Some(ShareState::on_snapshot(before, snapshot, limit)),
            Change::Update(update) => Some(ShareState::on_update(before, update)),
            Change::Deleted => None,
        }
    }

    /// Notes the offset of a committed record.
    pub(super) fn note_offset(
        &mut self,
        key: &SharePartitionKey,
        kind: RecordKind,
        offset: Offset,
    ) {
        match kind {
            RecordKind::Snapshot => {
                self.snapshot_offsets.insert(key.clone(), offset);
            }
            RecordKind::Tombstone => {
                self.snapshot_offsets.remove(key);
                self.last_tombstone = self.last_tombstone.max(Some(offset));
            }
            RecordKind::Update => {}
        }
    }

    fn drop_vacant(&mut self, key: &SharePartitionKey) {
        if self.states.get(key).is_some_and(Timeline::is_vacant) {
            self.states.remove(key);
        }
    }
}

/// Replaces the replies with errors.
fn refuse(replies: Vec<Reply<Response>>, error: ErrorCode) -> Vec<Reply<Response>> {
    let error = error_after_append(error);
    let refused = replies.into_iter().map(|reply| Reply {
        to: reply.to,
        response: reply.response.failed(error),
    });
    refused.collect()
}

impl Coordinator for ShareCoordinator {
    type Record = ShareStateRecord;
    type Response = Response;
    type TimerKey = TimerKey;
    type Command = Command;

    // A record that is delivered based on uncommitted state could already be settled.
    const AWAITS_COMMITTED_LOG: bool = true;
    // Kafka: `CoordinatorPartitionWriter.append` requires only the leader's acknowledgement.
    const REQUIRES_MIN_ISR: bool = false;

    fn replay(&mut self, entry: LogEntry<'_>, _now: Timestamp) -> Result<(), String> {
        entry.replay_with(|offset, key, value| self.replay(offset, key, value))
    }

    fn on_appended(&mut self, first: WriteId, last: WriteId, base_offset: Offset) {
        let mut next = base_offset;
        for write in &mut self.outstanding {
            if write.id < first || write.id > last {
                continue;
            }
            write.base_offset = Some(next);
            next = next.plus(write.changes.len() as i64);
        }
    }

    fn on_loaded(&mut self, _now: Timestamp) -> Outcome {
        let mut outcome = Outcome::default();
        for key in [TimerKey::Prune, TimerKey::SnapshotCold] {
            outcome.timers.push(self.timer(key));
        }
        outcome
    }

    fn on_unloaded(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        for write in std::mem::take(&mut self.outstanding) {
            outcome
                .replies
                .extend(refuse(write.replies, ErrorCode::NotCoordinator));
        }
        self.states.clear();
        outcome
    }

    fn on_records_committed(&mut self, write: WriteId, _now: Timestamp) -> Outcome {
        let mut outcome = Outcome::default();
        while let Some(write) = self.outstanding.pop_front_if(|first| first.id <= write) {
            // Without the offset, the next prune would use an older snapshot, and could delete the
            // newest one.
            let base_offset = write.base_offset.expect("appended before it is committed");
            for (index, (key, kind)) in write.changes.iter().enumerate() {
                if let Some(state) = self.states.get_mut(key) {
                    state.commit(write.id);
                }
                self.drop_vacant(key);
                self.note_offset(key, *kind, base_offset.plus(index as i64));
            }
            outcome.replies.extend(write.replies);
        }
        outcome
    }

    fn on_write_failed(&mut self, write: WriteId, error: ErrorCode, _now: Timestamp) -> Outcome {
        let mut outcome = Outcome::default();
        let first_failed = self.outstanding.partition_point(|first| first.id < write);
        for failed in self.outstanding.split_off(first_failed) {
            for (key, _) in &failed.changes {
                if let Some(state) = self.states.get_mut(key) {
                    state.revert(write);
                }
                self.drop_vacant(key);
            }
            outcome.replies.extend(refuse(failed.replies, error));
        }
        outcome
    }

    fn on_write_timed_out(&mut self, write: WriteId, _now: Timestamp) -> Outcome {
        let mut outcome = Outcome::default();
        let late = self.outstanding.iter_mut().find(|first| first.id == write);
        if let Some(late) = late {
            let replies = std::mem::take(&mut late.replies);
            outcome
                .replies
                .extend(refuse(replies, ErrorCode::RequestTimedOut));
        }
        outcome
    }

    fn on_timer(&mut self, key: TimerKey, now: Timestamp) -> Outcome {
        let mut outcome = match key {
            TimerKey::Prune => self.prune(),
            TimerKey::SnapshotCold => self.snapshot_cold(now),
        };
        outcome.timers.push(self.timer(key));
        outcome
    }
}

impl ShareCoordinator {
    fn timer(&self, key: TimerKey) -> TimerChange<TimerKey> {
        let after_ms = match key {
            TimerKey::Prune => self.config.state_topic_prune_interval_ms,
            TimerKey::SnapshotCold => self.config.cold_partition_snapshot_interval_ms,
        };
        TimerChange::Set { key, after_ms }
    }

    fn prune(&mut self) -> Outcome {
        let mut outcome = Outcome::default();
        let redundant = self.redundant_before();
        if redundant > self.pruned_to {
            self.pruned_to = redundant;
            outcome
                .commands
                .extend(redundant.map(Command::DeleteRecordsBefore));
        }
        outcome
    }
}

/// Checks that the topic and the partition exist.
pub(super) fn check_partition(
    partition: i32,
    partition_count: Option<i32>,
) -> Result<(), StateError> {
    match partition_count {
        _ if partition < 0 => Err(StateError::NEGATIVE_PARTITION),
        Some(count) if partition < count => Ok(()),
        _ => Err(StateError::from(ErrorCode::UnknownTopicOrPartition)),
    }
}
