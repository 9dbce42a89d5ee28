//! Streams groups together with groups of other kinds, and the common parts: offsets, lists,
//! descriptions.

use bytestring::ByteString;
use ottla_protocol::messages::OffsetCommitRequest;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::streams_group_describe_response::DescribedGroup;

use super::{beat, joining, ready};
use crate::group::modern::test_image::{TestImage, topic_id};
use crate::group::tests::{Script, check, committing, consumer, joining as classic};
use crate::runtime::Coordinator;

const DAY: i64 = 24 * 60 * 60 * 1000;

/// A commit for a partition of `topic`.
fn committing_to(
    topic: &'static str,
    partition: i32,
    member_id: &'static str,
    epoch: i32,
) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: "g".into(),
        member_id: member_id.into(),
        generation_id_or_member_epoch: epoch,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            topic_id: topic_id(topic),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: 7,
                committed_leader_epoch: 5,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn reply(text: &str) -> &str {
    let replies = text.lines().filter(|line| line.starts_with("reply"));
    let mut replies = replies.map(|line| line.split_once(": ").unwrap().1);
    replies.next().unwrap_or("-")
}

#[test]
fn an_empty_classic_group_becomes_a_streams_group() {
    let mut script = Script::with_streams(&ready());
    script.commit_offset(committing("", -1, 5));
    let text = script.stream(joining("m1", "p1"));
    assert!(text.contains("write 2: group g tombstone\n"), "{text}");
    assert!(text.contains("streams m1@2 0:0,1 / -"), "{text}");
    assert_eq!(script.state("g"), "Stable");
    script.check_streams_restart();
    let fetch = OffsetFetchRequestGroup {
        member_epoch: -1,
        ..crate::group::tests::fetching()
    };
    let text = script.fetch_offset(&fetch);
    assert!(text.contains("t-0=5@5"), "{text}");
}

#[test]
fn other_groups_with_members_do_not_become_streams_groups() {
    let mut script = Script::with_streams(&ready());
    script.join_new(classic(""));
    let refused = "GROUP_ID_NOT_FOUND Group g is not a streams group.";
    assert_eq!(script.streams_beat(joining("m1", "p1")), refused);
    assert_eq!(script.streams_beat(beat("m1", 1)), refused);
    assert_eq!(script.streams_beat(beat("m1", -1)), refused);

    let mut script = Script::with_streams(&ready());
    script.send(consumer::joining("m", &["in"]));
    assert_eq!(script.streams_beat(joining("m1", "p1")), refused);
    // Not even an empty group is converted.
    script.send(consumer::alive("m", -1));
    assert_eq!(script.streams_beat(joining("m1", "p1")), refused);
}

#[test]
fn a_streams_group_with_members_does_not_change_its_type() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    check(
        script.join(classic("")),
        "reply 2: join INCONSISTENT_GROUP_PROTOCOL member=",
    );
    assert_eq!(
        script.beat(consumer::joining("m", &["in"])),
        "GROUP_ID_NOT_FOUND Group g is not a consumer group."
    );
    assert_eq!(
        script.beat(consumer::alive("m", -1)),
        "GROUP_ID_NOT_FOUND Group g is not a consumer group."
    );
    let described = script.coordinator.describe_group(&"g".into(), true);
    assert_eq!(
        described.error_message.as_deref(),
        Some("Group g is not a classic group.")
    );
    let heartbeat = script.heartbeat("c", 1);
    assert_eq!(reply(&heartbeat), "heartbeat UNKNOWN_MEMBER_ID");
    assert_eq!(script.state("g"), "Stable");
}

#[test]
fn an_empty_streams_group_becomes_a_classic_group() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.stream(beat("m1", -1));
    let text = script.join(classic(""));
    for line in [
        "g target tombstone",
        "write 3: g tombstone",
        "g topology tombstone",
        "join MEMBER_ID_REQUIRED",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(script.coordinator.classic_group("g").is_some());
    let (restarted, _) = script.restart();
    assert!(restarted.coordinator.streams_group("g").is_none());
}

