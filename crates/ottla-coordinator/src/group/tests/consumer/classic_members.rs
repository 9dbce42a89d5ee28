//! Members of the classic protocol in a consumer group.

use super::{alive, check, joining};
use crate::group::modern::test_image::TestImage;
use crate::group::outcome::WriteId;
use crate::group::tests::{Script, joining as classic};
use crate::runtime::Coordinator;

/// `m1` of the consumer protocol owns both partitions of `t`.
fn group() -> Script {
    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    script.send(joining("m1", &["t"]));
    script
}

#[test]
fn a_classic_member_gets_its_share() {
    let mut script = group();
    let asked = script.join(classic(""));
    assert!(asked.contains("join MEMBER_ID_REQUIRED"), "{asked}");
    check(
        script.join(classic("old")),
        "write 2: g/old wants [t] classic range
         write 2: g epoch 3
         write 2: g/m1 target t:0
         write 2: g/old target t:1
         write 2: g target epoch 3
         write 2: g/old UnreleasedPartitions@3 after 0: -
         cancel rejoin g/old
         timer session g/old in 10000
         timer member sync g/old in 60000
         reply 3: join generation=3 protocol=range leader= member=old members=[]",
    );
    let synced = script.sync("old", 3, &[]);
    assert!(
        synced.contains("reply 4: sync protocol=- assignment="),
        "{synced}"
    );
    assert!(script.heartbeat("old", 3).contains("heartbeat NONE"));
    // The other member gives up its partition, and the classic member must rejoin.
    script.send(alive("m1", 2).owns(&[("t", &[0, 1])]));
    script.send(alive("m1", 2).owns(&[("t", &[0])]));
    check(
        script.heartbeat("old", 3),
        "timer session g/old in 10000
         timer rejoin g/old in 60000 if absent
         reply 8: heartbeat REBALANCE_IN_PROGRESS",
    );
    let rejoined = script.join(classic("old"));
    assert!(
        rejoined.contains("g/old Stable@3 after 3: t:1@3"),
        "{rejoined}"
    );
    assert!(rejoined.contains("cancel rejoin g/old"), "{rejoined}");
    let synced = script.sync("old", 3, &[]);
    assert!(synced.contains("assignment=\0\u{1}"), "{synced:?}");
    assert!(script.heartbeat("old", 3).contains("heartbeat NONE"));
    assert!(script.heartbeat("old", 2).contains("ILLEGAL_GENERATION"));
    assert!(script.heartbeat("m1", 3).contains("UNKNOWN_MEMBER_ID"));
    script.check_restart();
}

#[test]
fn a_classic_member_that_does_not_rejoin_in_time_is_removed() {
    let mut script = group();
    script.join(classic("old"));
    let text = script.pass(60_000);
    assert!(text.contains("g/old tombstone"), "it never asked: {text}");
}

/// Its write may be committed later, when no client waits for it any more.
#[test]
fn a_classic_member_whose_join_timed_out_expires() {
    let mut script = group();
    script.commits_at_once = false;
    script.join(classic("old"));
    let now = script.now();
    let outcome = script.coordinator.on_write_timed_out(WriteId(2), now);
    check(
        script.render(outcome),
        "timer session g/old in 10000 if absent
         timer member sync g/old in 60000 if absent
         reply 2: join COORDINATOR_NOT_AVAILABLE member=old",
    );
    script.commit();
    script.commits_at_once = true;
    let text = script.pass(10_000);
    assert!(text.contains("g/old tombstone"), "{text}");
}

#[test]
fn protocols_must_fit() {
    let mut script = group();
    script.join(classic("old").protocols(&[("range", "t")]));
    let text = script.join(classic("other").protocols(&[("sticky", "t")]));
    assert!(text.contains("INCONSISTENT_GROUP_PROTOCOL"), "{text}");
    let text = script.join(classic("third").protocols(&[("sticky", "t"), ("range", "t")]));
    assert!(text.contains("join generation="), "{text}");
}
