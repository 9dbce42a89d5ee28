//! A log that may lack records although it has later ones.

use super::*;

/// A log that ends at 10, from which a crash may have taken records at 6.
fn in_doubt() -> Story {
    let mut story = Story::with_log(10, 8, Some(3));
    story.replica = story.replica.doubtful_from(Some(Offset(6)));
    story
}

/// The fetch that asks whether the leader is there.
fn fetch_in_doubt() -> Effect<u32> {
    Effect::Fetch(FetchPosition {
        leader: BrokerId(2),
        leader_epoch: LeaderEpoch(4),
        fetch_offset: Offset(6),
        last_fetched_epoch: None,
        is_in_sync: false,
    })
}

#[test]
fn what_a_crash_may_have_taken_is_fetched_again() {
    let mut story = in_doubt();
    assert_eq!(story.follow(2, 4, 1), [fetch_in_doubt()]);
    assert_eq!(
        story.answer(6, records(&[(6, 4, 4)], 10)),
        [Effect::TruncateLog { to: Offset(6) }]
    );
    assert_eq!(story.truncated(6, Some(3)), [fetch_from(6, 3)]);
    assert!(!story.replica.is_in_doubt());
    // Only once.
    story.answer(6, records(&[(6, 4, 4)], 10));
    story.written(10);
    assert!(matches!(story.follow(2, 5, 2)[..], [Effect::Fetch(order)]
        if order.fetch_offset == Offset(10)));
}

/// This log may be the only one that is left.
#[test]
fn nothing_is_truncated_before_the_leader_has_answered() {
    let mut story = in_doubt();
    story.follow(2, 4, 1);
    assert_eq!(story.answer(6, Err(ErrorCode::NetworkException)), []);
    story.fetches_again_later(fetch_in_doubt());
    // An answer to a fetch from the end, of an earlier process.
    assert_eq!(story.answer(10, records(&[], 10)), []);
    assert_eq!(story.replica.log_end_offset(), Offset(10));
    assert!(story.replica.is_in_doubt());
}

#[test]
fn a_truncation_in_doubt_that_is_refused_is_asked_for_again() {
    let mut story = in_doubt();
    story.follow(2, 4, 1);
    story.answer(6, records(&[(6, 4, 4)], 10));
    assert_eq!(story.step(Event::TruncationRefused), []);
    story.fetches_again_later(fetch_in_doubt());
    assert!(story.replica.is_in_doubt());
}

#[test]
fn a_leader_without_the_doubtful_offset_ends_the_doubt() {
    // It has deleted the offset, though not all that follows; or it was elected uncleanly.
    let deleted: Effect<u32> = Effect::TruncateLogFully {
        start_at: Offset(8),
    };
    let lacking: Effect<u32> = Effect::TruncateLog { to: Offset(4) };
    for ((start, end), truncation, continues_at) in [((8, 20), deleted, 8), ((0, 4), lacking, 4)] {
        let mut story = in_doubt();
        story.follow(2, 4, 1);
        let out_of_range = Err(ErrorCode::OffsetOutOfRange);
        assert_eq!(story.answer(6, out_of_range), [LIST_OFFSETS]);
        assert_eq!(story.listed(Ok((start, end))), [truncation]);
        let effects = story.step(Event::LogTruncated {
            log_start_offset: Offset(start),
            log_end_offset: Offset(continues_at),
            latest_epoch: None,
        });
        assert!(!story.replica.is_in_doubt());
        assert!(matches!(effects[..], [Effect::Fetch(order)]
            if order.fetch_offset == Offset(continues_at)));
    }
}

#[test]
fn a_leader_keeps_what_it_has_around_a_gap() {
    let mut story = in_doubt();
    story.step(elected(2));
    assert_eq!(story.replica.log_end_offset(), Offset(10));
    let effects = story.follow(2, 6, 3);
    assert!(matches!(effects[..], [Effect::Fetch(order)] if order.fetch_offset == Offset(10)));
}
