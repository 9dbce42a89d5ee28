//! The share coordinator, in scripted and in random tests.

mod random;

use std::sync::Arc;

use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp, Uuid};

use super::{
    Command, Outcome, Response, ShareCoordinator, ShareCoordinatorConfig, ShareStateRecord,
    StateError, TimerKey,
};
use crate::persister::{
    InitializeState, ReadState, SharePartitionKey, StateBatch, StateRead, StateSummary, WriteState,
};
use crate::runtime::{Coordinator, EncodeRecord, ReplyId, ReplyTo, WriteId};

const TOPIC: Uuid = Uuid::from_u128(7);
const PARTITIONS: Option<i32> = Some(4);

fn key(partition: i32) -> SharePartitionKey {
    SharePartitionKey {
        group_id: "g".into(),
        topic_id: TOPIC,
        partition,
    }
}

fn batch(first: i64, last: i64, delivery_state: i8, delivery_count: i16) -> StateBatch {
    StateBatch {
        first_offset: Offset(first),
        last_offset: Offset(last),
        delivery_state,
        delivery_count,
    }
}

/// A coordinator whose writes are committed at once. Keeps their records.
struct Story {
    coordinator: ShareCoordinator,
    log: Vec<ShareStateRecord>,
    now: Timestamp,
}

impl Story {
    fn new() -> Self {
        Self::with(ShareCoordinatorConfig::default())
    }

    fn with(config: ShareCoordinatorConfig) -> Self {
        Story {
            coordinator: ShareCoordinator::new(Arc::new(config)),
            log: Vec::new(),
            now: Timestamp(1_000_000),
        }
    }

    fn commit(&mut self, outcome: Outcome) -> Option<Response> {
        let mut replies = outcome.replies;
        for write in outcome.writes {
            let base_offset = Offset(self.log.len() as i64);
            self.coordinator
                .on_appended(write.id, write.id, base_offset);
            self.log.extend(write.records);
            let committed = self.coordinator.on_records_committed(write.id, self.now);
            replies.extend(committed.replies);
        }
        assert!(replies.len() <= 1);
        replies.pop().map(|reply| reply.response)
    }

    fn initialize(&mut self, partition: i32, state_epoch: i32, start: i64) -> Response {
        let request = InitializeState {
            key: key(partition),
            state_epoch,
            start_offset: Offset(start),
        };
        let outcome = self.coordinator.initialize_state(
            ReplyTo::new(ReplyId(0)),
            request,
            PARTITIONS,
            self.now,
        );
        self.commit(outcome).expect("an answer")
    }

    fn write(&mut self, request: WriteState) -> Response {
        let outcome =
            self.coordinator
                .write_state(ReplyTo::new(ReplyId(0)), request, PARTITIONS, self.now);
        self.commit(outcome).expect("an answer")
    }

    fn read(&mut self, partition: i32, leader_epoch: i32) -> Response {
        let request = ReadState {
            key: key(partition),
            leader_epoch: LeaderEpoch(leader_epoch),
        };
        let outcome =
            self.coordinator
                .read_state(ReplyTo::new(ReplyId(0)), request, PARTITIONS, self.now);
        self.commit(outcome).expect("an answer")
    }

    fn summary(&mut self, partition: i32) -> Response {
        let outcome = self.coordinator.read_state_summary(
            ReplyTo::new(ReplyId(0)),
            &key(partition),
            PARTITIONS,
        );
        self.commit(outcome).expect("an answer")
    }

    fn delete(&mut self, partition: i32) -> Response {
        let outcome =
            self.coordinator
                .delete_state(ReplyTo::new(ReplyId(0)), key(partition), PARTITIONS);
        self.commit(outcome).expect("an answer")
    }

    /// The types of the records' keys.
    fn kinds(&self) -> String {
        let kinds = self.log.iter().map(|record| match record.encode() {
            Ok((_, None)) => 'x',
            Ok((key, Some(_))) if key[1] == 0 => 's',
            Ok(_) => 'u',
            Err(error) => panic!("{error}"),
        });
        kinds.collect()
    }

