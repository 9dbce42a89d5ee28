use ottla_types::{BrokerId, Offset, Timestamp};

use super::{DeleteLag, ExpirationTask};
use crate::expiry::Leading;
use crate::test_segments::{cache_of, log, partition, segment};
use crate::{
    LeaderEpochs, Origin, RemoteLogMetadata, RemoteLogMetadataCache, Retention, RunOutcome,
    StoreFailure, TaskEffect, TaskEvent,
};

const OLD: Retention = Retention {
    retention_ms: 980,
    retention_bytes: -1,
};
/// It copies nothing, and has just become the leader.
const LEADING: Leading = Leading {
    being_copied: None,
    for_ms: 0,
};

#[test]
fn the_start_moves_first_and_a_failure_is_continued() {
    let epochs = || LeaderEpochs::from([(0, 0)]);
    let mut cache = cache_of(&[segment(1, 0, 9, epochs()), segment(2, 10, 19, epochs())]);
    let log = log(&[0, 10, 20], 25, epochs());
    let mut task = ExpirationTask::new(Origin {
        partition: partition(),
        broker_id: BrokerId(1),
    });
    let mut effects = Vec::new();
    task.begin_run(&log, &cache, OLD, LEADING, Timestamp(1000), &mut effects);
    assert_eq!(
        effects.remove(0),
        TaskEffect::IncrementLogStartOffset {
            log_start_offset: Offset(20)
        }
    );
    assert_eq!(
        task.delete_lag(),
        DeleteLag {
            bytes: 20,
            segments: 2
        }
    );
    let mut outcome = None;
    answer(&mut task, &mut cache, effects, |_| false, &mut outcome);
    assert_eq!(outcome, Some(RunOutcome::Retriable));
    assert!(!task.is_running());
    assert_eq!(cache.len(), 2);

    let mut effects = Vec::new();
    task.begin_run(&log, &cache, OLD, LEADING, Timestamp(1000), &mut effects);
    answer(&mut task, &mut cache, effects, |_| true, &mut outcome);
    assert_eq!(outcome, Some(RunOutcome::Done));
    assert!(cache.is_empty());
    assert_eq!(task.delete_lag(), DeleteLag::default());
}

fn answer(
    task: &mut ExpirationTask,
    cache: &mut RemoteLogMetadataCache,
    mut effects: Vec<TaskEffect>,
    is_working: impl Fn(&TaskEffect) -> bool,
    outcome: &mut Option<RunOutcome>,
) {
    while !effects.is_empty() {
        let effect = effects.remove(0);
        let event = match &effect {
            TaskEffect::Publish {
                metadata: RemoteLogMetadata::SegmentUpdate(update),
                ..
            } => {
                cache.update(&update.update).unwrap();
                TaskEvent::Published(Ok(()))
            }
            TaskEffect::DeleteData { .. } if is_working(&effect) => TaskEvent::DataDeleted(Ok(())),
            TaskEffect::DeleteData { .. } => TaskEvent::DataDeleted(Err(StoreFailure::Retriable)),
            TaskEffect::IncrementLogStartOffset { .. } => continue,
            TaskEffect::RunEnded(ended) => {
                *outcome = Some(*ended);
                continue;
            }
            other => panic!("{other:?}"),
        };
        let operation = effect.operation().unwrap();
        task.step(operation, event, Timestamp(1000), &mut effects);
    }
}
