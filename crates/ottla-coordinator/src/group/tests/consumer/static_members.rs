//! Static members, which rejoin with another member id.

use super::{alive, check, joining};
use crate::group::modern::test_image::TestImage;
use crate::group::tests::Script;

fn with_one() -> Script {
    let mut script = Script::with_topics(TestImage::new().topic("a", 2));
    script.send(joining("m1", &["a"]).instance("i"));
    script
}

#[test]
fn a_returning_static_member_gets_its_partitions() {
    let mut script = with_one();
    assert_eq!(
        script.beat(joining("m2", &["a"]).instance("i")),
        "UNRELEASED_INSTANCE_ID Static member m2 with instance id i cannot join the group because \
         the instance id is owned by m1 member."
    );
    check(
        script.send(alive("m1", -2).instance("i")),
        "write 2: g/m1 Stable@-2 after 0: a:0@0 a:1@0
         reply 3: heartbeat m1@-2",
    );
    // No other member gets the partitions until then.
    assert_eq!(script.beat(joining("other", &["a"])), "other@3 -");
    check(
        script.send(joining("m2", &["a"]).instance("i")),
        "timer session g/m2 in 45000
         write 4: g/m1 current tombstone
         write 4: g/m1 target tombstone
         write 4: g/m1 tombstone
         write 4: g/m2 (i) wants [a]
         write 4: g/m2 target a:0
         write 4: g/m2 Stable@0 after 0: a:0@0 a:1@0
         write 4: g/m2 Stable@3 after 0: a:0@0
         reply 5: heartbeat m2@3 a:0",
    );
    script.check_restart();
    assert_eq!(
        script.beat(alive("m1", 3).instance("i")),
        "FENCED_INSTANCE_ID Static member m1 with instance id i was fenced by member m2."
    );
    assert_eq!(
        script.beat(alive("m2", 3).instance("nobody")),
        "UNKNOWN_MEMBER_ID Instance id nobody is unknown."
    );
}

#[test]
fn a_static_member_that_does_not_return_is_removed() {
    let mut script = with_one();
    script.send(alive("m1", -2).instance("i"));
    let text = script.pass(45_000);
    assert!(text.contains("g/m1 tombstone"), "{text}");
    assert_eq!(script.state("g"), "Empty");
}

#[test]
fn a_static_member_may_also_leave_for_good() {
    let mut script = with_one();
    script.send(alive("m1", -1).instance("i"));
    assert_eq!(script.state("g"), "Empty");
    assert_eq!(
        script.beat(joining("m2", &["a"]).instance("i")),
        "m2@4 a:0,1"
    );
}
