//! Records that the leader has only in remote storage.

use super::*;

#[test]
fn records_that_are_only_remote_are_passed_over_with_their_state() {
    const FETCH_STATE: Effect<u32> = Effect::FetchRemoteState {
        leader: BrokerId(2),
        leader_epoch: LeaderEpoch(4),
    };
    let moved = || Err(ErrorCode::OffsetMovedToTieredStorage);
    let mut story = Story::following();
    assert_eq!(story.answer(10, moved()), [FETCH_STATE]);
    assert_eq!(story.answer(10, records(&[], 10)), [], "meanwhile");
    let fetched = |story: &mut Story, leader_epoch, result| {
        let now_ms = story.now_ms;
        story.step(Event::RemoteStateFetched {
            leader_epoch: LeaderEpoch(leader_epoch),
            result,
            now_ms,
        })
    };
    assert_eq!(fetched(&mut story, 3, Ok(())), [], "of an older epoch");
    // The log does not change until the state is fetched.
    let failed = Err(ErrorCode::KafkaStorageError);
    assert_eq!(fetched(&mut story, 4, failed), []);
    story.fetches_again_later(fetch_from(10, 3));
    assert_eq!(story.answer(10, moved()), [FETCH_STATE]);
    assert_eq!(
        fetched(&mut story, 4, Ok(())),
        [Effect::StartAfterRemoteLog]
    );
    let effects = story.step(Event::LogTruncated {
        log_start_offset: Offset(0),
        log_end_offset: Offset(50),
        latest_epoch: Some(LeaderEpoch(4)),
    });
    assert_eq!(effects, [fetch_from(50, 4)]);
}
