//! Acknowledging acquired records.

use super::super::AcknowledgeType::{Accept, Gap, Reject, Release, Renew};
use super::super::RecordState::{Acknowledged, Acquired, Archived, Available};
use super::super::{AcknowledgeError, AcknowledgementBatch, SharePartitionSettings};
use super::{LOCK_MS, Story, persisted};
use ottla_types::Offset;

#[test]
fn the_start_moves_when_acceptance_is_persisted() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    story.acquire("a", &[(10, 19)]);
    let write = story.acknowledge("a", 0, 9, &[Accept]).unwrap().unwrap();
    assert_eq!(write.batches, [persisted((0, 9, Acknowledged, 1))]);
    assert_eq!(
        (write.start_offset, write.delivery_complete_count),
        (Offset(0), 10)
    );
    assert_eq!((write.state_epoch, write.leader_epoch.0), (3, 7));
    assert_eq!(story.ends(), (0, 19));
    assert!(story.partition.on_state_written(write.id, true).may_fetch);
    assert_eq!(story.ends(), (10, 19));
    assert_eq!(story.partition.delivery_complete_count(), 0);
    story.settle("a", 10, 19, Reject);
    assert_eq!((story.ends(), story.in_flight()), ((20, 20), vec![]));
    assert_eq!(story.next_fetch_offset(), 20);
}

#[test]
fn a_write_that_fails_leaves_the_record_with_its_member() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    let write = story.acknowledge("a", 0, 9, &[Accept]).unwrap().unwrap();
    let again = story.acknowledge("a", 0, 9, &[Accept]);
    assert_eq!(again, Err(AcknowledgeError::BatchNotAcquired));
    assert!(!story.partition.on_state_written(write.id, false).may_fetch);
    assert_eq!(story.in_flight(), [(0, 9, Acquired, 1)]);
    assert_eq!(story.partition.delivery_complete_count(), 0);
    story.settle("a", 0, 9, Accept);
    assert_eq!(story.ends(), (10, 10));
}

#[test]
fn a_failed_write_frees_a_record_whose_lock_has_expired() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    let write = story.acknowledge("a", 0, 9, &[Accept]).unwrap().unwrap();
    assert_eq!(story.wait(LOCK_MS), None);
    assert!(story.partition.on_state_written(write.id, false).may_fetch);
    assert_eq!(story.in_flight(), [(0, 9, Available, 1)]);
    assert_eq!(story.acquire("b", &[(0, 9)]), [(0, 9, 2)]);
}

#[test]
fn records_of_one_batch_may_end_differently() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 3), (4, 5)]);
    let kinds = [Accept, Gap, Release, Reject];
    let write = story.acknowledge("a", 0, 3, &kinds).unwrap().unwrap();
    let batches = [
        persisted((0, 0, Acknowledged, 1)),
        persisted((1, 1, Archived, 1)),
        persisted((2, 2, Available, 1)),
        persisted((3, 3, Archived, 1)),
    ];
    assert_eq!(write.batches, batches);
    // Not before it is persisted.
    assert_eq!(story.next_fetch_offset(), 6);
    story.partition.on_state_written(write.id, true);
    assert_eq!((story.ends(), story.next_fetch_offset()), ((2, 5), 2));
    assert_eq!(story.acquire("b", &[(0, 3), (4, 5)]), [(2, 2, 2)]);
}

#[test]
fn invalid_acknowledgements_are_refused() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    story.acquire("a", &[(10, 19)]);
    for (member, first, last, error) in [
        ("b", 0, 9, AcknowledgeError::NotOwnerOfBatch),
        ("a", 15, 25, AcknowledgeError::LastBehindAcquired),
        ("a", 20, 25, AcknowledgeError::FirstBehindAcquired),
    ] {
        assert_eq!(
            story.acknowledge(member, first, last, &[Accept]),
            Err(error)
        );
    }
    story.settle("a", 12, 13, Release);
    for (member, first, last, error) in [
        ("a", 10, 19, AcknowledgeError::OffsetNotAcquired),
        ("b", 10, 11, AcknowledgeError::NotOwnerOfOffset),
    ] {
        assert_eq!(
            story.acknowledge(member, first, last, &[Accept]),
            Err(error)
        );
    }
    story.settle("a", 0, 9, Release);
    assert_eq!(
        story.acknowledge("a", 2, 3, &[Accept]),
        Err(AcknowledgeError::BatchNotAcquired)
    );
    // All refused acknowledgements have changed nothing.
    let in_flight = [
        (0, 9, Available, 1),
        (10, 11, Acquired, 1),
        (12, 13, Available, 1),
        (14, 19, Acquired, 1),
    ];
    assert_eq!(story.in_flight(), in_flight);
    assert_eq!(story.partition.delivery_complete_count(), 0);
}

#[test]
fn one_bad_batch_reverts_the_whole_acknowledgement() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    story.acquire("b", &[(10, 19)]);
    let batches = [(0, 9), (10, 19)].map(|(first, last)| AcknowledgementBatch {
        first_offset: Offset(first),
        last_offset: Offset(last),
        types: vec![Accept],
    });
    let refused = story.partition.acknowledge("a", &batches, story.now_ms);
    assert_eq!(refused, Err(AcknowledgeError::NotOwnerOfBatch));
    assert_eq!(story.in_flight(), [(0, 19, Acquired, 1)]);
    assert_eq!(story.partition.delivery_complete_count(), 0);
    story.settle("a", 0, 9, Accept);
}

