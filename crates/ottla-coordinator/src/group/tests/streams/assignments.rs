//! Tasks that move between members.

use super::{beat, joining, ready};
use crate::group::modern::test_image::TestImage;
use crate::group::tests::{Script, check};

/// `m1` owns both tasks, and `m2` has joined and will get one of them.
fn two_members() -> Script {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    check(
        script.stream(joining("m2", "p2")),
        "timer session g/m2 in 45000
         write 2: g/m2 in p2 by topology 0
         write 2: g epoch 3 validated 0 [num.standby.replicas=0]
         write 2: g/m1 target 0:0 / -
         write 2: g/m2 target 0:1 / -
         write 2: g target epoch 3
         write 2: g/m2 UnreleasedTasks@3 after 0: - / -
         reply 2: streams m2@3 - / -",
    );
    script
}

/// The same after each has one task.
fn settled() -> Script {
    let mut script = two_members();
    script.stream(beat("m1", 2));
    script.stream(beat("m1", 2).owns(&[("0", &[0])], &[]));
    script.stream(beat("m2", 3));
    assert_eq!(script.state("g"), "Stable");
    script
}

#[test]
fn a_task_moves_when_its_owner_has_revoked_it() {
    let mut script = two_members();
    assert_eq!(script.state("g"), "Reconciling");
    check(
        script.stream(beat("m1", 2)),
        "timer revocation g/m1@2 in 60000
         timer session g/m1 in 45000
         write 3: g/m1 UnrevokedTasks@2 after 2: 0:0@2 / - gives up 0:1@2 / -
         reply 3: streams m1@2 0:0 / -",
    );
    script.check_streams_restart();
    // It still owns the task: without a report, and with one.
    check(
        script.stream(beat("m1", 2)),
        "timer session g/m1 in 45000
         reply 4: streams m1@2",
    );
    check(
        script.stream(beat("m1", 2).owns(&[("0", &[0, 1])], &[])),
        "timer session g/m1 in 45000
         reply 5: streams m1@2",
    );
    check(
        script.stream(beat("m2", 3)),
        "timer session g/m2 in 45000
         write 4: g/m2 UnreleasedTasks@3 after 3: - / -
         reply 6: streams m2@3",
    );
    check(
        script.stream(beat("m1", 2).owns(&[("0", &[0])], &[])),
        "cancel revocation g/m1@2
         timer session g/m1 in 45000
         write 5: g/m1 Stable@3 after 2: 0:0@2 / -
         reply 7: streams m1@3",
    );
    check(
        script.stream(beat("m2", 3)),
        "timer session g/m2 in 45000
         write 6: g/m2 Stable@3 after 3: 0:1@3 / -
         reply 8: streams m2@3 0:1 / -",
    );
    assert_eq!(script.state("g"), "Stable");
    script.check_streams_restart();
}

#[test]
fn a_task_that_its_member_has_lost_need_not_be_revoked() {
    let mut script = two_members();
    check(
        script.stream(beat("m1", 2).owns(&[("0", &[0])], &[])),
        "timer session g/m1 in 45000
         write 3: g/m1 Stable@3 after 2: 0:0@2 / -
         reply 3: streams m1@3 0:0 / -",
    );
    assert_eq!(script.streams_beat(beat("m2", 3)), "m2@3 0:1 / -");
}

#[test]
fn a_member_that_does_not_revoke_a_task_in_time_is_removed() {
    let mut script = two_members();
    script.stream(beat("m1", 2));
    script.pass(40_000);
    script.stream(beat("m1", 2));
    script.stream(beat("m2", 3));
    check(script.pass(19_999), "");
    check(
        script.pass(1),
        "cancel session g/m1
         cancel revocation g/m1@2
         write 5: g/m1 current tombstone
         write 5: g/m1 target tombstone
         write 5: g/m1 tombstone
         write 5: g epoch 4 validated 0 [num.standby.replicas=0]",
    );
    assert_eq!(script.streams_beat(beat("m2", 3)), "m2@4 0:0,1 / -");
    script.check_streams_restart();
}

