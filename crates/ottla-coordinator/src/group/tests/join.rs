//! Joining: member ids, the first rebalance, protocols, limits.

use super::{Script, check, joining};
use crate::group::GroupCoordinatorConfig;

#[test]
fn a_new_member_is_given_an_id_and_must_come_back_with_it() {
    let mut script = Script::new();
    check(
        script.join(joining("")),
        "timer session g/c#1 in 10000
         reply 1: join MEMBER_ID_REQUIRED member=c#1
         write 1: group g type= generation=0 protocol=- leader=-",
    );
    assert_eq!(script.state("g"), "Empty");
    check(
        script.join(joining("c#1")),
        "timer session g/c#1 in 300000
         cancel sync g
         timer join g in 3000",
    );
    assert_eq!(script.state("g"), "PreparingRebalance");
    check(
        script.pass(3_000),
        "cancel join g
         timer session g/c#1 in 10000
         timer sync g in 60000
         reply 2: join generation=1 protocol=range leader=c#1 member=c#1 members=[c#1]",
    );
    assert_eq!(script.state("g"), "CompletingRebalance");
    check(
        script.sync("c#1", 1, &[("c#1", "t-0")]),
        "cancel sync g
         write 2: group g type=consumer generation=1 protocol=range leader=c#1 c#1=t-0
         timer session g/c#1 in 10000
         reply 3: sync protocol=range assignment=t-0",
    );
    assert_eq!(script.state("g"), "Stable");
}

#[test]
fn an_old_client_is_added_at_once() {
    let mut script = Script::new();
    check(
        script.join(joining("").of_an_old_client()),
        "timer session g/c#1 in 300000
         cancel sync g
         timer join g in 3000
         write 1: group g type= generation=0 protocol=- leader=-",
    );
}

#[test]
fn the_first_rebalance_waits_longer_while_members_keep_coming() {
    let mut script = Script::new();
    script.join_new(joining(""));
    script.pass(2_000);
    script.join_new(joining(""));
    check(script.pass(1_000), "timer join g in 3000");
    check(
        script.pass(3_000),
        "cancel join g
         timer session g/c#1 in 10000
         timer session g/c#2 in 10000
         timer sync g in 60000
         reply 2: join generation=1 protocol=range leader=c#1 member=c#1 members=[c#1, c#2]
         reply 4: join generation=1 protocol=range leader=c#1 member=c#2 members=[]",
    );
}

#[test]
fn the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() {
    let mut script = Script::new();
    let mut hasty = joining("");
    hasty.request.rebalance_timeout_ms = 7_000;
    script.join_new(hasty.clone());
    script.join_new(hasty.clone());
    // 3 s, then 3 s of the 4 s that remain, then the 1 s that remains, then no more.
    check(script.pass(3_000), "timer join g in 3000");
    script.join_new(hasty.clone());
    check(script.pass(3_000), "timer join g in 1000");
    script.join_new(hasty);
    assert!(script.pass(1_000).contains("generation=1"));
}

#[test]
fn no_wait_at_all_where_the_delay_is_zero() {
    let mut script = Script::with_config(GroupCoordinatorConfig {
        group_initial_rebalance_delay_ms: 0,
        ..Default::default()
    });
    check(
        script.join_new(joining("")),
        "timer session g/c#1 in 300000
         cancel sync g
         timer join g in 0",
    );
    assert!(script.pass(0).contains("generation=1"));
}

#[test]
fn the_selected_protocol_is_supported_by_all_and_preferred_by_most() {
    let mut script = Script::new();
    script.join_new(joining("").protocols(&[("x", "t"), ("range", "t"), ("sticky", "t")]));
    script.join_new(joining("").protocols(&[("sticky", "t"), ("range", "t")]));
    script.join_new(joining("").protocols(&[("sticky", "t"), ("range", "t"), ("y", "t")]));
    assert!(script.pass(6_000).contains("protocol=sticky"));
}

#[test]
fn a_member_with_nothing_in_common_is_refused() {
    let mut script = Script::stable_group_of_two();
    check(
        script.join(joining("").protocols(&[("other", "t")])),
        "reply 7: join INCONSISTENT_GROUP_PROTOCOL member=",
    );
    let mut worker = joining("");
    worker.request.protocol_type = "connect".into();
    check(
        script.join(worker),
        "reply 8: join INCONSISTENT_GROUP_PROTOCOL member=",
    );
}

#[test]
fn a_pending_member_that_does_not_rejoin_is_removed() {
    let mut script = Script::new();
    script.join(joining(""));
    check(script.pass(10_000), "");
    check(
        script.join(joining("c#1")),
        "reply 2: join UNKNOWN_MEMBER_ID member=c#1",
    );
}

#[test]
fn a_rebalance_waits_for_pending_members() {
    let mut script = Script::stable_group_of_two();
    script.join(joining(""));
    script.join(joining("c#3"));
    script.join(joining(""));
    script.join(joining("c#1"));
    // All members have joined except the pending c#4.
    check(script.join(joining("c#2")), "");
    check(
        script.leave(&["c#4"]),
        "cancel session g/c#4
         cancel join g
         timer session g/c#1 in 10000
         timer session g/c#2 in 10000
         timer session g/c#3 in 10000
         timer sync g in 60000
         reply 10: join generation=2 protocol=range leader=c#1 member=c#1 members=[c#1, c#2, c#3]
         reply 11: join generation=2 protocol=range leader=c#1 member=c#2 members=[]
         reply 8: join generation=2 protocol=range leader=c#1 member=c#3 members=[]
         reply 12: leave NONE c#4=NONE",
    );
}

#[test]
fn a_full_group_refuses_new_members() {
    let mut script = Script::with_config(GroupCoordinatorConfig {
        group_max_size: 2,
        ..Default::default()
    });
    script.join_new(joining(""));
    script.join_new(joining(""));
    check(
        script.join(joining("")),
        "reply 5: join GROUP_MAX_SIZE_REACHED member=",
    );
    script.pass(6_000);
    // Members can rejoin in any state.
    check(
        script.join(joining("")),
        "reply 6: join GROUP_MAX_SIZE_REACHED member=",
    );
    check(
        script.join(joining("c#2")),
        "reply 7: join generation=1 protocol=range leader=c#1 member=c#2 members=[]",
    );
}

#[test]
fn a_second_join_of_a_member_takes_the_place_of_the_parked_one() {
    let mut script = Script::new();
    script.join_new(joining(""));
    check(
        script.join(joining("c#1")),
        "reply 2: join REBALANCE_IN_PROGRESS member=c#1",
    );
    assert!(script.pass(3_000).contains("reply 3: join generation=1"));
}

#[test]
fn a_new_member_whose_parked_join_takes_too_long_is_dropped() {
    let mut script = Script::new();
    let mut patient = joining("");
    patient.request.rebalance_timeout_ms = 900_000;
    script.join_new(patient.clone());
    script.pass(3_000);
    script.sync("c#1", 1, &[]);
    script.join_new(patient);
    for _ in 0..60 {
        script.heartbeat("c#1", 1);
        script.pass(4_950);
    }
    script.heartbeat("c#1", 1);
    check(
        script.pass(3_000),
        "reply 5: join UNKNOWN_MEMBER_ID member=",
    );
}
