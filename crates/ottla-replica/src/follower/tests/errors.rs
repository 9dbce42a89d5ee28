//! Errors of the leader.

use super::*;

#[test]
fn errors_are_tried_again_later() {
    use ErrorCode as E;
    for error in [
        E::InconsistentTopicId,
        E::KafkaStorageError,
        E::CorruptMessage,
        E::NetworkException,
        E::UnknownServerError,
    ] {
        let mut story = Story::following();
        assert_eq!(story.answer(10, Err(error)), [], "{error:?}");
        assert_eq!(
            story.answer(10, records(&[(10, 1, 4)], 11)),
            [],
            "{error:?}"
        );
        story.fetches_again_later(fetch_from(10, 3));
    }
}

#[test]
fn a_leader_whose_metadata_is_behind_is_asked_again_soon() {
    use ErrorCode as E;
    for error in [
        E::UnknownLeaderEpoch,
        E::NotLeaderOrFollower,
        E::UnknownTopicOrPartition,
        E::UnknownTopicId,
    ] {
        let mut story = Story::following();
        for backoff_ms in [5, 10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS] {
            assert_eq!(story.answer(10, Err(error)), [], "{error:?}");
            assert_eq!(
                story.answer(10, records(&[(10, 1, 4)], 11)),
                [],
                "{error:?}"
            );
            story.fetches_again_after(backoff_ms, fetch_from(10, 3));
        }
        // After a response, the backoff starts again at its minimum.
        let effects = story.answer(10, records(&[], 10));
        assert_eq!(effects.last(), Some(&fetch_in_sync_from(10, 3)));
        story.answer(10, Err(error));
        story.fetches_again_after(5, fetch_in_sync_from(10, 3));
    }
}