#[test]
fn unknown_groups_and_members_are_errors() {
    let mut script = Script::with_streams(&ready());
    assert_eq!(
        script.streams_beat(beat("m1", 1)),
        "GROUP_ID_NOT_FOUND Streams group g not found."
    );
    assert_eq!(
        script.streams_beat(beat("m1", -1)),
        "GROUP_ID_NOT_FOUND Group g not found."
    );
    let described = script.coordinator.describe_streams_group(&"g".into());
    assert_eq!(
        described.error_message.as_deref(),
        Some("Group g not found.")
    );
}

#[test]
fn members_commit_offsets_of_their_tasks() {
    let mut script = Script::with_streams(&ready().topic("else", 1));
    script.stream(joining("m1", "p1"));
    let commit = |script: &mut Script, topic, partition, member_id, epoch| {
        let text = script.commit_offset(committing_to(topic, partition, member_id, epoch));
        reply(&text).to_owned()
    };
    let of_m1 = |script: &mut Script, topic, partition, epoch| {
        commit(script, topic, partition, "m1", epoch)
    };
    assert_eq!(of_m1(&mut script, "in", 1, 2), "commit in-1=NONE");
    // In its current epoch the member can commit anything.
    assert_eq!(of_m1(&mut script, "else", 0, 2), "commit else-0=NONE");
    assert_eq!(
        of_m1(&mut script, "in", 1, 3),
        "commit in-1=STALE_MEMBER_EPOCH"
    );
    assert_eq!(
        of_m1(&mut script, "in", 1, 1),
        "commit in-1=STALE_MEMBER_EPOCH"
    );
    assert_eq!(
        commit(&mut script, "in", 1, "m9", 2),
        "commit in-1=UNKNOWN_MEMBER_ID"
    );
    assert_eq!(
        commit(&mut script, "in", 1, "", -1),
        "commit in-1=UNKNOWN_MEMBER_ID"
    );

    // It revokes task 1 and moves to epoch 3 with task 0, which it has owned since epoch 2.
    script.stream(joining("m2", "p2"));
    script.stream(beat("m1", 2));
    assert_eq!(of_m1(&mut script, "in", 1, 2), "commit in-1=NONE");
    script.stream(beat("m1", 2).owns(&[("0", &[0])], &[]));
    assert_eq!(of_m1(&mut script, "in", 0, 2), "commit in-0=NONE");
    for (topic, partition) in [("in", 1), ("else", 0)] {
        assert_eq!(
            of_m1(&mut script, topic, partition, 2),
            format!("commit {topic}-{partition}=STALE_MEMBER_EPOCH")
        );
    }
    let (to, now) = (script.next_reply_to(), script.now());
    let request = committing_to("in", 0, "m1", 3);
    let old_client = script
        .coordinator
        .handle_offset_commit(to, request, false, now);
    let text = script.render(old_client);
    assert_eq!(reply(&text), "commit in-0=UNSUPPORTED_VERSION");

    let fetch = |member_id: Option<ByteString>, member_epoch| OffsetFetchRequestGroup {
        group_id: "g".into(),
        member_id,
        member_epoch,
        topics: Some(vec![OffsetFetchRequestTopics {
            name: "in".into(),
            partition_indexes: vec![0],
            ..Default::default()
        }]),
        ..Default::default()
    };
    for (member_id, epoch, error) in [
        (None, -1, "NONE"),
        (Some("m1"), 3, "NONE"),
        (Some("m1"), 2, "STALE_MEMBER_EPOCH"),
        (Some("m9"), 3, "UNKNOWN_MEMBER_ID"),
        (None, 3, "UNKNOWN_MEMBER_ID"),
    ] {
        let text = script.fetch_offset(&fetch(member_id.map(Into::into), epoch));
        let fetched = reply(&text);
        assert!(fetched.starts_with(&format!("fetch {error}")), "{fetched}");
    }
}

