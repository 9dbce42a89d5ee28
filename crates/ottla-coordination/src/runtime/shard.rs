//! The coordinator of one partition of an internal topic, shared by threads.
//!
//! The decisions are in [`CoordinatorRuntime`], behind a lock that is held for one step and never
//! during an append or an await. This file has the log it is loaded from, the thread that appends
//! (`outbox`), and the task that waits for timers, the high watermark and request timeouts.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_coordinator::{
    Coordinator, CoordinatorRuntime, OutboundBatch, Outcome, ReplyTo, StepContext,
};
use ottla_records::Compression;
use ottla_sync::Mutex;
use ottla_sync::{Notify, oneshot};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};

use super::batch;
use super::host::CoordinatorHost;
use ottla_partition::partition::{Partition, Waiter};

/// Maximum number of due timers that a request fires before it awaits its response. A first
/// rebalance without a delay needs two; recurring timers are left to `run_timers`.
const TURNS_FOR_TIMERS: usize = 8;

/// The properties of a kind of coordinator that the shell needs besides its state machine.
pub trait ShardedCoordinator:
    Coordinator<Record: Send, Response: Send + 'static, TimerKey: Send + Sync, Command: Send>
    + Send
    + Sized
    + 'static
{
    /// The owner of the coordinators, with what their commands need.
    type Host: Deref<Target: Deref<Target = CoordinatorHost>> + Send + Sync + 'static;

    /// The topic whose partitions hold the state.
    const TOPIC: &'static str;
    /// The coordinated objects, for log messages.
    const WHAT: &'static str;

    /// The number of partitions that the topic is created with.
    fn configured_partitions(config: &BrokerConfig) -> i32;

    /// An empty coordinator.
    fn new(host: &Self::Host, leader_epoch: LeaderEpoch) -> Self;

    /// Called after the log was loaded and before the first request.
    fn begin(&mut self, _host: &Self::Host) {}

    fn compression(host: &Self::Host) -> Compression;

    /// Timeout for a request that waits for its records to be committed.
    fn commit_timeout(host: &Self::Host) -> Duration;

    /// Executes a command that is specific to this kind of coordinator.
    fn execute(shard: &Arc<Shard<Self>>, host: &Arc<Self::Host>, command: Self::Command);
}

pub struct Shard<C: ShardedCoordinator> {
    pub(super) partition: Arc<Partition>,
    leader_epoch: LeaderEpoch,
    state: Mutex<State<C>>,
    /// Notified when something is due earlier than `run_timers` knows, or when the shard is closed.
    due_changed: Notify,
}

type Runtime<C> =
    CoordinatorRuntime<C, oneshot::Sender<<C as ottla_coordinator::Coordinator>::Response>>;

struct State<C: ShardedCoordinator> {
    runtime: Runtime<C>,
    /// What `run_timers` is waiting for.
    watched: Due,
}

/// The next events to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Due {
    deadline_ms: Option<u64>,
    /// The high watermark to wait for.
    end: Option<Offset>,
}

impl<C: ShardedCoordinator> State<C> {
    fn due(&self) -> Due {
        Due {
            deadline_ms: self.runtime.next_deadline_ms(),
            end: self.runtime.awaited_end(),
        }
    }

    /// Whether nothing is due before the watched events.
    fn is_watched(&self) -> bool {
        let due = self.due();
        let is_earlier = |new: Option<u64>, known: Option<u64>| {
            new.is_some_and(|new| known.is_none_or(|known| new < known))
        };
        !is_earlier(due.deadline_ms, self.watched.deadline_ms)
            && (due.end.is_none() || self.watched.end.is_some())
    }
}

impl<C: ShardedCoordinator> Shard<C> {
    pub(super) fn new(partition: Arc<Partition>, leader_epoch: LeaderEpoch) -> Arc<Self> {
        Arc::new(Shard {
            partition,
            leader_epoch,
            state: Mutex::new(State {
                runtime: CoordinatorRuntime::loading(),
                watched: Due::default(),
            }),
            due_changed: Notify::new(),
        })
    }

    pub fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    pub(super) fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// Processes a request and waits for its response.
    pub async fn request<T: TryFrom<C::Response>>(
        self: &Arc<Self>,
        host: &Arc<C::Host>,
        decide: impl FnOnce(&mut C, ReplyTo<T>, Timestamp) -> Outcome<C>,
    ) -> Result<T, ErrorCode> {
        let (reply, replied) = oneshot::channel();
        // Most heartbeats leave nothing to append and no timer to fire: they take the lock once.
        let (asked, has_output, has_due_timer) = self.step(host, |runtime, at| {
            let asked =
                runtime.request(reply, at, |coordinator, to| decide(coordinator, to, at.now));
            let has_due_timer = runtime.has_due_timer(at.now_ms);
            (asked, runtime.has_output(), has_due_timer)
        });
        asked.map_err(|(_, error)| error)?;
        if has_output {
            self.run_outbox(host);
        }
        if has_output || has_due_timer {
            self.fire_due_timers(host).await;
        }
        let response = replied.await.map_err(|_| ErrorCode::NotCoordinator)?;
        // A `ReplyTo<T>` accepts only a `T`.
        Ok(T::try_from(response).unwrap_or_else(|_| unreachable!("another response was awaited")))
    }

    /// Fires the timers that a request has made due.
    async fn fire_due_timers(self: &Arc<Self>, host: &Arc<C::Host>) {
        // A timer with no delay, such as that of a first rebalance without a delay, fires after the
        // requests that are already here: yielding gives each of their tasks a turn first.
        for _ in 0..TURNS_FOR_TIMERS {
            if !self
                .state
                .lock()
                .runtime
                .has_due_timer(host.surroundings.context.now_ms())
            {
                break;
            }
            ottla_sync::task::yield_now().await;
            self.step(host, |runtime, at| runtime.fire_due_timer(at));
            self.run_outbox(host);
        }
    }

