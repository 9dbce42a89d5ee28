//! A share partition led by this broker, shared by threads.
//!
//! The decisions are in [`LedSharePartition`], behind a lock that is held for one decision. This
//! file has the access to the share coordinator and the dead-letter queue, the task that waits for
//! record lock timeouts, and the waiting fetches.

use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::persister::{ReadState, SharePartitionKey, StateFailure};
use ottla_coordinator::share_partition::{
    AcknowledgementBatch, AcquireRequest, AcquiredRecords, LedSharePartition, SharePartition,
    StateWriteId, of_persister, request_of, restore,
};
use ottla_log::TimestampTarget;
use ottla_sync::Mutex;
use ottla_sync::{Notify, oneshot};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};

use super::coordinators::ShareCoordinators;
use super::dead_letters::DeadLetterQueues;
use super::latest_offsets::offset_by_time;
use super::persister;
use super::questions::ReadSummary;
use super::settings::{GroupSettings, OffsetReset};
use ottla_partition::partition::{Partition, Waiters};

pub struct LedPartition {
    pub key: SharePartitionKey,
    pub partition: Arc<Partition>,
    pub leader_epoch: LeaderEpoch,
    machine: Mutex<Machine>,
    /// Fetches that wait for anything other than new records.
    pub waiters: Waiters,
    /// Notified when the next deadline changes or the share partition is closed.
    timers_changed: Notify,
    coordinators: Arc<ShareCoordinators>,
    dead_letters: Arc<DeadLetterQueues>,
    /// Called when the share partition has closed itself, so that the next request loads it again.
    on_closed: Box<dyn Fn(&Arc<LedPartition>) + Send + Sync>,
}

/// The services of this broker that a share partition uses.
pub(super) struct LedServices {
    pub(super) coordinators: Arc<ShareCoordinators>,
    pub(super) dead_letters: Arc<DeadLetterQueues>,
}

type Machine = LedSharePartition<oneshot::Sender<Result<(), StateFailure>>>;

impl std::fmt::Debug for LedPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LedPartition({:?})", self.key)
    }
}

/// The exclusive right to read for a share partition, until it is dropped.
pub struct Reading {
    led: Arc<LedPartition>,
    pub fetch_offset: Offset,
    /// Whether dropping it wakes fetches that could not read in the meantime.
    wakes_others: bool,
}

impl Reading {
    pub fn led(&self) -> &Arc<LedPartition> {
        &self.led
    }

    /// Nothing was read: other fetches would find nothing either.
    pub fn give_up(mut self) {
        self.wakes_others = false;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.led.machine.lock().end_reading();
        if self.wakes_others {
            self.led.waiters.wake_all();
        }
    }
}

