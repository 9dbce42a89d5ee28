//! The state of records that were fetched and are after the start offset.
//!
//! A batch has one common state until its records differ; from then on each record has its own. A
//! change that must be persisted first is in transition until the write completes: readers see the
//! new state, no other change is allowed, and a failed write restores the old state. Invariants:
//! only acquired records have a member and a running lock, or records in transition from that
//! state; acknowledged and archived records do not change; there are as many per-offset states as
//! the batch has offsets. Source: `InFlightState`, `InFlightBatch`, `RecordState`,
//! `AcquisitionLockTimerTask`.

use std::sync::Arc;

use crate::planted::{self, Bug};

/// Identifies a write of one share partition. Ids are in the order of the writes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StateWriteId(pub u64);

/// The member that has acquired a record. Shared, because every record of a batch may contain it.
pub type MemberId = Arc<str>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordState {
    Available = 0,
    Acquired = 1,
    Acknowledged = 2,
    /// The record is not delivered any more, and is copied to a dead-letter queue before it is
    /// archived (KIP-1191).
    Archiving = 3,
    Archived = 4,
}

impl RecordState {
    /// The value in requests to the share coordinator and in its records.
    pub const fn id(self) -> i8 {
        self as i8
    }

    /// `None` for a state that Kafka does not write.
    pub const fn from_id(id: i8) -> Option<RecordState> {
        match id {
            0 => Some(RecordState::Available),
            1 => Some(RecordState::Acquired),
            2 => Some(RecordState::Acknowledged),
            3 => Some(RecordState::Archiving),
            4 => Some(RecordState::Archived),
            _ => None,
        }
    }

    /// Whether no other state follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, RecordState::Acknowledged | RecordState::Archived)
    }
}

/// How often a record is delivered, and the state that follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DeliveryLimit {
    pub(super) count: i32,
    pub(super) undeliverable: RecordState,
}

/// The acquisition lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lock {
    pub(super) deadline_ms: u64,
    /// Whether the deadline has passed while the record was in transition. If the transition fails,
    /// the record does not become acquired again, because no timer would release it.
    pub(super) is_expired: bool,
}

/// A change that is being persisted, and the state to go back to.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Transition {
    write: StateWriteId,
    previous: RecordState,
    previous_member: Option<MemberId>,
    limit: DeliveryLimit,
}

/// The state of one record, or of all records of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InFlightState {
    state: RecordState,
    delivery_count: i32,
    member: Option<MemberId>,
    lock: Option<Lock>,
    transition: Option<Box<Transition>>,
    /// Whether the record is archived permanently: a failed transition does not restore it.
    is_archived_for_good: bool,
}

impl InFlightState {
    pub(super) fn persisted(state: RecordState, delivery_count: i32) -> Self {
        InFlightState {
            state,
            delivery_count,
            member: None,
            lock: None,
            transition: None,
            is_archived_for_good: false,
        }
    }

    /// A record that is delivered for the first time.
    pub(super) fn acquired(member: MemberId, deadline_ms: u64) -> Self {
        let mut state = Self::persisted(RecordState::Available, 0);
        state.acquire(member, deadline_ms);
        state
    }

    pub(super) fn state(&self) -> RecordState {
        self.state
    }

    pub(super) fn delivery_count(&self) -> i32 {
        self.delivery_count
    }

    pub(super) fn member(&self) -> Option<&MemberId> {
        self.member.as_ref()
    }

    pub(super) fn is_in_transition(&self) -> bool {
        self.transition.is_some()
    }

    /// Whether the record can be acquired.
    pub(super) fn is_acquirable(&self) -> bool {
        self.state == RecordState::Available && self.transition.is_none()
    }

    /// Whether the record will never be delivered again, and nothing can change that.
    pub(super) fn is_settled(&self) -> bool {
        self.state.is_terminal() && self.transition.is_none()
    }

    /// The record must be acquirable.
    pub(super) fn acquire(&mut self, member: MemberId, deadline_ms: u64) {
        assert!(self.is_acquirable(), "only an available record is acquired");
        self.state = RecordState::Acquired;
        self.delivery_count += 1;
        self.member = Some(member);
        self.lock_until(deadline_ms);
    }

    /// Starts the lock, or renews it (KIP-1222).
    pub(super) fn lock_until(&mut self, deadline_ms: u64) {
        self.lock = Some(Lock {
            deadline_ms,
            is_expired: false,
        });
    }

    /// Takes the record from its member. A record that would become available but has reached the
    /// delivery limit is not delivered again. `None` if the record is not acquired.
    fn give_back(&mut self, to: RecordState, limit: DeliveryLimit) -> Option<RecordState> {
        if self.transition.is_some() || self.state != RecordState::Acquired {
            return None;
        }
        self.state = match to {
            RecordState::Available
                if self.delivery_count >= limit.count
                    && !planted::has(Bug::DeliverWithoutLimit) =>
            {
                limit.undeliverable
            }
            _ => to,
        };
        Some(self.state)
    }

