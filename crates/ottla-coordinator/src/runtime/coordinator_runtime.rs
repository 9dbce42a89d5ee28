//! The coordinator of one partition of an internal topic, with all waiting requests, as one state
//! machine.
//!
//! A shell drives it: it loads the log and passes in the coordinator, the requests and the events;
//! appends the batches one after the other; reports the result of each append and the high
//! watermark; and sends the replies. A shell with threads keeps it behind one lock. Operations that
//! must be atomic are one method: completing an append and handling its consequences is
//! [`CoordinatorRuntime::on_written`], so that no other thread is handed a batch in between.
//!
//! Invariants: a reply is sent at most once; after `close` every request is refused with
//! `NOT_COORDINATOR`; a write is reported as appended before it is reported as committed, each in
//! the order of the decisions. Source: `CoordinatorRuntime`,
//! `TransactionStateManager.appendTransactionToLog`.

use std::collections::HashMap;

use ottla_types::{ErrorCode, Offset, Timestamp};

use super::append_queue::{AppendQueue, BatchSpan, OutboundBatch, PendingWrite};
use super::outcome::{Coordinator, Outcome, ReplyId, ReplyTo, WriteId};
use super::timer_queue::TimerQueue;

/// The shell's inputs for one step.
pub struct StepContext<'a> {
    /// Monotonic time, in which timers are set.
    pub now_ms: u64,
    pub now: Timestamp,
    /// How long a request waits for the commit of its records.
    pub commit_timeout_ms: u64,
    /// The log's maximum batch size.
    pub max_message_bytes: usize,
    /// Whether the batch of a write is within the log's size limit after compression. Called only
    /// if it exceeds the limit before compression.
    pub fits: &'a dyn Fn(&PendingWrite) -> bool,
}

impl StepContext<'_> {
    fn delay(&self) -> (u64, u64) {
        (self.now_ms, self.commit_timeout_ms)
    }
}

/// `W` identifies a waiting request.
pub struct CoordinatorRuntime<C: Coordinator, W> {
    state: State<C, W>,
    replies: Vec<(W, C::Response)>,
    commands: Vec<C::Command>,
}

enum State<C: Coordinator, W> {
    /// The log is being loaded.
    Loading,
    Active(Box<Active<C, W>>),
    /// The log could not be loaded.
    Failed,
    /// The partition moved to another broker, or the broker is stopping.
    Closed,
}

struct Active<C: Coordinator, W> {
    coordinator: C,
    timers: TimerQueue<C::TimerKey>,
    waiting: HashMap<ReplyId, W>,
    next_reply: u64,
    queue: AppendQueue,
}

impl<C: Coordinator, W> CoordinatorRuntime<C, W> {
    /// A coordinator whose log is still to be loaded.
    pub fn loading() -> Self {
        CoordinatorRuntime {
            state: State::Loading,
            replies: Vec::new(),
            commands: Vec::new(),
        }
    }

    // State

    /// Reads the coordinator's state.
    ///
    /// # Errors
    /// As for every request: `CoordinatorLoadInProgress`, or `NotCoordinator` if it is not here.
    pub fn read<T>(&self, look: impl FnOnce(&C) -> T) -> Result<T, ErrorCode> {
        match &self.state {
            State::Active(active) => Ok(look(&active.coordinator)),
            _ => Err(self.refusal()),
        }
    }