#[test]
fn a_member_gets_the_tasks_of_one_that_left() {
    let mut script = settled();
    script.stream(beat("m1", -1));
    check(
        script.stream(beat("m2", 3)),
        "timer session g/m2 in 45000
         write 7: g/m2 target 0:0,1 / -
         write 7: g target epoch 4
         write 7: g/m2 Stable@4 after 3: 0:0@4 0:1@3 / -
         reply 7: streams m2@4 0:0,1 / -",
    );
}

#[test]
fn more_standby_tasks_are_given_out_when_the_setting_changes() {
    let mut script = settled();
    script.config.group_streams_num_standby_replicas.value = 1;
    script.configure();
    check(
        script.stream(beat("m1", 3)),
        "timer session g/m1 in 45000
         write 6: g epoch 4 validated 0 [num.standby.replicas=1]
         write 6: g/m1 target 0:0 / 0:1
         write 6: g/m2 target 0:1 / 0:0
         write 6: g target epoch 4
         write 6: g/m1 Stable@4 after 3: 0:0@2 / 0:1
         reply 6: streams m1@4 0:0 / 0:1",
    );
    assert_eq!(script.streams_beat(beat("m2", 3)), "m2@4 0:1 / 0:0");
    script.check_streams_restart();

    // When one member leaves, the other's standby task becomes active. That takes one more step,
    // because a process has a task in only one role.
    // one way only.
    script.stream(beat("m2", -1));
    check(
        script.stream(beat("m1", 4)),
        "timer revocation g/m1@4 in 60000
         timer session g/m1 in 45000
         write 9: g/m1 target 0:0,1 / -
         write 9: g target epoch 5
         write 9: g/m1 UnrevokedTasks@4 after 4: 0:0@2 / - gives up - / 0:1
         reply 9: streams m1@4 0:0 / -",
    );
    check(
        script.stream(beat("m1", 4).owns(&[("0", &[0])], &[])),
        "cancel revocation g/m1@4
         timer session g/m1 in 45000
         write 10: g/m1 UnreleasedTasks@5 after 4: 0:0@2 / -
         reply 10: streams m1@5",
    );
    assert_eq!(script.streams_beat(beat("m1", 5)), "m1@5 0:0,1 / -");
}

#[test]
fn a_group_has_settings_of_its_own_within_the_bounds() {
    let image = ready()
        .group_setting("g", "streams.session.timeout.ms", "50000")
        .group_setting("g", "streams.heartbeat.interval.ms", "1")
        .group_setting("g", "streams.initial.rebalance.delay.ms", "70000")
        .group_setting("g", "streams.num.standby.replicas", "5")
        .group_setting("other", "streams.session.timeout.ms", "60000");
    let mut script = Script::with_streams(&image);
    check(
        script.stream(joining("m1", "p1")),
        "timer initial rebalance g in 70000 if absent
         timer session g/m1 in 50000
         write 1: g/m1 in p1 by topology 0
         write 1: g topology 0 of 0
         write 1: g epoch 2 validated 0 [num.standby.replicas=2]
         write 1: g/m1 Stable@1 after 0: - / -
         reply 1: streams m1@1 - / - (5 Assignment delayed due to the configured initial \
         rebalance delay.)",
    );
    assert_eq!(
        script
            .coordinator
            .streams_heartbeat_interval_ms(&"g".into()),
        5_000
    );
    assert_eq!(
        script
            .coordinator
            .streams_assignment_interval_ms(&"g".into()),
        0
    );
}

#[test]
fn assignments_keep_their_distance() {
    let mut script = Script::with_streams(&ready());
    script.config.group_streams_assignment_interval_ms.value = 1_000;
    script.configure();
    script.stream(joining("m1", "p1"));
    let delayed = "(5 Assignment delayed due to the configured assignment interval.)";
    assert_eq!(
        script.streams_beat(joining("m2", "p2")),
        format!("m2@2 - / - {delayed}")
    );
    assert_eq!(script.state("g"), "Assigning");
    script.pass(999);
    assert_eq!(
        script.streams_beat(beat("m2", 2)),
        format!("m2@2 {delayed}")
    );
    script.pass(1);
    assert_eq!(script.streams_beat(beat("m2", 2)), "m2@3");
    assert_eq!(script.streams_beat(beat("m1", 2)), "m1@2 0:0 / -");
}

