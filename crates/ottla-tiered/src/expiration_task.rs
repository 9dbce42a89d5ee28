//! Deletes expired remote segments of a partition that this broker leads.
//!
//! A run moves the log start offset first, and then deletes one segment after the other. It ends at
//! the first failure; the next run begins with the deletions that were begun.
//!
//! If a follower has learned of the new log start offset and becomes the leader, it deletes the
//! same segments because they are before it. If it has not, retention lets it decide the same.
//!
//! Kafka: `RemoteLogManager.RLMExpirationTask`.

use std::collections::VecDeque;

use ottla_types::Timestamp;

use crate::deletion::Deletion;
use crate::expiry::{Leading, Retention, expire};
use crate::log_view::LogView;
use crate::metadata_cache::{RemoteLogMetadataCache, RemoteLogStats};
use crate::remote_segment::RemoteSegment;
use crate::task::{Operation, Operations, Origin, RunOutcome, TaskEffect, TaskEvent};

#[derive(Debug)]
pub struct ExpirationTask {
    origin: Origin,
    stats: RemoteLogStats,
    retained_bytes: u64,
    running: Option<Running>,
    operations: Operations,
}

#[derive(Debug)]
struct Running {
    deletion: Deletion,
    /// Of the segment that is being deleted.
    deleted_bytes: u64,
    rest: VecDeque<RemoteSegment>,
    rest_bytes: u64,
}

/// The expired segments that are not yet deleted (`RemoteDeleteLagBytes`,
/// `RemoteDeleteLagSegments`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeleteLag {
    pub bytes: u64,
    pub segments: u64,
}

impl ExpirationTask {
    /// The task of a replica that becomes leader.
    pub fn new(origin: Origin) -> ExpirationTask {
        ExpirationTask {
            origin,
            stats: RemoteLogStats::default(),
            retained_bytes: 0,
            running: None,
            operations: Operations::default(),
        }
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The size in remote storage, as the last run found it.
    pub fn stats(&self) -> RemoteLogStats {
        self.stats
    }

    /// The size in both tiers, as the last run found it, if `retention.bytes` limits it.
    pub fn retained_bytes(&self) -> u64 {
        self.retained_bytes
    }

    pub fn delete_lag(&self) -> DeleteLag {
        let Some(running) = &self.running else {
            return DeleteLag::default();
        };
        DeleteLag {
            bytes: running.rest_bytes + running.deleted_bytes,
            segments: running.rest.len() as u64 + 1,
        }
    }

    /// The replica no longer leads. A deletion that was begun is continued by the next leader.
    pub fn cancel(&mut self) {
        self.running = None;
        self.operations.next();
    }

    /// Begins a run, with the metadata of the partition read to its end. Nothing if a run is going
    /// on.
    pub fn begin_run(
        &mut self,
        log: &LogView,
        cache: &RemoteLogMetadataCache,
        retention: Retention,
        leading: Leading,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        if self.is_running() {
            return;
        }
        let expiry = expire(log, cache, retention, leading, now);
        self.stats = expiry.stats;
        self.retained_bytes = expiry.retained_bytes;
        if let Some(log_start_offset) = expiry.log_start_offset {
            effects.push(TaskEffect::IncrementLogStartOffset { log_start_offset });
        }
        let rest_bytes: u64 = expiry.segments.iter().map(RemoteSegment::size_bytes).sum();
        self.delete_next(expiry.segments.into(), rest_bytes, now, effects);
    }

    /// Processes the answer to an effect.
    pub fn step(
        &mut self,
        operation: Operation,
        event: TaskEvent,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        if !self.operations.is_current(operation) {
            return;
        }
        let running = self.running.as_mut();
        let running = running.expect("an answer belongs to a run, which cancel would have ended");
        let ended = running
            .deletion
            .step(event, &self.origin, &mut self.operations, now, effects);
        match ended {
            None => {}
            Some(Ok(())) => {
                let rest = std::mem::take(&mut running.rest);
                let rest_bytes = running.rest_bytes;
                self.delete_next(rest, rest_bytes, now, effects);
            }
            Some(Err(outcome)) => {
                self.running = None;
                effects.push(TaskEffect::RunEnded(outcome));
            }
        }
    }

    fn delete_next(
        &mut self,
        mut rest: VecDeque<RemoteSegment>,
        rest_bytes: u64,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        let Some(next) = rest.pop_front() else {
            self.running = None;
            effects.push(TaskEffect::RunEnded(RunOutcome::Done));
            return;
        };
        let deleted_bytes = next.size_bytes();
        let operations = &mut self.operations;
        self.running = Some(Running {
            deletion: Deletion::begin(next, &self.origin, operations, now, effects),
            deleted_bytes,
            rest,
            rest_bytes: rest_bytes - deleted_bytes,
        });
    }
}

#[cfg(test)]
mod tests;
