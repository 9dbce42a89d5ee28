use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::{
    AuxiliaryEffect, AuxiliaryEvent, AuxiliaryFailure, AuxiliaryState, FetchedIndex, ListedOffset,
    OffsetAndEpoch, Restart,
};
use crate::test_segments::{cache_of, segment};
use crate::{LeaderEpochs, RemoteLogMetadataCache, StoreFailure};

/// A leader with epochs 0 from 20, 1 from 85, 3 from 90 and 4 from 98, whose log starts at 20 and
/// ends at 120.
struct Leader {
    local_start: (i64, i32),
    pending_upload: (i64, i32),
    end: i64,
}

fn epochs() -> LeaderEpochs {
    LeaderEpochs::from([(0, 20), (1, 85), (3, 90), (4, 98)])
}

fn remote() -> RemoteLogMetadataCache {
    let of = |start, end: i64| epochs().in_range(Some(Offset(start)), Offset(end + 1));
    cache_of(&[
        segment(1, 20, 89, of(20, 89)),
        segment(2, 90, 95, of(90, 95)),
        segment(3, 96, 110, of(96, 110)),
    ])
}

/// The requests of a follower, and its end.
fn story(
    leader: &Leader,
    end: i64,
    is_last_tiered: bool,
    cache: Option<&RemoteLogMetadataCache>,
) -> (Vec<String>, Result<Restart, AuxiliaryFailure>) {
    let (mut state, mut effect) = AuxiliaryState::begin(Offset(end), is_last_tiered);
    let mut steps = Vec::new();
    loop {
        let listed = |(offset, epoch): (i64, i32)| OffsetAndEpoch {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(epoch),
        };
        let event = match effect {
            AuxiliaryEffect::ListOffsets(which) => {
                steps.push(format!("list {}", which.timestamp()));
                AuxiliaryEvent::OffsetListed(Ok(listed(match which {
                    ListedOffset::Latest => (leader.end, 4),
                    ListedOffset::Earliest => (20, 0),
                    ListedOffset::EarliestLocal => leader.local_start,
                    ListedOffset::EarliestPendingUpload => leader.pending_upload,
                })))
            }
            AuxiliaryEffect::FindEpochEnd { leader_epoch } => {
                steps.push(format!("end of {leader_epoch}"));
                let (epoch, end) = epochs().end_offset_for(leader_epoch, Offset(120)).unwrap();
                AuxiliaryEvent::EpochEndFound(Ok(listed((end.0, epoch.0))))
            }
            AuxiliaryEffect::FetchIndex { segment, index } => {
                steps.push(format!("{index:?} of {}", segment.start_offset));
                let below = epochs().in_range(None, segment.next_offset());
                AuxiliaryEvent::IndexFetched(Ok(match index {
                    FetchedIndex::LeaderEpoch => below.to_checkpoint().into_bytes(),
                    FetchedIndex::ProducerSnapshot => b"producers".to_vec(),
                }))
            }
            AuxiliaryEffect::Restart(restart) => return (steps, Ok(*restart)),
            AuxiliaryEffect::Failed(failure) => return (steps, Err(failure)),
        };
        effect = state.step(event, cache);
    }
}

const LEADER: Leader = Leader {
    local_start: (90, 3),
    pending_upload: (111, 4),
    end: 120,
};

#[test]
fn a_follower_starts_with_the_leaders_local_log() {
    let (steps, restart) = story(&LEADER, 30, false, Some(&remote()));
    // The epoch before 3 is 1, which ends at 90.
    let expected = [
        "list -2",
        "list -4",
        "end of 2",
        "LeaderEpoch of 20",
        "ProducerSnapshot of 20",
    ];
    assert_eq!(steps, expected);
    let restart = restart.unwrap();
    assert_eq!(restart.next_offset, Offset(90));
    assert_eq!(restart.log_start_offset, Offset(20));
    assert_eq!(
        restart.leader_epochs,
        LeaderEpochs::from([(0, 20), (1, 85)])
    );
    assert_eq!(restart.producer_snapshot.unwrap(), b"producers");
}

