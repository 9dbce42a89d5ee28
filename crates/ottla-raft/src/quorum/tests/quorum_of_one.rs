use std::collections::BTreeSet;

use ottla_protocol::raft_records::{
    KRaftVersionRecord, LeaderChangeMessage, leader_change_message,
};

use super::*;

/// The only voter, from the bootstrap snapshot or configured.
fn alone(kraft_version: KRaftVersion) -> QuorumOptions {
    let mut control_records = ControlRecordHistory::new(VoterSet::empty());
    match kraft_version {
        KRaftVersion::V0 => control_records.set_static_voters(voters(&[1])),
        KRaftVersion::V1 => {
            let offset = ControlRecordHistory::BOOTSTRAP_OFFSET;
            control_records.set_kraft_version(offset, KRaftVersion::V1);
            control_records.set_voters(offset, voters(&[1]));
        }
    }
    QuorumOptions {
        control_records,
        bootstrap_servers: Vec::new(),
        log: LogState::default(),
        ..options(1, &[1])
    }
}

fn log_of(end: i64, epoch: i32) -> LogState {
    let first = EpochStart {
        epoch: LeaderEpoch(epoch),
        start_offset: Offset(0),
    };
    LogState::new(Offset(0), Offset(end), vec![first], [])
}

fn leader_change() -> ControlRecord {
    let voter = leader_change_message::Voter {
        voter_id: 1,
        ..Default::default()
    };
    ControlRecord::LeaderChange(LeaderChangeMessage {
        leader_id: 1,
        voters: vec![voter.clone()],
        granting_voters: vec![voter],
        ..Default::default()
    })
}

fn election(epoch: i32, leader: Option<i32>) -> ElectionState {
    ElectionState {
        epoch: LeaderEpoch(epoch),
        leader: leader.map(BrokerId),
        voted: None,
        voters: BTreeSet::from([BrokerId(1)]),
    }
}

#[test]
fn a_fresh_quorum_of_one_elects_itself_and_writes_its_voters() {
    let mut story = Story::begin(alone(KRaftVersion::V1));
    assert_eq!(
        story.effects,
        [
            Effect::PersistElectionState(election(1, Some(1))),
            Effect::StartEpoch {
                epoch: LeaderEpoch(1),
                start_offset: Offset(0),
                records: vec![
                    leader_change(),
                    ControlRecord::KRaftVersion(KRaftVersionRecord {
                        kraft_version: 1,
                        ..Default::default()
                    }),
                    ControlRecord::Voters(voters(&[1]).to_record()),
                ],
            },
        ]
    );
    assert_eq!(story.quorum.high_watermark(), None);
    let flushed = |end| Event::LogFlushed {
        end_offset: Offset(end),
    };
    assert_eq!(
        story.step(flushed(3)),
        [
            Effect::AdvanceHighWatermark(Offset(3)),
            Effect::ActivateLeader(LeaderEpoch(1)),
        ]
    );
    assert_eq!(story.step(flushed(3)), []);
    assert_eq!(
        story.step(flushed(7)),
        [Effect::AdvanceHighWatermark(Offset(7))]
    );
    assert_eq!(story.quorum.log_end(), log_end(7, 1));
    // There are no followers to wait for.
    assert_eq!(story.after(1_000_000), []);
    assert_eq!(
        story.quorum.wake_at_ms(),
        u64::MAX,
        "no other node must be notified"
    );
    assert!(story.quorum.is_active_leader());
}

/// Otherwise brokers would apply each change two round trips after the controller has answered, and
/// refuse clients that know of it meanwhile.
#[test]
fn an_observer_receives_records_together_with_their_commit() {
    let mut story = Story::begin(alone(KRaftVersion::V1));
    story.step(Event::LogFlushed {
        end_offset: Offset(3),
    });
    let end = log_end(3, 1);
    let Request::Fetch(mut request) = fetch(7, end, 1) else {
        unreachable!();
    };
    request.high_watermark = end.offset;
    assert_eq!(story.request(Request::Fetch(request)), []);
    let end_offset = end.offset.plus(2);
    story.step(Event::LogFlushed { end_offset });
    let Response::Fetch(response) = story.answer() else {
        panic!("{:?}", story.effects);
    };
    assert_eq!(response.high_watermark, Some(end_offset));
    assert!(matches!(response.data, FetchData::ReadFrom { offset, .. } if offset == end.offset));
}