    /// A coordinator that has loaded the log from `from` on.
    fn replayed(&self, from: usize) -> ShareCoordinator {
        let mut replayed = ShareCoordinator::new(Arc::clone(&self.coordinator.config));
        for (offset, record) in self.log.iter().enumerate().skip(from) {
            let (key, value) = record.encode().expect("it can be written");
            replayed
                .replay(Offset(offset as i64), &key, value.as_ref())
                .expect("it can be read");
        }
        replayed
    }
}

fn write_of(partition: i32, start: i64, batches: &[StateBatch]) -> WriteState {
    WriteState {
        key: key(partition),
        state_epoch: 1,
        leader_epoch: LeaderEpoch(5),
        start_offset: Offset(start),
        delivery_complete_count: 0,
        batches: batches.to_vec(),
    }
}

fn refused(code: ErrorCode) -> StateError {
    StateError::from(code)
}

#[test]
fn what_is_written_is_read() {
    let mut story = Story::new();
    assert_eq!(story.initialize(0, 1, -1), Response::Done(Ok(())));
    let fresh = StateRead {
        state_epoch: 1,
        start_offset: Offset::UNKNOWN,
        batches: vec![],
    };
    assert_eq!(story.read(0, 5), Response::Read(Ok(fresh)));
    let written = story.write(write_of(0, 10, &[batch(10, 14, 2, 1), batch(15, 19, 0, 1)]));
    assert_eq!(written, Response::Done(Ok(())));
    story.write(WriteState {
        delivery_complete_count: 3,
        ..write_of(0, 12, &[batch(15, 17, 2, 2)])
    });
    let read = StateRead {
        state_epoch: 1,
        start_offset: Offset(12),
        batches: vec![
            batch(12, 14, 2, 1),
            batch(15, 17, 2, 2),
            batch(18, 19, 0, 1),
        ],
    };
    assert_eq!(story.read(0, 5), Response::Read(Ok(read)));
    let summary = StateSummary {
        state_epoch: 1,
        leader_epoch: LeaderEpoch(5),
        start_offset: Offset(12),
        delivery_complete_count: 3,
    };
    assert_eq!(story.summary(0), Response::Summary(Ok(summary)));
    // The snapshot, the leader's epoch, two writes. The second read has written nothing.
    assert_eq!(story.kinds(), "suuu");
}

#[test]
fn whoever_is_late_is_fenced() {
    let mut story = Story::new();
    story.initialize(0, 2, 0);
    story.read(0, 5);
    let fenced_leader = refused(ErrorCode::FencedLeaderEpoch);
    let fenced_state = refused(ErrorCode::FencedStateEpoch);
    let late_leader = WriteState {
        leader_epoch: LeaderEpoch(4),
        state_epoch: 2,
        ..write_of(0, 0, &[])
    };
    assert_eq!(story.write(late_leader), Response::Done(Err(fenced_leader)));
    assert_eq!(
        story.write(write_of(0, 0, &[])),
        Response::Done(Err(fenced_state))
    );
    assert_eq!(story.read(0, 4), Response::Read(Err(fenced_leader)));
    assert_eq!(story.initialize(0, 1, 0), Response::Done(Err(fenced_state)));
    // After the offset was set, the state epoch fences a leader that does not know it.
    assert_eq!(story.initialize(0, 3, 40), Response::Done(Ok(())));
    let unaware = WriteState {
        state_epoch: 2,
        ..write_of(0, 0, &[])
    };
    assert_eq!(story.write(unaware), Response::Done(Err(fenced_state)));
    let read = StateRead {
        state_epoch: 3,
        start_offset: Offset(40),
        batches: vec![],
    };
    assert_eq!(story.read(0, 5), Response::Read(Ok(read)));
}

