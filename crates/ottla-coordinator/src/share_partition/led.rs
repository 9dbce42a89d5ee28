//! A share partition at the leader of its partition: its machine, what of it is being persisted, and who waits for that.
//!
//! The writes go to the share coordinator one after the other, in the order of the decisions. At any time one fetch
//! reads for it, as what the next is to read depends on what that one acquires.
//! Invariants: whoever acknowledges is answered once, when that is persisted or the share partition is closed; after `close`
//! nothing is acquired and no write begins. One that is under way then is still tried to its end, which nobody waits for:
//! with the leader epoch that it carries, the share coordinator refuses it once another leader has read.
//! Source: `SharePartition`, as far as it is not the state machine, and `SharePartitionManager`.

use std::collections::{BTreeMap, VecDeque};

use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::acknowledge::AcknowledgementBatch;
use super::acquire::{AcquireRequest, AcquiredRecords};
use super::in_flight::StateWriteId;
use super::partition::{PersistedBatch, PersistedState, PersistedStateError, SharePartition};
use super::settings::SharePartitionSettings;
use super::transitions::StateWrite;
use crate::persister::{SharePartitionKey, StateBatch, StateFailure, StateRead, WriteState};

/// `W` is who waits for something to be persisted.
pub struct LedSharePartition<W> {
    state: State<W>,
}

enum State<W> {
    /// What was persisted is being read.
    Loading,
    Active(Box<Active<W>>),
    /// What whoever comes is told.
    Closed(StateFailure),
}

struct Active<W> {
    machine: SharePartition,
    is_being_read: bool,
    outbox: VecDeque<StateWrite>,
    /// One write is under way.
    is_writing: bool,
    waiting: BTreeMap<StateWriteId, W>,
}

/// What came of a write.
pub struct PersistedWrite<W> {
    /// Who waited for it, and what it is told.
    pub answer: Option<(W, Result<(), StateFailure>)>,
    /// There may be something to acquire that there was not.
    pub may_fetch: bool,
    /// Why the share partition has to be closed, if so: others have taken it over, or it is no more.
    pub fenced: Option<StateFailure>,
}

impl<W> Default for LedSharePartition<W> {
    fn default() -> Self {
        LedSharePartition {
            state: State::Loading,
        }
    }
}

impl<W> LedSharePartition<W> {
    // What it is

    /// Why nothing can be read here, if so.
    pub fn failure(&self) -> Option<&StateFailure> {
        match &self.state {
            State::Closed(failure) => Some(failure),
            State::Loading | State::Active(_) => None,
        }
    }

    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Active(_))
    }

    /// When the next lock runs out.
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

    /// What was persisted has been read. `false` where the share partition was closed meanwhile.
    pub fn on_loaded(&mut self, machine: SharePartition) -> bool {
        let is_loading = matches!(self.state, State::Loading);
        if is_loading {
            self.state = State::Active(Box::new(Active {
                machine,
                is_being_read: false,
                outbox: VecDeque::new(),
                is_writing: false,
                waiting: BTreeMap::new(),
            }));
        }
        is_loading
    }

    /// The share partition is read here no longer: led elsewhere, or out of step with what is persisted. Returns who waits,
    /// to be told the reason.
    pub fn close(&mut self, reason: StateFailure) -> impl Iterator<Item = W> + use<W> {
        let before = std::mem::replace(&mut self.state, State::Closed(reason));
        let waiting = match before {
            State::Active(active) => active.waiting,
            State::Loading | State::Closed(_) => BTreeMap::new(),
        };
        waiting.into_values()
    }

    /// The offset to read from, where nobody else reads and there may be something to acquire. To be ended by `end_reading`.
    pub fn begin_reading(&mut self, settings: SharePartitionSettings) -> Option<Offset> {
        let active = self.active().ok()?;
        active.machine.configure(settings);
        if active.is_being_read || !active.machine.can_acquire_records() {
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

    /// Gives a member what it can have of what was read.
    pub fn acquire(&mut self, request: AcquireRequest<'_>) -> AcquiredRecords {
        match self.active() {
            Ok(active) => active.machine.acquire(request),
            Err(_) => AcquiredRecords::default(),
        }
    }

    /// The log begins after the offset that was to be read.
    pub fn on_log_start_offset(&mut self, log_start_offset: Offset) {
        if let Ok(active) = self.active() {
            active.machine.on_log_start_offset(log_start_offset);
        }
    }

    /// A member says what becomes of records. `true` where `waiting` is answered when that is persisted, and `false` where
    /// there is nothing to persist.
    ///
    /// # Errors
    /// What the member is told.
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

    /// What a member that is gone has in hand is for the others. As [`LedSharePartition::acknowledge`]; nobody may wait.
    ///
    /// # Errors
    /// Where nothing is handed out here.
    pub fn release(
        &mut self,
        member: &str,
        waiting: Option<impl FnOnce() -> W>,
    ) -> Result<bool, StateFailure> {
        let active = self.active()?;
        let write = active.machine.release_acquired_records(member);
        Ok(active.persist(write, waiting))
    }

    /// Frees what is locked no longer. Whether there is anything.
    pub fn on_lock_timeouts(&mut self, now_ms: u64) -> bool {
        let Ok(active) = self.active() else {
            return false;
        };
        let write = active.machine.on_lock_timeouts(now_ms);
        let is_freed = write.is_some();
        active.outbox.extend(write);
        is_freed
    }

    /// The next write that is to be persisted. There is none until `on_written` for the one before.
    pub fn next_write(&mut self) -> Option<StateWrite> {
        let active = self.active().ok()?;
        if active.is_writing {
            return None;
        }
        let write = active.outbox.pop_front();
        active.is_writing = write.is_some();
        write
    }

    /// A write is persisted, or was refused.
    pub fn on_written(
        &mut self,
        id: StateWriteId,
        written: Result<(), StateFailure>,
    ) -> PersistedWrite<W> {
        let written = written.map_err(of_persister);
        let fenced = written.clone().err().filter(|it| is_fenced(it.code));
        let Ok(active) = self.active() else {
            return PersistedWrite {
                answer: None,
                may_fetch: false,
                fenced: None,
            };
        };
        assert!(active.is_writing, "it was given out");
        active.is_writing = false;
        let result = active.machine.on_state_written(id, written.is_ok());
        PersistedWrite {
            answer: active.waiting.remove(&id).map(|waiting| (waiting, written)),
            may_fetch: result.may_fetch,
            fenced,
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

/// Goes on where the persisted state ends; `start_offset` is for a group that has read nothing yet.
///
/// # Errors
/// Where what is persisted cannot be.
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

/// What the share coordinator is asked to persist.
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

/// Others have taken the share partition over, or it is no more.
fn is_fenced(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotLeaderOrFollower
            | ErrorCode::FencedStateEpoch
            | ErrorCode::GroupIdNotFound
            | ErrorCode::UnknownTopicOrPartition
    )
}

/// What a member is told of an error of the share coordinator.
/// Source: `SharePartition.fetchPersisterError`.
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
