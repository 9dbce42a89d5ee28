//! Records that go to the dead-letter queue.

use super::super::AcknowledgeType::{Accept, Gap, Reject, Release};
use super::super::RecordState::{Acknowledged, Acquired, Archived, Archiving, Available};
use super::super::{DeadLetterCause, DeadLetters, SharePartitionSettings};
use super::{LOCK_MS, Story, persisted};
use ottla_types::Offset;

fn story(delivery_count_limit: i32) -> Story {
    Story::with(SharePartitionSettings {
        delivery_count_limit,
        has_dead_letter_queue: true,
        ..Default::default()
    })
}

fn letters(first: i64, last: i64, count: i16, cause: DeadLetterCause) -> DeadLetters {
    DeadLetters {
        first_offset: Offset(first),
        last_offset: Offset(last),
        delivery_count: count,
        cause,
    }
}

fn rejected(first: i64, last: i64) -> DeadLetters {
    letters(first, last, 1, DeadLetterCause::Rejected)
}

fn exceeded(first: i64, last: i64, count: i16) -> DeadLetters {
    letters(first, last, count, DeadLetterCause::DeliveryCountExceeded)
}

#[test]
fn a_rejected_record_is_archived_when_it_was_copied() {
    let mut story = story(5);
    story.acquire("a", &[(0, 9)]);
    let write = story.acknowledge("a", 0, 9, &[Reject]).unwrap().unwrap();
    assert_eq!(write.batches, [persisted((0, 9, Archiving, 1))]);
    assert_eq!(write.delivery_complete_count, 0);
    assert!(!story.partition.has_dead_letters(), "it is not persisted");
    assert!(!story.partition.on_state_written(write.id, true).may_fetch);
    assert_eq!(story.partition.take_dead_letters(), [rejected(0, 9)]);
    assert!(!story.partition.has_dead_letters(), "they were taken");
    // Neither delivered again, nor passed by the start offset.
    assert_eq!((story.ends(), story.next_fetch_offset()), ((0, 9), 10));
    let archived = story
        .partition
        .on_dead_letters_written(&[rejected(0, 9)])
        .unwrap();
    assert_eq!(archived.batches, [persisted((0, 9, Archived, 1))]);
    assert_eq!(archived.delivery_complete_count, 10);
    // Whatever the result of the write.
    assert!(
        story
            .partition
            .on_state_written(archived.id, false)
            .may_fetch
    );
    assert_eq!(story.ends(), (10, 10));
    assert_eq!(story.partition.delivery_complete_count(), 0);
}

#[test]
fn a_rejection_that_is_not_persisted_copies_nothing() {
    let mut story = story(5);
    story.acquire("a", &[(0, 9)]);
    let write = story.acknowledge("a", 0, 9, &[Reject]).unwrap().unwrap();
    story.partition.on_state_written(write.id, false);
    assert!(!story.partition.has_dead_letters());
    assert_eq!(story.in_flight(), [(0, 9, Acquired, 1)]);
}

#[test]
fn only_rejected_records_of_a_batch_are_copied() {
    let mut story = story(5);
    story.acquire("a", &[(0, 5)]);
    let kinds = [Accept, Reject, Reject, Gap, Release, Reject];
    let write = story.acknowledge("a", 0, 5, &kinds).unwrap().unwrap();
    story.partition.on_state_written(write.id, true);
    let taken = story.partition.take_dead_letters();
    assert_eq!(taken, [rejected(1, 2), rejected(5, 5)]);
    story.partition.on_dead_letters_written(&taken[1..]);
    let in_flight = [
        (0, 0, Acknowledged, 1),
        (1, 2, Archiving, 1),
        (3, 3, Archived, 1),
        (4, 4, Available, 1),
        (5, 5, Archived, 1),
    ];
    assert_eq!(story.in_flight(), in_flight);
}

