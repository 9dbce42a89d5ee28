//! A share partition that is led here, as threads share it.
//!
//! All that is decided is in [`LedSharePartition`], behind a lock that is held for one decision. Here are the way to the share
//! coordinator, the task that waits for locks to run out, and those who wait.

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
use super::persister::Persister;
use super::settings::{GroupSettings, OffsetReset};
use ottla_partition::partition::{Partition, Waiters};

pub struct LedPartition {
    pub key: SharePartitionKey,
    pub partition: Arc<Partition>,
    pub leader_epoch: LeaderEpoch,
    machine: Mutex<Machine>,
    /// Fetches that wait for something else than records of the log.
    pub waiters: Waiters,
    /// The next deadline has moved, or the share partition is closed.
    timers_changed: Notify,
    coordinators: Arc<ShareCoordinators>,
    /// Who is told that it cannot be read any more: it is loaded anew by whoever asks next.
    on_failed: Box<dyn Fn(&Arc<LedPartition>) + Send + Sync>,
}

type Machine = LedSharePartition<oneshot::Sender<Result<(), StateFailure>>>;

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
        self.led.machine.lock().end_reading();
        if self.wakes_others {
            self.led.waiters.wake_all();
        }
    }
}

impl LedPartition {
    /// Begins to load what was persisted.
    pub(super) fn open(
        coordinators: Arc<ShareCoordinators>,
        key: SharePartitionKey,
        partition: Arc<Partition>,
        leader_epoch: LeaderEpoch,
        on_failed: impl Fn(&Arc<LedPartition>) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let led = Arc::new(LedPartition {
            key,
            leader_epoch,
            partition,
            machine: Mutex::default(),
            waiters: Waiters::default(),
            timers_changed: Notify::new(),
            coordinators,
            on_failed: Box::new(on_failed),
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
                    (loading.on_failed)(&loading);
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
        let read = Persister::read_state(&self.coordinators, request)
            .await
            .map_err(of_persister)?;
        let settings =
            GroupSettings::of(&self.coordinators.surroundings.context, &self.key.group_id);
        let start_offset = match read.start_offset {
            Offset::UNKNOWN => self.initial_offset(settings.offset_reset).await?,
            start_offset => start_offset,
        };
        let restored = restore(&read, start_offset, settings.partition, self.leader_epoch);
        restored.map_err(|error| {
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

    fn activate(self: &Arc<Self>, machine: SharePartition) {
        if !self.machine.lock().on_loaded(machine) {
            return;
        }
        ottla_sync::task::spawn(Arc::clone(self).run_timers());
        self.waiters.wake_all();
    }

    /// The share partition is read here no longer: led elsewhere, or out of step with what is persisted.
    pub(super) fn close(&self, reason: StateFailure) {
        let waiting = self.machine.lock().close(reason.clone());
        for waiting in waiting {
            // Who has gone away meanwhile needs no answer.
            let _ = waiting.send(Err(reason.clone()));
        }
        self.timers_changed.notify_one();
        self.waiters.wake_all();
    }

    fn now_ms(&self) -> u64 {
        self.coordinators.surroundings.context.now_ms()
    }

    /// Why nothing can be read here, if so.
    pub fn failure(&self) -> Option<StateFailure> {
        self.machine.lock().failure().cloned()
    }

    // Reading

    /// The right to read, where nobody else has it and there may be something to acquire.
    pub fn begin_reading(self: &Arc<Self>, settings: &GroupSettings) -> Option<Reading> {
        let fetch_offset = self.machine.lock().begin_reading(settings.partition)?;
        Some(Reading {
            led: Arc::clone(self),
            fetch_offset,
            wakes_others: true,
        })
    }

    /// Gives a member what it can have of what was read.
    pub fn acquire(&self, request: AcquireRequest<'_>) -> AcquiredRecords {
        let mut machine = self.machine.lock();
        let before = machine.next_lock_deadline_ms();
        let acquired = machine.acquire(request);
        if machine.next_lock_deadline_ms() != before {
            self.timers_changed.notify_one();
        }
        acquired
    }

    /// The log begins behind the offset that was to be read.
    pub fn on_log_start_offset(&self, log_start_offset: Offset) {
        self.machine.lock().on_log_start_offset(log_start_offset);
    }

    // What becomes of records

    /// Ends when what the member says is persisted.
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
        // A lock that is renewed may be the one that runs out next.
        self.timers_changed.notify_one();
        self.await_persisted(acknowledged?, written).await
    }

    /// What a member that is gone has in hand is for the others.
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

    /// Frees what is locked no longer, until the share partition is closed.
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

    /// Has persisted what there is to be persisted, unless a task is at it.
    fn run_outbox(self: &Arc<Self>) {
        let Some(mut write) = self.machine.lock().next_write() else {
            return;
        };
        let led = Arc::clone(self);
        ottla_sync::task::spawn(async move {
            loop {
                let id = write.id;
                let request = request_of(led.key.clone(), write);
                let written = Persister::write_state(&led.coordinators, request).await;
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
            // Who has gone away meanwhile needs no answer.
            let _ = waiting.send(answer);
        }
        if written.may_fetch {
            self.waiters.wake_all();
        }
        if let Some(failure) = written.fenced {
            self.close(failure);
            (self.on_failed)(self);
        }
    }
}