    pub fn is_loading(&self) -> bool {
        matches!(self.state, State::Loading)
    }

    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Active(_))
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Whether a timer of the coordinator is due.
    pub fn has_due_timer(&self, now_ms: u64) -> bool {
        let timers = self.active().map(|active| &active.timers);
        let next = timers.and_then(TimerQueue::next_deadline_ms);
        next.is_some_and(|deadline| deadline <= now_ms)
    }

    /// Whether `take_commands` or `next_append` has something for the shell.
    pub fn has_output(&self) -> bool {
        let has_batch = |active: &Active<C, W>| active.queue.has_next_batch();
        !self.commands.is_empty() || self.active().is_some_and(has_batch)
    }

    /// When `fire_due_timer` or `tell_of_delay` has something to do next.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let active = self.active()?;
        let deadlines = [
            active.timers.next_deadline_ms(),
            active.queue.next_delay_ms(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The high watermark from which `on_high_watermark` has something to do.
    pub fn awaited_end(&self) -> Option<Offset> {
        self.active()?.queue.awaited_end()
    }

    // What happens to it

    /// The log has been loaded up to its end. Its uncommitted records belong to a write that is
    /// committed when the high watermark reaches the given offset. Does nothing if the runtime has
    /// been closed.
    pub fn on_loaded(
        &mut self,
        coordinator: C,
        uncommitted: Option<(WriteId, Offset)>,
        at: &StepContext<'_>,
    ) {
        if !self.is_loading() {
            return;
        }
        let mut queue = AppendQueue::default();
        if let Some((write, end)) = uncommitted {
            let batch = BatchSpan {
                first: write,
                last: write,
                records: 0,
            };
            queue.await_commit(batch, end, at.delay());
        }
        self.state = State::Active(Box::new(Active {
            coordinator,
            timers: TimerQueue::default(),
            waiting: HashMap::new(),
            next_reply: 0,
            queue,
        }));
        let _ = self.step(at, |active| active.coordinator.on_loaded(at.now));
    }

    /// The log could not be loaded. Returns whether the runtime was still loading.
    pub fn on_load_failed(&mut self) -> bool {
        let is_loading = self.is_loading();
        if is_loading {
            self.state = State::Failed;
        }
        is_loading
    }

    /// Handles a request; the reply goes to `waiting`.
    ///
    /// # Errors
    /// Returns `waiting` with the error if there is no active coordinator.
    pub fn request<T>(
        &mut self,
        waiting: W,
        at: &StepContext<'_>,
        decide: impl FnOnce(&mut C, ReplyTo<T>) -> Outcome<C>,
    ) -> Result<(), (W, ErrorCode)> {
        let State::Active(active) = &mut self.state else {
            return Err((waiting, self.refusal()));
        };
        let id = ReplyId(active.next_reply);
        active.next_reply += 1;
        active.waiting.insert(id, waiting);
        let outcome = decide(&mut active.coordinator, ReplyTo::new(id));
        self.enact(outcome, at);
        Ok(())
    }

    /// Passes an event to the coordinator.
    ///
    /// # Errors
    /// As for every request.
    pub fn tell(
        &mut self,
        at: &StepContext<'_>,
        tell: impl FnOnce(&mut C) -> Outcome<C>,
    ) -> Result<(), ErrorCode> {
        self.step(at, |active| tell(&mut active.coordinator))
    }

    /// The next batch to append. There is none until the append of the previous one has completed.
    pub fn next_append(&mut self, at: &StepContext<'_>) -> Option<OutboundBatch> {
        let active = self.active_mut()?;
        active.queue.next_batch(at.max_message_bytes, at.delay())
    }

    /// The append of the batch that starts with `first` has completed at the given offset, or has
    /// failed.
    ///
    /// Permitting the next append and applying this result must be one step. Otherwise:
    /// 1. Thread A completes the append of W and releases the lock.
    /// 2. Thread B takes W+1, appends it, and reports it as committed, and with it W, whose offset
    ///    is unknown; or W was refused, and W+1 is in the log although it was decided on top of W.
    /// 3. Thread A reports the result of W: too late.
    pub fn on_written(
        &mut self,
        first: WriteId,
        written: Result<Offset, ErrorCode>,
        high_watermark: Offset,
        at: &StepContext<'_>,
    ) {
        // After a close, all requests have been answered.
        if let Some(batch) = self.end_append(first) {
            self.complete_append(batch, written, high_watermark, at);
        }
    }

    fn end_append(&mut self, first: WriteId) -> Option<BatchSpan> {
        Some(self.active_mut()?.queue.end_append(first))
    }

    fn complete_append(
        &mut self,
        batch: BatchSpan,
        written: Result<Offset, ErrorCode>,
        high_watermark: Offset,
        at: &StepContext<'_>,
    ) {
        let Some(active) = self.active_mut() else {
            return;
        };
        let first = batch.first;
        match written {
            Ok(base_offset) => {
                let end = base_offset.plus(batch.records);
                let coordinator = &mut active.coordinator;
                coordinator.on_appended(batch.first, batch.last, base_offset);
                active.queue.await_commit(batch, end, at.delay());
                self.on_high_watermark(high_watermark, at);
            }
            Err(error) => {
                active.queue.drop_waiting();
                let _ = self.step(at, |active| {
                    active.coordinator.on_write_failed(first, error, at.now)
                });
            }
        }
    }

    /// The first and second half of an `on_written` that is not atomic: the defect described there.
    #[cfg(feature = "planted-bugs")]
    pub fn begin_on_written(
        &mut self,
        first: WriteId,
        written: Result<Offset, ErrorCode>,
        high_watermark: Offset,
    ) -> Option<Box<dyn FnOnce(&mut Self, &StepContext<'_>)>> {
        let batch = self.end_append(first)?;
        Some(Box::new(move |runtime, at| {
            runtime.complete_append(batch, written, high_watermark, at);
        }))
    }

    /// The high watermark has advanced. Returns whether anything was committed.
    pub fn on_high_watermark(&mut self, high_watermark: Offset, at: &StepContext<'_>) -> bool {
        let active = self.active_mut();
        let Some(write) = active.and_then(|it| it.queue.on_high_watermark(high_watermark)) else {
            return false;
        };
        let _ = self.step(at, |active| {
            active.coordinator.on_records_committed(write, at.now)
        });
        true
    }

    /// Fires one due timer, if there is one. Returns whether it did.
    pub fn fire_due_timer(&mut self, at: &StepContext<'_>) -> bool {
        let active = self.active_mut();
        let Some(key) = active.and_then(|it| it.timers.pop_due(at.now_ms)) else {
            return false;
        };
        let _ = self.step(at, |active| active.coordinator.on_timer(key, at.now));
        true
    }

    /// Answers the requests of one batch that takes too long, if there is one. The records are not
    /// taken back: unless the log refuses them, they count when they are committed.
    pub fn tell_of_delay(&mut self, at: &StepContext<'_>) -> bool {
        let active = self.active_mut();
        let delayed = active.and_then(|it| it.queue.take_delayed(at.now_ms, at.commit_timeout_ms));
        let Some((first, last)) = delayed else {
            return false;
        };
        for id in first.0..=last.0 {
            let _ = self.step(at, |active| {
                active.coordinator.on_write_timed_out(WriteId(id), at.now)
            });
        }
        true
    }

    /// Answers all waiting requests, and refuses everything from now on.
    pub fn close(&mut self) {
        let before = std::mem::replace(&mut self.state, State::Closed);
        if let State::Active(mut active) = before {
            let outcome = active.coordinator.on_unloaded();
            active.answer(outcome, &mut self.replies);
        }
    }

    // Requests to the shell

    /// The replies to send.
    pub fn take_replies(&mut self) -> Vec<(W, C::Response)> {
        std::mem::take(&mut self.replies)
    }

    /// The commands to execute when the lock on this state machine is released.
    pub fn take_commands(&mut self) -> Vec<C::Command> {
        std::mem::take(&mut self.commands)
    }

    // Within

    fn active(&self) -> Option<&Active<C, W>> {
        match &self.state {
            State::Active(active) => Some(active),
            _ => None,
        }
    }

    fn active_mut(&mut self) -> Option<&mut Active<C, W>> {
        match &mut self.state {
            State::Active(active) => Some(active),
            _ => None,
        }
    }

    fn refusal(&self) -> ErrorCode {
        match self.state {
            State::Loading => ErrorCode::CoordinatorLoadInProgress,
            _ => ErrorCode::NotCoordinator,
        }
    }

    fn step(
        &mut self,
        at: &StepContext<'_>,
        take: impl FnOnce(&mut Active<C, W>) -> Outcome<C>,
    ) -> Result<(), ErrorCode> {
        let active = self.active_mut();
        let outcome = active.map(take).ok_or_else(|| self.refusal())?;
        self.enact(outcome, at);
        Ok(())
    }

    fn enact(&mut self, mut outcome: Outcome<C>, at: &StepContext<'_>) {
        let State::Active(active) = &mut self.state else {
            return;
        };
        loop {
            for change in outcome.timers.drain(..) {
                active.timers.apply(change, at.now_ms);
            }
            let writes = std::mem::take(&mut outcome.writes);
            self.commands.append(&mut outcome.commands);
            active.answer(outcome, &mut self.replies);
            let refused = writes.iter().find_map(|write| {
                let pending = PendingWrite::encode(write).and_then(|pending| {
                    let is_small = pending.batch_bytes() <= at.max_message_bytes;
                    if is_small || (at.fits)(&pending) {
                        Ok(pending)
                    } else {
                        Err(ErrorCode::RecordListTooLarge)
                    }
                });
                pending
                    .map(|pending| active.queue.push(pending))
                    .map_err(|error| (write.id, error))
                    .err()
            });
            // A write that can never be appended is refused before another decision is based on it.
            let Some((write, error)) = refused else {
                return;
            };
            outcome = active.coordinator.on_write_failed(write, error, at.now);
        }
    }
}

impl<C: Coordinator, W> Active<C, W> {
    fn answer(&mut self, outcome: Outcome<C>, replies: &mut Vec<(W, C::Response)>) {
        for reply in outcome.replies {
            let waiting = self.waiting.remove(&reply.to);
            replies.extend(waiting.map(|waiting| (waiting, reply.response)));
        }
    }
}

#[cfg(test)]
mod tests;
