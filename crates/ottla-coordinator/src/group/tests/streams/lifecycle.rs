//! A group from its first member to its deletion.

use ottla_types::ErrorCode;

use super::{beat, joining, ready, subtopology};
use crate::group::TimerKey;
use crate::group::modern::test_image::TestImage;
use crate::group::tests::{Script, check};
use crate::runtime::Coordinator;

#[test]
fn missing_internal_topics_are_requested_until_they_exist() {
    let mut script = Script::with_streams(&TestImage::new().topic("in", 2));
    check(
        script.stream(joining("m1", "p1")),
        "timer session g/m1 in 45000
         write 1: g/m1 in p1 by topology 0
         write 1: g topology 0 of 0
         write 1: g epoch 2 validated -1 [num.standby.replicas=0]
         write 1: g/m1 target - / -
         write 1: g target epoch 2
         write 1: g/m1 Stable@2 after 0: - / -
         reply 1: streams m1@2 - / - (3 Internal topics are missing: store) create store=2",
    );
    assert_eq!(script.state("g"), "NotReady");
    check(
        script.stream(beat("m1", 2)),
        "timer session g/m1 in 45000
         reply 2: streams m1@2 (3 Internal topics are missing: store) create store=2",
    );
    // A topic that the application does not use changes nothing.
    script.change_streams_topics(TestImage::new().topic("else", 1));
    assert_eq!(
        script.streams_beat(beat("m1", 2)),
        "m1@2 (3 Internal topics are missing: store) create store=2"
    );
    script.change_streams_topics(TestImage::new().topic("store", 2));
    check(
        script.stream(beat("m1", 2)),
        "timer session g/m1 in 45000
         write 2: g epoch 3 validated 0 [num.standby.replicas=0]
         write 2: g/m1 target 0:0,1 / -
         write 2: g target epoch 3
         write 2: g/m1 Stable@3 after 2: 0:0@3 0:1@3 / -
         reply 4: streams m1@3 0:0,1 / -",
    );
    assert_eq!(script.state("g"), "Stable");
    script.check_streams_restart();
}

#[test]
fn no_tasks_are_assigned_while_source_topics_are_missing() {
    let mut script = Script::with_streams(&TestImage::new().topic("store", 2));
    assert_eq!(
        script.streams_beat(joining("m1", "p1")),
        "m1@2 - / - (1 Source topics in are missing.)"
    );
    assert_eq!(script.state("g"), "NotReady");
    script.change_streams_topics(TestImage::new().topic("in", 2));
    assert_eq!(script.streams_beat(beat("m1", 2)), "m1@3 0:0,1 / -");
}

#[test]
fn tasks_are_taken_back_when_the_topics_do_not_fit_any_more() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.change_streams_topics(TestImage::new().partition("in", 2));
    check(
        script.stream(beat("m1", 2)),
        "timer revocation g/m1@2 in 60000
         timer session g/m1 in 45000
         write 2: g epoch 3 validated -1 [num.standby.replicas=0]
         write 2: g/m1 target - / -
         write 2: g target epoch 3
         write 2: g/m1 UnrevokedTasks@2 after 2: - / - gives up 0:0@2 0:1@2 / -
         reply 2: streams m1@2 - / - (2 Existing topic store has different number of partitions: \
         expected 3, found 2)",
    );
    assert_eq!(script.state("g"), "NotReady");
    assert_eq!(
        script.streams_beat(beat("m1", 2).owns(&[], &[])),
        "m1@3 (2 Existing topic store has different number of partitions: expected 3, found 2)"
    );
    script.check_streams_restart();
}

#[test]
fn the_first_assignment_waits_for_more_members() {
    let mut script = Script::with_streams(&ready());
    script.config.group_streams_initial_rebalance_delay_ms = 3_000;
    script.configure();
    check(
        script.stream(joining("m1", "p1")),
        "timer initial rebalance g in 3000 if absent
         timer session g/m1 in 45000
         write 1: g/m1 in p1 by topology 0
         write 1: g topology 0 of 0
         write 1: g epoch 2 validated 0 [num.standby.replicas=0]
         write 1: g/m1 Stable@1 after 0: - / -
         reply 1: streams m1@1 - / - (5 Assignment delayed due to the configured initial \
         rebalance delay.)",
    );
    assert_eq!(script.state("g"), "Assigning");
    script.pass(1_000);
    check(
        script.stream(joining("m2", "p2")),
        "timer session g/m2 in 45000
         write 2: g/m2 in p2 by topology 0
         write 2: g epoch 3 validated 0 [num.standby.replicas=0]
         write 2: g/m2 Stable@1 after 0: - / -
         reply 2: streams m2@1 - / - (5 Assignment delayed due to the configured initial \
         rebalance delay.)",
    );
    check(script.pass(1_999), "");
    check(
        script.pass(1),
        "write 3: g/m1 target 0:0 / -
         write 3: g/m2 target 0:1 / -
         write 3: g target epoch 3",
    );
    assert_eq!(script.state("g"), "Reconciling");
    assert_eq!(script.streams_beat(beat("m1", 1)), "m1@3 0:0 / -");
    assert_eq!(script.streams_beat(beat("m2", 1)), "m2@3 0:1 / -");
    assert_eq!(script.state("g"), "Stable");
    // Later members do not wait.
    assert_eq!(script.streams_beat(joining("m3", "p3")), "m3@4 - / -");
    script.check_streams_restart();
}