#[test]
fn a_log_never_begins_at_an_unknown_offset() {
    let leader = Leader {
        local_start: (-1, -1),
        ..LEADER
    };
    let (_, restart) = story(&leader, 30, false, Some(&remote()));
    assert_eq!(restart, Err(AuxiliaryFailure::NoOffset));
}

#[test]
fn the_local_start_may_be_within_an_epoch() {
    let leader = Leader {
        local_start: (96, 3),
        ..LEADER
    };
    let (_, restart) = story(&leader, 0, false, Some(&remote()));
    assert_eq!(restart.unwrap().next_offset, Offset(96));
    // The segment contains more than the records before the local start.
    let leader = Leader {
        local_start: (100, 4),
        ..LEADER
    };
    let (_, restart) = story(&leader, 0, false, Some(&remote()));
    assert_eq!(restart.unwrap().next_offset, Offset(111));
}

#[test]
fn an_empty_follower_may_start_after_the_last_upload() {
    let (steps, restart) = story(&LEADER, 0, true, Some(&remote()));
    assert_eq!(steps[..4], ["list -1", "list -2", "list -6", "end of 3"]);
    assert_eq!(restart.unwrap().next_offset, Offset(111));
    let (steps, _) = story(&LEADER, 1, true, Some(&remote()));
    assert_eq!(steps[..2], ["list -2", "list -4"], "not empty");
    let empty = Leader { end: 0, ..LEADER };
    let (steps, _) = story(&empty, 0, true, Some(&remote()));
    assert_eq!(steps[..3], ["list -1", "list -2", "list -4"]);
}

#[test]
fn a_leader_without_the_earliest_pending_upload_offset() {
    let unknown = Leader {
        pending_upload: (-1, -1),
        ..LEADER
    };
    let (steps, failure) = story(&unknown, 0, true, Some(&remote()));
    assert_eq!(steps, ["list -1", "list -2", "list -6", "list -4"]);
    assert_eq!(failure, Err(AuxiliaryFailure::NoPendingUpload));
    let nothing_tiered = Leader {
        local_start: (20, 0),
        ..unknown
    };
    let (_, restart) = story(&nothing_tiered, 0, true, Some(&remote()));
    let restart = restart.unwrap();
    assert_eq!(
        (restart.next_offset, restart.producer_snapshot),
        (Offset(20), None)
    );
}

#[test]
fn failures_change_nothing() {
    let (_, failure) = story(&LEADER, 0, false, None);
    assert_eq!(failure, Err(AuxiliaryFailure::NotReady));
    let (_, failure) = story(&LEADER, 0, false, Some(&cache_of(&[])));
    let missing = AuxiliaryFailure::NoSegment {
        leader_epoch: LeaderEpoch(1),
        offset: Offset(89),
    };
    assert_eq!(failure, Err(missing));

    let (mut state, _) = AuxiliaryState::begin(Offset(0), false);
    let fenced = Err(ErrorCode::FencedLeaderEpoch);
    assert_eq!(
        state.step(AuxiliaryEvent::OffsetListed(fenced), None),
        AuxiliaryEffect::Failed(AuxiliaryFailure::Leader(ErrorCode::FencedLeaderEpoch))
    );

    let remote = remote();
    let (mut state, _) = AuxiliaryState::begin(Offset(0), false);
    let listed = |offset, epoch| {
        AuxiliaryEvent::OffsetListed(Ok(OffsetAndEpoch {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(epoch),
        }))
    };
    state.step(listed(20, 0), Some(&remote));
    state.step(listed(60, 0), Some(&remote));
    let failure = state.step(
        AuxiliaryEvent::IndexFetched(Err(StoreFailure::Retriable)),
        Some(&remote),
    );
    let expected = AuxiliaryFailure::Store(StoreFailure::Retriable);
    assert_eq!(failure, AuxiliaryEffect::Failed(expected));
}
