//! A share partition that is led here: its state machine, what of it is being persisted, and who waits for that.
//!
//! The machine is behind a lock that is held for one decision. Its writes go to the share coordinator one after the
//! other, in their order. At any time one fetch reads for it, as what the next is to read depends on what that one
//! acquires.
//! Invariants: whoever acknowledges is answered once, when that is persisted or the share partition is gone; after
//! `close` nothing is acquired and no write begins. One that is under way then is still tried to its end, which nobody
//! waits for: with the leader epoch that it carries, the share coordinator refuses it once another leader has read.
//! Source: `SharePartition`, as far as it is not the state machine, and `SharePartitionManager`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::share_partition::{
    AcknowledgementBatch, AcquireRequest, AcquiredRecords, PersistedBatch, PersistedState,
    SharePartition, StateWrite, StateWriteId,
};
use ottla_coordinator::share_state::{
    ReadState, SharePartitionKey, StateBatch, StateRead, WriteState,
};
use ottla_log::TimestampTarget;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::ShareGroups;
use super::settings::OffsetReset;
use super::{GroupSettings, Persister, StateFailure};
use ottla_partition::partition::{Partition, Waiters};

pub struct LedPartition {
    pub key: SharePartitionKey,
    pub partition: Arc<Partition>,
    pub leader_epoch: LeaderEpoch,
    state: Mutex<State>,
    /// Fetches that wait for something else than records of the log.
    pub waiters: Waiters,
    /// The next deadline has moved, or the share partition is closed.
    timers_changed: Notify,
}

enum State {
    /// What was persisted is being read.
    Loading,
    Active(Box<Active>),
    /// What whoever comes is told.
    Closed(StateFailure),
}

struct Active {
    machine: SharePartition,
    is_being_read: bool,
    outbox: VecDeque<StateWrite>,
    /// Somebody is at the outbox.
    is_writing: bool,
    waiting: HashMap<StateWriteId, oneshot::Sender<Result<(), StateFailure>>>,
}

impl std::fmt::Debug for LedPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LedPartition({:?})", self.key)
    }
}

/// The right to read for a share partition, until it is dropped.
pub struct Reading {
    led: Arc<LedPartition>,
    pub fetch_offset: Offset,
    /// Others may read now who could not before.
    wakes_others: bool,
}

impl Reading {
    pub fn led(&self) -> &Arc<LedPartition> {
        &self.led
    }

    /// Nothing was there to be read: those who could not read meanwhile would find as little.
    pub fn give_up(mut self) {
        self.wakes_others = false;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let State::Active(active) = &mut *self.led.state.lock() {
            active.is_being_read = false;
        }
        if self.wakes_others {
            self.led.waiters.wake_all();
        }
    }
}

impl LedPartition {
    /// Begins to load what was persisted.
    pub(super) fn open(
        share_groups: &Arc<ShareGroups>,
        key: SharePartitionKey,
        partition: Arc<Partition>,
        leader_epoch: LeaderEpoch,
    ) -> Arc<Self> {
        let led = Arc::new(LedPartition {
            key,
            leader_epoch,
            partition,
            state: Mutex::new(State::Loading),
            waiters: Waiters::default(),
            timers_changed: Notify::new(),
        });
        let (loading, share_groups) = (Arc::clone(&led), Arc::clone(share_groups));
        tokio::spawn(async move {
            match loading.load(&share_groups).await {
                Ok(machine) => loading.activate(&share_groups, machine),
                Err(failure) => {
                    let partition = &loading.partition.topic_partition;
                    let (group, reason) = (&loading.key.group_id, &failure.message);
                    tracing::debug!(%partition, "share group {group} cannot read it: {reason}");
                    loading.close(failure);
                    share_groups.partitions.forget(&loading);
                }
            }
        });
        led
    }

    async fn load(&self, share_groups: &Arc<ShareGroups>) -> Result<SharePartition, StateFailure> {
        let request = ReadState {
            key: self.key.clone(),
            leader_epoch: self.leader_epoch,
        };
        let read = Persister::read_state(share_groups, request)
            .await
            .map_err(of_persister)?;
        let settings = GroupSettings::of(share_groups, &self.key.group_id);
        let start_offset = match read.start_offset {
            Offset::UNKNOWN => {
                self.initial_offset(share_groups, settings.offset_reset)
                    .await?
            }
            start_offset => start_offset,
        };
        let persisted = persisted_state(&read, start_offset);
        SharePartition::restore(settings.partition, self.leader_epoch, &persisted).map_err(|error| {
            let (partition, group) = (&self.partition.topic_partition, &self.key.group_id);
            tracing::error!(%partition, "what share group {group} has persisted is wrong: {error}");
            let message = format!("Failed to initialize the share partition {group}-{partition}");
            StateFailure {
                code: ErrorCode::UnknownServerError,
                message: message.into(),
            }
        })
    }

