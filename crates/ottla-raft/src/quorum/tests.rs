use bytestring::ByteString;
use ottla_protocol::raft_records::leader_change_message;
use ottla_types::Uuid;

use super::*;
use crate::VoterEndpoint;

fn local() -> Voter {
    Voter {
        key: ReplicaKey::new(BrokerId(1), Uuid::from_u128(100)),
        endpoints: vec![VoterEndpoint {
            name: ByteString::from_static("CONTROLLER"),
            host: ByteString::from_static("localhost"),
            port: 9093,
        }],
        supported_kraft_versions: (0, 1),
    }
}

fn options(kraft_version: KRaftVersion) -> QuorumOptions {
    QuorumOptions {
        local: local(),
        kraft_version,
        voters: VoterSet::new([local()]).unwrap(),
        are_voters_in_log: false,
        election: None,
        log_end: LogEnd {
            offset: Offset(0),
            epoch: LeaderEpoch(0),
        },
    }
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
        voted: Some(local().key),
        voters: BTreeSet::from([BrokerId(1)]),
    }
}

#[test]
fn a_fresh_quorum_of_one_elects_itself_and_writes_its_voters() {
    let mut quorum = Quorum::new(options(KRaftVersion::V1)).unwrap();
    let voters = VoterSet::new([local()]).unwrap().to_record();
    assert_eq!(
        quorum.start(),
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
                    ControlRecord::Voters(voters),
                ],
            },
        ]
    );
    assert_eq!(quorum.high_watermark(), None);
    assert_eq!(
        quorum.on_log_flushed(Offset(3)),
        [
            Effect::AdvanceHighWatermark(Offset(3)),
            Effect::ActivateLeader(LeaderEpoch(1)),
        ]
    );
    assert_eq!(quorum.on_log_flushed(Offset(3)), []);
    assert_eq!(
        quorum.on_log_flushed(Offset(7)),
        [Effect::AdvanceHighWatermark(Offset(7))]
    );
    assert_eq!(
        quorum.log_end(),
        LogEnd {
            offset: Offset(7),
            epoch: LeaderEpoch(1)
        }
    );
}

#[test]
fn a_restart_raises_the_epoch_and_waits_for_a_record_of_its_own() {
    let mut quorum = Quorum::new(QuorumOptions {
        are_voters_in_log: true,
        election: Some(election(4, Some(1))),
        log_end: LogEnd {
            offset: Offset(50),
            epoch: LeaderEpoch(4),
        },
        ..options(KRaftVersion::V1)
    })
    .unwrap();
    let effects = quorum.start();
    assert_eq!(
        effects[0],
        Effect::PersistElectionState(election(5, Some(1)))
    );
    assert_eq!(
        effects[1],
        Effect::StartEpoch {
            epoch: LeaderEpoch(5),
            start_offset: Offset(50),
            records: vec![leader_change()],
        }
    );
    assert_eq!(
        quorum.on_log_flushed(Offset(50)),
        [],
        "nothing of epoch 5 is flushed"
    );
    assert_eq!(
        quorum.on_log_flushed(Offset(51)),
        [
            Effect::AdvanceHighWatermark(Offset(51)),
            Effect::ActivateLeader(LeaderEpoch(5)),
        ]
    );
}

#[test]
fn the_log_counts_more_than_an_older_quorum_state() {
    let mut quorum = Quorum::new(QuorumOptions {
        election: Some(election(2, Some(1))),
        log_end: LogEnd {
            offset: Offset(9),
            epoch: LeaderEpoch(6),
        },
        ..options(KRaftVersion::V0)
    })
    .unwrap();
    assert_eq!(
        quorum.start()[0],
        Effect::PersistElectionState(election(7, Some(1)))
    );
}

#[test]
fn static_voters_are_not_written() {
    let mut quorum = Quorum::new(options(KRaftVersion::V0)).unwrap();
    let effects = quorum.start();
    assert!(
        matches!(&effects[1], Effect::StartEpoch { records, .. } if *records == [leader_change()])
    );
}

#[test]
fn a_moved_listener_is_written_again() {
    let mut moved = local();
    moved.endpoints[0].port = 19093;
    let mut quorum = Quorum::new(QuorumOptions {
        local: moved.clone(),
        are_voters_in_log: true,
        ..options(KRaftVersion::V1)
    })
    .unwrap();
    let effects = quorum.start();
    let Effect::StartEpoch { records, .. } = &effects[1] else {
        panic!("{effects:?}");
    };
    let voters = VoterSet::new([moved]).unwrap();
    assert_eq!(records[2], ControlRecord::Voters(voters.to_record()));
    assert_eq!(quorum.voters(), &voters);
}

#[test]
fn other_quorums_are_refused() {
    let other = Voter {
        key: ReplicaKey::new(BrokerId(2), Uuid::from_u128(200)),
        ..local()
    };
    let with = |voters: Vec<Voter>| {
        Quorum::new(QuorumOptions {
            voters: VoterSet::new(voters).unwrap(),
            ..options(KRaftVersion::V1)
        })
        .err()
    };
    assert_eq!(
        with(vec![other.clone()]),
        Some(QuorumError::NotAVoter(BrokerId(1)))
    );
    assert_eq!(
        with(vec![local(), other]),
        Some(QuorumError::MoreThanOneVoter(2))
    );
    let new_disk = Voter {
        key: ReplicaKey::new(BrokerId(1), Uuid::from_u128(999)),
        ..local()
    };
    assert_eq!(
        with(vec![new_disk]),
        Some(QuorumError::NotAVoter(BrokerId(1)))
    );
}