#[test]
fn a_restart_raises_the_epoch_and_waits_for_its_own_record() {
    let mut control_records = ControlRecordHistory::new(VoterSet::empty());
    control_records.set_kraft_version(Offset(1), KRaftVersion::V1);
    control_records.set_voters(Offset(2), voters(&[1]));
    let mut story = Story::begin(QuorumOptions {
        control_records,
        election: Some(election(4, Some(1))),
        log: log_of(50, 4),
        ..alone(KRaftVersion::V1)
    });
    assert_eq!(
        story.effects,
        [
            Effect::PersistElectionState(election(5, Some(1))),
            Effect::StartEpoch {
                epoch: LeaderEpoch(5),
                start_offset: Offset(50),
                records: vec![leader_change()],
            },
        ]
    );
    let flushed = |end| Event::LogFlushed {
        end_offset: Offset(end),
    };
    assert_eq!(story.step(flushed(50)), [], "nothing of epoch 5 is flushed");
    assert_eq!(
        story.step(flushed(51)),
        [
            Effect::AdvanceHighWatermark(Offset(51)),
            Effect::ActivateLeader(LeaderEpoch(5)),
        ]
    );
}

#[test]
fn the_log_takes_precedence_over_an_older_quorum_state() {
    let story = Story::begin(QuorumOptions {
        election: Some(election(2, Some(1))),
        log: log_of(9, 6),
        ..alone(KRaftVersion::V0)
    });
    assert_eq!(
        story.effects[0],
        Effect::PersistElectionState(election(7, Some(1)))
    );
}

#[test]
fn static_voters_are_not_written() {
    let story = Story::begin(alone(KRaftVersion::V0));
    assert!(
        matches!(&story.effects[1], Effect::StartEpoch { records, .. } if *records == [leader_change()])
    );
}

#[test]
fn a_changed_listener_is_written_to_the_voter_set() {
    let mut moved = voter(1);
    moved.endpoints[0].port = 19093;
    let mut control_records = ControlRecordHistory::new(VoterSet::empty());
    control_records.set_kraft_version(Offset(1), KRaftVersion::V1);
    control_records.set_voters(Offset(2), voters(&[1]));
    let story = Story::begin(QuorumOptions {
        local: moved.clone(),
        control_records,
        log: log_of(9, 6),
        ..alone(KRaftVersion::V1)
    });
    let Effect::StartEpoch { records, .. } = &story.effects[1] else {
        panic!("{:?}", story.effects);
    };
    let voters = VoterSet::new([moved]).expect("voters");
    assert_eq!(records[2], ControlRecord::Voters(voters.to_record()));
    assert_eq!(story.quorum.voters(), &voters);
}

#[test]
fn a_start_without_voters_or_free_epochs_is_refused() {
    let options = QuorumOptions {
        bootstrap_servers: Vec::new(),
        ..options(1, &[1, 2])
    };
    assert_eq!(Quorum::new(options).err(), Some(QuorumError::NobodyToAsk));
    let options = QuorumOptions {
        log: log_of(9, i32::MAX),
        ..alone(KRaftVersion::V1)
    };
    assert_eq!(
        Quorum::new(options).err(),
        Some(QuorumError::NoEpochLeft(LeaderEpoch(i32::MAX)))
    );
}

#[test]
fn a_stop_completes_at_once() {
    let mut story = Story::begin(alone(KRaftVersion::V1));
    story.flush();
    let effects = story.step(Event::ShutdownRequested { timeout_ms: 1000 });
    assert_eq!(effects, [Effect::CompleteShutdown { timed_out: false }]);
}
