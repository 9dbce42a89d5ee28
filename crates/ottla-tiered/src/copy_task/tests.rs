use bytes::Bytes;
use ottla_types::{BrokerId, Offset, Timestamp, Uuid};

use super::{CopyDelay, CopyLag, CopyTask};
use crate::test_segments::{cache_of, log, partition, segment};
use crate::{
    CustomMetadata, LeaderEpochs, LogView, Origin, PublishFailure, RemoteLogMetadata,
    RemoteLogMetadataCache, RemoteLogSegmentState, StoreFailure, TaskEffect, TaskEvent,
};

/// A task, and its effects as text.
struct Story {
    task: CopyTask,
    cache: RemoteLogMetadataCache,
    steps: Vec<String>,
    next_id: u128,
    upload: Result<Option<CustomMetadata>, StoreFailure>,
    publishes: usize,
    now: i64,
}

impl Story {
    fn new(cache: RemoteLogMetadataCache) -> Story {
        let origin = Origin {
            partition: partition(),
            broker_id: BrokerId(1),
        };
        Story {
            task: CopyTask::new(origin, 16),
            cache,
            steps: Vec::new(),
            next_id: 100,
            upload: Ok(None),
            publishes: usize::MAX,
            now: 9,
        }
    }

    fn run(&mut self, log: &LogView) -> Vec<String> {
        let mut effects = Vec::new();
        let now = Timestamp(self.now);
        self.task.begin_run(log, &self.cache, now, &mut effects);
        while !effects.is_empty() {
            let effect = effects.remove(0);
            let event = self.answer(&effect);
            if let (Some(operation), Some(event)) = (effect.operation(), event) {
                self.task.step(operation, event, Timestamp(9), &mut effects);
            }
        }
        assert!(!self.task.is_running());
        std::mem::take(&mut self.steps)
    }

    fn answer(&mut self, effect: &TaskEffect) -> Option<TaskEvent> {
        Some(match effect {
            TaskEffect::AwaitCopyQuota { bytes, .. } => {
                self.steps.push(format!("quota {bytes}"));
                self.next_id += 1;
                let segment_id = Uuid::from_u128(self.next_id);
                TaskEvent::CopyPermitted { segment_id }
            }
            TaskEffect::Publish { metadata, .. } => {
                if self.publishes == 0 {
                    return Some(TaskEvent::Published(Err(PublishFailure)));
                }
                self.publishes -= 1;
                match metadata {
                    RemoteLogMetadata::Segment(metadata) => {
                        let segment = &metadata.segment;
                        self.cache.add(segment).unwrap();
                        self.steps.push(format!(
                            "{} {}-{}",
                            segment.state, segment.start_offset, segment.end_offset
                        ));
                    }
                    RemoteLogMetadata::SegmentUpdate(metadata) => {
                        self.cache.update(&metadata.update).unwrap();
                        self.steps.push(metadata.update.state.to_string());
                    }
                    other => panic!("{other:?}"),
                }
                TaskEvent::Published(Ok(()))
            }
            TaskEffect::Upload { upload, .. } => {
                let epochs = upload.leader_epochs.to_checkpoint().replace('\n', ",");
                self.steps.push(format!("upload with {epochs}"));
                TaskEvent::Uploaded(self.upload.clone())
            }
            TaskEffect::DeleteData { metadata, .. } => {
                let custom = metadata.segment.custom_metadata.as_ref();
                let custom = custom.map_or(0, |it| it.0.len());
                self.steps.push(format!("delete with {custom} bytes"));
                TaskEvent::DataDeleted(Ok(()))
            }
            TaskEffect::IncrementLogStartOffset { log_start_offset } => {
                self.steps.push(format!("start {log_start_offset}"));
                return None;
            }
            TaskEffect::SetHighestRemoteOffset { offset } => {
                self.steps.push(format!("highest {offset}"));
                return None;
            }
            TaskEffect::RunEnded(outcome) => {
                self.steps.push(format!("{outcome:?}"));
                return None;
            }
        })
    }
}

