//! Members join and leave, and partitions move between them.

use super::{alive, check, joining};
use crate::group::modern::test_image::TestImage;
use crate::group::tests::Script;

fn two_members() -> Script {
    let mut script = Script::with_topics(TestImage::new().topic("a", 4));
    script.send(joining("m1", &["a"]));
    script
}

#[test]
fn a_partition_moves_when_its_owner_has_revoked_it() {
    let mut script = two_members();
    check(
        script.send(joining("m2", &["a"])),
        "timer session g/m2 in 45000
         write 2: g/m2 wants [a]
         write 2: g epoch 3
         write 2: g/m1 target a:0,1
         write 2: g/m2 target a:2,3
         write 2: g target epoch 3
         write 2: g/m2 UnreleasedPartitions@3 after 0: -
         reply 2: heartbeat m2@3 -",
    );
    assert_eq!(script.state("g"), "Reconciling");
    check(
        script.send(alive("m1", 2)),
        "timer revocation g/m1@2 in 60000
         timer session g/m1 in 45000
         write 3: g/m1 UnrevokedPartitions@2 after 2: a:0@2 a:1@2 gives up a:2@2 a:3@2
         reply 3: heartbeat m1@2 a:0,1",
    );
    // Without partitions, the heartbeat does not show which partitions were revoked.
    assert_eq!(script.beat(alive("m1", 2)), "m1@2");
    assert_eq!(script.beat(alive("m2", 3)), "m2@3");
    check(
        script.send(alive("m1", 2).owns(&[("a", &[0, 1])])),
        "cancel revocation g/m1@2
         timer session g/m1 in 45000
         write 5: g/m1 Stable@3 after 2: a:0@2 a:1@2
         reply 6: heartbeat m1@3",
    );
    check(
        script.send(alive("m2", 3)),
        "timer session g/m2 in 45000
         write 6: g/m2 Stable@3 after 3: a:2@3 a:3@3
         reply 7: heartbeat m2@3 a:2,3",
    );
    assert_eq!(script.state("g"), "Stable");
    script.check_restart();
}

#[test]
fn partitions_of_a_member_that_leaves_are_reassigned() {
    let mut script = two_members();
    script.send(joining("m2", &["a"]));
    script.send(alive("m1", 2).owns(&[("a", &[0, 1, 2, 3])]));
    script.send(alive("m1", 2).owns(&[("a", &[0, 1])]));
    check(
        script.send(alive("m1", -1)),
        "cancel session g/m1
         cancel revocation g/m1@3
         cancel rejoin g/m1
         cancel member sync g/m1
         write 5: g/m1 current tombstone
         write 5: g/m1 target tombstone
         write 5: g/m1 tombstone
         write 5: g epoch 4
         reply 5: heartbeat m1@-1",
    );
    assert_eq!(script.state("g"), "Assigning");
    assert_eq!(script.beat(alive("m2", 3)), "m2@4 a:0,1,2,3");
    script.send(alive("m2", -1));
    assert_eq!(script.state("g"), "Empty");
    script.check_restart();
}

#[test]
fn a_member_that_times_out_or_does_not_revoke_in_time_is_removed() {
    let mut script = two_members();
    script.send(joining("m2", &["a"]).timeout(20_000));
    script.send(alive("m1", 2));
    script.pass(30_000);
    script.send(alive("m1", 2));
    let text = script.pass(20_000);
    assert!(text.contains("g/m2 tombstone"), "silent: {text}");

    let mut script = two_members();
    script.send(joining("m2", &["a"]));
    script.send(alive("m1", 2));
    for _ in 0..5 {
        script.pass(11_000);
        script.send(alive("m1", 2));
        script.send(alive("m2", 3));
    }
    let text = script.pass(10_000);
    assert!(text.contains("g/m1 tombstone"), "keeps all: {text}");
    assert_eq!(script.beat(alive("m2", 3)), "m2@4 a:0,1,2,3");
}

#[test]
fn a_member_that_missed_a_response_may_send_its_previous_epoch() {
    let mut script = two_members();
    script.send(joining("m2", &["a"]));
    script.send(alive("m1", 2));
    script.send(alive("m1", 2).owns(&[("a", &[0, 1])]));
    assert_eq!(
        script.beat(alive("m1", 2).owns(&[("a", &[0, 1])])),
        "m1@3",
        "it owns its target assignment"
    );
    let refused = "FENCED_MEMBER_EPOCH The consumer group member has a smaller member epoch (2) \
                   than the one known by the group coordinator (3). The member must abandon all \
                   its partitions and rejoin.";
    assert_eq!(script.beat(alive("m1", 2).owns(&[("a", &[0, 2])])), refused);
    assert_eq!(script.beat(alive("m1", 2)), refused);
    // A full heartbeat gets a full response.
    let full = alive("m1", 3).wants(&["a"]).owns(&[("a", &[0, 1])]);
    assert_eq!(script.beat(full.timeout(60_000)), "m1@3 a:0,1");
    // A fenced member rejoins without partitions and gets its assignment.
    assert_eq!(script.beat(joining("m1", &["a"])), "m1@3 a:0,1");
}

