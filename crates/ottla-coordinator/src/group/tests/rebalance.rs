//! Rebalances: members that leave, die, do not rejoin, or change their protocols.

use super::{Script, check, joining};
use crate::group::GroupCoordinatorConfig;

#[test]
fn a_third_member_makes_the_other_members_rejoin() {
    let mut script = Script::stable_group_of_two();
    check(
        script.join_new(joining("")),
        "timer session g/c#3 in 300000
         cancel sync g
         timer join g in 60000",
    );
    check(
        script.heartbeat("c#1", 1),
        "timer session g/c#1 in 10000
         reply 9: heartbeat REBALANCE_IN_PROGRESS",
    );
    check(
        script.sync("c#2", 1, &[]),
        "reply 10: sync REBALANCE_IN_PROGRESS",
    );
    check(script.join(joining("c#1")), "");
    check(
        script.join(joining("c#2")),
        "cancel join g
         timer session g/c#1 in 10000
         timer session g/c#2 in 10000
         timer session g/c#3 in 10000
         timer sync g in 60000
         reply 11: join generation=2 protocol=range leader=c#1 member=c#1 members=[c#1, c#2, c#3]
         reply 12: join generation=2 protocol=range leader=c#1 member=c#2 members=[]
         reply 8: join generation=2 protocol=range leader=c#1 member=c#3 members=[]",
    );
    check(script.sync("c#3", 2, &[]), "");
    check(
        script.heartbeat("c#3", 2),
        "timer session g/c#3 in 10000\nreply 14: heartbeat NONE",
    );
    check(
        script.sync(
            "c#1",
            2,
            &[("c#1", "t-0"), ("c#3", "t-2"), ("stranger", "t-9")],
        ),
        "write 3: group g type=consumer generation=2 protocol=range leader=c#1 c#1=t-0 c#2= c#3=t-2
         timer session g/c#1 in 10000
         timer session g/c#3 in 10000
         reply 15: sync protocol=range assignment=t-0
         reply 13: sync protocol=range assignment=t-2",
    );
    check(
        script.sync("c#2", 2, &[]),
        "cancel sync g
         reply 16: sync protocol=range assignment=",
    );
}

#[test]
fn a_member_that_leaves_starts_a_rebalance_and_the_last_empties_the_group() {
    let mut script = Script::stable_group_of_two();
    check(
        script.leave(&["c#1"]),
        "cancel session g/c#1
         cancel sync g
         timer join g in 60000
         reply 7: leave NONE c#1=NONE",
    );
    check(
        script.join(joining("c#2")),
        "cancel join g
         timer session g/c#2 in 10000
         timer sync g in 60000
         reply 8: join generation=2 protocol=range leader=c#2 member=c#2 members=[c#2]",
    );
    check(
        script.leave(&["c#2", "stranger"]),
        "cancel session g/c#2
         cancel sync g
         cancel join g
         write 3: group g type=consumer generation=3 protocol=- leader=-
         reply 9: leave NONE c#2=NONE stranger=UNKNOWN_MEMBER_ID",
    );
    assert_eq!(script.state("g"), "Empty");
    // The next member starts again from that state.
    script.join_new(joining(""));
    assert!(script.pass(3_000).contains("generation=4"));
}

#[test]
fn a_member_without_heartbeats_is_removed() {
    let mut script = Script::stable_group_of_two();
    script.pass(5_000);
    script.heartbeat("c#1", 1);
    check(
        script.pass(5_000),
        "cancel sync g
         timer join g in 60000",
    );
    check(
        script.heartbeat("c#2", 1),
        "reply 8: heartbeat UNKNOWN_MEMBER_ID",
    );
    assert!(
        script
            .join(joining("c#1"))
            .contains("generation=2 protocol=range leader=c#1")
    );
}

#[test]
fn members_that_do_not_rejoin_in_time_are_removed_and_another_leads() {
    let mut script = Script::stable_group_of_two();
    script.join_new(joining(""));
    script.join(joining("c#2"));
    for _ in 0..10 {
        // The leader sends heartbeats but never rejoins.
        script.heartbeat("c#1", 1);
        script.pass(5_950);
    }
    check(
        script.pass(500),
        "cancel join g
         cancel session g/c#1
         timer session g/c#2 in 10000
         timer session g/c#3 in 10000
         timer sync g in 60000
         reply 9: join generation=2 protocol=range leader=c#2 member=c#2 members=[c#2, c#3]
         reply 8: join generation=2 protocol=range leader=c#2 member=c#3 members=[]",
    );
    check(
        script.heartbeat("c#1", 1),
        "reply 20: heartbeat UNKNOWN_MEMBER_ID",
    );
}