fn epochs() -> LeaderEpochs {
    LeaderEpochs::from([(0, 0), (2, 15)])
}

#[test]
fn closed_segments_below_the_last_stable_offset_are_copied() {
    let mut story = Story::new(cache_of(&[]));
    let mut log = log(&[0, 10, 20, 30], 35, epochs());
    log.last_stable_offset = Offset(29);
    let steps = story.run(&log);
    assert_eq!(
        steps,
        [
            "start 0",
            "highest -1",
            "quota 10",
            "COPY_SEGMENT_STARTED 0-9",
            "upload with 0,1,0 0,",
            "COPY_SEGMENT_FINISHED",
            "highest 9",
            "quota 10",
            "COPY_SEGMENT_STARTED 10-19",
            "upload with 0,2,0 0,2 15,",
            "COPY_SEGMENT_FINISHED",
            "highest 19",
            "Done",
        ]
    );
    assert_eq!(story.run(&log), ["Done"], "nothing twice");
    log.last_stable_offset = Offset(30);
    assert!(story.run(&log).contains(&"highest 29".to_owned()));
}

#[test]
fn a_new_leader_continues_after_the_highest_remote_offset() {
    let copied = segment(1, 0, 12, LeaderEpochs::from([(0, 0)]));
    let mut story = Story::new(cache_of(&[copied]));
    let steps = story.run(&log(&[0, 10, 20], 25, epochs()));
    // The segment that has offset 13 is copied whole.
    let expected = [
        "start 0",
        "highest 12",
        "quota 10",
        "COPY_SEGMENT_STARTED 10-19",
    ];
    assert_eq!(steps[..4], expected);
}

#[test]
fn only_missing_segments_are_copied_again() {
    let epochs = |start: i64| LeaderEpochs::from([(0, start)]);
    let mut story = Story::new(cache_of(&[
        segment(1, 0, 9, epochs(0)),
        segment(2, 10, 19, epochs(10)),
        segment(3, 20, 29, epochs(20)),
    ]));
    let missing = story.cache.get(Uuid::from_u128(2)).unwrap();
    let deleting = RemoteLogSegmentState::DeleteSegmentStarted;
    let update = missing.to_state(deleting, Timestamp(1), BrokerId(1));
    story.cache.update(&update).unwrap();
    let log = log(&[0, 10, 20, 30], 35, epochs(0));
    let expected = [
        "start 0",
        "highest 9",
        "quota 10",
        "COPY_SEGMENT_STARTED 10-19",
        "upload with 0,1,0 0,",
        "COPY_SEGMENT_FINISHED",
        "highest 19",
        "Done",
    ];
    assert_eq!(story.run(&log), expected);
    assert_eq!(story.run(&log), ["highest 29", "Done"]);
    assert_eq!(story.run(&log), ["Done"]);
}

#[test]
fn a_segment_that_fails_for_good_is_cleaned_up_and_one_that_may_work_is_left() {
    let mut story = Story::new(cache_of(&[]));
    let log = log(&[0, 10], 15, epochs());
    story.upload = Err(StoreFailure::Permanent);
    let steps = story.run(&log);
    let expected = [
        "delete with 0 bytes",
        "DELETE_SEGMENT_FINISHED",
        "StoreFailed",
    ];
    assert_eq!(steps[steps.len() - 3..], expected);
    assert!(story.cache.is_empty());

    story.upload = Err(StoreFailure::Retriable);
    assert_eq!(story.run(&log).last().unwrap(), "Retriable");
    assert_eq!(story.cache.len(), 1);
    story.upload = Ok(None);
    assert_eq!(story.run(&log).last().unwrap(), "Done");
    assert_eq!(story.cache.len(), 2, "the retry has a new ID");
}

