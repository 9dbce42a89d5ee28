//! Draining the inbox of a partition, by the holder of its run token.

use std::sync::Arc;

use ottla_metrics::stalls;
use ottla_replica::Event;
use ottla_sync::atomic::Ordering;
use ottla_types::TopicPartition;

use super::event::PartitionEvent;
use super::host::PartitionHost;
use super::inbox::RunToken;
use super::{Partition, PartitionState};

/// A token holder drains this many bytes and then passes the token to a task.
const BUDGET_BYTES: usize = 4 * 1024 * 1024;

impl Partition {
    /// Puts an event into the inbox, and drains it if the token is free.
    pub(super) fn put(self: &Arc<Self>, host: &Arc<PartitionHost>, event: PartitionEvent) {
        let bytes = event.bytes();
        if let Some(token) = self.inbox.push(event, bytes) {
            self.run_where_it_belongs(host, token);
        }
    }

    /// Drains the inbox on this thread, or on a thread of the log directory if appends to it stall.
    pub(super) fn run_where_it_belongs(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        token: RunToken,
    ) {
        if self.is_in_slow_dir(host) {
            self.run_elsewhere(host, token);
        } else {
            self.run(host, token, false);
        }
    }

    fn is_in_slow_dir(&self, host: &PartitionHost) -> bool {
        let log_location = self.log_location.load();
        log_location.pace.is_slow(|| host.context.now_ms())
    }

    fn run_elsewhere(self: &Arc<Self>, host: &Arc<PartitionHost>, token: RunToken) {
        let (partition, host) = (Arc::clone(self), Arc::clone(host));
        self.log_location.load().threads.appends.start(move || {
            stalls::on_other_thread(|| partition.run(&host, token, true));
        });
    }

    /// Drains the inbox until it is empty, or until the budget is used up and a task continues.
    /// Events that may wait for the disk go to a thread that `may_wait`.
    fn run(self: &Arc<Self>, host: &Arc<PartitionHost>, mut token: RunToken, may_wait: bool) {
        let mut budget = BUDGET_BYTES;
        loop {
            self.inbox.look(&mut token);
            let watched = stalls::watch();
            let unwinding = EndOnUnwind(&self.topic_partition);
            let mut state = self
                .state
                .try_lock()
                .expect("the run token excludes others");
            let mut is_used_up = false;
            let mut has_to_wait = false;
            let mut is_log_open = may_wait;
            let (mut has_rare, mut has_others) = (false, false);
            while let Some(event) = self.next_event(&mut state, &mut token) {
                let is_about_to_wait = if event.brings_records() {
                    // An idle log has no open file, and opening it may need a disk read. The
                    // directory may have become slow since this thread took the token.
                    is_log_open = is_log_open || state.is_log_open_without_waiting();
                    !is_log_open || (!may_wait && self.is_in_slow_dir(host))
                } else {
                    event.may_wait()
                };
                if is_about_to_wait && !may_wait {
                    state.defer(event);
                    has_to_wait = true;
                    break;
                }
                let bytes = event.bytes();
                match event.is_rare() {
                    true => has_rare = true,
                    false => has_others = true,
                }
                state.take(self, host, event);
                match budget.checked_sub(bytes) {
                    Some(rest) => budget = rest,
                    None => {
                        is_used_up = true;
                        break;
                    }
                }
            }
            state.finish(self, host);
            // Most partitions are idle, and the entries of all three are large.
            if has_rare && !has_others {
                self.inbox.free_room();
                state.stage.free_room();
                state.replica.free_room();
            }
            drop(state);
            std::mem::forget(unwinding);
            watched.end("holding the run token", &self.topic_partition);
            if token.take_room_made() {
                self.changes.notify_waiters();
            }
            if has_to_wait {
                return self.run_elsewhere(host, token);
            }
            if is_used_up {
                let (partition, host) = (Arc::clone(self), Arc::clone(host));
                ottla_sync::task::spawn(
                    async move { partition.run_where_it_belongs(&host, token) },
                );
                return;
            }
            match self.inbox.release(token) {
                Some(still_mine) => token = still_mine,
                None => return,
            }
        }
    }

    /// The next event: first the deferred one, then released appends, then the inbox.
    fn next_event(
        &self,
        state: &mut PartitionState,
        token: &mut RunToken,
    ) -> Option<PartitionEvent> {
        if let Some(deferred) = state.take_deferred() {
            return Some(deferred);
        }
        if let Some(let_go) = state.take_let_go() {
            self.inbox.uncount(token, let_go.bytes());
            return Some(let_go);
        }
        self.inbox.pop(token)
    }

    /// Starts a timer that ticks the replica's clock at `deadline_ms`, unless an earlier timer
    /// exists.
    pub(super) fn set_timer(self: &Arc<Self>, host: &Arc<PartitionHost>, deadline_ms: u64) {
        let deadline_ms = i64::try_from(deadline_ms).unwrap_or(i64::MAX);
        if self.timer_ms.fetch_min(deadline_ms, Ordering::AcqRel) <= deadline_ms {
            return;
        }
        let (partition, host) = (Arc::clone(self), Arc::clone(host));
        ottla_sync::task::spawn(async move {
            let wait_ms = (deadline_ms as u64).saturating_sub(host.context.now_ms());
            ottla_sync::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
            partition.timer_ms.store(i64::MAX, Ordering::Release);
            let now_ms = host.context.now_ms().max(deadline_ms as u64);
            partition.notify(&host, Event::ClockTicked { now_ms });
        });
    }
}

/// Aborts the process when dropped, which only a panic does: the replica may assume appends that
/// the log does not have, or the reverse, and the token would never be released. The next start
/// recovers from disk, as after any crash.
struct EndOnUnwind<'a>(&'a TopicPartition);

impl Drop for EndOnUnwind<'_> {
    fn drop(&mut self) {
        tracing::error!(
            "aborting: a panic left {} in an unknown state; the next start recovers what was \
             acknowledged",
            self.0
        );
        ottla_sync::process::abort();
    }
}
