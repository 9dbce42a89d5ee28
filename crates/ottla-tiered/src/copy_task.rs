//! Copies the closed segments of a leader's log to remote storage.
//!
//! A run copies, one after the other, the segments below the last stable offset that are not in remote
//! storage. For each it writes a record to the topic, uploads the segment, and writes a second record
//! that makes it readable. Until then, the local segment must stay.
//!
//! Kafka: `RemoteLogManager.RLMCopyTask`.

use std::collections::VecDeque;

use ottla_types::{Offset, Timestamp, Uuid};

use crate::deletion::Deletion;
use crate::leader_epochs::LeaderEpochs;
use crate::lineage::{first_offset, highest_remote_offset, is_copied};
use crate::log_view::{LocalSegment, LogView};
use crate::metadata_cache::RemoteLogMetadataCache;
use crate::metadata_record::RemoteLogMetadata;
use crate::planted::{Bug, has};
use crate::remote_segment::{CustomMetadata, RemoteSegment, RemoteSegmentUpdate};
use crate::segment_state::RemoteLogSegmentState;
use crate::task::{
    Operation, Operations, Origin, PublishFailure, RunOutcome, StoreFailure, TaskEffect, TaskEvent,
    Upload,
};

#[derive(Debug)]
pub struct CopyTask {
    origin: Origin,
    custom_metadata_max_bytes: usize,
    /// The highest offset that remote storage has; not known before the first run as a leader.
    copied_offset: Option<Offset>,
    is_log_start_offset_known: bool,
    /// Custom metadata was too large.
    is_stopped: bool,
    delay: CopyDelay,
    operations: Operations,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Idle,
    AwaitingQuota(VecDeque<Candidate>),
    Announcing(Copy),
    Uploading(Copy),
    Finishing(Copy),
    CleaningUp {
        deletion: Deletion,
        outcome: RunOutcome,
        copied: Uuid,
    },
}

/// A segment that will be copied.
#[derive(Debug)]
struct Candidate {
    start_offset: Offset,
    end_offset: Offset,
    max_timestamp: Timestamp,
    size_bytes: u32,
    is_txn_index_empty: bool,
    has_producer_snapshot: bool,
    segment_leader_epochs: LeaderEpochs,
    leader_epochs: LeaderEpochs,
}

/// The segment that is being copied, and those after it.
#[derive(Debug)]
struct Copy {
    segment: RemoteSegment,
    leader_epochs: LeaderEpochs,
    rest: VecDeque<Candidate>,
}

/// How long closed segments stay uncopied (KIP-1241, `remote.copy.lag.*`). A segment is copied when one of both limits
/// makes it due. 0: at once. Below 0: no limit of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyDelay {
    /// Since the largest timestamp of the segment.
    pub lag_ms: i64,
    /// Of the segments after it.
    pub lag_bytes: i64,
}

impl CopyDelay {
    fn is_due(
        self,
        segment: &LocalSegment,
        now: Timestamp,
        bytes_after: impl FnOnce() -> u64,
    ) -> bool {
        let CopyDelay { lag_ms, lag_bytes } = self;
        if lag_ms == 0 || lag_bytes == 0 {
            return true;
        }
        let age_ms = now.0.saturating_sub(segment.largest_timestamp.0);
        // A timestamp in the future would keep the segment from being copied for as long.
        let by_time = lag_ms > 0 && (age_ms < 0 || age_ms >= lag_ms);
        by_time || u64::try_from(lag_bytes).is_ok_and(|lag| bytes_after() >= lag)
    }
}

/// The lag of copying (`RemoteCopyLagBytes`, `RemoteCopyLagSegments`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyLag {
    pub bytes: u64,
    pub segments: u64,
}

impl CopyLag {
    /// The segments that remote storage does not have, without the active one.
    pub fn of(log: &LogView) -> CopyLag {
        let active = log.segments.last().map_or(0, |it| u64::from(it.size_bytes));
        let local = log.only_local_segments(log.highest_remote_offset);
        let (count, bytes) = local.fold((0u64, 0u64), |(count, bytes), it| {
            (count + 1, bytes + u64::from(it.size_bytes))
        });
        CopyLag {
            bytes: bytes.saturating_sub(active),
            segments: count.saturating_sub(1),
        }
    }
}

impl CopyTask {
    /// The task of a replica that becomes leader. `custom_metadata_max_bytes` is
    /// `remote.log.metadata.custom.metadata.max.bytes`.
    pub fn new(origin: Origin, custom_metadata_max_bytes: usize) -> CopyTask {
        CopyTask {
            origin,
            custom_metadata_max_bytes,
            copied_offset: None,
            is_log_start_offset_known: false,
            is_stopped: false,
            delay: CopyDelay::default(),
            operations: Operations::default(),
            phase: Phase::Idle,
        }
    }

    /// The settings of the topic, for the runs that begin from now on.
    pub fn set_delay(&mut self, delay: CopyDelay) {
        self.delay = delay;
    }