#[test]
fn acknowledging_records_before_the_start_has_no_effect() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    story.settle("a", 0, 9, Accept);
    assert_eq!(story.acknowledge("a", 0, 9, &[Accept]), Ok(None));
}

#[test]
fn a_lock_that_is_renewed_lasts_longer_and_nothing_is_persisted() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    assert_eq!(story.wait(LOCK_MS - 1), None);
    assert_eq!(story.acknowledge("a", 0, 9, &[Renew]), Ok(None));
    assert_eq!(story.wait(LOCK_MS - 1), None);
    assert_eq!(story.acknowledge("a", 0, 3, &[Renew]), Ok(None));
    let write = story.wait(1).expect("the rest ran out");
    assert_eq!(write.batches, [persisted((4, 9, Available, 1))]);
    assert_eq!(
        story.in_flight(),
        [(0, 3, Acquired, 1), (4, 9, Available, 1)]
    );

    story.partition.configure(SharePartitionSettings {
        renew_acknowledge_enable: false,
        ..Default::default()
    });
    let refused = story.acknowledge("a", 0, 3, &[Renew]);
    assert_eq!(refused, Err(AcknowledgeError::RenewalDisabled));
}

#[test]
fn locks_run_out_and_the_last_delivery_archives() {
    let mut story = Story::with(SharePartitionSettings {
        delivery_count_limit: 2,
        ..Default::default()
    });
    story.acquire("a", &[(0, 9)]);
    assert_eq!(
        story.partition.next_lock_deadline_ms(),
        Some(story.now_ms + LOCK_MS)
    );
    let write = story.wait(LOCK_MS).expect("the lock ran out");
    // Whatever the result of the write, the records are available again.
    assert_eq!(story.next_fetch_offset(), 0);
    story.partition.on_state_written(write.id, false);
    assert_eq!(story.acquire("b", &[(0, 9)]), [(0, 9, 2)]);
    let late = story.acknowledge("a", 0, 9, &[Accept]);
    assert_eq!(late, Err(AcknowledgeError::NotOwnerOfBatch));
    let write = story.wait(LOCK_MS).expect("the lock ran out");
    assert_eq!(write.batches, [persisted((0, 9, Archived, 2))]);
    assert_eq!(write.delivery_complete_count, 10);
    story.partition.on_state_written(write.id, true);
    assert_eq!(story.ends(), (10, 10));
    assert_eq!(story.wait(LOCK_MS), None);
}

#[test]
fn records_of_a_member_that_leaves_become_available() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    story.acquire("b", &[(10, 19)]);
    story.settle("a", 0, 4, Accept);
    let write = story.partition.release_acquired_records("a").unwrap();
    assert_eq!(write.batches, [persisted((5, 9, Available, 1))]);
    assert_eq!(story.next_fetch_offset(), 20);
    assert!(story.partition.on_state_written(write.id, true).may_fetch);
    assert_eq!(story.next_fetch_offset(), 5);
    assert_eq!(story.partition.release_acquired_records("a"), None);
}

#[test]
fn the_log_may_be_cut_under_records_in_hand() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    story.acquire("a", &[(10, 19)]);
    story.settle("a", 10, 19, Release);
    assert!(story.partition.on_log_start_offset(Offset(15)));
    assert!(!story.partition.on_log_start_offset(Offset(15)));
    assert_eq!((story.ends(), story.next_fetch_offset()), ((15, 19), 15));
    let in_flight = [
        (0, 9, Acquired, 1),
        (10, 14, Archived, 1),
        (15, 19, Available, 1),
    ];
    assert_eq!(story.in_flight(), in_flight);
    assert_eq!(story.acknowledge("a", 0, 9, &[Accept]), Ok(None));
    let write = story.wait(LOCK_MS).expect("the lock ran out");
    assert_eq!(write.batches, [persisted((0, 9, Archived, 1))]);
    story.partition.on_state_written(write.id, true);
    assert_eq!(story.ends(), (15, 19));
    assert_eq!(story.partition.delivery_complete_count(), 0);
    assert_eq!(story.acquire("b", &[(10, 19)]), [(15, 19, 2)]);
}

#[test]
fn the_start_offset_follows_the_log_start_past_all_records() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    story.partition.on_log_start_offset(Offset(15));
    assert_eq!(story.ends(), (15, 15));
    let write = story.wait(LOCK_MS).expect("the lock ran out");
    story.partition.on_state_written(write.id, true);
    assert_eq!((story.ends(), story.next_fetch_offset()), ((15, 15), 15));
}

#[test]
fn a_failed_write_archives_records_before_the_log_start() {
    let mut story = Story::new();
    story.acquire("a", &[(0, 9)]);
    let write = story.acknowledge("a", 0, 9, &[Accept]).unwrap().unwrap();
    story.partition.on_log_start_offset(Offset(5));
    story.wait(LOCK_MS);
    story.partition.on_state_written(write.id, false);
    assert_eq!(
        story.in_flight(),
        [(0, 4, Archived, 1), (5, 9, Available, 1)]
    );
    assert_eq!(story.next_fetch_offset(), 5);
}
