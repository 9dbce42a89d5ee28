//! A new leader continues from the persisted state.

use ottla_types::{LeaderEpoch, Offset};

use super::super::AcknowledgeType::Accept;
use super::super::RecordState::{Acknowledged, Acquired, Archived, Available};
use super::super::{PersistedState, PersistedStateError, SharePartition, SharePartitionSettings};
use super::{Story, persisted};

#[test]
fn unsettled_records_are_delivered_again() {
    let batches = [
        (10, 14, Acknowledged, 1),
        (15, 19, Available, 2),
        (20, 24, Archived, 5),
    ];
    let mut story = Story::restored(10, &batches);
    assert_eq!((story.ends(), story.next_fetch_offset()), ((15, 24), 15));
    assert_eq!(story.partition.delivery_complete_count(), 5);
    assert_eq!(
        story.acquire("a", &[(12, 24), (25, 29)]),
        [(15, 19, 3), (25, 29, 1)]
    );
    story.settle("a", 15, 19, Accept);
    assert_eq!(story.ends(), (25, 29));
}

#[test]
fn everything_settled_leaves_nothing() {
    let story = Story::restored(10, &[(10, 14, Acknowledged, 1), (15, 19, Archived, 1)]);
    assert_eq!((story.ends(), story.in_flight()), ((20, 20), vec![]));
}

#[test]
fn gaps_are_fetched_and_delivered() {
    let batches = [(15, 19, Acknowledged, 1), (25, 29, Available, 1)];
    let mut story = Story::restored(10, &batches);
    assert_eq!((story.ends(), story.next_fetch_offset()), ((10, 29), 10));
    story.max_records = 3;
    assert_eq!(story.acquire("a", &[(10, 29)]), [(10, 14, 1)]);
    assert_eq!(story.next_fetch_offset(), 20);
    story.max_records = 500;
    // The batch of the log with the next gap starts before the gap.
    assert_eq!(
        story.acquire("b", &[(10, 29), (30, 34)]),
        [(20, 24, 1), (25, 29, 2), (30, 34, 1)]
    );
    let in_flight = [
        (10, 14, Acquired, 1),
        (15, 19, Acknowledged, 1),
        (20, 24, Acquired, 1),
        (25, 29, Acquired, 2),
        (30, 34, Acquired, 1),
    ];
    assert_eq!(story.in_flight(), in_flight);
    story.settle("a", 10, 14, Accept);
    assert_eq!(story.ends(), (20, 34));
}

#[test]
fn the_start_does_not_pass_a_gap_that_was_not_fetched() {
    let batches = [(10, 14, Available, 1), (20, 24, Acknowledged, 1)];
    let mut story = Story::restored(10, &batches);
    story.max_records = 5;
    assert_eq!(story.acquire("a", &[(10, 14)]), [(10, 14, 2)]);
    story.settle("a", 10, 14, Accept);
    assert_eq!((story.ends(), story.next_fetch_offset()), ((15, 24), 15));
    // The log has no records there, so it is not a gap.
    assert_eq!(story.acquire("a", &[(25, 29)]), [(25, 29, 1)]);
    story.settle("a", 25, 29, Accept);
    assert_eq!(story.ends(), (30, 30));
}

#[test]
fn state_that_cannot_be_is_refused() {
    let restore = |start_offset, batches: &[super::super::PersistedBatch]| {
        let state = PersistedState {
            state_epoch: 0,
            start_offset: Offset(start_offset),
            batches: batches.to_vec(),
        };
        let settings = SharePartitionSettings::default();
        SharePartition::restore(settings, LeaderEpoch(1), &state).map(|_| ())
    };
    let first = Offset(5);
    assert_eq!(
        restore(10, &[persisted((5, 12, Available, 1))]),
        Err(PersistedStateError::Order {
            first,
            expected: Offset(10)
        })
    );
    assert_eq!(
        restore(
            0,
            &[
                persisted((0, 5, Available, 1)),
                persisted((5, 7, Available, 1))
            ]
        ),
        Err(PersistedStateError::Order {
            first,
            expected: Offset(6)
        })
    );
    for last in [4, i64::MAX, 1 << 40] {
        let last = Offset(last);
        assert_eq!(
            restore(5, &[persisted((5, last.0, Available, 1))]),
            Err(PersistedStateError::Extent { first, last })
        );
    }
    assert_eq!(
        restore(5, &[persisted((5, 1 << 40, Acknowledged, 1))]),
        Ok(())
    );
    assert_eq!(
        restore(5, &[persisted((5, 6, Acquired, 1))]),
        Err(PersistedStateError::State { first, state: 1 })
    );
}

#[test]
fn an_administrator_may_have_set_any_start_offset() {
    for start_offset in [i64::MIN, -5, i64::MAX] {
        let mut story = Story::restored(start_offset, &[]);
        assert!(story.partition.can_acquire_records());
        assert_eq!(story.next_fetch_offset(), start_offset);
        let has_moved = story.partition.on_log_start_offset(Offset(3));
        assert_eq!(has_moved, start_offset < 3);
    }
}