#[test]
fn too_much_custom_metadata_ends_copying() {
    let mut story = Story::new(cache_of(&[]));
    let log = log(&[0, 10], 15, epochs());
    story.upload = Ok(Some(CustomMetadata(Bytes::from_static(&[0; 17]))));
    let steps = story.run(&log);
    let expected = [
        "DELETE_SEGMENT_STARTED",
        "delete with 17 bytes",
        "DELETE_SEGMENT_FINISHED",
        "CustomMetadataTooLarge",
    ];
    assert_eq!(steps[steps.len() - 4..], expected);
    assert_eq!(story.run(&log), ["CustomMetadataTooLarge"]);
    story.task.cancel();
    story.upload = Ok(Some(CustomMetadata(Bytes::from_static(&[0; 16]))));
    assert_eq!(story.run(&log).last().unwrap(), "Done");
}

#[test]
fn a_failed_record_ends_the_run_and_the_segment_is_copied_again() {
    let mut story = Story::new(cache_of(&[]));
    let log = log(&[0, 10], 15, epochs());
    for publishes in [0, 1] {
        story.publishes = publishes;
        assert_eq!(story.run(&log).last().unwrap(), "PublishFailed");
    }
    story.publishes = usize::MAX;
    assert_eq!(story.run(&log).last().unwrap(), "Done");
}

#[test]
fn a_segment_without_a_producer_snapshot_is_not_announced() {
    let mut story = Story::new(cache_of(&[]));
    let mut log = log(&[0, 10], 15, epochs());
    log.segments[0].has_producer_snapshot = false;
    let steps = story.run(&log);
    assert_eq!(steps, ["start 0", "highest -1", "NoProducerSnapshot"]);
    assert!(story.cache.is_empty());
}

#[test]
fn answers_to_a_cancelled_run_are_ignored() {
    let mut story = Story::new(cache_of(&[]));
    let mut effects = Vec::new();
    let log = log(&[0, 10], 15, epochs());
    let now = Timestamp(1);
    story.task.begin_run(&log, &story.cache, now, &mut effects);
    let waiting = effects.last().unwrap().operation().unwrap();
    story.task.cancel();
    effects.clear();
    let segment_id = Uuid::from_u128(5);
    let event = TaskEvent::CopyPermitted { segment_id };
    story.task.step(waiting, event, Timestamp(1), &mut effects);
    assert_eq!(effects, []);
}

/// The closed segments end at offsets 9 and 19 with these timestamps, and have ten bytes each.
#[test]
fn a_segment_is_copied_when_one_of_its_limits_makes_it_due() {
    let copied = |lag_ms, lag_bytes, now| {
        let mut story = Story::new(cache_of(&[]));
        story.now = now;
        story.task.set_delay(CopyDelay { lag_ms, lag_bytes });
        let steps = story.run(&log(&[0, 10, 20], 25, epochs()));
        steps.iter().filter(|it| it.starts_with("quota ")).count()
    };
    assert_eq!(copied(0, -1, 9), 2);
    assert_eq!(copied(-1, 0, 9), 2);
    assert_eq!(copied(-1, -1, 1_000_000), 0);
    assert_eq!(
        [18, 19, 28, 29].map(|now| copied(10, -1, now)),
        [0, 1, 1, 2]
    );
    // Its timestamp is in the future.
    assert_eq!(copied(1000, -1, 5), 2);
    let after_first = log(&[0, 10, 20], 25, epochs()).size_bytes_from(Offset(10)) as i64;
    assert_eq!(copied(-1, after_first, 9), 1);
    assert_eq!(copied(-1, after_first + 1, 9), 0);
    assert_eq!(copied(100, after_first, 20), 1);
    assert_eq!(copied(100, after_first + 1, 20), 0);
}

#[test]
fn the_lag_leaves_out_the_active_segment() {
    let mut log = log(&[0, 10, 20], 25, epochs());
    assert_eq!(
        CopyLag::of(&log),
        CopyLag {
            bytes: 20,
            segments: 2
        }
    );
    log.highest_remote_offset = Offset(9);
    assert_eq!(
        CopyLag::of(&log),
        CopyLag {
            bytes: 10,
            segments: 1
        }
    );
    log.highest_remote_offset = Offset(19);
    assert_eq!(
        CopyLag::of(&log),
        CopyLag {
            bytes: 0,
            segments: 0
        }
    );
}
