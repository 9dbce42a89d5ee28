//! Static members (KIP-345): they rejoin without a rebalance, and fence their earlier instances.

use ottla_protocol::messages::HeartbeatRequest;
use ottla_types::ErrorCode;

use super::{Joining, Script, check, full, joining};

fn named(instance_id: &'static str) -> Joining {
    joining("").instance(instance_id)
}

/// The leader `a#1` and `b#2`, in generation 1, stable.
fn stable_group() -> Script {
    let mut script = Script::new();
    script.join(named("a"));
    script.join(named("b"));
    script.pass(6_000);
    script.sync("b#2", 1, &[]);
    script.sync("a#1", 1, &[("a#1", "t-0"), ("b#2", "t-1")]);
    script
}

#[test]
fn a_static_member_needs_no_second_round_trip() {
    let mut script = Script::new();
    check(
        script.join(named("a")),
        "timer session g/a#1 in 300000
         cancel sync g
         timer join g in 3000
         write 1: group g type= generation=0 protocol=- leader=-",
    );
}

#[test]
fn a_follower_that_comes_back_keeps_its_place() {
    let mut script = stable_group();
    script.commits_at_once = false;
    check(
        script.join(named("b")),
        "timer session g/b#3 in 10000
         write 3: group g type=consumer generation=1 protocol=range leader=a#1 a#1(a)=t-0 b#3(b)=t-1",
    );
    check(
        script.commit(),
        "reply 5: join generation=1 protocol=range leader=a#1 member=b#3 members=[]",
    );
    check(
        script.sync("b#3", 1, &[]),
        "cancel sync g
         reply 6: sync protocol=range assignment=t-1",
    );
}

#[test]
fn a_leader_that_comes_back_skips_the_assignment() {
    let mut script = stable_group();
    check(
        script.join(named("a")),
        "timer session g/a#3 in 10000
         write 3: group g type=consumer generation=1 protocol=range leader=a#3 b#2(b)=t-1 a#3(a)=t-0
         reply 5: join generation=1 protocol=range leader=a#3 member=a#3 members=[b#2, a#3] skip",
    );
}

#[test]
fn an_old_leader_that_comes_back_learns_that_its_former_member_id_leads() {
    let mut script = stable_group();
    let text = script.join(named("a").of_an_old_client());
    assert!(
        text.ends_with("leader=a#1 member=a#3 members=[]\n"),
        "so that it does not compute an assignment: {text}"
    );
}

#[test]
fn the_former_self_is_fenced() {
    let mut script = stable_group();
    script.join(named("b"));
    let as_b = |member_id: &str| HeartbeatRequest {
        group_id: "g".into(),
        generation_id: 1,
        member_id: full(member_id),
        group_instance_id: Some("b".into()),
        ..Default::default()
    };
    check(
        script.heartbeat_request(as_b("b#2")),
        "reply 6: heartbeat FENCED_INSTANCE_ID",
    );
    check(
        script.heartbeat_request(as_b("b#3")),
        "timer session g/b#3 in 10000
         reply 7: heartbeat NONE",
    );
    check(
        script.join(joining("b#2").instance("b")),
        "reply 8: join FENCED_INSTANCE_ID member=b#2",
    );
    check(
        script.join(joining("b#2").instance("nobody")),
        "reply 9: join UNKNOWN_MEMBER_ID member=b#2",
    );
}

#[test]
fn parked_requests_of_the_former_self_are_fenced() {
    let mut script = stable_group();
    script.join_new(joining(""));
    script.join(joining("b#2").instance("b"));
    check(
        script.join(named("b")),
        "timer session g/b#4 in 10000
         reply 7: join FENCED_INSTANCE_ID member=b#2",
    );
}

#[test]
fn a_static_member_that_comes_back_while_assignments_are_made_rebalances() {
    let mut script = stable_group();
    script.join(joining("a#1").instance("a"));
    script.join(joining("b#2").instance("b"));
    script.sync("b#2", 2, &[]);
    check(
        script.join(named("b")),
        "timer session g/b#3 in 10000
         cancel sync g
         timer join g in 60000
         reply 7: sync FENCED_INSTANCE_ID",
    );
}

#[test]
fn a_static_member_that_wants_another_protocol_rebalances() {
    let mut script = stable_group();
    check(
        script.join(named("b").protocols(&[("sticky", "t")])),
        "timer session g/b#3 in 10000
         cancel sync g
         timer join g in 60000",
    );
}

#[test]
fn a_replacement_that_cannot_be_written_is_taken_back() {
    let mut script = stable_group();
    script.commits_at_once = false;
    script.join(named("b"));
    check(
        script.fail(3, ErrorCode::NotEnoughReplicas),
        "timer session g/b#2 in 10000
         reply 5: join COORDINATOR_NOT_AVAILABLE member=",
    );
    check(
        script.heartbeat("b#2", 1),
        "timer session g/b#2 in 10000
         reply 6: heartbeat NONE",
    );
    check(
        script.heartbeat("b#3", 1),
        "reply 7: heartbeat UNKNOWN_MEMBER_ID",
    );
}

#[test]
fn a_rebalance_completes_without_a_static_member_but_keeps_it() {
    let mut script = stable_group();
    script.join(joining("a#1").instance("a"));
    for _ in 0..11 {
        script.heartbeat("b#2", 1);
        script.pass(5_500);
    }
    let described = script.coordinator.describe_group(&"g".into(), true);
    assert_eq!(described.group_state, "CompletingRebalance");
    assert_eq!(described.members.len(), 2);
}

#[test]
fn an_administrator_removes_static_members_by_name() {
    let mut script = stable_group();
    check(
        script.leave(&["@b", "@nobody"]),
        "cancel session g/b#2
         cancel sync g
         timer join g in 60000
         reply 5: leave NONE b=NONE nobody=UNKNOWN_MEMBER_ID",
    );
}