#[test]
fn members_that_do_not_sync_in_time_are_removed() {
    let mut script = Script::stable_group_of_two();
    script.join(joining("c#1"));
    script.join(joining("c#2"));
    script.sync("c#2", 2, &[]);
    for _ in 0..10 {
        script.heartbeat("c#1", 2);
        script.pass(5_990);
    }
    check(
        script.pass(100),
        "cancel session g/c#1
         timer session g/c#2 in 10000
         cancel sync g
         timer join g in 60000
         reply 9: sync REBALANCE_IN_PROGRESS",
    );
    assert!(
        script
            .join(joining("c#2"))
            .contains("generation=3 protocol=range leader=c#2")
    );
}

#[test]
fn a_follower_that_rejoins_with_the_same_protocols_starts_no_rebalance() {
    let mut script = Script::stable_group_of_two();
    check(
        script.join(joining("c#2")),
        "reply 7: join generation=1 protocol=range leader=c#1 member=c#2 members=[]",
    );
    assert_eq!(script.state("g"), "Stable");
}

#[test]
fn a_leader_that_asks_again_and_a_follower_that_wants_something_else_rebalance() {
    let mut script = Script::stable_group_of_two();
    check(
        script.join(joining("c#1")),
        "cancel sync g
         timer join g in 60000",
    );
    let mut script = Script::stable_group_of_two();
    check(
        script.join(joining("c#2").protocols(&[("range", "u")])),
        "cancel sync g
         timer join g in 60000",
    );
}

#[test]
fn members_that_wait_for_an_assignment_rejoin_when_a_member_joins() {
    let mut script = Script::stable_group_of_two();
    script.join(joining("c#1"));
    script.join(joining("c#2"));
    script.sync("c#2", 2, &[]);
    check(
        script.join_new(joining("")),
        "timer session g/c#3 in 300000
         timer session g/c#2 in 10000
         cancel sync g
         timer join g in 60000
         reply 9: sync REBALANCE_IN_PROGRESS",
    );
}

#[test]
fn an_assignment_that_a_rebalance_overtakes_is_not_sent() {
    let mut script = Script::stable_group_of_two();
    script.join(joining("c#1"));
    script.join(joining("c#2"));
    script.commits_at_once = false;
    script.sync("c#2", 2, &[]);
    check(
        script.sync("c#1", 2, &[("c#1", "t-0"), ("c#2", "t-1")]),
        "cancel sync g
         write 3: group g type=consumer generation=2 protocol=range leader=c#1 c#1=t-0 c#2=t-1",
    );
    check(
        script.leave(&["c#2"]),
        "cancel session g/c#2
         timer session g/c#1 in 10000
         cancel sync g
         timer join g in 60000
         reply 9: sync UNKNOWN_MEMBER_ID
         reply 10: sync REBALANCE_IN_PROGRESS",
    );
    check(script.commit(), "reply 11: leave NONE c#2=NONE");
    assert_eq!(script.state("g"), "PreparingRebalance");
}

#[test]
fn a_loaded_group_that_has_become_too_large_rebalances() {
    let mut script = Script::stable_group_of_two();
    script.config = GroupCoordinatorConfig {
        group_max_size: 1,
        ..Default::default()
    };
    let (mut script, loaded) = script.restart();
    check(
        loaded,
        "timer session g/c#1 in 10000
         timer session g/c#2 in 10000
         cancel sync g
         timer join g in 60000
         timer expiration in 600000",
    );
    check(script.join(joining("c#2")), "");
    check(
        script.join(joining("c#1")),
        "reply 2: join GROUP_MAX_SIZE_REACHED member=",
    );
    // No other member has to join, but only the timer ends the phase, as in Kafka.
    check(
        script.pass(60_000),
        "cancel join g
         timer session g/c#2 in 10000
         timer sync g in 60000
         reply 1: join generation=2 protocol=range leader=c#2 member=c#2 members=[c#2]",
    );
}
