//! Conversion between the protocols.

use super::{alive, check, joining};
use crate::group::consumer::MigrationPolicy;
use crate::group::modern::test_image::TestImage;
use crate::group::tests::{Script, joining as classic};

/// Two classic members, `c#1` with `t:0` and `c#2` with `t:1`.
fn classic_group() -> Script {
    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    for _ in 0..2 {
        script.join_new(classic("").protocols(&[("range", "t")]));
    }
    script.pass(6_000);
    let assignment =
        |partition: char| format!("\0\0\0\0\0\u{1}\0\u{1}t\0\0\0\u{1}\0\0\0{partition}\0\0\0\0");
    let zero: &'static str = assignment('\0').leak();
    let one: &'static str = assignment('\u{1}').leak();
    script.sync("c#2", 1, &[]);
    script.sync("c#1", 1, &[("c#1", zero), ("c#2", one)]);
    assert_eq!(script.state("g"), "Stable");
    script
}

fn set_policy(script: &mut Script, policy: MigrationPolicy) {
    script.config.group_consumer_migration_policy = policy;
    script.coordinator.config = std::sync::Arc::new(script.config.clone());
}

#[test]
fn a_classic_group_is_upgraded_by_the_first_new_member_and_back_by_the_last() {
    let mut script = classic_group();
    let text = script.send(joining("m1", &["t"]));
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("write"))
        .collect();
    let text = lines.join("\n");
    for line in [
        "group g tombstone",
        "g/c#1 wants [t] classic range",
        "g epoch 1",
        "g/c#1 target t:0",
        "g/c#2 Stable@1 after 1: t:1@1",
        "g/m1 wants [t]",
        "g epoch 2",
        "g target epoch 2",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    script.check_restart();
    assert_eq!(script.state("g"), "Reconciling");
    let heartbeat = script.heartbeat("c#1", 1);
    assert!(heartbeat.contains("REBALANCE_IN_PROGRESS"), "{heartbeat}");

    let text = script.send(alive("m1", -1));
    for line in [
        "g/m1 tombstone",
        "g tombstone",
        "group g type=consumer generation=2 protocol=range",
        "timer session g/c#1 in 10000",
        "timer join g in 60000",
        "heartbeat m1@-1",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert_eq!(script.state("g"), "PreparingRebalance");
    let (restarted, _) = script.restart();
    assert!(restarted.coordinator.classic_group("g").is_some());
}

#[test]
fn requests_that_wait_in_a_classic_group_are_answered_when_it_ends() {
    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    script.join_new(classic("").protocols(&[("range", "t")]));
    let text = script.send(joining("m1", &["t"]));
    assert!(
        text.contains("reply 2: join REBALANCE_IN_PROGRESS member=c#1"),
        "{text}"
    );
    assert!(text.contains("cancel join g"), "{text}");
    // It rejoins with its member id.
    let text = script.join(classic("c#1").protocols(&[("range", "t")]));
    assert!(text.contains("join generation="), "{text}");
}

#[test]
fn a_static_member_takes_its_group_back_to_the_classic_protocol() {
    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    script.send(joining("m1", &["t"]).instance("i"));
    let text = script.join(classic("").instance("i").protocols(&[("range", "t")]));
    assert!(
        text.contains("group g type=consumer generation=2 protocol=range"),
        "{text}"
    );
    assert!(text.contains("join generation=2 protocol=range"), "{text}");
    assert_eq!(script.state("g"), "Stable");
    let (restarted, _) = script.restart();
    assert_eq!(restarted.state("g"), "Stable");
}

#[test]
fn the_policy_decides() {
    let mut script = classic_group();
    set_policy(&mut script, MigrationPolicy::Downgrade);
    assert_eq!(
        script.beat(joining("m1", &["t"])),
        "GROUP_ID_NOT_FOUND Cannot upgrade classic group g to consumer group because online \
         upgrade is disabled."
    );
    set_policy(&mut script, MigrationPolicy::Upgrade);
    script.send(joining("m1", &["t"]));
    script.send(alive("m1", -1));
    assert!(script.coordinator.consumer_group("g").is_some());
    set_policy(&mut script, MigrationPolicy::Disabled);
    let text = script.join(classic("c#1").protocols(&[("range", "t")]));
    assert!(text.contains("INCONSISTENT_GROUP_PROTOCOL"), "{text}");
}

#[test]
fn an_upgrade_that_cannot_be_written_leaves_the_classic_group() {
    let mut script = classic_group();
    script.commits_at_once = false;
    script.send(joining("m1", &["t"]));
    assert!(script.coordinator.consumer_group("g").is_some());
    script.fail(3, ottla_types::ErrorCode::NotEnoughReplicas);
    let group = script.coordinator.classic_group("g").expect("as before");
    assert_eq!(group.num_members(), 2);
    assert!(script.heartbeat("c#1", 1).contains("heartbeat NONE"));
}

/// Without a join timer, no first generation would ever start.
#[test]
fn a_rebalance_continues_after_an_upgrade_that_cannot_be_written() {
    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    script.join_new(classic("").protocols(&[("range", "t")]));
    script.commits_at_once = false;
    script.send(joining("m1", &["t"]));
    check(
        script.fail(2, ottla_types::ErrorCode::NotEnoughReplicas),
        "timer session g/c#1 in 10000 if absent
         timer join g in 3000 if absent
         reply 3: heartbeat COORDINATOR_NOT_AVAILABLE -",
    );
    script.commits_at_once = true;
    assert_eq!(script.state("g"), "PreparingRebalance");
    script.join(classic("c#1").protocols(&[("range", "t")]));
    let text = script.pass(3_000);
    assert!(text.contains("join generation=1"), "{text}");
    // The next phase has a timer as well.
    script.commits_at_once = false;
    script.send(joining("m1", &["t"]));
    let text = script.fail(3, ottla_types::ErrorCode::NotEnoughReplicas);
    assert!(text.contains("timer sync g in 60000 if absent"), "{text}");
    assert_eq!(script.state("g"), "CompletingRebalance");
}

#[test]
fn a_member_that_left_during_an_upgrade_that_cannot_be_written_expires() {
    let mut script = classic_group();
    script.commits_at_once = false;
    script.send(joining("m1", &["t"]));
    let text = script.leave(&["c#1"]);
    assert!(text.contains("cancel session g/c#1"), "{text}");
    let text = script.fail(3, ottla_types::ErrorCode::KafkaStorageError);
    assert!(
        text.contains("timer session g/c#1 in 10000 if absent"),
        "{text}"
    );
    script.commits_at_once = true;
    script.pass(9_000);
    assert!(script.heartbeat("c#2", 1).contains("heartbeat NONE"));
    script.pass(1_000);
    let heartbeat = script.heartbeat("c#2", 1);
    assert!(heartbeat.contains("REBALANCE_IN_PROGRESS"), "{heartbeat}");
}

#[test]
fn a_member_that_left_during_a_downgrade_that_cannot_be_written_expires() {
    let mut script = classic_group();
    script.send(joining("m1", &["t"]));
    script.commits_at_once = false;
    script.send(alive("m1", -1));
    assert!(script.coordinator.classic_group("g").is_some());
    script.leave(&["c#1"]);
    let text = script.fail(4, ottla_types::ErrorCode::KafkaStorageError);
    assert!(
        text.contains("timer session g/c#1 in 45000 if absent"),
        "{text}"
    );
    assert!(script.coordinator.consumer_group("g").is_some());
    script.commits_at_once = true;
    let text = script.pass(45_000);
    assert!(text.contains("g/c#1 tombstone"), "{text}");
}

/// While its JoinGroup waits, a member needs no heartbeats, and its session timer has no effect.
#[test]
fn a_member_that_waited_for_longer_than_its_session_must_send_heartbeats_after_an_upgrade() {
    let mut script = classic_group();
    // The leader starts a rebalance.
    script.join(classic("c#1").protocols(&[("range", "t")]));
    script.pass(8_000);
    script.heartbeat("c#2", 1);
    script.pass(4_000);
    let text = script.send(joining("m1", &["t"]));
    assert!(
        text.contains("join REBALANCE_IN_PROGRESS member=c#1"),
        "{text}"
    );
    assert!(script.coordinator.consumer_group("g").is_some());
    let text = script.pass(10_000);
    assert!(text.contains("g/c#1 tombstone"), "{text}");
}

#[test]
fn empty_groups_change_freely() {
    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    script.send(joining("m1", &["t"]));
    script.send(alive("m1", -1));
    set_policy(&mut script, MigrationPolicy::Disabled);
    let text = script.join(classic(""));
    assert!(text.contains("g tombstone"), "{text}");
    assert!(script.coordinator.classic_group("g").is_some());
    let (restarted, _) = script.restart();
    assert!(restarted.coordinator.classic_group("g").is_some());

    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    script.join_new(classic(""));
    script.leave(&["c#1"]);
    script.pass(60_000);
    set_policy(&mut script, MigrationPolicy::Disabled);
    let text = script.send(joining("m1", &["t"]));
    assert!(text.contains("group g tombstone"), "{text}");
    assert!(text.contains("heartbeat m1@2 t:0,1"), "{text}");
    script.check_restart();
}