#[test]
fn a_group_of_one_heartbeat_is_assigned_by_the_next() {
    let mut script = Script::with_streams(&ready());
    script.config.group_streams_initial_rebalance_delay_ms = 3_000;
    script.configure();
    script.stream(joining("m1", "p1"));
    // The configured topology of the heartbeat that creates the group is not kept.
    check(script.pass(3_000), "");
    assert_eq!(script.streams_beat(beat("m1", 1)), "m1@2 0:0,1 / -");
}

#[test]
fn the_first_assignment_of_a_deleted_group_is_dropped() {
    let mut script = Script::with_streams(&ready());
    script.config.group_streams_initial_rebalance_delay_ms = 3_000;
    script.configure();
    script.commits_at_once = false;
    script.stream(joining("m1", "p1"));
    script.fail(1, ErrorCode::NotEnoughReplicas);
    check(script.pass(3_000), "");
    script.commits_at_once = true;
    script.stream(joining("m1", "p1"));
    script.stream(beat("m1", -1));
    check(script.pass(3_000), "");
}

#[test]
fn a_write_that_fails_takes_the_group_with_it() {
    let mut script = Script::with_streams(&ready());
    script.commits_at_once = false;
    let text = script.stream(joining("m1", "p1"));
    assert!(!text.contains("reply"), "{text}");
    check(
        script.fail(1, ErrorCode::NotEnoughReplicas),
        "reply 1: streams COORDINATOR_NOT_AVAILABLE -",
    );
    assert_eq!(script.state("g"), "-");
    script.commits_at_once = true;
    assert_eq!(script.streams_beat(joining("m1", "p1")), "m1@2 0:0,1 / -");
}

#[test]
fn a_member_that_rejoins_receives_its_assignment() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    check(
        script.stream(joining("m1", "p1")),
        "timer session g/m1 in 45000
         reply 2: streams m1@2 0:0,1 / -",
    );
    // With another process id, it is another member as far as tasks are concerned.
    check(
        script.stream(joining("m1", "p9")),
        "timer session g/m1 in 45000
         write 2: g/m1 in p9 by topology 0
         write 2: g epoch 3 validated 0 [num.standby.replicas=0]
         write 2: g target epoch 3
         write 2: g/m1 Stable@3 after 2: 0:0@2 0:1@2 / -
         reply 3: streams m1@3 0:0,1 / -",
    );
    script.check_streams_restart();
}

#[test]
fn an_empty_group_can_be_deleted() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    check(
        script.delete_groups(&["g"]),
        "reply 2: delete groups g=NON_EMPTY_GROUP",
    );
    check(
        script.stream(beat("m1", -1)),
        "cancel session g/m1
         cancel revocation g/m1@2
         write 2: g/m1 current tombstone
         write 2: g/m1 target tombstone
         write 2: g/m1 tombstone
         write 2: g epoch 3 validated 0 [num.standby.replicas=0]
         reply 3: streams m1@-1",
    );
    assert_eq!(script.state("g"), "Empty");
    script.check_streams_restart();
    check(
        script.delete_groups(&["g"]),
        "cancel initial rebalance g
         write 3: g target tombstone
         write 3: g tombstone
         write 3: g topology tombstone
         reply 4: delete groups g=NONE",
    );
    assert_eq!(script.state("g"), "-");
    let (restarted, _) = script.restart();
    assert_eq!(restarted.state("g"), "-");
    // The shutdown request is gone.
    assert_eq!(script.streams_beat(joining("m1", "p1")), "m1@2 0:0,1 / -");
}

#[test]
fn members_that_are_not_heard_of_are_put_out() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.pass(44_999);
    script.stream(beat("m1", 2));
    check(script.pass(44_999), "");
    check(
        script.pass(1),
        "cancel session g/m1
         cancel revocation g/m1@2
         write 2: g/m1 current tombstone
         write 2: g/m1 target tombstone
         write 2: g/m1 tombstone
         write 2: g epoch 3 validated 0 [num.standby.replicas=0]",
    );
    assert_eq!(script.state("g"), "Empty");
}