    pub fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    /// The segment that is being copied, which must not expire.
    pub fn being_copied(&self) -> Option<Uuid> {
        match &self.phase {
            Phase::Idle | Phase::AwaitingQuota(_) => None,
            Phase::Announcing(copy) | Phase::Uploading(copy) | Phase::Finishing(copy) => {
                Some(copy.segment.id)
            }
            Phase::CleaningUp { copied, .. } => Some(*copied),
        }
    }

    /// The replica no longer leads, copying was disabled, or its log moved to another directory.
    /// An unfinished segment stays in the state of its last record, and is deleted when it expires.
    /// The next run starts from the metadata.
    pub fn cancel(&mut self) {
        self.phase = Phase::Idle;
        self.operations.next();
        self.copied_offset = None;
        self.is_log_start_offset_known = false;
        self.is_stopped = false;
    }

    /// Begins a run, with the metadata of the partition read to its end. Nothing if a run is going
    /// on.
    pub fn begin_run(
        &mut self,
        log: &LogView,
        cache: &RemoteLogMetadataCache,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        if self.is_running() {
            return;
        }
        if self.is_stopped {
            effects.push(TaskEffect::RunEnded(RunOutcome::CustomMetadataTooLarge));
            return;
        }
        if !self.is_log_start_offset_known {
            self.is_log_start_offset_known = true;
            effects.push(TaskEffect::IncrementLogStartOffset {
                log_start_offset: first_offset(cache, log),
            });
        }
        let found = match self.copied_offset {
            None if has(Bug::CopyFromLocalEnd) => log.local_log_start_offset,
            _ => highest_remote_offset(cache, log),
        };
        let copied_offset = match self.copied_offset {
            // Higher if a copy that was missing before others was made.
            Some(offset) if offset >= found => offset,
            _ => {
                effects.push(TaskEffect::SetHighestRemoteOffset { offset: found });
                *self.copied_offset.insert(found)
            }
        };
        let mut candidates = candidates(log, copied_offset, self.delay, now);
        // After a missing copy there may be others. A second copy would count for `retention.bytes`, and
        // so much of the log would expire too early.
        candidates.retain(|it| !is_copied(cache, log, it.start_offset, it.end_offset));
        self.await_quota(candidates, effects);
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
        match (std::mem::replace(&mut self.phase, Phase::Idle), event) {
            (Phase::AwaitingQuota(candidates), TaskEvent::CopyPermitted { segment_id }) => {
                self.announce(candidates, segment_id, now, effects);
            }
            (Phase::Announcing(copy), TaskEvent::Published(Ok(()))) => self.upload(copy, effects),
            (Phase::Uploading(copy), TaskEvent::Uploaded(result)) => {
                self.on_uploaded(copy, result, now, effects);
            }
            (Phase::Finishing(copy), TaskEvent::Published(Ok(()))) => {
                self.on_copied(copy, effects);
            }
            (
                Phase::Announcing(_) | Phase::Finishing(_),
                TaskEvent::Published(Err(PublishFailure)),
            ) => effects.push(TaskEffect::RunEnded(RunOutcome::PublishFailed)),
            (
                Phase::CleaningUp {
                    mut deletion,
                    outcome,
                    copied,
                },
                event,
            ) => {
                let (origin, operations) = (&self.origin, &mut self.operations);
                let ended = deletion.step(event, origin, operations, now, effects);
                match ended {
                    // If the clean-up failed, the segment expires later.
                    Some(_) => effects.push(TaskEffect::RunEnded(outcome)),
                    None => {
                        self.phase = Phase::CleaningUp {
                            deletion,
                            outcome,
                            copied,
                        };
                    }
                }
            }
            (phase, event) => panic!("{event:?} is no answer to a copy that is {phase:?}"),
        }
    }

    fn await_quota(&mut self, candidates: VecDeque<Candidate>, effects: &mut Vec<TaskEffect>) {
        let Some(next) = candidates.front() else {
            effects.push(TaskEffect::RunEnded(RunOutcome::Done));
            return;
        };
        // Kafka announces such a segment at each run, and fails after that.
        if !next.has_producer_snapshot {
            effects.push(TaskEffect::RunEnded(RunOutcome::NoProducerSnapshot));
            return;
        }
        // Its records would be of an old format, without epochs.
        if next.segment_leader_epochs.is_empty() {
            effects.push(TaskEffect::RunEnded(RunOutcome::NoLeaderEpochs));
            return;
        }
        effects.push(TaskEffect::AwaitCopyQuota {
            operation: self.operations.next(),
            bytes: u64::from(next.size_bytes),
        });
        self.phase = Phase::AwaitingQuota(candidates);
    }