#[test]
fn missing_state_is_reported() {
    let mut story = Story::new();
    let unknown = refused(ErrorCode::UnknownTopicOrPartition);
    assert_eq!(story.initialize(4, 1, 0), Response::Done(Err(unknown)));
    assert_eq!(
        story.initialize(-1, 1, 0),
        Response::Done(Err(StateError::NEGATIVE_PARTITION))
    );
    assert_eq!(
        story.write(write_of(0, 0, &[])),
        Response::Done(Err(StateError::WRITE_UNINITIALIZED))
    );
    assert_eq!(
        story.read(0, 5),
        Response::Read(Err(StateError::READ_UNINITIALIZED))
    );
    let summary = StateSummary {
        state_epoch: 0,
        leader_epoch: LeaderEpoch(0),
        start_offset: Offset::UNKNOWN,
        delivery_complete_count: -1,
    };
    assert_eq!(story.summary(0), Response::Summary(Ok(summary)));
    assert_eq!(story.summary(4), Response::Summary(Err(unknown)));
    assert_eq!(story.delete(0), Response::Done(Ok(())));
    assert_eq!(story.kinds(), "");
}

#[test]
fn many_updates_become_a_snapshot() {
    let mut story = Story::with(ShareCoordinatorConfig {
        snapshot_update_records_per_snapshot: 2,
        ..Default::default()
    });
    story.initialize(0, 1, 0);
    for end in 0..6 {
        story.write(write_of(0, 0, &[batch(end, end, 2, 1)]));
    }
    assert_eq!(story.kinds(), "suusuus");
    let read = StateRead {
        state_epoch: 1,
        start_offset: Offset(0),
        batches: vec![batch(0, 5, 2, 1)],
    };
    assert_eq!(story.read(0, -1), Response::Read(Ok(read)));
}

#[test]
fn deleting_forgets_and_so_does_the_deletion_of_the_topic() {
    let mut story = Story::new();
    story.initialize(0, 3, 0);
    story.initialize(1, 3, 0);
    assert_eq!(story.delete(0), Response::Done(Ok(())));
    assert_eq!(story.kinds(), "ssx");
    // The earlier state does not affect a new initialization.
    assert_eq!(story.initialize(0, 1, 0), Response::Done(Ok(())));
    let outcome = story.coordinator.on_topics_deleted(&[Uuid::from_u128(8)]);
    assert!(outcome.writes.is_empty());
    let outcome = story.coordinator.on_topics_deleted(&[TOPIC]);
    assert_eq!(story.commit(outcome), None);
    assert_eq!(story.kinds(), "ssxsxx");
    assert_eq!(story.coordinator.states.len(), 0);
}

#[test]
fn a_response_waits_for_the_writes_that_it_depends_on() {
    let mut story = Story::new();
    story.initialize(0, 1, 0);
    let now = story.now;
    let coordinator = &mut story.coordinator;
    let write = coordinator.write_state(
        ReplyTo::new(ReplyId(1)),
        write_of(0, 7, &[]),
        PARTITIONS,
        now,
    );
    assert_eq!((write.writes.len(), write.replies.len()), (1, 0));
    let summary = coordinator.read_state_summary(ReplyTo::new(ReplyId(2)), &key(0), PARTITIONS);
    assert_eq!(summary.replies.len(), 0);
    let id = write.writes[0].id;
    let failed = coordinator.on_write_failed(id, ErrorCode::NotLeaderOrFollower, now);
    let error = refused(ErrorCode::NotCoordinator);
    let replies: Vec<Response> = failed.replies.into_iter().map(|r| r.response).collect();
    assert_eq!(
        replies,
        [Response::Done(Err(error)), Response::Summary(Err(error))]
    );
    let Response::Summary(Ok(summary)) = story.summary(0) else {
        panic!("nothing stands in the way");
    };
    assert_eq!(summary.start_offset, Offset(0));
}