#[test]
fn a_member_is_put_out_soon_if_that_could_not_be_written() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.commits_at_once = false;
    let text = script.pass(45_000);
    assert!(text.contains("write 2: g/m1 tombstone"), "{text}");
    check(
        script.fail(2, ErrorCode::NotEnoughReplicas),
        "timer session g/m1 in 500 if absent
         timer session g/m1 in 45000 if absent",
    );
    assert_eq!(script.state("g"), "Stable");
    let text = script.pass(500);
    assert!(text.contains("write 3: g/m1 tombstone"), "{text}");
}

#[test]
fn a_member_whose_departure_could_not_be_written_expires() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.commits_at_once = false;
    script.stream(beat("m1", -1));
    script.fail(2, ErrorCode::KafkaStorageError);
    script.commits_at_once = true;
    assert_eq!(script.state("g"), "Stable");
    assert!(script.pass(45_000).contains("g/m1 tombstone"));
}

#[test]
fn a_new_coordinator_expects_heartbeats_of_the_members() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.stream(joining("m2", "p2"));
    script.stream(beat("m1", 2));
    let (_, text) = script.restart();
    check(
        text,
        "timer session g/m1 in 45000
         timer revocation g/m1@2 in 60000
         timer session g/m2 in 45000
         timer expiration in 600000",
    );
}

#[test]
fn the_whole_application_stops_if_a_member_asks_for_it() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.stream(beat("m1", 2));
    let stop = "(4 Streams group member m1 encountered a fatal error and requested a shutdown \
                for the entire application.)";
    assert_eq!(
        script.streams_beat(beat("m1", 2).wants_shutdown()),
        format!("m1@2 {stop}")
    );
    let reply = script.streams_beat(joining("m2", "p2").wants_shutdown());
    assert_eq!(reply, format!("m2@3 - / - {stop}"), "the first one counts");
    script.stream(beat("m1", -1));
    let reply = script.streams_beat(beat("m2", 3));
    assert!(reply.ends_with(stop), "{reply}");
    script.stream(beat("m2", -1));
    let reply = script.streams_beat(joining("m3", "p3"));
    assert!(!reply.contains("shutdown"), "{reply}");
}

#[test]
fn a_member_can_ask_for_the_end_of_the_application_while_it_leaves() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.stream(joining("m2", "p2"));
    script.stream(beat("m1", -1).wants_shutdown());
    let reply = script.streams_beat(beat("m2", 3));
    assert!(reply.contains("(4 Streams group member m1 "), "{reply}");
}

#[test]
fn members_with_an_older_topology_receive_a_status() {
    let mut script = Script::with_streams(&ready());
    let topology = || vec![subtopology("0", &["in"], &["store"])];
    script.stream(joining("m1", "p1").topology(1, topology()));
    assert_eq!(
        script.streams_beat(joining("m2", "p2")),
        "m2@3 - / - (0 The member's topology epoch 0 is behind the group's topology epoch 1.)"
    );
    for epoch in [1, 2] {
        let other = vec![subtopology("0", &["in"], &[])];
        assert_eq!(
            script.streams_beat(joining("m3", "p3").topology(epoch, other)),
            "INVALID_REQUEST Topology updates are not supported yet."
        );
    }
    // The same topology in another order is equal.
    let mut script = Script::with_streams(&ready().topic("b", 2));
    let mut both = topology();
    both.push(subtopology("1", &["b"], &[]));
    script.stream(joining("m1", "p1").topology(0, both.clone()));
    both.reverse();
    let reply = script.streams_beat(joining("m2", "p2").topology(0, both));
    assert!(reply.starts_with("m2@3"), "{reply}");
}

#[test]
fn timers_of_other_group_types_do_not_affect_a_streams_group() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    for key in [
        TimerKey::Rejoin {
            group_id: "g".into(),
            member_id: "m1".into(),
        },
        TimerKey::Revocation {
            group_id: "g".into(),
            member_id: "m1".into(),
            member_epoch: 2,
        },
        TimerKey::Session {
            group_id: "g".into(),
            member_id: "m9".into(),
        },
    ] {
        let now = script.now();
        let outcome = script.coordinator.on_timer(key, now);
        check(script.render(outcome), "");
    }
}

#[test]
fn the_topics_seen_by_a_failed_write_are_forgotten() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.stream(beat("m1", 2));
    script.change_streams_topics(TestImage::new().without("store"));
    script.commits_at_once = false;
    let text = script.stream(beat("m1", 2));
    assert!(text.contains("write 2: g epoch 3 validated -1"), "{text}");
    script.fail(2, ErrorCode::NotEnoughReplicas);
    script.commits_at_once = true;
    script.change_streams_topics(TestImage::new().topic("store", 2));
    assert_eq!(script.streams_beat(beat("m1", 2)), "m1@2");
}