    fn announce(
        &mut self,
        mut rest: VecDeque<Candidate>,
        id: Uuid,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        let candidate = rest.pop_front().expect("a quota request has a segment");
        let segment = RemoteSegment {
            id,
            start_offset: candidate.start_offset,
            end_offset: candidate.end_offset,
            max_timestamp: candidate.max_timestamp,
            broker_id: self.origin.broker_id,
            event_timestamp: now,
            segment_size_bytes: candidate.size_bytes as i32,
            custom_metadata: None,
            state: RemoteLogSegmentState::CopySegmentStarted,
            segment_leader_epochs: candidate.segment_leader_epochs,
            is_txn_index_empty: candidate.is_txn_index_empty,
        };
        let copy = Copy {
            segment,
            leader_epochs: candidate.leader_epochs,
            rest,
        };
        if has(Bug::CountBegunUploads) {
            effects.push(TaskEffect::SetHighestRemoteOffset {
                offset: copy.segment.end_offset,
            });
        }
        if has(Bug::UploadBeforeAnnouncing) {
            self.upload(copy, effects);
            return;
        }
        effects.push(TaskEffect::Publish {
            operation: self.operations.next(),
            metadata: RemoteLogMetadata::Segment(self.origin.metadata(&copy.segment)),
        });
        self.phase = Phase::Announcing(copy);
    }

    fn upload(&mut self, copy: Copy, effects: &mut Vec<TaskEffect>) {
        effects.push(TaskEffect::Upload {
            operation: self.operations.next(),
            upload: Upload {
                metadata: self.origin.metadata(&copy.segment),
                leader_epochs: copy.leader_epochs.clone(),
            },
        });
        self.phase = Phase::Uploading(copy);
    }

    fn on_uploaded(
        &mut self,
        copy: Copy,
        result: Result<Option<CustomMetadata>, StoreFailure>,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        let custom_metadata = match result {
            Ok(custom_metadata) => custom_metadata,
            // The store may still be writing. As in Kafka, the segment stays until it expires.
            Err(StoreFailure::Retriable) => {
                effects.push(TaskEffect::RunEnded(RunOutcome::Retriable));
                return;
            }
            Err(StoreFailure::Permanent) => {
                self.clean_up(copy.segment, RunOutcome::StoreFailed, now, effects);
                return;
            }
        };
        let size = custom_metadata.as_ref().map_or(0, |it| it.0.len());
        let finished = RemoteSegmentUpdate {
            id: copy.segment.id,
            event_timestamp: now,
            custom_metadata,
            state: RemoteLogSegmentState::CopySegmentFinished,
            broker_id: self.origin.broker_id,
        };
        if size > self.custom_metadata_max_bytes {
            self.is_stopped = true;
            // The store needs its metadata to find the objects. No record has it.
            let segment = copy.segment.updated(&finished);
            self.clean_up(segment, RunOutcome::CustomMetadataTooLarge, now, effects);
            return;
        }
        effects.push(TaskEffect::Publish {
            operation: self.operations.next(),
            metadata: self.origin.update(finished),
        });
        self.phase = Phase::Finishing(copy);
    }

    fn clean_up(
        &mut self,
        segment: RemoteSegment,
        outcome: RunOutcome,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        let copied = segment.id;
        let deletion = Deletion::begin(segment, &self.origin, &mut self.operations, now, effects);
        self.phase = Phase::CleaningUp {
            deletion,
            outcome,
            copied,
        };
    }

    fn on_copied(&mut self, copy: Copy, effects: &mut Vec<TaskEffect>) {
        let offset = copy.segment.end_offset;
        self.copied_offset = Some(offset);
        effects.push(TaskEffect::SetHighestRemoteOffset { offset });
        self.await_quota(copy.rest, effects);
    }
}

/// The segments to copy: closed, not in remote storage, completely below the last stable offset, and
/// due.
fn candidates(
    log: &LogView,
    copied_offset: Offset,
    delay: CopyDelay,
    now: Timestamp,
) -> VecDeque<Candidate> {
    let limit = if has(Bug::CopyUncommitted) {
        log.log_end_offset
    } else {
        log.last_stable_offset
    };
    if limit.0 <= 0 || copied_offset >= limit {
        return VecDeque::new();
    }
    // The log may start after the copied records: records were deleted, or tiering is new.
    let from = copied_offset.plus(1).max(log.log_start_offset);
    let segments = log.closed_segments_from(from);
    segments
        .filter(|(_, next_offset)| *next_offset <= limit)
        .take_while(|(segment, next_offset)| {
            delay.is_due(segment, now, || log.size_bytes_from(*next_offset))
        })
        .map(|(segment, next_offset)| Candidate {
            start_offset: segment.base_offset,
            end_offset: Offset(next_offset.0 - 1),
            max_timestamp: segment.largest_timestamp,
            size_bytes: segment.size_bytes,
            is_txn_index_empty: segment.is_txn_index_empty,
            has_producer_snapshot: segment.has_producer_snapshot,
            segment_leader_epochs: log
                .leader_epochs
                .in_range(Some(segment.base_offset), next_offset),
            leader_epochs: log.leader_epochs.in_range(None, next_offset),
        })
        .collect()
}

#[cfg(test)]
mod tests;
