//! Acquiring records that were read.

use ottla_types::{Offset, ProducerId};

use super::super::AcknowledgeType::{Accept, Release};
use super::super::RecordState::{Acknowledged, Acquired, Archived, Available};
use super::super::{
    AbortedTransaction, AcquireMode, FetchedBatch, SharePartitionSettings, aborted_batches,
};
use super::{LOCK_MS, Story};

#[test]
fn whole_batches_are_acquired_and_the_next_fetch_follows_them() {
    let mut story = Story::new();
    assert_eq!(story.next_fetch_offset(), 0);
    assert_eq!(story.acquire("a", &[(0, 9), (10, 14)]), [(0, 14, 1)]);
    assert_eq!(story.ends(), (0, 14));
    assert_eq!(story.next_fetch_offset(), 15);
    assert_eq!(story.acquire("b", &[(15, 15)]), [(15, 15, 1)]);
    assert_eq!(story.acquire_at("b", 0, &[(0, 9), (10, 14)]), []);
}

#[test]
fn the_limit_ends_at_a_batch_of_the_log() {
    let mut story = Story::new();
    story.max_records = 12;
    assert_eq!(
        story.acquire("a", &[(0, 9), (10, 14), (15, 20)]),
        [(0, 14, 1)]
    );
    assert_eq!(story.next_fetch_offset(), 15);
}

#[test]
fn batches_are_about_as_large_as_wanted() {
    let mut story = Story::new();
    story.batch_size = 5;
    let log = [(0, 2), (3, 5), (6, 8), (9, 20)];
    assert_eq!(story.acquire("a", &log), [(0, 5, 1), (6, 20, 1)]);
}

#[test]
fn a_strict_limit_cuts_a_batch() {
    let mut story = Story::new();
    story.mode = AcquireMode::RecordLimit;
    story.max_records = 4;
    assert_eq!(story.acquire("a", &[(0, 9)]), [(0, 3, 1)]);
    assert_eq!(story.next_fetch_offset(), 4);
    assert_eq!(story.acquire("b", &[(0, 9), (10, 19)]), [(4, 7, 1)]);
    assert_eq!(
        story.acquire("a", &[(0, 9), (10, 19)]),
        [(8, 9, 1), (10, 11, 1)]
    );
    assert_eq!(story.next_fetch_offset(), 12);
    assert_eq!(story.ends(), (0, 19));
}

#[test]
fn released_records_are_given_again_and_counted() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9), (10, 19)]);
    story.settle("a", 5, 12, Release);
    assert_eq!(story.next_fetch_offset(), 5);
    assert_eq!(
        story.acquire("b", &[(0, 9), (10, 19), (20, 24)]),
        [(5, 12, 2), (20, 24, 1)]
    );
    assert_eq!(story.next_fetch_offset(), 25);
}

#[test]
fn the_number_of_locked_records_is_limited() {
    let mut story = Story::with(SharePartitionSettings {
        partition_max_record_locks: 20,
        ..Default::default()
    });
    assert_eq!(
        story.acquire("a", &[(0, 9), (10, 14), (15, 29)]),
        [(0, 29, 1)]
    );
    assert!(!story.partition.can_acquire_records());
    assert_eq!(story.acquire("a", &[(30, 39)]), []);
    // Only records that are available again can be acquired.
    story.settle("a", 20, 29, Release);
    assert!(story.partition.can_acquire_records());
    assert_eq!(story.acquire("b", &[(15, 29), (30, 39)]), [(20, 29, 2)]);
    // There is space again when the start offset moves.
    story.settle("a", 0, 14, Accept);
    assert_eq!(story.ends(), (15, 29));
    assert!(story.partition.can_acquire_records());
}

#[test]
fn a_batch_that_fails_often_is_given_in_parts_and_its_last_delivery_alone() {
    let mut story = Story::new();
    let log = [(0, 7)];
    for count in 1..=2 {
        assert_eq!(story.acquire("a", &log), [(0, 7, count)]);
        story.wait(LOCK_MS);
    }
    assert_eq!(story.acquire("a", &log), [(0, 7, 3)]);
    story.wait(LOCK_MS);
    // Three of five deliveries are used: only half of the batch is delivered, although there are
    // more records.
    assert_eq!(story.acquire("a", &[(0, 7), (8, 9)]), [(0, 3, 4)]);
    assert_eq!(story.acquire("a", &[(0, 7), (8, 9)]), [(4, 7, 4)]);
    assert_eq!(story.acquire("a", &[(0, 7), (8, 9)]), [(8, 9, 1)]);
    story.wait(LOCK_MS);
    for offset in 0..8 {
        assert_eq!(story.acquire("a", &[(0, 7), (8, 9)]), [(offset, offset, 5)]);
    }
    story.wait(LOCK_MS);
    assert_eq!(
        story.in_flight(),
        [(0, 7, Archived, 5), (8, 9, Available, 1)]
    );
}

