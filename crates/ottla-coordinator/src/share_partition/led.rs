//! A share partition on the leader of its partition: the state machine, its queue of writes, and
//! the requests that wait for them.
//!
//! The writes go to the share coordinator one after the other, in the order of the decisions. Only
//! one fetch reads for the share partition at a time, because the records that it acquires
//! determine the offset of the next read. Invariants: each acknowledgement is answered once, when
//! it is persisted or the share partition is closed; after `close` nothing is acquired and no write
//! starts. A write that is in progress then still completes, but no request waits for it: with its
//! leader epoch, the share coordinator refuses it once another leader has read the state. Records
//! for the dead-letter queue are handed out in one batch at a time. Source: `SharePartition`
//! without the state machine, and `SharePartitionManager`.

use std::collections::{BTreeMap, VecDeque};

use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::acknowledge::AcknowledgementBatch;
use super::acquire::{AcquireRequest, AcquiredRecords};
use super::dead_letters::DeadLetters;
use super::in_flight::StateWriteId;
use super::partition::{PersistedBatch, PersistedState, PersistedStateError, SharePartition};
use super::settings::SharePartitionSettings;
use super::transitions::StateWrite;
use crate::persister::{SharePartitionKey, StateBatch, StateFailure, StateRead, WriteState};

/// `W` identifies a request that waits for a write.
pub struct LedSharePartition<W> {
    state: State<W>,
}

enum State<W> {
    /// The persisted state is being read.
    Loading,
    Active(Box<Active<W>>),
    /// The error for all requests.
    Closed(StateFailure),
}

struct Active<W> {
    machine: SharePartition,
    is_being_read: bool,
    outbox: VecDeque<StateWrite>,
    /// Whether a write is in progress.
    is_writing: bool,
    /// Whether records are being copied to the dead-letter queue.
    is_copying: bool,
    waiting: BTreeMap<StateWriteId, W>,
    /// With which error it is closed after the last write.
    closes_with: Option<StateFailure>,
    /// How many checks are under way whether the persisted state was replaced. Nothing is read until
    /// all have ended: one that began before the state was replaced does not tell.
    doubts: usize,
    /// Whether a result said that it must be closed. No write starts any more, and no dead letters
    /// are handed out. Otherwise:
    /// 1. this result arrives, and another write starts before `close`,
    /// 2. the next share partition reads the state, with the same leader epoch if it is led here,
    /// 3. the write of step 1 is persisted,
    /// 4. a record that the next one delivers and settles has a lower delivery count than in step 3,
    ///    so the share coordinator drops its acknowledgement.
    is_closing: bool,
}

/// The result of a write.
pub struct PersistedWrite<W> {
    /// The request that waited for it, and its answer.
    pub answer: Option<(W, Result<(), StateFailure>)>,
    /// Whether there may be records to acquire now.
    pub may_fetch: bool,
    /// Why the share partition must be closed, if it must: another leader has taken it over, it
    /// was deleted, or the group has left and this was the last write.
    pub must_close: Option<StateFailure>,
}

impl<W> Default for LedSharePartition<W> {
    fn default() -> Self {
        LedSharePartition {
            state: State::Loading,
        }
    }
}

impl<W> LedSharePartition<W> {
    // State

