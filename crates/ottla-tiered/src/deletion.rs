//! The deletion of one segment: its record, the objects, its last record.
//!
//! Kafka: `RemoteLogManager.deleteRemoteLogSegment`.

use ottla_types::Timestamp;

use crate::planted::{Bug, has};
use crate::remote_segment::RemoteSegment;
use crate::segment_state::RemoteLogSegmentState;
use crate::task::{Operations, Origin, PublishFailure, RunOutcome, TaskEffect, TaskEvent};

#[derive(Debug)]
pub(crate) struct Deletion {
    segment: RemoteSegment,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Announcing,
    Deleting,
    Finishing,
}

impl Deletion {
    pub(crate) fn begin(
        segment: RemoteSegment,
        origin: &Origin,
        operations: &mut Operations,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) -> Deletion {
        let state = RemoteLogSegmentState::DeleteSegmentStarted;
        effects.push(TaskEffect::Publish {
            operation: operations.next(),
            metadata: origin.to_state(&segment, state, now),
        });
        Deletion {
            segment,
            step: Step::Announcing,
        }
    }

    /// `None` while it continues; otherwise its result. After a failure, a later run finds the
    /// segment in its recorded state, and tries again.
    pub(crate) fn step(
        &mut self,
        event: TaskEvent,
        origin: &Origin,
        operations: &mut Operations,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) -> Option<Result<(), RunOutcome>> {
        match (&self.step, event) {
            (_, TaskEvent::Published(Err(PublishFailure))) => Some(Err(RunOutcome::PublishFailed)),
            (Step::Announcing, TaskEvent::Published(Ok(()))) => {
                if has(Bug::KeepObjects) {
                    self.finish(origin, operations, now, effects);
                    return None;
                }
                self.step = Step::Deleting;
                effects.push(TaskEffect::DeleteData {
                    operation: operations.next(),
                    metadata: origin.metadata(&self.segment),
                });
                None
            }
            (Step::Deleting, TaskEvent::DataDeleted(result)) => {
                if let Err(failure) = result
                    && !has(Bug::FinishFailedDeletions)
                {
                    return Some(Err(failure.into()));
                }
                self.finish(origin, operations, now, effects);
                None
            }
            (Step::Finishing, TaskEvent::Published(Ok(()))) => Some(Ok(())),
            (step, event) => panic!("{event:?} is no answer to a deletion that is {step:?}"),
        }
    }

    fn finish(
        &mut self,
        origin: &Origin,
        operations: &mut Operations,
        now: Timestamp,
        effects: &mut Vec<TaskEffect>,
    ) {
        self.step = Step::Finishing;
        let state = RemoteLogSegmentState::DeleteSegmentFinished;
        effects.push(TaskEffect::Publish {
            operation: operations.next(),
            metadata: origin.to_state(&self.segment, state, now),
        });
    }
}