#[test]
fn compacted_offsets_are_skipped() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9), (10, 19)]);
    story.settle("a", 0, 19, Release);
    // The first ten records are not in the log any more.
    assert_eq!(story.acquire("b", &[(10, 19)]), [(10, 19, 2)]);
    let in_flight = vec![(0, 9, Archived, 1), (10, 19, Acquired, 2)];
    assert_eq!((story.ends(), story.in_flight()), ((10, 19), in_flight));
    let mut story = Story::new();
    story.batch_size = 1;
    story.acquire("a", &[(0, 9), (10, 19)]);
    story.settle("a", 0, 19, Release);
    assert_eq!(story.acquire("b", &[(10, 19)]), [(10, 19, 2)]);
    assert_eq!(
        (story.ends(), story.in_flight()),
        ((10, 19), vec![(10, 19, Acquired, 2)])
    );
    story.settle("b", 10, 19, Accept);
    assert_eq!(story.ends(), (20, 20));
}

#[test]
fn the_first_fetch_skips_a_gap_in_the_log() {
    let mut story = Story::new();
    assert_eq!(story.acquire("a", &[(5, 9)]), [(5, 9, 1)]);
    assert_eq!(story.ends(), (5, 9));
}

fn transactional(base: i64, last: i64, producer: i64) -> FetchedBatch {
    FetchedBatch {
        base_offset: Offset(base),
        last_offset: Offset(last),
        producer_id: ProducerId(producer),
        is_transactional: true,
        is_abort_marker: false,
    }
}

#[test]
fn aborted_batches_are_those_between_the_beginning_and_the_marker() {
    let abort = FetchedBatch {
        is_abort_marker: true,
        ..transactional(6, 6, 1)
    };
    let batches = [
        transactional(0, 1, 1),
        transactional(2, 3, 2),
        transactional(4, 5, 1),
        abort,
        transactional(7, 8, 1),
    ];
    let aborted = [AbortedTransaction {
        producer_id: ProducerId(1),
        first_offset: Offset(0),
    }];
    let found: Vec<i64> = aborted_batches(&batches, &aborted)
        .iter()
        .map(|batch| batch.base_offset.0)
        .collect();
    assert_eq!(found, [0, 4]);
}

#[test]
fn aborted_records_are_archived_and_not_shown() {
    let mut story = Story::new();
    story.aborted = vec![AbortedTransaction {
        producer_id: ProducerId(1),
        first_offset: Offset(3),
    }];
    let member = "a".into();
    let log = [
        transactional(0, 2, 2),
        transactional(3, 4, 1),
        transactional(5, 9, 2),
    ];
    let acquired = story.partition.acquire(super::super::AcquireRequest {
        member: &member,
        mode: AcquireMode::BatchOptimized,
        batch_size: 100,
        max_records: 100,
        fetch_offset: Offset(0),
        batches: &log,
        aborted_transactions: &story.aborted,
        now_ms: 0,
    });
    let visible: Vec<(i64, i64)> = acquired
        .batches
        .iter()
        .map(|batch| (batch.first_offset.0, batch.last_offset.0))
        .collect();
    assert_eq!((visible, acquired.records), (vec![(0, 2), (5, 9)], 8));
    assert_eq!(
        story.in_flight(),
        [
            (0, 2, Acquired, 1),
            (3, 4, Archived, 1),
            (5, 9, Acquired, 1)
        ]
    );
    assert_eq!(story.partition.delivery_complete_count(), 2);
    story.settle("a", 0, 2, Accept);
    assert_eq!(story.ends(), (5, 9));
    assert_eq!(story.in_flight().last(), Some(&(5, 9, Acquired, 1)));
    story.settle("a", 5, 9, Accept);
    assert_eq!(story.in_flight(), []);
    assert_eq!(Acknowledged.id(), 2);
}