#[test]
fn a_changed_subscription_replaces_all_assigned_partitions() {
    let mut script = Script::with_topics(TestImage::new().topic("a", 2).topic("b", 2));
    script.send(joining("m1", &["a", "b"]));
    check(
        script.send(alive("m1", 2).wants(&["b"])),
        "timer revocation g/m1@2 in 60000
         timer session g/m1 in 45000
         write 2: g/m1 wants [b]
         write 2: g epoch 3
         write 2: g/m1 target b:0,1
         write 2: g target epoch 3
         write 2: g/m1 UnrevokedPartitions@2 after 2: b:0@2 b:1@2 gives up a:0@2 a:1@2
         reply 2: heartbeat m1@2 b:0,1",
    );
    assert_eq!(script.beat(alive("m1", 2).owns(&[("b", &[0, 1])])), "m1@3");
    script.check_restart();
}

#[test]
fn between_two_assignments_some_time_passes() {
    let mut script = Script::with_topics(TestImage::new().topic("a", 2));
    let mut config = script.config.clone();
    config.group_consumer_assignment_interval_ms.value = 1_000;
    script.coordinator.config = std::sync::Arc::new(config);
    assert_eq!(script.beat(joining("m1", &["a"])), "m1@2 a:0,1");
    assert_eq!(script.beat(joining("m2", &["a"])), "m2@2 -");
    assert_eq!(script.state("g"), "Assigning");
    assert_eq!(script.beat(alive("m1", 2)), "m1@2");
    script.pass(1_000);
    assert_eq!(script.beat(alive("m1", 2)), "m1@2 a:0");
}

#[test]
fn topics_that_change_change_the_assignment() {
    let mut script = two_members();
    assert_eq!(script.beat(alive("m1", 2)), "m1@2");
    script.change_topics(TestImage::new().partition("a", 4));
    assert_eq!(script.beat(alive("m1", 2)), "m1@3 a:0,1,2,3,4");
    script.change_topics(TestImage::new().topic("elsewhere", 4));
    assert_eq!(script.beat(alive("m1", 3)), "m1@3");
    script.change_topics(TestImage::new().without("a"));
    assert_eq!(script.beat(alive("m1", 3)), "m1@3 -");
    assert_eq!(script.beat(alive("m1", 3).owns(&[])), "m1@4");
    script.change_topics(TestImage::new().topic("a", 1));
    assert_eq!(script.beat(alive("m1", 4)), "m1@5 a:0");
}

#[test]
fn most_members_decide_on_the_assignor() {
    let mut script = Script::with_topics(TestImage::new().topic("a", 2).topic("b", 1));
    script.send(joining("m1", &["a"]));
    let both = joining("m2", &["a", "b"]).assignor("range");
    assert!(script.send(both).contains("g/m2 wants [a, b] by range"));
    let described = script.coordinator.describe_consumer_group(&"g".into());
    assert_eq!(&*described.assignor_name, "range");
    assert_eq!(&*described.group_state, "Reconciling");
    assert_eq!(described.members.len(), 2);
    assert_eq!(
        described.members[1]
            .target_assignment
            .topic_partitions
            .len(),
        2
    );
}

#[test]
fn state_changes_are_reverted_if_their_write_fails() {
    let mut script = two_members();
    script.commits_at_once = false;
    script.send(joining("m2", &["a"]));
    check(
        script.fail(2, ottla_types::ErrorCode::NotEnoughReplicas),
        "timer session g/m1 in 45000 if absent
         reply 2: heartbeat COORDINATOR_NOT_AVAILABLE -",
    );
    let group = script.coordinator.consumer_group("g").expect("there");
    assert_eq!(group.num_members(), 1);
    assert_eq!(group.group_epoch, 2);
    script.commits_at_once = true;
    script.log.truncate(5);
    script.check_restart();

    // If the removal of a member could not be written, it is retried a little later.
    script.commits_at_once = false;
    script.pass(45_000);
    check(
        script.fail(3, ottla_types::ErrorCode::NotEnoughReplicas),
        "timer session g/m1 in 500 if absent
         timer session g/m1 in 45000 if absent",
    );
    script.commits_at_once = true;
    assert!(script.pass(500).contains("g/m1 tombstone"));
}

#[test]
fn a_member_whose_departure_could_not_be_written_expires() {
    let mut script = two_members();
    script.commits_at_once = false;
    let text = script.send(alive("m1", -1));
    assert!(text.contains("cancel session g/m1"), "{text}");
    check(
        script.fail(2, ottla_types::ErrorCode::KafkaStorageError),
        "timer session g/m1 in 45000 if absent
         reply 2: heartbeat NOT_COORDINATOR -",
    );
    script.commits_at_once = true;
    script.pass(1_000);
    // The member is gone, and the group waits for it to revoke half of the partitions.
    assert_eq!(script.beat(joining("m2", &["a"])), "m2@3 -");
    assert!(script.pass(44_000).contains("g/m1 tombstone"));
    assert_eq!(script.beat(alive("m2", 3)), "m2@4 a:0,1,2,3");
}
