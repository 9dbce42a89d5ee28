use ottla_types::Uuid;

use super::*;

fn voter(id: i32) -> Voter {
    Voter {
        key: ReplicaKey::new(BrokerId(id), Uuid::from_u128(id as u128)),
        endpoints: Vec::new(),
        supported_kraft_versions: (0, 1),
    }
}

fn voters(ids: &[i32]) -> VoterSet {
    VoterSet::new(ids.iter().map(|&id| voter(id))).expect("voters")
}

/// Leader 1 of an epoch that starts at offset 10.
fn leader(ids: &[i32]) -> LeaderState {
    let (voters, granting) = (voters(ids), BTreeSet::new());
    let version = KRaftVersion::V1;
    LeaderState::new(voter(1), Offset(10), &voters, version, granting, 2000, 0)
}

fn fetch(leader: &mut LeaderState, id: i32, offset: i64, now_ms: u64) -> bool {
    leader.on_fetch(voter(id).key, Offset(offset), Offset(20), now_ms)
}

#[test]
fn a_commit_needs_a_majority_and_a_record_of_the_epoch() {
    let mut leader = leader(&[1, 2, 3]);
    assert!(!leader.on_local_flush(Offset(20), 0), "one of three");
    assert!(!fetch(&mut leader, 2, 10, 0), "nothing of this epoch");
    assert!(!fetch(&mut leader, 9, 20, 0), "an observer");
    assert!(fetch(&mut leader, 2, 11, 0));
    assert_eq!(leader.high_watermark, Some(Offset(11)));
    assert!(fetch(&mut leader, 3, 15, 0));
    assert!(!fetch(&mut leader, 3, 12, 0), "never back");
    assert_eq!(leader.high_watermark, Some(Offset(15)));
}

#[test]
fn a_new_voter_does_not_lower_the_high_watermark() {
    let mut leader = leader(&[1]);
    assert!(leader.on_local_flush(Offset(20), 0));
    leader.set_voters(&voters(&[1, 2]));
    assert!(!leader.on_local_flush(Offset(25), 0));
    assert_eq!(leader.high_watermark, Some(Offset(20)));
    assert!(!fetch(&mut leader, 2, 12, 0));
    assert!(fetch(&mut leader, 2, 21, 0));
    // It is removed, and the leader too: only the other voters count then.
    leader.set_voters(&voters(&[2]));
    assert!(fetch(&mut leader, 2, 24, 0));
    assert_eq!(leader.high_watermark, Some(Offset(24)));
}

#[test]
fn another_directory_id_is_another_replica() {
    let mut leader = leader(&[1, 2]);
    leader.on_local_flush(Offset(20), 0);
    let new_disk = ReplicaKey::new(BrokerId(2), Uuid::from_u128(99));
    assert!(!leader.on_fetch(new_disk, Offset(20), Offset(20), 0));
    assert!(fetch(&mut leader, 2, 20, 0));
}

#[test]
fn the_leader_keeps_its_role_while_a_majority_fetches() {
    let mut leader = leader(&[1, 2, 3, 4]);
    assert_eq!(leader.check_quorum_deadline_ms(), 3000);
    fetch(&mut leader, 2, 10, 500);
    fetch(&mut leader, 2, 10, 600);
    assert_eq!(leader.check_quorum_deadline_ms(), 3000, "with two of four");
    fetch(&mut leader, 3, 10, 700);
    assert_eq!(leader.check_quorum_deadline_ms(), 3700);
    assert_eq!(leader.need_begin_quorum_epoch(1000), [voter(4).key]);
    assert_eq!(
        leader.need_begin_quorum_epoch(1650),
        [voter(2).key, voter(4).key]
    );
    leader.set_voters(&voters(&[1]));
    assert_eq!(leader.check_quorum_deadline_ms(), u64::MAX);
}

#[test]
fn preferred_successors_are_sorted_by_log_end() {
    let mut leader = leader(&[1, 2, 3, 4]);
    fetch(&mut leader, 3, 12, 0);
    fetch(&mut leader, 4, 15, 0);
    assert_eq!(
        leader.successors(),
        [voter(4).key, voter(3).key, voter(2).key]
    );
}

#[test]
fn an_observer_is_caught_up_if_it_fetches_at_the_log_end() {
    let mut leader = leader(&[1]);
    fetch(&mut leader, 7, 12, 1000);
    assert!(!leader.is_caught_up(voter(7).key, 1000));
    // Not at the moving log end, but at the log end of its previous fetch.
    leader.on_fetch(voter(7).key, Offset(20), Offset(30), 2000);
    assert!(leader.is_caught_up(voter(7).key, 2000));
    assert!(!leader.is_caught_up(voter(7).key, 2000 + CAUGHT_UP_WITHIN_MS));
}

#[test]
fn observers_expire_and_their_number_is_bounded() {
    let mut leader = leader(&[1]);
    for id in 0..MAX_OBSERVERS as i32 + 5 {
        fetch(&mut leader, 10 + id, 10, id as u64);
    }
    assert_eq!(leader.observers.len(), MAX_OBSERVERS);
    assert!(!leader.observers.contains_key(&voter(10).key));
    assert_eq!(leader.observer_states(400_000).count(), 0);
}