    /// Why nothing can be read here, if nothing can.
    pub fn failure(&self) -> Option<&StateFailure> {
        match &self.state {
            State::Closed(failure) => Some(failure),
            State::Loading | State::Active(_) => None,
        }
    }

    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Active(_))
    }

    /// When the next lock expires.
    pub fn next_lock_deadline_ms(&mut self) -> Option<u64> {
        let active = self.active().ok()?;
        active.machine.next_lock_deadline_ms()
    }

    /// The offset below which everything is settled.
    pub fn start_offset(&mut self) -> Option<Offset> {
        let active = self.active().ok()?;
        Some(active.machine.start_offset())
    }

    // What happens to it

    /// The persisted state has been read. Returns `false` if the share partition has been closed.
    pub fn on_loaded(&mut self, machine: SharePartition) -> bool {
        let is_loading = matches!(self.state, State::Loading);
        if is_loading {
            self.state = State::Active(Box::new(Active {
                machine,
                is_being_read: false,
                outbox: VecDeque::new(),
                is_writing: false,
                is_copying: false,
                waiting: BTreeMap::new(),
                closes_with: None,
                doubts: 0,
                is_closing: false,
            }));
        }
        is_loading
    }

    /// Closes the share partition: the partition has another leader, or the state differs from the
    /// persisted state. Returns the waiting requests, which must be answered with the reason.
    pub fn close(&mut self, reason: StateFailure) -> impl Iterator<Item = W> + use<W> {
        let before = std::mem::replace(&mut self.state, State::Closed(reason));
        let waiting = match before {
            State::Active(active) => active.waiting,
            State::Loading | State::Closed(_) => BTreeMap::new(),
        };
        waiting.into_values()
    }

    /// Closes the share partition, unless something is being persisted: the next one would read the
    /// state from before it. Then it returns `false`, and the last write reports that it must be
    /// closed, unless `keep_open` is called before.
    pub fn close_when_idle(&mut self, reason: &StateFailure) -> bool {
        match &mut self.state {
            State::Active(active) if active.is_persisting() => {
                active.closes_with = Some(reason.clone());
                return false;
            }
            State::Active(active) => assert!(
                active.waiting.is_empty(),
                "a request waits for a write that is not in progress"
            ),
            State::Loading => {}
            State::Closed(_) => return true,
        }
        self.state = State::Closed(reason.clone());
        true
    }

    /// The group uses it again.
    pub fn keep_open(&mut self) {
        if let Ok(active) = self.active() {
            active.closes_with = None;
        }
    }

    /// The group was without members and now has its first one here. An administrator may have set
    /// its offsets while it was empty, with a later state epoch. Without this check, members would
    /// get records from before those offsets, until the first write is refused. Returns the epoch
    /// that the persisted state must have for `on_confirmed`, which ends one check.
    pub fn doubt(&mut self) -> Option<i32> {
        let active = self.active().ok()?;
        active.doubts += 1;
        Some(active.machine.state_epoch())
    }

    pub fn on_confirmed(&mut self) {
        if let Ok(active) = self.active() {
            active.doubts = active.doubts.saturating_sub(1);
        }
    }

    /// The offset to read from, if no other fetch is reading and there may be something to acquire.
    /// Must be followed by `end_reading`.
    pub fn begin_reading(&mut self, settings: SharePartitionSettings) -> Option<Offset> {
        let active = self.active().ok()?;
        active.machine.configure(settings);
        let is_blocked = active.is_being_read || active.doubts > 0;
        if is_blocked || !active.machine.can_acquire_records() {
            return None;
        }
        active.is_being_read = true;
        Some(active.machine.next_fetch_offset())
    }

    pub fn end_reading(&mut self) {
        if let Ok(active) = self.active() {
            active.is_being_read = false;
        }
    }

    /// Acquires records for a member, from the records that were read.
    pub fn acquire(&mut self, request: AcquireRequest<'_>) -> AcquiredRecords {
        match self.active() {
            Ok(active) => active.machine.acquire(request),
            Err(_) => AcquiredRecords::default(),
        }
    }

    /// The log starts after the offset that was to be read.
    pub fn on_log_start_offset(&mut self, log_start_offset: Offset) {
        if let Ok(active) = self.active() {
            active.machine.on_log_start_offset(log_start_offset);
        }
    }

    /// A member acknowledges records. Returns `true` if `waiting` is answered when that is
    /// persisted, and `false` if there is nothing to persist.
    ///
    /// # Errors
    /// The error for the member.
    pub fn acknowledge(
        &mut self,
        member: &str,
        batches: &[AcknowledgementBatch],
        settings: SharePartitionSettings,
        now_ms: u64,
        waiting: impl FnOnce() -> W,
    ) -> Result<bool, StateFailure> {
        let active = self.active()?;
        active.machine.configure(settings);
        let write = active.machine.acknowledge(member, batches, now_ms);
        let write = write.map_err(|error| StateFailure {
            code: error.code(),
            message: error.message().into(),
        })?;
        Ok(active.persist(write, Some(waiting)))
    }

    /// Releases the records of a member that is gone. As [`LedSharePartition::acknowledge`]; `None`
    /// if no request waits.
    ///
    /// # Errors
    /// If no records can be acquired here.
    pub fn release(
        &mut self,
        member: &str,
        waiting: Option<impl FnOnce() -> W>,
    ) -> Result<bool, StateFailure> {
        let active = self.active()?;
        let write = active.machine.release_acquired_records(member);
        Ok(active.persist(write, waiting))
    }

    /// Releases records with expired locks. Returns whether there were any.
    pub fn on_lock_timeouts(&mut self, now_ms: u64) -> bool {
        let Ok(active) = self.active() else {
            return false;
        };
        let write = active.machine.on_lock_timeouts(now_ms);
        let is_freed = write.is_some();
        active.outbox.extend(write);
        is_freed
    }

    /// The next write to persist. There is none until `on_written` for the previous one.
    pub fn next_write(&mut self) -> Option<StateWrite> {
        let active = self.active().ok()?;
        if active.is_writing || active.is_closing {
            return None;
        }
        let write = active.outbox.pop_front();
        active.is_writing = write.is_some();
        write
    }

    /// The records to copy to the dead-letter queue. There are none until `on_dead_letters_written`
    /// for the previous ones.
    pub fn next_dead_letters(&mut self) -> Option<Vec<DeadLetters>> {
        let active = self.active().ok()?;
        if active.is_copying || active.is_closing || !active.machine.has_dead_letters() {
            return None;
        }
        active.is_copying = true;
        Some(active.machine.take_dead_letters())
    }

    /// The records were copied, or cannot be. There may be a write to persist now.
    pub fn on_dead_letters_written(&mut self, written: &[DeadLetters]) {
        let Ok(active) = self.active() else {
            return;
        };
        assert!(active.is_copying, "they were given out");
        active.is_copying = false;
        let write = active.machine.on_dead_letters_written(written);
        active.outbox.extend(write);
    }

    /// A write was persisted or refused.
    pub fn on_written(
        &mut self,
        id: StateWriteId,
        written: Result<(), StateFailure>,
    ) -> PersistedWrite<W> {
        let written = written.map_err(of_persister);
        let mut must_close = written.clone().err().filter(|it| is_fenced(it.code));
        let Ok(active) = self.active() else {
            return PersistedWrite {
                answer: None,
                may_fetch: false,
                must_close: None,
            };
        };
        assert!(active.is_writing, "it was given out");
        active.is_writing = false;
        let result = active.machine.on_state_written(id, written.is_ok());
        if must_close.is_none() && !active.is_persisting() {
            must_close = active.closes_with.take();
        }
        active.is_closing |= must_close.is_some();
        PersistedWrite {
            answer: active.waiting.remove(&id).map(|waiting| (waiting, written)),
            may_fetch: result.may_fetch,
            must_close,
        }
    }

    fn active(&mut self) -> Result<&mut Active<W>, StateFailure> {
        match &mut self.state {
            State::Active(active) => Ok(active),
            State::Loading => Err(ErrorCode::UnknownTopicOrPartition.into()),
            State::Closed(reason) => Err(reason.clone()),
        }
    }
}