#[test]
fn a_timed_out_write_still_takes_effect() {
    let mut story = Story::new();
    story.initialize(0, 1, 0);
    let now = story.now;
    let write = story.coordinator.write_state(
        ReplyTo::new(ReplyId(1)),
        write_of(0, 7, &[]),
        PARTITIONS,
        now,
    );
    let id = write.writes[0].id;
    let late = story.coordinator.on_write_timed_out(id, now);
    let error = refused(ErrorCode::CoordinatorNotAvailable);
    assert_eq!(late.replies[0].response, Response::Done(Err(error)));
    story.coordinator.on_appended(id, id, Offset(1));
    assert_eq!(
        story
            .coordinator
            .on_records_committed(id, now)
            .replies
            .len(),
        0
    );
    let Response::Summary(Ok(summary)) = story.summary(0) else {
        panic!("nothing stands in the way");
    };
    assert_eq!(summary.start_offset, Offset(7));
}

#[test]
fn records_before_newer_snapshots_are_deleted() {
    let mut story = Story::with(ShareCoordinatorConfig {
        snapshot_update_records_per_snapshot: 1,
        ..Default::default()
    });
    let prune = |story: &mut Story| {
        let outcome = story.coordinator.on_timer(TimerKey::Prune, story.now);
        assert_eq!(outcome.timers.len(), 1);
        outcome.commands
    };
    story.initialize(0, 1, 0);
    assert_eq!(prune(&mut story), []);
    story.initialize(1, 1, 0);
    // Partition 0 is active. Partition 1 keeps the log from offset 1 on.
    for end in 0..4 {
        story.write(write_of(0, 0, &[batch(end, end, 2, 1)]));
    }
    assert_eq!(story.kinds(), "ssusus");
    assert_eq!(prune(&mut story), [Command::DeleteRecordsBefore(Offset(1))]);
    assert_eq!(prune(&mut story), []);
    // After its new snapshot, it does not.
    story.now = Timestamp(story.now.0 + 300_000);
    let outcome = story
        .coordinator
        .on_timer(TimerKey::SnapshotCold, story.now);
    story.commit(outcome);
    assert_eq!(story.kinds(), "ssususss");
    assert_eq!(prune(&mut story), [Command::DeleteRecordsBefore(Offset(6))]);
    let (whole, pruned) = (story.replayed(0), story.replayed(6));
    assert_eq!(
        whole.latest(&key(0)).map(|s| &s.batches),
        pruned.latest(&key(0)).map(|s| &s.batches)
    );
    // If all are inactive, there are no new snapshots.
    story.now = Timestamp(story.now.0 + 300_000);
    let outcome = story
        .coordinator
        .on_timer(TimerKey::SnapshotCold, story.now);
    assert_eq!(outcome.writes.len(), 0);
    // After the last deletion, only its tombstone is left.
    story.delete(0);
    story.delete(1);
    assert_eq!(prune(&mut story), [Command::DeleteRecordsBefore(Offset(9))]);
}

#[test]
fn a_record_that_cannot_be_read_stops_the_loading_and_one_that_is_not_known_does_not() {
    let mut coordinator = ShareCoordinator::new(Arc::default());
    let bytes = |bytes: &'static [u8]| bytes::Bytes::from_static(bytes);
    let unknown = coordinator.replay(Offset(0), &bytes(&[0, 9, 1]), Some(&bytes(&[0, 0, 1])));
    assert!(unknown.is_ok());
    assert!(
        coordinator
            .replay(Offset(1), &bytes(&[0, 0, 0, 9]), None)
            .is_err()
    );
    let mut story = Story::new();
    story.initialize(0, 1, 0);
    let (key, value) = story.log[0].encode().expect("it can be written");
    let value = value.expect("there is one");
    let cut = value.slice(..value.len() - 1);
    assert!(coordinator.replay(Offset(2), &key, Some(&cut)).is_err());
    let newer = bytes(&[0, 99]);
    assert!(coordinator.replay(Offset(3), &key, Some(&newer)).is_ok());
    assert_eq!(WriteId(1).0, 1);
}
