//! Deletes everything that a partition has in remote storage: its topic was deleted, or tiering was
//! disabled with `remote.log.delete.on.disable`.
//!
//! First all segments become unreadable, then the objects are deleted, then the last records are
//! written. After a failure the run ends, and another one deletes the segments that the metadata
//! still has.
//!
//! Kafka: `RemoteLogManager.deleteRemoteLogPartition`, which does not try again.

use std::collections::VecDeque;

use ottla_types::Timestamp;

use crate::metadata_cache::RemoteLogMetadataCache;
use crate::remote_segment::RemoteSegment;
use crate::segment_state::RemoteLogSegmentState;
use crate::task::{
    Operation, Operations, Origin, PublishFailure, RunOutcome, TaskEffect, TaskEvent,
};

#[derive(Debug)]
pub struct PartitionDeletion {
    origin: Origin,
    step: Step,
    todo: VecDeque<RemoteSegment>,
    done: VecDeque<RemoteSegment>,
    operations: Operations,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Idle,
    Announcing,
    Deleting,
    Finishing,
}

impl PartitionDeletion {
    pub fn new(origin: Origin) -> PartitionDeletion {
        PartitionDeletion {
            origin,
            step: Step::Idle,
            todo: VecDeque::new(),
            done: VecDeque::new(),
            operations: Operations::default(),
        }
    }

    pub fn is_running(&self) -> bool {
        self.step != Step::Idle
    }

    /// The topic is tiered again, or the partition is no longer on this broker.
    pub fn cancel(&mut self) {
        self.step = Step::Idle;
        self.operations.next();
    }

    /// Begins to delete all segments of the partition.
    pub fn begin_run(
        &mut self,
        cache: &RemoteLogMetadataCache,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        if self.is_running() {
            return;
        }
        let mut segments: Vec<RemoteSegment> = cache.segments().collect();
        segments.sort_by_key(|segment| (segment.start_offset, segment.id));
        self.todo = segments.into();
        self.done.clear();
        self.step = Step::Announcing;
        self.proceed(now, effects);
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
        let failure = match event {
            TaskEvent::Published(result) => {
                result.map_err(|PublishFailure| RunOutcome::PublishFailed)
            }
            TaskEvent::DataDeleted(result) => result.map_err(RunOutcome::from),
            event => panic!("{event:?} is no answer to the deletion of a partition"),
        };
        if let Err(outcome) = failure {
            self.step = Step::Idle;
            effects.push(TaskEffect::RunEnded(outcome));
            return;
        }
        self.done.extend(self.todo.pop_front());
        self.proceed(now, effects);
    }

    /// Continues with the next segment, or with the next step for all of them.
    fn proceed(&mut self, now: Timestamp, effects: &mut Vec<TaskEffect>) {
        if self.todo.is_empty() {
            self.todo = std::mem::take(&mut self.done);
            self.step = match self.step {
                _ if self.todo.is_empty() => Step::Idle,
                Step::Announcing => Step::Deleting,
                Step::Deleting => Step::Finishing,
                Step::Finishing | Step::Idle => Step::Idle,
            };
        }
        let Some(next) = self.todo.front() else {
            effects.push(TaskEffect::RunEnded(RunOutcome::Done));
            return;
        };
        let state = match self.step {
            Step::Announcing => RemoteLogSegmentState::DeleteSegmentStarted,
            Step::Finishing => RemoteLogSegmentState::DeleteSegmentFinished,
            Step::Deleting => {
                effects.push(TaskEffect::DeleteData {
                    operation: self.operations.next(),
                    metadata: self.origin.metadata(next),
                });
                return;
            }
            Step::Idle => {
                self.todo.clear();
                effects.push(TaskEffect::RunEnded(RunOutcome::Done));
                return;
            }
        };
        effects.push(TaskEffect::Publish {
            operation: self.operations.next(),
            metadata: self.origin.to_state(next, state, now),
        });
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{BrokerId, Timestamp};

    use super::PartitionDeletion;
    use crate::test_segments::{cache_of, partition, segment};
    use crate::{
        LeaderEpochs, Origin, RemoteLogMetadata, RemoteLogSegmentState, RunOutcome, StoreFailure,
        TaskEffect, TaskEvent,
    };

    #[test]
    fn segments_become_unreadable_before_the_first_deletion() {
        let epochs = || LeaderEpochs::from([(0, 0)]);
        let mut cache = cache_of(&[segment(1, 0, 9, epochs()), segment(2, 10, 19, epochs())]);
        let mut deletion = PartitionDeletion::new(Origin {
            partition: partition(),
            broker_id: BrokerId(1),
        });
        let mut steps = Vec::new();
        let mut fails = 1;
        for _ in 0..2 {
            let mut effects = Vec::new();
            deletion.begin_run(&cache, Timestamp(1), &mut effects);
            while let Some(effect) = effects.pop() {
                let event = match &effect {
                    TaskEffect::Publish {
                        metadata: RemoteLogMetadata::SegmentUpdate(update),
                        ..
                    } => {
                        cache.update(&update.update).unwrap();
                        steps.push(update.update.state.to_string());
                        TaskEvent::Published(Ok(()))
                    }
                    TaskEffect::DeleteData { .. } if fails > 0 => {
                        fails -= 1;
                        TaskEvent::DataDeleted(Err(StoreFailure::Retriable))
                    }
                    TaskEffect::DeleteData { metadata, .. } => {
                        let left = cache.segments();
                        let begun = RemoteLogSegmentState::DeleteSegmentStarted;
                        assert!({ left }.all(|it| it.state == begun));
                        steps.push(format!("delete {}", metadata.segment.start_offset));
                        TaskEvent::DataDeleted(Ok(()))
                    }
                    TaskEffect::RunEnded(outcome) => {
                        steps.push(format!("{outcome:?}"));
                        continue;
                    }
                    other => panic!("{other:?}"),
                };
                let operation = effect.operation().unwrap();
                deletion.step(operation, event, Timestamp(2), &mut effects);
            }
        }
        let expected = [
            "DELETE_SEGMENT_STARTED",
            "DELETE_SEGMENT_STARTED",
            &format!("{:?}", RunOutcome::Retriable),
            "DELETE_SEGMENT_STARTED",
            "DELETE_SEGMENT_STARTED",
            "delete 0",
            "delete 10",
            "DELETE_SEGMENT_FINISHED",
            "DELETE_SEGMENT_FINISHED",
            "Done",
        ];
        assert_eq!(steps, expected);
        assert!(cache.is_empty());
    }
}