#[test]
fn members_receive_the_endpoints_of_each_other() {
    let mut script = Script::with_streams(&ready().topic("small", 1));
    let topology = || vec![super::subtopology("0", &["in", "small"], &["store"])];
    let join = |member_id, process_id| joining(member_id, process_id).topology(0, topology());
    assert_eq!(
        script.streams_beat(join("m1", "p1").at("h1")),
        "m1@2 0:0,1 / - endpoints 0 [h1:80 in:0,1 small:0 / -]"
    );
    assert_eq!(script.streams_beat(beat("m1", 2)), "m1@2");
    assert_eq!(
        script.streams_beat(join("m2", "p2").at("h2")),
        "m2@3 - / - endpoints 1 [h1:80 in:0,1 small:0 / -] [h2:80 - / -]"
    );
    assert_eq!(
        script.streams_beat(beat("m1", 2).knows_endpoints(1)),
        "m1@2 0:0 / - endpoints 2 [h2:80 - / -] [h1:80 in:0 small:0 / -]"
    );
    assert_eq!(
        script.streams_beat(beat("m2", 3).knows_endpoints(2)),
        "m2@3"
    );
    // A member without an endpoint changes nothing for the others.
    let reply = script.streams_beat(join("m3", "p3").knows_endpoints(2));
    assert_eq!(reply, "m3@4 - / -");
}

#[test]
fn members_that_can_be_asked_join_before_the_topics_are_there() {
    let mut script = Script::with_streams(&TestImage::new());
    assert_eq!(
        script.streams_beat(joining("m1", "p1").at("h1")),
        "m1@2 - / - endpoints 0 [h1:80 - / -] (1 Source topics in are missing.)"
    );
}

#[test]
fn a_state_of_a_newer_kafka_is_begun_anew() {
    use crate::group::streams::MemberState;
    for code in [1, 2, 3, 127] {
        assert_eq!(MemberState::from_code(code).code(), code);
    }
    assert_eq!(MemberState::from_code(9), MemberState::Unknown);

    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    // In the value, the state follows the version and the two epochs.
    let (_, value) = script.log.last_mut().expect("the current assignment");
    let mut bytes = value.as_ref().expect("a value").to_vec();
    assert_eq!(bytes[10], 1);
    bytes[10] = 9;
    *value = Some(bytes.into());
    let (mut script, _) = script.restart();
    script
        .coordinator
        .begin(std::sync::Arc::new(ready().build()));
    let refused = "FENCED_MEMBER_EPOCH The streams group member is in a unknown state. The \
                   member must abandon all its tasks and rejoin.";
    // A change makes the member reconcile.
    script.config.group_streams_num_standby_replicas.value = 1;
    script.configure();
    assert_eq!(script.streams_beat(beat("m1", 2)), refused);
    let owned = [("0", &[0][..])];
    assert_eq!(
        script.streams_beat(beat("m1", 2).owns(&owned, &[])),
        refused
    );
    assert_eq!(script.streams_beat(beat("m1", 2).owns(&[], &[])), "m1@3");
}

#[test]
fn members_learn_which_client_tags_they_lack() {
    let mut script = Script::with_streams(&ready());
    script.config.group_streams_rack_aware_assignment_tags =
        vec!["zone".to_owned(), "rack".to_owned()];
    script.configure();
    let text = script.stream(joining("m1", "p1").tagged("zone", "a"));
    let configs = "[num.standby.replicas=0, rack.aware.assignment.tags=zone,rack]";
    assert!(text.contains(configs), "{text}");
    let missing = "m1@2 0:0,1 / - (6 Missing required client tags for rack-aware standby \
                   assignment: [rack]. Configure them via 'client.tag.<tagKey>' in your Streams \
                   config.)";
    assert!(text.trim_end().ends_with(missing), "{text}");
    // The group does not need them any more.
    script
        .config
        .group_streams_rack_aware_assignment_tags
        .clear();
    script.configure();
    assert_eq!(script.streams_beat(beat("m1", 2)), "m1@3");
}