impl LedPartition {
    /// Starts to load the persisted state.
    pub(super) fn open(
        services: LedServices,
        key: SharePartitionKey,
        partition: Arc<Partition>,
        leader_epoch: LeaderEpoch,
        on_closed: impl Fn(&Arc<LedPartition>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let led = Arc::new(LedPartition {
            key,
            leader_epoch,
            partition,
            machine: Mutex::default(),
            waiters: Waiters::default(),
            timers_changed: Notify::new(),
            coordinators: services.coordinators,
            dead_letters: services.dead_letters,
            on_closed: Box::new(on_closed),
        });
        let loading = Arc::clone(&led);
        ottla_sync::task::spawn(async move {
            match loading.load().await {
                Ok(machine) => loading.activate(machine),
                Err(failure) => {
                    let partition = &loading.partition.topic_partition;
                    let (group, reason) = (&loading.key.group_id, &failure.message);
                    tracing::debug!(%partition, "share group {group} cannot read it: {reason}");
                    loading.close(failure);
                    (loading.on_closed)(&loading);
                }
            }
        });
        led
    }

    async fn load(&self) -> Result<SharePartition, StateFailure> {
        let request = ReadState {
            key: self.key.clone(),
            leader_epoch: self.leader_epoch,
        };
        let read = persister::ask(&self.coordinators, request)
            .await
            .map_err(of_persister)?;
        let settings =
            GroupSettings::of(&self.coordinators.surroundings.context, &self.key.group_id);
        if settings.ignores_dead_letter_queue {
            let (partition, group) = (&self.partition.topic_partition, &self.key.group_id);
            tracing::warn!(%partition, "errors.deadletterqueue.topic.name of share group {group} has no effect below share.version 2: records that are given up are in no queue; raise it with: ottla features upgrade --feature share.version=2");
        }
        let start_offset = match read.start_offset {
            Offset::UNKNOWN => self.initial_offset(settings.offset_reset).await?,
            start_offset => start_offset,
        };
        let restored = restore(&read, start_offset, settings.partition, self.leader_epoch);
        restored.map_err(|error| {
            let (partition, group) = (&self.partition.topic_partition, &self.key.group_id);
            tracing::error!(%partition, "the persisted state of share group {group} is invalid: {error}");
            let message = format!("Failed to initialize the share partition {group}-{partition}");
            StateFailure {
                code: ErrorCode::UnknownServerError,
                message: message.into(),
            }
        })
    }

    /// The start offset of a group that has not read the partition yet.
    async fn initial_offset(&self, reset: OffsetReset) -> Result<Offset, StateFailure> {
        let reader = self.partition.reader().clone();
        let since = match reset {
            OffsetReset::Latest => return Ok(reader.high_watermark()),
            OffsetReset::Earliest => return Ok(reader.log_start_offset()),
            OffsetReset::ByDuration(ms) => {
                let now = self.coordinators.surroundings.context.timestamp();
                Timestamp(now.0.saturating_sub(ms))
            }
        };
        let latest = reader.high_watermark();
        if reader.is_only_remote(reader.log_start_offset()) {
            let (topic, index) = (&self.partition.topic_partition.topic, self.key.partition);
            let found = offset_by_time(&self.coordinators, topic, index, since).await;
            let found = found.map_err(of_persister)?;
            return Ok(found.map_or(latest, |found| found.min(latest)));
        }
        let threads = self.partition.log_location().threads.reads.clone();
        let found = threads.run(move || reader.offset_for_timestamp(TimestampTarget::At(since)));
        match found.await {
            Ok(Ok(Some(found))) if found.offset < latest => Ok(found.offset),
            // Kafka finds no offset for a time after all records, and fails.
            Ok(Ok(_)) => Ok(latest),
            Ok(Err(error)) => Err(error.error_code().into()),
            Err(_) => Err(ErrorCode::UnknownServerError.into()),
        }
    }

    fn activate(self: &Arc<Self>, machine: SharePartition) {
        if !self.machine.lock().on_loaded(machine) {
            return;
        }
        ottla_sync::task::spawn(Arc::clone(self).run_timers());
        // Dead letters that the previous leader may not have written.
        self.run_dead_letters();
        self.waiters.wake_all();
    }

    /// Whether the share partition accepts no more requests, so that `close` must follow. Otherwise
    /// it is closed after its last write, unless the group uses it again.
    pub(super) fn close_when_idle(&self, reason: &StateFailure) -> bool {
        self.machine.lock().close_when_idle(reason)
    }

    pub(super) fn keep_open(&self) {
        self.machine.lock().keep_open();
    }

    /// Has nothing read until the share coordinator has said that the persisted state was not replaced,
    /// and closes the share partition if it was.
    pub(super) fn confirm(self: &Arc<Self>) {
        let Some(state_epoch) = self.machine.lock().doubt() else {
            return;
        };
        let led = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            let key = led.key.clone();
            let read = persister::ask(&led.coordinators, ReadSummary { key }).await;
            if read.is_ok_and(|read| read.state_epoch != state_epoch) {
                led.close(ErrorCode::NotLeaderOrFollower.into());
                (led.on_closed)(&led);
                return;
            }
            // Where the coordinator does not answer, it refuses the next write if need be.
            led.machine.lock().on_confirmed();
            led.waiters.wake_all();
        });
    }

    /// Closes the share partition: it is led elsewhere, or it differs from the persisted state.
    pub(super) fn close(&self, reason: StateFailure) {
        let waiting = self.machine.lock().close(reason.clone());
        for waiting in waiting {
            // The receiver may be gone.
            let _ = waiting.send(Err(reason.clone()));
        }
        self.timers_changed.notify_one();
        self.waiters.wake_all();
    }

    fn now_ms(&self) -> u64 {
        self.coordinators.surroundings.context.now_ms()
    }

    /// Why the share partition is closed, if it is.
    pub fn failure(&self) -> Option<StateFailure> {
        self.machine.lock().failure().cloned()
    }

    // Reading

    /// The right to read, if no other fetch has it and there may be records to acquire.
    pub fn begin_reading(self: &Arc<Self>, settings: &GroupSettings) -> Option<Reading> {
        let fetch_offset = self.machine.lock().begin_reading(settings.partition)?;
        Some(Reading {
            led: Arc::clone(self),
            fetch_offset,
            wakes_others: true,
        })
    }

    /// Acquires records for a member from the records that were read.
    pub fn acquire(&self, request: AcquireRequest<'_>) -> AcquiredRecords {
        let mut machine = self.machine.lock();
        let before = machine.next_lock_deadline_ms();
        let acquired = machine.acquire(request);
        if machine.next_lock_deadline_ms() != before {
            self.timers_changed.notify_one();
        }
        acquired
    }

    /// The log starts after the offset that was to be read.
    pub fn on_log_start_offset(&self, log_start_offset: Offset) {
        self.machine.lock().on_log_start_offset(log_start_offset);
    }

    // What becomes of records

    /// Returns when the acknowledgement is persisted.
    pub async fn acknowledge(
        self: &Arc<Self>,
        member: &str,
        batches: &[AcknowledgementBatch],
    ) -> Result<(), StateFailure> {
        let settings =
            GroupSettings::of(&self.coordinators.surroundings.context, &self.key.group_id);
        let (answer, written) = oneshot::channel();
        let acknowledged = {
            let (settings, now_ms) = (settings.partition, self.now_ms());
            let mut machine = self.machine.lock();
            machine.acknowledge(member, batches, settings, now_ms, || answer)
        };
        // A renewed lock may be the next to time out.
        self.timers_changed.notify_one();
        self.await_persisted(acknowledged?, written).await
    }

    /// Releases the records of a member that has left.
    pub async fn release(self: &Arc<Self>, member: &str) -> Result<(), StateFailure> {
        let (answer, written) = oneshot::channel();
        let released = self.machine.lock().release(member, Some(|| answer));
        self.await_persisted(released?, written).await
    }

    async fn await_persisted(
        self: &Arc<Self>,
        has_write: bool,
        written: oneshot::Receiver<Result<(), StateFailure>>,
    ) -> Result<(), StateFailure> {
        if !has_write {
            return Ok(());
        }
        self.run_outbox();
        written
            .await
            .unwrap_or_else(|_| Err(ErrorCode::NotLeaderOrFollower.into()))
    }

    /// Releases records whose locks have timed out, until the share partition is closed.
    async fn run_timers(self: Arc<Self>) {
        loop {
            let next = {
                let mut machine = self.machine.lock();
                if !machine.is_active() {
                    return;
                }
                machine.next_lock_deadline_ms()
            };
            let changed = self.timers_changed.notified();
            match next {
                Some(deadline) => {
                    let wait = Duration::from_millis(deadline.saturating_sub(self.now_ms()));
                    ottla_sync::select! {
                        () = ottla_sync::time::sleep(wait) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
            let now_ms = self.now_ms();
            if self.machine.lock().on_lock_timeouts(now_ms) {
                self.waiters.wake_all();
                self.run_outbox();
            }
        }
    }

    // Persisting

    /// Persists pending changes, unless a task is already doing so.
    fn run_outbox(self: &Arc<Self>) {
        let Some(mut write) = self.machine.lock().next_write() else {
            return;
        };
        let led = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            loop {
                let id = write.id;
                let request = request_of(led.key.clone(), write);
                let written = persister::ask(&led.coordinators, request).await;
                led.on_written(id, written);
                match led.machine.lock().next_write() {
                    Some(next) => write = next,
                    None => return,
                }
            }
        });
    }

    fn on_written(self: &Arc<Self>, id: StateWriteId, written: Result<(), StateFailure>) {
        let written = self.machine.lock().on_written(id, written);
        if let Some((waiting, answer)) = written.answer {
            // The receiver may be gone.
            let _ = waiting.send(answer);
        }
        if written.may_fetch {
            self.waiters.wake_all();
        }
        if let Some(failure) = written.must_close {
            self.close(failure);
            (self.on_closed)(self);
        }
        self.run_dead_letters();
    }

    // Dead letters

    /// Writes records to the dead-letter queue, unless a task is already doing so. They are
    /// archived afterwards, written or not. Records that are not written when the share partition
    /// is closed stay in state `Archiving`, and the next leader writes them.
    fn run_dead_letters(self: &Arc<Self>) {
        let Some(mut letters) = self.machine.lock().next_dead_letters() else {
            return;
        };
        let led = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            let is_open = || led.failure().is_none();
            loop {
                let (key, partition) = (&led.key, &led.partition);
                let writing = led.dead_letters.write(key, partition, &letters, &is_open);
                if !writing.await {
                    return;
                }
                led.machine.lock().on_dead_letters_written(&letters);
                led.run_outbox();
                match led.machine.lock().next_dead_letters() {
                    Some(next) => letters = next,
                    None => return,
                }
            }
        });
    }
}
