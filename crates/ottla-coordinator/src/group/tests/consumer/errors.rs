//! Refused requests, with Kafka's messages.

use ottla_types::ErrorCode;

use super::{alive, joining};
use crate::group::consumer::validate_heartbeat;
use crate::group::modern::test_image::TestImage;
use crate::group::tests::Script;

#[test]
fn heartbeats_that_hold_too_little_are_refused() {
    let assignors = ["uniform".to_owned(), "range".to_owned()];
    let said = |heartbeat: super::Heartbeat, requires_member_id| {
        let error = validate_heartbeat(&heartbeat.0, requires_member_id, &assignors).err()?;
        Some((error.error, error.message.expect("words")))
    };
    let invalid = |text: &str| Some((ErrorCode::InvalidRequest, text.to_owned()));
    let join = || joining("m", &["a"]);
    assert_eq!(said(join(), true), None);
    assert_eq!(said(joining("", &["a"]), false), None);
    assert_eq!(
        said(joining("", &["a"]), true),
        invalid("MemberId can't be empty.")
    );
    assert_eq!(
        said(alive(" ", 1), false),
        invalid("MemberId can't be empty.")
    );
    assert_eq!(
        said(alive("", -1), false),
        invalid("MemberId can't be empty.")
    );
    assert_eq!(
        said(join().group(""), true),
        invalid("GroupId can't be empty.")
    );
    assert_eq!(
        said(join().instance(""), true),
        invalid("InstanceId can't be empty.")
    );
    assert_eq!(
        said(join().timeout(-1), true),
        invalid("RebalanceTimeoutMs must be provided in first request.")
    );
    assert_eq!(
        said(join().owns(&[("a", &[0])]), true),
        invalid("TopicPartitions must be empty when (re-)joining.")
    );
    assert_eq!(
        said(alive("m", 0).owns(&[]).timeout(1), true),
        invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )
    );
    assert_eq!(
        said(alive("m", -2), true),
        invalid("InstanceId can't be null.")
    );
    assert_eq!(
        said(alive("m", -3), true),
        invalid("MemberEpoch is invalid.")
    );
    assert_eq!(
        said(join().assignor("mine"), true),
        Some((
            ErrorCode::UnsupportedAssignor,
            "ServerAssignor mine is not supported. Supported assignors: uniform, range.".to_owned()
        ))
    );
}

#[test]
fn unknown_members_and_groups_are_refused() {
    let mut script = Script::with_topics(TestImage::new().topic("a", 1));
    assert_eq!(
        script.beat(alive("m", 1)),
        "GROUP_ID_NOT_FOUND Consumer group g not found."
    );
    assert_eq!(
        script.beat(alive("m", -1)),
        "GROUP_ID_NOT_FOUND Group g not found."
    );
    script.send(joining("m1", &["a"]));
    assert_eq!(
        script.beat(alive("m2", 1)),
        "UNKNOWN_MEMBER_ID Member m2 is not a member of group g."
    );
    assert_eq!(
        script.beat(alive("m1", 7)),
        "FENCED_MEMBER_EPOCH The consumer group member has a greater member epoch (7) than the one \
         known by the group coordinator (2). The member must abandon all its partitions and rejoin."
    );
    script.config.group_consumer_max_size = 1;
    script.coordinator.config = std::sync::Arc::new(script.config.clone());
    assert_eq!(
        script.beat(joining("m2", &["a"])),
        "GROUP_MAX_SIZE_REACHED The consumer group has reached its maximum capacity of 1 members."
    );
    assert_eq!(script.beat(joining("m1", &["a"])), "m1@2 a:0");
    // Members may let the coordinator choose their ids.
    script.send(alive("m1", -1));
    assert_eq!(script.beat(joining("", &["a"])), "given@4 a:0");
}
