//! Large target assignments, which are computed outside the coordinator.

use std::sync::Arc;

use ottla_types::ErrorCode;

use super::{alive, check, joining};
use crate::group::modern::test_image::TestImage;
use crate::group::tests::Script;

/// Every assignment is a large one.
fn script() -> Script {
    let mut script = Script::with_topics(TestImage::new().topic("a", 4));
    script.config = script.coordinator.config.as_ref().clone();
    script.config.group_consumer_inline_assignment_max = 0;
    script.coordinator.config = Arc::new(script.config.clone());
    script
}

#[test]
fn members_keep_their_target_while_another_is_computed() {
    let mut script = script();
    check(
        script.send(joining("m1", &["a"])),
        "timer session g/m1 in 45000
         write 1: g/m1 wants [a]
         write 1: g epoch 2
         write 1: g/m1 Stable@1 after 0: -
         reply 1: heartbeat m1@1 -
         compute g target epoch 2",
    );
    // One at a time.
    check(
        script.send(joining("m2", &["a"])),
        "timer session g/m2 in 45000
         write 2: g/m2 wants [a]
         write 2: g epoch 3
         write 2: g/m2 Stable@1 after 0: -
         reply 2: heartbeat m2@1 -",
    );
    assert_eq!(script.state("g"), "Assigning");
    // The result counts although there is a newer epoch.
    check(
        script.compute(),
        "write 3: g/m1 target a:0,1,2,3
         write 3: g target epoch 2",
    );
    check(
        script.send(alive("m1", 1)),
        "timer session g/m1 in 45000
         write 4: g/m1 Stable@2 after 1: a:0@2 a:1@2 a:2@2 a:3@2
         reply 3: heartbeat m1@2 a:0,1,2,3
         compute g target epoch 3",
    );
    check(
        script.compute(),
        "write 5: g/m1 target a:0,1
         write 5: g/m2 target a:2,3
         write 5: g target epoch 3",
    );
    assert_eq!(script.beat(alive("m1", 2)), "m1@2 a:0,1");
    assert_eq!(script.beat(alive("m1", 2).owns(&[("a", &[0, 1])])), "m1@3");
    assert_eq!(script.beat(alive("m2", 1)), "m2@3 a:2,3");
    assert_eq!(script.state("g"), "Stable");
    script.check_restart();
}

#[test]
fn a_group_can_refuse_to_wait() {
    let mut script = script();
    let own = TestImage::new().group_setting("g", "consumer.assignor.offload.enable", "false");
    script.change_topics(own);
    assert_eq!(script.beat(joining("m1", &["a"])), "m1@2 a:0,1,2,3");
    assert!(script.computing.is_empty());
}

#[test]
fn a_result_for_a_state_that_was_not_written_is_dropped() {
    let mut script = script();
    script.send(joining("m1", &["a"]));
    script.compute();
    script.commits_at_once = false;
    script.send(joining("m2", &["a"]));
    let order = script.computing.front().expect("it is ordered").order();
    assert!(script.coordinator.is_target_wanted(&order));
    script.fail(3, ErrorCode::NotEnoughReplicas);
    assert!(!script.coordinator.is_target_wanted(&order));
    assert_eq!(script.compute(), "");
    // A group in the same epoch as the lost one gets a target of its own.
    script.commits_at_once = true;
    script.send(joining("m3", &["a"]));
    assert!(script.compute().contains("g/m3 target a:2,3"));
}

#[test]
fn a_result_for_a_group_that_was_deleted_is_dropped() {
    let mut script = script();
    script.send(joining("m1", &["a"]));
    script.send(alive("m1", -1));
    script.delete_groups(&["g"]);
    script.send(joining("m1", &["a"]));
    assert_eq!(script.compute(), "");
    assert!(script.compute().contains("g/m1 target a:0,1,2,3"));
}

#[test]
fn a_static_member_gets_the_target_of_the_member_that_it_replaces() {
    let mut script = script();
    script.send(joining("m1", &["a"]).instance("i"));
    script.send(alive("m1", -2).instance("i"));
    script.send(joining("m9", &["a"]).instance("i"));
    let text = script.compute();
    assert!(text.contains("g/m9 target a:0,1,2,3"), "{text}");
    assert!(!text.contains("g/m1 target"), "{text}");
}

#[test]
fn a_member_keeps_its_own_target_when_it_takes_an_instance_id_over() {
    let mut script = script();
    script.send(joining("m1", &["a"]).instance("i"));
    script.compute();
    script.send(joining("m2", &["a"]));
    script.send(alive("m1", -1).instance("i"));
    script.send(joining("m2", &["a"]).instance("i"));
    let text = script.compute();
    assert_eq!(text.matches("g/m2 target").count(), 1, "{text}");
    assert!(text.contains("g/m2 target a:2,3"), "{text}");
}

#[test]
fn a_computation_that_failed_is_ordered_again() {
    let mut script = script();
    script.send(joining("m1", &["a"]));
    let former = script.computing.pop_front().expect("it is ordered").order();
    let orders = |script: &mut Script| script.send(alive("m1", 1)).contains("compute g");
    assert!(!orders(&mut script), "no failure was reported");
    script.coordinator.on_target_not_computed(&former);
    assert!(orders(&mut script));
    script.coordinator.on_target_not_computed(&former);
    assert!(!orders(&mut script), "that was the former order");
    assert!(script.compute().contains("g/m1 target a:0,1,2,3"));
}