    /// Reads the coordinator's state.
    pub fn read<T>(&self, look: impl FnOnce(&C) -> T) -> Result<T, ErrorCode> {
        self.state.lock().runtime.read(look)
    }

    /// Passes an event to the coordinator.
    pub fn tell(
        self: &Arc<Self>,
        host: &Arc<C::Host>,
        tell: impl FnOnce(&mut C, Timestamp) -> Outcome<C>,
    ) -> Result<(), ErrorCode> {
        self.step(host, |runtime, at| {
            runtime.tell(at, |coordinator| tell(coordinator, at.now))
        })?;
        self.run_outbox(host);
        Ok(())
    }

    /// Answers all parked requests and refuses later ones.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.runtime.close();
        send_replies(&mut state.runtime);
        drop(state);
        self.due_changed.notify_one();
        self.partition.waiters.wake_all();
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().runtime.is_closed()
    }

    /// Takes one step and sends the resulting replies.
    pub(super) fn step<T>(
        &self,
        host: &C::Host,
        take: impl FnOnce(&mut Runtime<C>, &StepContext<'_>) -> T,
    ) -> T {
        let (taken, is_watched) = self.with_runtime(host, |runtime, at| {
            let taken = take(runtime, at);
            send_replies(runtime);
            taken
        });
        if !is_watched {
            self.due_changed.notify_one();
        }
        taken
    }

    /// The next batch to append. Commands issued before it are executed.
    pub(super) fn next_append(self: &Arc<Self>, host: &Arc<C::Host>) -> Option<OutboundBatch> {
        // Usually the log responds at once, so no timer is set for the append.
        let ((commands, batch), _) = self.with_runtime(host, |runtime, at| {
            (runtime.take_commands(), runtime.next_append(at))
        });
        for command in commands {
            C::execute(self, host, command);
        }
        batch
    }

    /// Also returns whether `run_timers` already waits for the next due event.
    fn with_runtime<T>(
        &self,
        host: &C::Host,
        take: impl FnOnce(&mut Runtime<C>, &StepContext<'_>) -> T,
    ) -> (T, bool) {
        let max_message_bytes = self.partition.settings().rules.max_message_bytes;
        let mut state = self.state.lock();
        let now = host.surroundings.context.timestamp();
        let fits = |write: &_| {
            let fits = batch::fits(write, C::compression(host), now, max_message_bytes);
            if !fits {
                // A client can cause it with each request.
                host.surroundings.context.complaints.say(|| {
                    tracing::error!(
                        "a record of {} does not fit into {max_message_bytes} bytes; raise max.message.bytes of {}",
                        C::WHAT,
                        C::TOPIC
                    );
                });
            }
            fits
        };
        let at = StepContext {
            now_ms: host.surroundings.context.now_ms(),
            now,
            commit_timeout_ms: C::commit_timeout(host).as_millis() as u64,
            max_message_bytes,
            fits: &fits,
        };
        (take(&mut state.runtime, &at), state.is_watched())
    }

    /// Wakes `run_timers` if something is due earlier than it knows.
    pub(super) fn watch_deadlines(&self) {
        if !self.state.lock().is_watched() {
            self.due_changed.notify_one();
        }
    }

    /// Processes due timers and commits until the shard is closed.
    pub(super) async fn run_timers(self: Arc<Self>, host: Arc<C::Host>) {
        let waiter = Waiter::default();
        loop {
            let due = {
                let mut state = self.state.lock();
                if !state.runtime.is_active() {
                    return;
                }
                state.watched = state.due();
                state.watched
            };
            // Wakes when the last record below `end` is readable, and when the shard is closed.
            let waiters = &self.partition.waiters;
            let registered = due.end.map(|end| waiters.register(end.plus(-1), &waiter));
            let is_committed = |end| self.partition.reader().high_watermark() >= end;
            if !due.end.is_some_and(is_committed) {
                let wait = due.deadline_ms.map(|deadline| {
                    Duration::from_millis(
                        deadline.saturating_sub(host.surroundings.context.now_ms()),
                    )
                });
                let is_due = async {
                    match wait {
                        Some(wait) => ottla_sync::time::sleep(wait).await,
                        None => std::future::pending().await,
                    }
                };
                ottla_sync::select! {
                    () = is_due => {}
                    () = self.due_changed.notified() => {}
                    () = waiter.notified() => {}
                }
            }
            if let Some(registered) = registered {
                waiters.take_out(registered);
            }
            self.do_what_is_due(&host);
            self.run_outbox(&host);
        }
    }

    fn do_what_is_due(&self, host: &C::Host) {
        let high_watermark = self.partition.reader().high_watermark();
        self.step(host, |runtime, at| {
            runtime.on_high_watermark(high_watermark, at)
        });
        // One step at a time, so that requests can interleave.
        while self.step(host, |runtime, at| {
            runtime.fire_due_timer(at) || runtime.tell_of_delay(at)
        }) {}
    }
}

fn send_replies<C: ShardedCoordinator>(runtime: &mut Runtime<C>) {
    for (waiting, response) in runtime.take_replies() {
        // The receiver is gone if the connection was closed.
        drop(waiting.send(response));
    }
}

impl<C: ShardedCoordinator> std::fmt::Debug for Shard<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shard({})", self.partition.topic_partition)
    }
}
