//! Static members, which rejoin with another member id.

use super::{beat, joining, ready};
use crate::group::tests::{Script, check};

fn with_one() -> Script {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1").instance("i"));
    script
}

#[test]
fn a_returning_static_member_gets_its_tasks() {
    let mut script = with_one();
    assert_eq!(
        script.streams_beat(joining("m2", "p1").instance("i")),
        "UNRELEASED_INSTANCE_ID Static member m2 with instance id i cannot join the group because \
         the instance id is owned by m1 member."
    );
    check(
        script.stream(beat("m1", -2).instance("i")),
        "write 2: g/m1 Stable@-2 after 0: 0:0@0 0:1@0 / -
         reply 3: streams m1@-2",
    );
    // No other member gets the tasks until then.
    assert_eq!(script.streams_beat(joining("other", "p2")), "other@3 - / -");
    check(
        script.stream(joining("m2", "p1").instance("i")),
        "timer session g/m2 in 45000
         write 4: g/m1 current tombstone
         write 4: g/m1 target tombstone
         write 4: g/m1 tombstone
         write 4: g/m2 (i) in p1 by topology 0
         write 4: g/m2 target 0:0 / -
         write 4: g/m2 Stable@0 after 0: 0:0@0 0:1@0 / -
         write 4: g/m2 Stable@3 after 0: 0:0@0 / -
         reply 5: streams m2@3 0:0 / -",
    );
    script.check_streams_restart();
    assert_eq!(script.streams_beat(beat("other", 3)), "other@3 0:1 / -");
    assert_eq!(
        script.streams_beat(beat("m1", 3).instance("i")),
        "FENCED_INSTANCE_ID Static member m1 with instance id i was fenced by member m2."
    );
    assert_eq!(
        script.streams_beat(beat("m1", -2).instance("i")),
        "FENCED_INSTANCE_ID Static member m1 with instance id i was fenced by member m2."
    );
    assert_eq!(
        script.streams_beat(beat("m2", 3).instance("nobody")),
        "UNKNOWN_MEMBER_ID Instance id nobody is unknown."
    );
    script.check_streams_restart();
}

#[test]
fn a_static_member_that_returns_elsewhere_causes_no_rebalance() {
    let mut script = Script::with_streams(&ready());
    script.config.group_streams_max_size = 1;
    script.configure();
    script.stream(joining("m1", "p1").instance("i").at("first"));
    script.stream(beat("m1", -2).instance("i"));
    // It has its place also in a full group.
    assert!(
        script
            .streams_beat(joining("m2", "p1"))
            .starts_with("GROUP_MAX_SIZE_REACHED")
    );
    assert_eq!(
        script.streams_beat(joining("m2", "p1").instance("i").at("second")),
        "m2@2 0:0,1 / - endpoints 1 [second:80 in:0,1 / -]"
    );
    // Without its state directory, it may get other tasks.
    script.stream(beat("m2", -2).instance("i"));
    assert!(
        script
            .streams_beat(joining("m3", "p2").instance("i"))
            .starts_with("m3@3 0:0,1 / -")
    );
    script.check_streams_restart();
}

#[test]
fn a_static_member_that_does_not_return_is_removed() {
    let mut script = with_one();
    script.stream(beat("m1", -2).instance("i"));
    assert_eq!(script.state("g"), "Reconciling");
    let text = script.pass(45_000);
    assert!(text.contains("g/m1 tombstone"), "{text}");
    assert_eq!(script.state("g"), "Empty");
}

#[test]
fn a_static_member_may_also_leave_for_good() {
    let mut script = with_one();
    script.stream(beat("m1", -1).instance("i"));
    assert_eq!(script.state("g"), "Empty");
    assert_eq!(
        script.streams_beat(joining("m2", "p1").instance("i")),
        "m2@4 0:0,1 / -"
    );
}