    /// Where a group begins that has read nothing yet.
    async fn initial_offset(
        &self,
        share_groups: &ShareGroups,
        reset: OffsetReset,
    ) -> Result<Offset, StateFailure> {
        let reader = self.partition.reader().clone();
        let since = match reset {
            OffsetReset::Latest => return Ok(reader.high_watermark()),
            OffsetReset::Earliest => return Ok(reader.log_start_offset()),
            OffsetReset::ByDuration(ms) => Timestamp(
                share_groups
                    .surroundings
                    .context
                    .timestamp()
                    .0
                    .saturating_sub(ms),
            ),
        };
        let latest = reader.high_watermark();
        let threads = self.partition.home().threads.reads.clone();
        let found = threads.run(move || reader.offset_for_timestamp(TimestampTarget::At(since)));
        match found.await {
            Ok(Ok(Some(found))) if found.offset < latest => Ok(found.offset),
            // Kafka finds no offset for a time behind all records, and fails.
            Ok(Ok(_)) => Ok(latest),
            Ok(Err(error)) => Err(error.error_code().into()),
            Err(_) => Err(ErrorCode::UnknownServerError.into()),
        }
    }

    fn activate(self: &Arc<Self>, share_groups: &Arc<ShareGroups>, machine: SharePartition) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Loading) {
            return;
        }
        *state = State::Active(Box::new(Active {
            machine,
            is_being_read: false,
            outbox: VecDeque::new(),
            is_writing: false,
            waiting: HashMap::new(),
        }));
        drop(state);
        tokio::spawn(Arc::clone(self).run_timers(Arc::clone(share_groups)));
        self.waiters.wake_all();
    }

    /// The share partition is read here no longer: led elsewhere, or out of step with what is persisted.
    pub(super) fn close(&self, reason: StateFailure) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Closed(reason.clone()));
        if let State::Active(active) = before {
            for (_, waiting) in active.waiting {
                // Who has gone away meanwhile needs no answer.
                let _ = waiting.send(Err(reason.clone()));
            }
        }
        self.timers_changed.notify_one();
        self.waiters.wake_all();
    }

    /// Why nothing can be read here, if so.
    pub fn failure(&self) -> Option<StateFailure> {
        match &*self.state.lock() {
            State::Closed(failure) => Some(failure.clone()),
            State::Loading | State::Active(_) => None,
        }
    }

    // Reading

    /// The right to read, where nobody else has it and there may be something to acquire.
    pub fn begin_reading(self: &Arc<Self>, settings: &GroupSettings) -> Option<Reading> {
        let mut state = self.state.lock();
        let State::Active(active) = &mut *state else {
            return None;
        };
        active.machine.configure(settings.partition);
        if active.is_being_read || !active.machine.can_acquire_records() {
            return None;
        }
        active.is_being_read = true;
        Some(Reading {
            led: Arc::clone(self),
            fetch_offset: active.machine.next_fetch_offset(),
            wakes_others: true,
        })
    }

    /// Gives a member what it can have of what was read.
    pub fn acquire(&self, request: AcquireRequest<'_>) -> AcquiredRecords {
        let mut state = self.state.lock();
        let State::Active(active) = &mut *state else {
            return AcquiredRecords::default();
        };
        let before = active.machine.next_lock_deadline_ms();
        let acquired = active.machine.acquire(request);
        if active.machine.next_lock_deadline_ms() != before {
            self.timers_changed.notify_one();
        }
        acquired
    }

    /// The log begins behind the offset that was to be read.
    pub fn on_log_start_offset(&self, log_start_offset: Offset) {
        if let State::Active(active) = &mut *self.state.lock() {
            active.machine.on_log_start_offset(log_start_offset);
        }
    }

    // What becomes of records

    /// Ends when what the member says is persisted.
    pub async fn acknowledge(
        self: &Arc<Self>,
        share_groups: &Arc<ShareGroups>,
        member: &str,
        batches: &[AcknowledgementBatch],
    ) -> Result<(), StateFailure> {
        let settings = GroupSettings::of(share_groups, &self.key.group_id);
        let written = {
            let mut state = self.state.lock();
            let active = active_of(&mut state)?;
            active.machine.configure(settings.partition);
            let acknowledged = active.machine.acknowledge(
                member,
                batches,
                share_groups.surroundings.context.now_ms(),
            );
            // A lock that is renewed may be the one that runs out next.
            self.timers_changed.notify_one();
            let write = acknowledged.map_err(|error| StateFailure {
                code: error.code(),
                message: error.message().into(),
            })?;
            let Some(write) = write else {
                return Ok(());
            };
            active.wait_for(write)
        };
        self.run_outbox(share_groups);
        written
            .await
            .unwrap_or_else(|_| Err(ErrorCode::NotLeaderOrFollower.into()))
    }

    /// What a member that is gone has in hand is for the others.
    pub async fn release(
        self: &Arc<Self>,
        share_groups: &Arc<ShareGroups>,
        member: &str,
    ) -> Result<(), StateFailure> {
        let written = {
            let mut state = self.state.lock();
            let active = active_of(&mut state)?;
            let Some(write) = active.machine.release_acquired_records(member) else {
                return Ok(());
            };
            active.wait_for(write)
        };
        self.run_outbox(share_groups);
        written
            .await
            .unwrap_or_else(|_| Err(ErrorCode::NotLeaderOrFollower.into()))
    }

    /// Frees what is locked no longer, until the share partition is closed.
    async fn run_timers(self: Arc<Self>, share_groups: Arc<ShareGroups>) {
        loop {
            let next = match &mut *self.state.lock() {
                State::Active(active) => active.machine.next_lock_deadline_ms(),
                State::Loading | State::Closed(_) => return,
            };
            let changed = self.timers_changed.notified();
            match next {
                Some(deadline) => {
                    let wait = Duration::from_millis(
                        deadline.saturating_sub(share_groups.surroundings.context.now_ms()),
                    );
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
            let is_freed = match &mut *self.state.lock() {
                State::Active(active) => {
                    let write = active
                        .machine
                        .on_lock_timeouts(share_groups.surroundings.context.now_ms());
                    let is_freed = write.is_some();
                    active.outbox.extend(write);
                    is_freed
                }
                State::Loading | State::Closed(_) => return,
            };
            if is_freed {
                self.waiters.wake_all();
                self.run_outbox(&share_groups);
            }
        }
    }

    // Persisting

    /// Has what is in the outbox persisted, unless somebody is at it.
    fn run_outbox(self: &Arc<Self>, share_groups: &Arc<ShareGroups>) {
        if let State::Active(active) = &mut *self.state.lock() {
            if active.is_writing || active.outbox.is_empty() {
                return;
            }
            active.is_writing = true;
        }
        let (led, share_groups) = (Arc::clone(self), Arc::clone(share_groups));
        tokio::spawn(async move {
            while let Some(write) = led.next_write() {
                let id = write.id;
                let written = Persister::write_state(&share_groups, led.request_of(write)).await;
                led.on_written(&share_groups, id, written.map_err(of_persister));
            }
        });
    }

    fn next_write(&self) -> Option<StateWrite> {
        match &mut *self.state.lock() {
            State::Active(active) => {
                let write = active.outbox.pop_front();
                active.is_writing = write.is_some();
                write
            }
            State::Loading | State::Closed(_) => None,
        }
    }

    fn request_of(&self, write: StateWrite) -> WriteState {
        let batches = write.batches.iter().map(|batch| StateBatch {
            first_offset: batch.first_offset,
            last_offset: batch.last_offset,
            delivery_state: batch.delivery_state,
            delivery_count: batch.delivery_count,
        });
        WriteState {
            key: self.key.clone(),
            state_epoch: write.state_epoch,
            leader_epoch: write.leader_epoch,
            start_offset: write.start_offset,
            delivery_complete_count: write.delivery_complete_count,
            batches: batches.collect(),
        }
    }

    fn on_written(
        self: &Arc<Self>,
        share_groups: &Arc<ShareGroups>,
        id: StateWriteId,
        written: Result<(), StateFailure>,
    ) {
        let (waiting, may_fetch) = match &mut *self.state.lock() {
            State::Active(active) => {
                let result = active.machine.on_state_written(id, written.is_ok());
                (active.waiting.remove(&id), result.may_fetch)
            }
            State::Loading | State::Closed(_) => return,
        };
        if let Some(waiting) = waiting {
            // Who has gone away meanwhile needs no answer.
            let _ = waiting.send(written.clone());
        }
        if may_fetch {
            self.waiters.wake_all();
        }
        if let Err(failure) = written
            && is_fenced(failure.code)
        {
            self.close(failure);
            share_groups.partitions.forget(self);
        }
    }
}

impl Active {
    fn wait_for(&mut self, write: StateWrite) -> oneshot::Receiver<Result<(), StateFailure>> {
        let (answer, answered) = oneshot::channel();
        self.waiting.insert(write.id, answer);
        self.outbox.push_back(write);
        answered
    }
}

fn active_of(state: &mut State) -> Result<&mut Active, StateFailure> {
    match state {
        State::Active(active) => Ok(active),
        State::Loading => Err(ErrorCode::UnknownTopicOrPartition.into()),
        State::Closed(reason) => Err(reason.clone()),
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
fn of_persister(failure: StateFailure) -> StateFailure {
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

fn persisted_state(read: &StateRead, start_offset: Offset) -> PersistedState {
    let batches = read.batches.iter().map(|batch| PersistedBatch {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_state: batch.delivery_state,
        delivery_count: batch.delivery_count,
    });
    PersistedState {
        state_epoch: read.state_epoch,
        start_offset,
        batches: batches.collect(),
    }
}