#[test]
fn the_last_delivery_goes_to_the_queue_whatever_its_end() {
    // The lock expires: that need not be persisted.
    let mut late = story(1);
    late.acquire("a", &[(0, 9)]);
    let write = late.wait(LOCK_MS).expect("the lock ran out");
    assert_eq!(write.batches, [persisted((0, 9, Archiving, 1))]);
    late.partition.on_state_written(write.id, false);
    assert_eq!(late.partition.take_dead_letters(), [exceeded(0, 9, 1)]);
    // The member releases the record, or leaves.
    let mut released = story(1);
    released.acquire("a", &[(0, 3), (4, 9)]);
    released.settle("a", 0, 3, Release);
    assert_eq!(released.partition.take_dead_letters(), [exceeded(0, 3, 1)]);
    let write = released.partition.release_acquired_records("a").unwrap();
    released.partition.on_state_written(write.id, true);
    assert_eq!(released.partition.take_dead_letters(), [exceeded(4, 9, 1)]);
}

#[test]
fn a_record_whose_last_lock_expires_during_a_write_that_fails_is_copied() {
    let mut story = story(1);
    story.acquire("a", &[(0, 9)]);
    let kinds = [Reject, Release, Accept, Reject, Gap];
    let write = story.acknowledge("a", 0, 4, &kinds).unwrap().unwrap();
    assert_ne!(story.wait(LOCK_MS), None, "the others are not in a write");
    story.partition.on_state_written(write.id, false);
    assert_eq!(story.partition.take_dead_letters(), [exceeded(0, 4, 1)]);
    assert_eq!(story.partition.delivery_complete_count(), 0);
    assert_eq!(story.in_flight(), [(0, 9, Archiving, 1)]);
    let archived = story
        .partition
        .on_dead_letters_written(&[exceeded(0, 4, 1)]);
    let archived = archived.expect("they are archived");
    assert_eq!(archived.batches, [persisted((0, 4, Archived, 1))]);
    assert_eq!(archived.delivery_complete_count, 5);
}

#[test]
fn a_record_that_the_log_drops_during_a_write_that_fails_is_not_copied() {
    let mut story = story(1);
    story.acquire("a", &[(0, 3), (4, 9)]);
    let write = story.acknowledge("a", 0, 3, &[Reject]).unwrap().unwrap();
    story.wait(LOCK_MS);
    story.partition.on_log_start_offset(Offset(4));
    story.partition.on_state_written(write.id, false);
    assert!(!story.partition.has_dead_letters());
    assert_eq!(story.ends().0, 4);
}

#[test]
fn a_new_leader_copies_archiving_records_again() {
    let batches = [
        (10, 14, Archiving, 2),
        (15, 19, Acknowledged, 1),
        (20, 24, Archiving, 5),
    ];
    let mut story = Story::restored(10, &batches);
    let taken = story.partition.take_dead_letters();
    let first = letters(10, 14, 2, DeadLetterCause::Rejected);
    assert_eq!(taken, [first, exceeded(20, 24, 5)]);
    assert_eq!((story.ends(), story.next_fetch_offset()), ((10, 24), 25));
    let write = story.partition.on_dead_letters_written(&taken).unwrap();
    let archived = [
        persisted((10, 14, Archived, 2)),
        persisted((20, 24, Archived, 5)),
    ];
    assert_eq!(write.batches, archived);
    story.partition.on_state_written(write.id, true);
    assert_eq!(story.ends(), (25, 25));
}

#[test]
fn records_that_the_log_drops_during_the_copy_are_archived() {
    let mut story = story(5);
    story.acquire("a", &[(0, 9)]);
    story.settle("a", 0, 9, Reject);
    story.partition.on_log_start_offset(Offset(5));
    let taken = story.partition.take_dead_letters();
    let write = story.partition.on_dead_letters_written(&taken).unwrap();
    assert_eq!(write.batches, [persisted((0, 9, Archived, 1))]);
    assert_eq!(
        (write.start_offset, write.delivery_complete_count),
        (Offset(5), 5)
    );
    story.partition.on_state_written(write.id, true);
    assert_eq!((story.ends(), story.in_flight()), ((10, 10), vec![]));
}
