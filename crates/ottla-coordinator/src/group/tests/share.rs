//! Share groups: sequences of heartbeats and of results of the share coordinator.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::alter_share_group_offsets_request::{
    AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic;
use ottla_protocol::messages::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse, DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse, ShareGroupHeartbeatRequest,
};

use super::{Script, check, committing, joining as classic_joining};
use crate::group::GroupCoordinatorConfig;
use crate::group::modern::test_image::{TestImage, topic_id};
use crate::group::share::{ShareHeartbeatContext, validate_share_heartbeat};

/// A heartbeat of `member_id` in `g` without changes.
fn alive(member_id: &str, epoch: i32) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member_id.to_owned().into(),
        member_epoch: epoch,
        ..Default::default()
    }
}

fn joining(member_id: &str, topics: &[&'static str]) -> ShareGroupHeartbeatRequest {
    ShareGroupHeartbeatRequest {
        subscribed_topic_names: Some(topics.iter().map(|topic| (*topic).into()).collect()),
        ..alive(member_id, 0)
    }
}

impl Script {
    /// A coordinator in a cluster with these topics, without a minimum interval between assignments
    /// of share groups.
    fn sharing(image: TestImage) -> Self {
        let mut config = GroupCoordinatorConfig::default();
        config.group_share_assignment_interval_ms.value = 0;
        let mut script = Script::with_config(config);
        script.coordinator.begin(Arc::new(image.build()));
        script
    }

    fn share(&mut self, request: &ShareGroupHeartbeatRequest) -> String {
        let to = self.next_reply_to();
        let context = ShareHeartbeatContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
        };
        let now = self.now();
        let outcome = self
            .coordinator
            .handle_share_group_heartbeat(to, request, &context, now);
        self.render(outcome)
    }

    /// The response to a heartbeat alone.
    fn shared(&mut self, request: &ShareGroupHeartbeatRequest) -> String {
        let text = self.share(request);
        let replies: Vec<&str> = text
            .lines()
            .filter_map(|line| {
                line.split_once(": share heartbeat ")
                    .map(|(_, reply)| reply)
            })
            .collect();
        replies.join("\n")
    }

    /// The share coordinator has initialized partitions of a topic.
    fn initialized(&mut self, topic: &str, partitions: &[i32]) -> String {
        let partitions: BTreeSet<i32> = partitions.iter().copied().collect();
        let partitions = [(topic_id(topic), partitions)].into_iter().collect();
        let now = self.now();
        let outcome = self
            .coordinator
            .on_share_state_initialized(&"g".into(), &partitions, now);
        self.render(outcome)
    }

    /// Sets the offsets of `g` in some partitions.
    fn alter_offsets(&mut self, offsets: &[(&'static str, i32, i64)]) -> String {
        let topics =
            offsets.iter().map(
                |(topic, index, start_offset)| AlterShareGroupOffsetsRequestTopic {
                    topic_name: (*topic).into(),
                    partitions: vec![AlterShareGroupOffsetsRequestPartition {
                        partition_index: *index,
                        start_offset: *start_offset,
                        ..Default::default()
                    }],
                    ..Default::default()
                },
            );
        let request = AlterShareGroupOffsetsRequest {
            group_id: "g".into(),
            topics: topics.collect(),
            ..Default::default()
        };
        let (to, now) = (self.next_reply_to(), self.now());
        let outcome = self
            .coordinator
            .handle_alter_share_group_offsets(to, &request, now);
        self.render(outcome)
    }

    /// The share coordinator has set the offsets in partitions of a topic.
    fn complete_alter_offsets(&mut self, topic: &str, partitions: &[i32]) -> String {
        let partitions: BTreeSet<i32> = partitions.iter().copied().collect();
        let initialized = [(topic_id(topic), partitions)].into_iter().collect();
        let (to, now) = (self.next_reply_to(), self.now());
        let response = AlterShareGroupOffsetsResponse::default();
        let outcome = self.coordinator.complete_alter_share_group_offsets(
            to,
            &"g".into(),
            &initialized,
            response,
            now,
        );
        self.render(outcome)
    }

    fn begin_delete_offsets(&mut self, topics: &[&'static str]) -> String {
        let topics = topics
            .iter()
            .map(|topic| DeleteShareGroupOffsetsRequestTopic {
                topic_name: (*topic).into(),
                ..Default::default()
            });
        let request = DeleteShareGroupOffsetsRequest {
            group_id: "g".into(),
            topics: topics.collect(),
            ..Default::default()
        };
        let (to, now) = (self.next_reply_to(), self.now());
        let outcome = self
            .coordinator
            .begin_delete_share_group_offsets(to, &request, now);
        self.render(outcome)
    }

    fn complete_delete_offsets(&mut self, topic: &str) -> String {
        let (to, now) = (self.next_reply_to(), self.now());
        let deleted = BTreeSet::from([topic_id(topic)]);
        let response = DeleteShareGroupOffsetsResponse::default();
        let outcome = self.coordinator.complete_delete_share_group_offsets(
            to,
            &"g".into(),
            &deleted,
            response,
            now,
        );
        self.render(outcome)
    }

    fn begin_delete_groups(&mut self, group_ids: &[&'static str]) -> String {
        let (to, now) = (self.next_reply_to(), self.now());
        let group_ids: Vec<ByteString> = group_ids.iter().map(|id| ByteString::from(*id)).collect();
        let outcome = self
            .coordinator
            .begin_delete_share_groups(to, &group_ids, now);
        self.render(outcome)
    }

    /// Two members that share a topic of two partitions.
    fn sharing_two() -> Self {
        let mut script = Script::sharing(TestImage::new().topic("a", 2));
        script.share(&joining("m1", &["a"]));
        script.initialized("a", &[0, 1]);
        assert_eq!(script.shared(&alive("m1", 2)), "m1@3 a:0,1");
        assert_eq!(script.shared(&joining("m2", &["a"])), "m2@4 a:0");
        assert_eq!(script.shared(&alive("m1", 3)), "m1@4 a:1");
        script
    }
}

#[test]
fn partitions_are_assigned_once_their_state_is_initialized() {
    let mut script = Script::sharing(TestImage::new().topic("a", 2));
    check(
        script.share(&joining("m1", &["a"])),
        "timer session g/m1 in 45000
         write 1: share g/m1 wants [a]
         write 1: share g epoch 2
         write 1: share g/m1 target -
         write 1: share g target epoch 2
         write 1: share g/m1 @2 after 0: -
         write 1: share g initializing a:0,1 initialized - deleting []
         reply 1: share heartbeat m1@2 -
         initialize g@2 a:0,1",
    );
    // The request is sent once, and nothing is sent until its response.
    check(
        script.share(&alive("m1", 2)),
        "timer session g/m1 in 45000
         reply 2: share heartbeat m1@2",
    );
    check(
        script.initialized("a", &[0, 1]),
        "write 2: share g initializing - initialized a:0,1 deleting []",
    );
    check(
        script.share(&alive("m1", 2)),
        "timer session g/m1 in 45000
         write 3: share g epoch 3
         write 3: share g/m1 target a:0,1
         write 3: share g target epoch 3
         write 3: share g/m1 @3 after 2: a:0,1
         reply 3: share heartbeat m1@3 a:0,1",
    );
    let (restarted, text) = script.restart();
    assert!(text.contains("timer session g/m1 in 45000"), "{text}");
    let show = |script: &Script| format!("{:?}", script.coordinator.groups.get("g"));
    assert_eq!(show(&restarted), show(&script));
}

#[test]
fn an_unanswered_initialization_is_requested_again() {
    let mut script = Script::sharing(TestImage::new().topic("a", 1));
    script.share(&joining("m1", &["a"]));
    script.now_ms += 29_999;
    assert!(!script.share(&alive("m1", 2)).contains("initialize"));
    script.now_ms += 1;
    assert!(
        script
            .share(&alive("m1", 2))
            .ends_with("initialize g@2 a:0\n")
    );
    // A failed initialization is requested again at once.
    let partitions = [(topic_id("a"), BTreeSet::from([0]))].into_iter().collect();
    let now = script.now();
    let outcome = script
        .coordinator
        .on_share_state_not_initialized(&"g".into(), &partitions, now);
    check(
        script.render(outcome),
        "write 3: share g initializing - initialized - deleting []",
    );
    assert!(
        script
            .share(&alive("m1", 2))
            .ends_with("initialize g@2 a:0\n")
    );
}

#[test]
fn more_members_than_partitions_share_them() {
    let mut script = Script::sharing_two();
    let third = script.shared(&joining("m3", &["a"]));
    assert!(["m3@5 a:0", "m3@5 a:1"].contains(&&*third), "{third}");
    let described = script.coordinator.describe_share_group(&"g".into());
    assert_eq!(described.error_code, 0);
    assert_eq!(
        (&*described.group_state, &*described.assignor_name),
        ("Stable", "simple")
    );
    assert_eq!((described.group_epoch, described.assignment_epoch), (5, 5));
    let ids: Vec<&str> = described.members.iter().map(|it| &*it.member_id).collect();
    assert_eq!(ids, ["m1", "m2", "m3"]);
    let topic = &described.members[0].assignment.topic_partitions[0];
    assert_eq!((&*topic.topic_name, &*topic.partitions), ("a", &[1][..]));
}

#[test]
fn the_remaining_members_get_the_partitions_of_members_that_leave() {
    let mut script = Script::sharing_two();
    check(
        script.share(&alive("m2", -1)),
        "cancel session g/m2
         write 6: share g/m2 current tombstone
         write 6: share g/m2 target tombstone
         write 6: share g/m2 tombstone
         write 6: share g epoch 5
         reply 5: share heartbeat m2@-1",
    );
    assert_eq!(script.shared(&alive("m1", 4)), "m1@5 a:0,1");
    let expired = script.pass(45_000);
    assert!(expired.contains("share g/m1 tombstone") && expired.contains("share g epoch 6"));
    let listed = script.coordinator.list_groups(&[], &["share".into()]);
    assert_eq!(
        (&*listed[0].group_state, &*listed[0].protocol_type),
        ("Empty", "share")
    );
    check(
        script.delete_groups(&["g"]),
        "write 9: share g target tombstone
         write 9: share g state tombstone
         write 9: share g tombstone
         reply 7: delete groups g=NONE",
    );
    assert!(script.coordinator.list_groups(&[], &[]).is_empty());
}

#[test]
fn offsets_are_set_of_a_group_without_members() {
    let mut script = Script::sharing(TestImage::new().topic("a", 2).topic("b", 1));
    check(
        script.alter_offsets(&[("a", 1, 7), ("a", 2, 7), ("b", 0, 3), ("c", 0, 1)]),
        "write 1: share g initializing a:1 b:0 initialized - deleting []
         reply 1: alter share offsets a-2=UNKNOWN_TOPIC_OR_PARTITION \
         c-0=UNKNOWN_TOPIC_OR_PARTITION initialize@1 a:1@7 initialize@1 b:0@3",
    );
    // Answered with the record: without it, the state would be initialized again.
    check(
        script.complete_alter_offsets("a", &[1]),
        "write 2: share g initializing b:0 initialized a:1 deleting []
         reply 2: alter share offsets",
    );
    let known = script.coordinator.initialized_share_partitions("g");
    assert_eq!(known[&topic_id("a")], BTreeSet::from([1]));
    assert_eq!(known.len(), 1);
    script.share(&joining("m1", &["a"]));
    check(
        script.alter_offsets(&[("a", 1, 7)]),
        "reply 4: alter share offsets NON_EMPTY_GROUP The group is not empty.",
    );
    // No group is created for topics that do not exist.
    let mut script = Script::sharing(TestImage::new());
    check(
        script.alter_offsets(&[("a", 0, 7)]),
        "reply 1: alter share offsets a-0=UNKNOWN_TOPIC_OR_PARTITION",
    );
    assert!(script.coordinator.groups.is_empty());
}

#[test]
fn offsets_of_topics_are_deleted_in_two_steps() {
    let mut script = Script::sharing(TestImage::new().topic("a", 2).topic("b", 1));
    check(
        script.begin_delete_offsets(&["a"]),
        "reply 1: delete share offsets GROUP_ID_NOT_FOUND Group g not found. delete -",
    );
    script.alter_offsets(&[("a", 0, 7), ("a", 1, 7)]);
    script.initialized("a", &[0, 1]);
    let begun = "share g initializing - initialized - deleting [a]";
    check(
        script.begin_delete_offsets(&["a", "b", "c"]),
        &format!(
            "write 3: {begun}
             reply 3: delete share offsets \
             b=UNKNOWN_TOPIC_OR_PARTITION There is no offset information to delete. \
             c=UNKNOWN_TOPIC_OR_PARTITION This server does not host this topic-partition. \
             delete a:0,1"
        ),
    );
    // The outcome is unknown, so the request can be repeated.
    check(
        script.begin_delete_offsets(&["a"]),
        &format!("write 4: {begun}\nreply 4: delete share offsets delete a:0,1"),
    );
    check(
        script.complete_delete_offsets("a"),
        "write 5: share g initializing - initialized - deleting []
         reply 5: delete share offsets delete -",
    );
    let mut script = Script::sharing_two();
    check(
        script.begin_delete_offsets(&["a"]),
        "reply 5: delete share offsets NON_EMPTY_GROUP The group is not empty. delete -",
    );
}

#[test]
fn the_state_of_a_group_is_deleted_before_the_group() {
    let mut script = Script::sharing_two();
    check(
        script.begin_delete_groups(&["g", "unknown"]),
        "reply 5: delete share groups g=NON_EMPTY_GROUP",
    );
    script.share(&alive("m1", -1));
    script.share(&alive("m2", -1));
    script.alter_offsets(&[("a", 0, 7)]);
    let begun = "share g initializing - initialized - deleting [a]";
    check(
        script.begin_delete_groups(&["g"]),
        &format!("write 9: {begun}\nreply 9: delete share groups g a:0,1"),
    );
    check(
        script.begin_delete_groups(&["g"]),
        &format!("write 10: {begun}\nreply 10: delete share groups g a:0,1"),
    );
    assert!(script.delete_groups(&["g"]).contains("g=NONE"));
    // A group that never read anything has no state.
    let mut script = Script::sharing(TestImage::new());
    script.share(&joining("m1", &["a"]));
    script.share(&alive("m1", -1));
    check(
        script.begin_delete_groups(&["g"]),
        "reply 3: delete share groups",
    );
}

/// Otherwise the share coordinators would delete state that has just been initialized.
#[test]
fn nothing_is_initialized_while_state_of_the_group_is_deleted() {
    let join = || joining("m3", &["a"]);
    for deletes_group in [true, false] {
        let mut script = Script::sharing_two();
        script.share(&alive("m1", -1));
        script.share(&alive("m2", -1));
        match deletes_group {
            true => script.begin_delete_groups(&["g"]),
            false => script.begin_delete_offsets(&["a"]),
        };
        let joined = script.share(&join());
        assert!(!joined.contains("initializ"), "{joined}");
        match deletes_group {
            true => assert!(script.delete_groups(&["g"]).contains("g=NON_EMPTY_GROUP")),
            false => drop(script.complete_delete_offsets("a")),
        }
        let again = script.share(&join());
        assert!(again.contains("initializing a:0,1"), "{again}");
    }
}

/// The coordinator that began the deletion is gone, and the share coordinators may not have ended it.
#[test]
fn nothing_is_initialized_for_a_while_after_the_coordinator_moved_during_a_deletion() {
    let mut script = Script::sharing_two();
    script.share(&alive("m1", -1));
    script.share(&alive("m2", -1));
    script.begin_delete_offsets(&["a"]);
    let (mut restarted, _) = script.restart();
    let image = TestImage::new().topic("a", 2).build();
    restarted.coordinator.begin(Arc::new(image));
    let join = || joining("m3", &["a"]);
    let joined = restarted.share(&join());
    assert!(joined.contains("share heartbeat m3@"), "{joined}");
    assert!(!joined.contains("initializ"), "{joined}");
    restarted.now_ms += 30_000;
    let later = restarted.share(&join());
    assert!(later.contains("initializing a:0,1"), "{later}");
}

#[test]
fn a_clock_that_is_set_back_delays_no_initialization() {
    let mut script = Script::sharing_two();
    script.share(&alive("m1", -1));
    script.share(&alive("m2", -1));
    script.begin_delete_offsets(&["a"]);
    script.now_ms -= 900_000;
    let joined = script.share(&joining("m3", &["a"]));
    assert!(joined.contains("initializing a:0,1"), "{joined}");
    script.now_ms -= 90_000;
    // The share coordinator has not answered.
    let again = script.share(&joining("m4", &["a"]));
    assert!(again.contains("initializing a:0,1"), "{again}");
}

#[test]
fn a_deleted_topic_is_forgotten() {
    let mut script = Script::sharing_two();
    let delete = |script: &mut Script, topic: &str| {
        let now = script.now();
        let outcome = script
            .coordinator
            .on_topics_of_share_groups_deleted(&[topic_id(topic)], now);
        script.render(outcome)
    };
    check(delete(&mut script, "b"), "");
    let (mut reloaded, _) = script.restart();
    for script in [&mut script, &mut reloaded] {
        let text = delete(script, "a");
        let record = "share g initializing - initialized - deleting []";
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(record), "{text}");
        check(delete(script, "a"), "");
    }
}

#[test]
fn invalid_members_and_epochs_are_refused() {
    let mut script = Script::sharing_two();
    for (request, expected) in [
        (
            alive("x", 3),
            "UNKNOWN_MEMBER_ID Member x is not a member of group g.",
        ),
        (
            alive("x", -1),
            "UNKNOWN_MEMBER_ID Member x is not a member of group g.",
        ),
        (
            alive("m1", 5),
            "FENCED_MEMBER_EPOCH The share group member has a greater member epoch (5) than the \
             one known by the group coordinator (4). The member must abandon all its partitions \
             and rejoin.",
        ),
        (
            alive("m1", 2),
            "FENCED_MEMBER_EPOCH The share group member has a smaller member epoch (2) than the \
             one known by the group coordinator (4), and it does not match the previous member \
             epoch (3). The member must abandon all its partitions and rejoin.",
        ),
        // It missed a response.
        (alive("m1", 3), "m1@4"),
    ] {
        assert_eq!(script.shared(&request), expected);
    }
    for (epoch, expected) in [
        (3, "GROUP_ID_NOT_FOUND Share group h not found."),
        (-1, "GROUP_ID_NOT_FOUND Group h not found."),
    ] {
        let request = ShareGroupHeartbeatRequest {
            group_id: "h".into(),
            ..alive("m1", epoch)
        };
        assert_eq!(script.shared(&request), expected);
    }
    // Members of consumer groups are refused.
    assert!(
        script
            .join(classic_joining(""))
            .contains("INCONSISTENT_GROUP_PROTOCOL")
    );
    assert!(
        script
            .commit_offset(committing("", -1, 7))
            .contains("GROUP_ID_NOT_FOUND")
    );
    assert!(script.delete_groups(&["g"]).contains("NON_EMPTY_GROUP"));
}

#[test]
fn a_share_group_has_a_maximum_size() {
    let mut script = Script::sharing_two();
    let mut config = GroupCoordinatorConfig::clone(&script.coordinator.config);
    config.group_share_max_size = 2;
    script.coordinator.set_config(Arc::new(config));
    assert_eq!(
        script.shared(&joining("m3", &["a"])),
        "GROUP_MAX_SIZE_REACHED The share group has reached its maximum capacity of 2 members."
    );
    assert_eq!(script.shared(&alive("m1", 4)), "m1@4");
}

#[test]
fn a_failed_write_is_refused_and_initializes_nothing() {
    let mut script = Script::sharing(TestImage::new().topic("a", 1));
    script.commits_at_once = false;
    let text = script.share(&joining("m1", &["a"]));
    assert!(
        !text.contains("reply") && !text.contains("\ninitialize "),
        "{text}"
    );
    let refused = script.fail(1, ottla_types::ErrorCode::NotEnoughReplicas);
    check(
        refused,
        "reply 1: share heartbeat COORDINATOR_NOT_AVAILABLE -",
    );
    assert!(script.coordinator.groups.is_empty());
}

#[test]
fn a_member_whose_departure_could_not_be_written_expires() {
    let mut script = Script::sharing(TestImage::new().topic("a", 1));
    script.share(&joining("m1", &["a"]));
    script.commits_at_once = false;
    script.share(&alive("m1", -1));
    script.fail(2, ottla_types::ErrorCode::KafkaStorageError);
    script.commits_at_once = true;
    assert!(script.pass(45_000).contains("share g/m1 tombstone"));
}

#[test]
fn required_fields_of_a_heartbeat() {
    let error = |request: ShareGroupHeartbeatRequest| {
        let error = validate_share_heartbeat(&request).err();
        error.map_or_else(String::new, |error| error.message.unwrap_or_default())
    };
    assert_eq!(error(joining("m", &["a"])), "");
    assert_eq!(error(alive("m", 7)), "");
    assert_eq!(error(alive("m", -1)), "");
    assert_eq!(error(joining(" ", &["a"])), "MemberId can't be empty.");
    assert_eq!(error(alive("m", -2)), "MemberEpoch is invalid.");
    let no_topics = "SubscribedTopicNames must be set in first request.";
    assert_eq!(error(joining("m", &[])), no_topics);
    assert_eq!(error(alive("m", 0)), no_topics);
    let no_group = ShareGroupHeartbeatRequest {
        group_id: "".into(),
        ..alive("m", 1)
    };
    assert_eq!(error(no_group), "GroupId can't be empty.");
    let no_rack = ShareGroupHeartbeatRequest {
        rack_id: Some("".into()),
        ..alive("m", 1)
    };
    assert_eq!(error(no_rack), "RackId can't be empty.");
}