    /// Takes the record from its member when `write` is persisted.
    pub(super) fn start_transition(
        &mut self,
        to: RecordState,
        limit: DeliveryLimit,
        write: StateWriteId,
    ) -> Option<RecordState> {
        let previous = self.state;
        let state = self.give_back(to, limit)?;
        self.transition = Some(Box::new(Transition {
            write,
            previous,
            previous_member: self.member.take(),
            limit,
        }));
        Some(state)
    }

    /// The write has completed. Returns whether the transition belonged to it. If the write has
    /// failed and the lock of the last delivery has expired during it, the record is not delivered
    /// again.
    pub(super) fn complete_transition(&mut self, write: StateWriteId, is_persisted: bool) -> bool {
        if self.transition.as_ref().is_none_or(|t| t.write != write) {
            return false;
        }
        let Some(transition) = self.transition.take() else {
            return false;
        };
        if is_persisted || self.is_archived_for_good {
            self.lock = None;
            return true;
        }
        if self.lock.is_some_and(|lock| lock.is_expired) {
            self.lock = None;
            self.state = if self.delivery_count >= transition.limit.count {
                transition.limit.undeliverable
            } else {
                RecordState::Available
            };
        } else {
            self.state = transition.previous;
            self.member = transition.previous_member;
        }
        true
    }

    /// Handles an expired lock. `None` if that changes nothing: no lock has expired, or a
    /// transition is in progress, in which case the lock is only marked.
    pub(super) fn expire_lock(
        &mut self,
        now_ms: u64,
        to: RecordState,
        limit: DeliveryLimit,
    ) -> Option<RecordState> {
        let lock = self
            .lock
            .as_mut()
            .filter(|lock| lock.deadline_ms <= now_ms)?;
        if self.transition.is_some() {
            lock.is_expired = true;
            return None;
        }
        self.lock = None;
        self.member = None;
        self.give_back(to, limit)
    }

    /// When the lock must be checked.
    pub(super) fn lock_deadline_ms(&self) -> Option<u64> {
        self.lock
            .filter(|lock| !lock.is_expired)
            .map(|lock| lock.deadline_ms)
    }

    /// The record is not in the log any more, was aborted, or was copied to the dead-letter queue.
    pub(super) fn archive(&mut self) {
        self.state = RecordState::Archived;
        self.is_archived_for_good = true;
        self.member = None;
        self.lock = None;
    }
}

/// Records that were acquired together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct InFlightBatch {
    pub(super) first_offset: i64,
    /// Inclusive.
    pub(super) last_offset: i64,
    pub(super) states: BatchStates,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum BatchStates {
    /// All records have this state.
    Whole(InFlightState),
    /// One state per offset, starting with the first.
    PerOffset(Vec<InFlightState>),
}

impl InFlightBatch {
    pub(super) fn new(first_offset: i64, last_offset: i64, state: InFlightState) -> Self {
        InFlightBatch {
            first_offset,
            last_offset,
            states: BatchStates::Whole(state),
        }
    }

    pub(super) fn len(&self) -> i64 {
        self.last_offset - self.first_offset + 1
    }

    pub(super) fn is_within(&self, first_offset: i64, last_offset: i64) -> bool {
        self.first_offset >= first_offset && self.last_offset <= last_offset
    }

    /// The common state of all records, if there is one.
    pub(super) fn whole(&self) -> Option<&InFlightState> {
        match &self.states {
            BatchStates::Whole(state) => Some(state),
            BatchStates::PerOffset(_) => None,
        }
    }

    /// Gives each record a state of its own.
    pub(super) fn split(&mut self) -> &mut Vec<InFlightState> {
        if let BatchStates::Whole(state) = &self.states {
            let states = vec![state.clone(); self.len() as usize];
            self.states = BatchStates::PerOffset(states);
        }
        match &mut self.states {
            BatchStates::PerOffset(states) => states,
            BatchStates::Whole(_) => unreachable!("the batch was split above"),
        }
    }

    /// The states with the ranges of offsets that they apply to, in order.
    pub(super) fn runs(&self) -> impl Iterator<Item = (i64, i64, &InFlightState)> {
        let (whole, each) = match &self.states {
            BatchStates::Whole(state) => (Some(state), [].as_slice()),
            BatchStates::PerOffset(states) => (None, states.as_slice()),
        };
        let whole = whole.map(|state| (self.first_offset, self.last_offset, state));
        let each = (self.first_offset..).zip(each);
        whole
            .into_iter()
            .chain(each.map(|(offset, state)| (offset, offset, state)))
    }

    pub(super) fn runs_mut(&mut self) -> impl Iterator<Item = (i64, i64, &mut InFlightState)> {
        let (first, last) = (self.first_offset, self.last_offset);
        let (whole, each) = match &mut self.states {
            BatchStates::Whole(state) => (Some(state), [].as_mut_slice()),
            BatchStates::PerOffset(states) => (None, states.as_mut_slice()),
        };
        let whole = whole.map(|state| (first, last, state));
        let each = (first..).zip(each);
        whole
            .into_iter()
            .chain(each.map(|(offset, state)| (offset, offset, state)))
    }
}
