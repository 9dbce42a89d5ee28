//! The coordinator of one partition of an internal topic, with everybody who waits for it.
//!
//! The state machine is behind a lock that is held for one decision and never while anything is appended
//! or awaited. What it decides to write goes to the `outbox`, which appends in the order of the decisions.
//! Invariants: a reply is sent at most once; after `close` every request is refused with
//! `NOT_COORDINATOR`; timers run only while the shard is active.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::{Outcome, ReplyTo, TimerQueue};
use ottla_types::{ErrorCode, LeaderEpoch, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::Served;
use super::load::{self, Loaded};
use super::outbox::Outbox;
use ottla_partition::partition::Partition;

/// How many timers that are due a request fires before it waits for its reply. A first rebalance without a delay needs two; what is
/// due again and again is left to `run_timers`.
const TURNS_FOR_TIMERS: usize = 8;

pub struct Shard<C: Served> {
    pub(super) partition: Arc<Partition>,
    leader_epoch: LeaderEpoch,
    pub(super) state: Mutex<State<C>>,
    /// The next deadline has moved, or the shard was closed.
    timers_changed: Notify,
}

pub(super) enum State<C: Served> {
    /// The log is being read.
    Loading,
    Active(Box<Active<C>>),
    /// The log could not be read. What is wrong with it was logged.
    Failed,
    /// Coordinated elsewhere, or the broker stops.
    Closed,
}

pub(super) struct Active<C: Served> {
    pub(super) coordinator: C,
    timers: TimerQueue<C::TimerKey>,
    waiting: HashMap<ReplyTo, oneshot::Sender<C::Response>>,
    next_reply: u64,
    pub(super) outbox: Outbox,
    /// Asked for, and carried out when the state is not locked any more.
    pub(super) commands: Vec<C::Command>,
}

impl<C: Served> Shard<C> {
    pub(super) fn new(partition: Arc<Partition>, leader_epoch: LeaderEpoch) -> Arc<Self> {
        Arc::new(Shard {
            partition,
            leader_epoch,
            state: Mutex::new(State::Loading),
            timers_changed: Notify::new(),
        })
    }

    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    pub(super) fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// Reads the log in a task of its own, and then begins to answer.
    pub(super) fn load(self: &Arc<Self>, host: &Arc<C::Host>) {
        let (shard, host) = (Arc::clone(self), Arc::clone(host));
        tokio::spawn(async move {
            if let Some(loaded) = load::load(&host, &shard).await {
                shard.on_loaded(&host, loaded);
            }
        });
    }

    fn on_loaded(self: &Arc<Self>, host: &Arc<C::Host>, loaded: Result<Loaded<C>, String>) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Loading) {
            return;
        }
        let Loaded {
            mut coordinator,
            uncommitted,
        } = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                let partition = &self.partition.topic_partition;
                tracing::error!(%partition, "{} cannot be coordinated: {error}", C::WHAT);
                *state = State::Failed;
                return;
            }
        };
        // Under the lock: a change of the metadata is either in this, or finds the shard active.
        coordinator.begin(host);
        let outcome = coordinator.on_loaded(host.surroundings.context.timestamp());
        *state = State::Active(Box::new(Active {
            coordinator,
            timers: TimerQueue::default(),
            waiting: HashMap::new(),
            next_reply: 0,
            outbox: Outbox::default(),
            commands: Vec::new(),
        }));
        if let State::Active(active) = &mut *state {
            self.enact(host, active, outcome);
        }
        drop(state);
        if let Some((write, end)) = uncommitted {
            let (shard, host) = (Arc::clone(self), Arc::clone(host));
            tokio::spawn(async move { shard.await_commit(&host, write, write, end).await });
        }
        self.run_outbox(host);
        tokio::spawn(Arc::clone(self).run_timers(Arc::clone(host)));
    }

    /// Has the coordinator decide on a request, and waits for its reply.
    pub async fn request(
        self: &Arc<Self>,
        host: &Arc<C::Host>,
        decide: impl FnOnce(&mut C, ReplyTo, Timestamp) -> Outcome<C>,
    ) -> Result<C::Response, ErrorCode> {
        let (reply, replied) = oneshot::channel();
        self.step(host, |active| {
            let to = ReplyTo(active.next_reply);
            active.next_reply += 1;
            active.waiting.insert(to, reply);
            decide(
                &mut active.coordinator,
                to,
                host.surroundings.context.timestamp(),
            )
        })?;
        self.run_outbox(host);
        // What was told to wait for no time at all, such as a first rebalance without a delay, waits for the requests that are
        // here already: each of their tasks has its turn before.
        for _ in 0..TURNS_FOR_TIMERS {
            if !self.has_due_timer(host) {
                break;
            }
            tokio::task::yield_now().await;
            self.fire_due_timer(host);
            self.run_outbox(host);
        }
        replied.await.map_err(|_| ErrorCode::NotCoordinator)
    }

    /// Looks at the coordinator.
    pub fn read<T>(&self, look: impl FnOnce(&C) -> T) -> Result<T, ErrorCode> {
        match &*self.state.lock() {
            State::Active(active) => Ok(look(&active.coordinator)),
            State::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            State::Failed | State::Closed => Err(ErrorCode::NotCoordinator),
        }
    }

    /// Tells the coordinator that something has happened.
    pub fn tell(
        self: &Arc<Self>,
        host: &Arc<C::Host>,
        tell: impl FnOnce(&mut C, Timestamp) -> Outcome<C>,
    ) -> Result<(), ErrorCode> {
        self.step(host, |active| {
            tell(
                &mut active.coordinator,
                host.surroundings.context.timestamp(),
            )
        })?;
        self.run_outbox(host);
        Ok(())
    }

    /// Answers everything that is parked, and refuses everything from now on.
    pub(super) fn close(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Closed);
        if let State::Active(mut active) = before {
            let outcome = active.coordinator.on_unloaded();
            active.send_replies(outcome);
        }
        self.timers_changed.notify_one();
        self.partition.waiters.wake_all();
    }

    pub fn is_closed(&self) -> bool {
        matches!(*self.state.lock(), State::Closed)
    }

    /// Lets the coordinator take one step, and does what it asks for except for appending.
    pub(super) fn step(
        &self,
        host: &C::Host,
        take: impl FnOnce(&mut Active<C>) -> Outcome<C>,
    ) -> Result<(), ErrorCode> {
        match &mut *self.state.lock() {
            State::Active(active) => {
                let outcome = take(active);
                self.enact(host, active, outcome);
                Ok(())
            }
            State::Loading => Err(ErrorCode::CoordinatorLoadInProgress),
            State::Failed | State::Closed => Err(ErrorCode::NotCoordinator),
        }
    }

    fn enact(&self, host: &C::Host, active: &mut Active<C>, mut outcome: Outcome<C>) {
        let next_deadline = active.timers.next_deadline_ms();
        loop {
            let now_ms = host.surroundings.context.now_ms();
            for change in outcome.timers.drain(..) {
                active.timers.apply(change, now_ms);
            }
            let writes = std::mem::take(&mut outcome.writes);
            active.commands.append(&mut outcome.commands);
            active.send_replies(outcome);
            // A write that can never be appended is refused before anything is decided on top of it.
            let settings = self.partition.settings();
            match active
                .outbox
                .accept::<C>(writes, settings.rules.max_message_bytes, host)
            {
                Ok(()) => break,
                Err((write, error)) => {
                    outcome = active.coordinator.on_write_failed(
                        write,
                        error,
                        host.surroundings.context.timestamp(),
                    );
                }
            }
        }
        let is_earlier = match (active.timers.next_deadline_ms(), next_deadline) {
            (Some(now), Some(before)) => now < before,
            (now, before) => now != before,
        };
        if is_earlier {
            self.timers_changed.notify_one();
        }
    }

    /// Calls the coordinator when a timer is due, until the shard is closed.
    async fn run_timers(self: Arc<Self>, host: Arc<C::Host>) {
        loop {
            let next_deadline = match &*self.state.lock() {
                State::Active(active) => active.timers.next_deadline_ms(),
                State::Loading | State::Failed | State::Closed => return,
            };
            let changed = self.timers_changed.notified();
            match next_deadline {
                Some(deadline) => {
                    let wait = Duration::from_millis(
                        deadline.saturating_sub(host.surroundings.context.now_ms()),
                    );
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
            while self.fire_due_timer(&host) {}
            self.run_outbox(&host);
        }
    }

    fn has_due_timer(&self, host: &C::Host) -> bool {
        match &*self.state.lock() {
            State::Active(active) => {
                let next_deadline = active.timers.next_deadline_ms();
                next_deadline.is_some_and(|deadline| deadline <= host.surroundings.context.now_ms())
            }
            State::Loading | State::Failed | State::Closed => false,
        }
    }

    fn fire_due_timer(&self, host: &C::Host) -> bool {
        let mut state = self.state.lock();
        let State::Active(active) = &mut *state else {
            return false;
        };
        let Some(key) = active.timers.pop_due(host.surroundings.context.now_ms()) else {
            return false;
        };
        let outcome = active
            .coordinator
            .on_timer(key, host.surroundings.context.timestamp());
        self.enact(host, active, outcome);
        true
    }
}

impl<C: Served> Active<C> {
    fn send_replies(&mut self, outcome: Outcome<C>) {
        for reply in outcome.replies {
            if let Some(waiting) = self.waiting.remove(&reply.to) {
                // Who does not wait any more has lost the connection.
                drop(waiting.send(reply.response));
            }
        }
    }
}

impl<C: Served> std::fmt::Debug for Shard<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shard({})", self.partition.topic_partition)
    }
}