impl<W> Active<W> {
    /// Whether writes are in progress, or will follow.
    fn is_persisting(&self) -> bool {
        let has_writes = self.is_writing || !self.outbox.is_empty();
        has_writes || self.is_copying || self.machine.has_dead_letters()
    }

    fn persist(&mut self, write: Option<StateWrite>, waiting: Option<impl FnOnce() -> W>) -> bool {
        let Some(write) = write else {
            return false;
        };
        if let Some(waiting) = waiting {
            self.waiting.insert(write.id, waiting());
        }
        self.outbox.push_back(write);
        true
    }
}

/// Restores a share partition from its persisted state. `start_offset` is for a group that has not
/// read anything yet.
///
/// # Errors
/// If the persisted state is invalid.
pub fn restore(
    read: &StateRead,
    start_offset: Offset,
    settings: SharePartitionSettings,
    leader_epoch: LeaderEpoch,
) -> Result<SharePartition, PersistedStateError> {
    let batches = read.batches.iter().map(|batch| PersistedBatch {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_state: batch.delivery_state,
        delivery_count: batch.delivery_count,
    });
    let persisted = PersistedState {
        state_epoch: read.state_epoch,
        start_offset,
        batches: batches.collect(),
    };
    SharePartition::restore(settings, leader_epoch, &persisted)
}

/// The request to the share coordinator for a write.
pub fn request_of(key: SharePartitionKey, write: StateWrite) -> WriteState {
    let batches = write.batches.iter().map(|batch| StateBatch {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_state: batch.delivery_state,
        delivery_count: batch.delivery_count,
    });
    WriteState {
        key,
        state_epoch: write.state_epoch,
        leader_epoch: write.leader_epoch,
        start_offset: write.start_offset,
        delivery_complete_count: write.delivery_complete_count,
        batches: batches.collect(),
    }
}

/// Whether another leader has taken the share partition over, or it was deleted.
fn is_fenced(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeaderOrFollower
            | ErrorCode::FencedStateEpoch
            | ErrorCode::GroupIdNotFound
            | ErrorCode::UnknownTopicOrPartition
    )
}

/// Maps an error of the share coordinator to the one for the member. Source:
/// `SharePartition.fetchPersisterError`.
pub fn of_persister(failure: StateFailure) -> StateFailure {
    let code = match failure.code {
        ErrorCode::NotCoordinator
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::CoordinatorLoadInProgress => ErrorCode::CoordinatorNotAvailable,
        ErrorCode::GroupIdNotFound => ErrorCode::GroupIdNotFound,
        ErrorCode::UnknownTopicOrPartition => ErrorCode::UnknownTopicOrPartition,
        ErrorCode::FencedLeaderEpoch | ErrorCode::FencedStateEpoch => {
            ErrorCode::NotLeaderOrFollower
        }
        _ => ErrorCode::UnknownServerError,
    };
    StateFailure { code, ..failure }
}