#[test]
fn offsets_expire_with_the_group_and_not_while_they_are_in_use() {
    let mut script = Script::with_streams(&ready().topic("else", 1));
    script.config.offsets_retention_ms = DAY;
    script.config.offsets_retention_check_interval_ms = 3_600_000;
    script.config.group_streams_session_timeout_ms.max = i32::MAX;
    script.config.group_streams_session_timeout_ms.value = i32::MAX;
    script.configure();
    let now = script.now();
    let outcome = script.coordinator.on_loaded(now);
    script.render(outcome);
    script.stream(joining("m1", "p1"));
    script.commit_offset(committing_to("in", 0, "m1", 2));
    script.commit_offset(committing_to("else", 0, "m1", 2));
    let written = |text: String| {
        let lines = text.lines().filter(|line| line.starts_with("write"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        written(script.pass(DAY + 3_600_000)),
        ["write 4: offset g else-0 tombstone"]
    );
    script.stream(beat("m1", -1));
    assert_eq!(
        written(script.pass(3_600_000)),
        [
            "write 6: offset g in-0 tombstone",
            "write 6: g target tombstone",
            "write 6: g tombstone",
            "write 6: g topology tombstone",
        ]
    );
    assert_eq!(script.state("g"), "-");
}

#[test]
fn streams_groups_are_listed_by_their_states() {
    let mut script = Script::with_streams(&TestImage::new().topic("in", 2));
    script.stream(joining("m1", "p1"));
    let listed = |script: &Script, states: &[&'static str], types: &[&'static str]| {
        let names = |names: &[&'static str]| -> Vec<ByteString> {
            names.iter().map(|name| (*name).into()).collect()
        };
        let listed = script
            .coordinator
            .list_groups(&names(states), &names(types));
        let listed = listed.iter().map(|group| {
            format!(
                "{} {} {}",
                group.protocol_type, group.group_type, group.group_state
            )
        });
        listed.collect::<Vec<_>>()
    };
    let not_ready = ["streams streams NotReady"];
    assert_eq!(listed(&script, &[], &["Streams"]), not_ready);
    assert_eq!(listed(&script, &["not_ready"], &[]), not_ready);
    // Kafka does not find them by the name that it shows.
    assert!(listed(&script, &["NotReady"], &[]).is_empty());
    assert!(listed(&script, &[], &["consumer"]).is_empty());
    script.change_streams_topics(TestImage::new().topic("store", 2));
    script.stream(beat("m1", 2));
    assert_eq!(
        listed(&script, &["Stable"], &[]),
        ["streams streams Stable"]
    );
}

#[test]
fn a_group_is_described_with_its_topology_and_its_members() {
    let mut script = Script::with_streams(&TestImage::new().topic("in", 2));
    script.stream(joining("m1", "p1").at("h").tagged("zone", "a"));
    let described = script.coordinator.describe_streams_group(&"g".into());
    assert_eq!(described.group_state, "NotReady");
    let stores = |described: &DescribedGroup| {
        let topology = described.topology.as_ref().expect("a topology");
        let subtopologies = topology.subtopologies.as_ref().expect("subtopologies");
        assert_eq!(subtopologies[0].source_topics, ["in"]);
        let topics = subtopologies[0].state_changelog_topics.iter();
        let topics = topics.map(|topic| format!("{}={}", topic.name, topic.partitions));
        topics.collect::<Vec<_>>()
    };
    assert_eq!(stores(&described), ["store=0"], "as the application says");

    script.change_streams_topics(TestImage::new().topic("store", 2));
    script.stream(beat("m1", 2));
    script.stream(joining("m2", "p2"));
    let described = script.coordinator.describe_streams_group(&"g".into());
    assert_eq!(stores(&described), ["store=2"], "as it is");
    assert_eq!(
        (
            &*described.group_state,
            described.group_epoch,
            described.assignment_epoch
        ),
        ("Reconciling", 4, 4)
    );
    let member = &described.members[0];
    assert_eq!((&*member.member_id, member.member_epoch), ("m1", 3));
    assert_eq!((&*member.process_id, member.topology_epoch), ("p1", 0));
    assert_eq!(
        (&*member.client_id, &*member.client_host),
        ("c", "/192.0.2.1")
    );
    let endpoint = member.user_endpoint.as_ref().expect("an endpoint");
    assert_eq!((&*endpoint.host, endpoint.port), ("h", 80));
    assert_eq!(member.client_tags[0].key, "zone");
    assert_eq!(member.assignment.active_tasks[0].partitions, [0, 1]);
    assert_eq!(member.target_assignment.active_tasks[0].partitions, [0]);
    assert!(described.members[1].assignment.active_tasks.is_empty());
}
