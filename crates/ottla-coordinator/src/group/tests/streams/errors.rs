//! Refused requests, with Kafka's messages.

use ottla_protocol::messages::StreamsGroupHeartbeatRequest;
use ottla_protocol::messages::streams_group_heartbeat_request::TaskOffset;

use super::{Beat, beat, joining, ready, subtopology, task_ids};
use crate::group::streams::validate_streams_heartbeat;
use crate::group::tests::Script;

fn said(beat: Beat) -> String {
    match validate_streams_heartbeat(&beat.0) {
        Ok(()) => "fine".to_owned(),
        Err(error) => format!(
            "{} {}",
            error.error.name(),
            error.message.as_deref().unwrap_or("-")
        ),
    }
}

fn with(beat: Beat, change: impl FnOnce(&mut StreamsGroupHeartbeatRequest)) -> Beat {
    let Beat(mut request) = beat;
    change(&mut request);
    Beat(request)
}

#[test]
fn heartbeats_that_hold_too_little_or_too_much_are_refused() {
    let join = || joining("m", "p");
    let invalid = |text: &str| format!("INVALID_REQUEST {text}");
    assert_eq!(said(join()), "fine");
    assert_eq!(said(beat("m", 3)), "fine");
    assert_eq!(said(beat("m", -1)), "fine");
    assert_eq!(said(beat("m", 3).owns(&[("0", &[1])], &[])), "fine");
    assert_eq!(said(beat("m", -2).instance("i")), "fine");
    let offsets = || Some(vec![TaskOffset::default()]);
    let warming_up = with(beat("m", 3).owns(&[], &[]), |it| {
        it.warmup_tasks = task_ids(&[("0", &[1])]);
        it.task_offsets = offsets();
        it.task_end_offsets = offsets();
    });
    assert_eq!(said(warming_up), "fine");
    for (beat, refused) in [
        (
            with(join(), |it| it.member_id = " ".into()),
            "MemberId can't be empty.",
        ),
        (
            with(join(), |it| it.group_id = "".into()),
            "GroupId can't be empty.",
        ),
        (
            with(join(), |it| it.rack_id = Some("".into())),
            "RackId can't be empty.",
        ),
        (join().instance(" "), "InstanceId can't be empty."),
        (
            with(join(), |it| {
                let topology = it.topology.as_mut().unwrap();
                topology.subtopologies[0].source_topic_regex = vec![".*".into()];
            }),
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            with(join(), |it| it.rebalance_timeout_ms = -1),
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            with(join(), |it| it.active_tasks = None),
            "ActiveTasks must be empty when (re-)joining.",
        ),
        (
            join().owns(&[], &[("0", &[1])]),
            "StandbyTasks must be empty when (re-)joining.",
        ),
        (
            with(join(), |it| it.warmup_tasks = None),
            "WarmupTasks must be empty when (re-)joining.",
        ),
        (
            with(join(), |it| it.topology = None),
            "Topology must be non-null when (re-)joining.",
        ),
        (beat("m", -2), "InstanceId can't be null."),
        (
            beat("m", -3),
            "MemberEpoch is -3, but must be greater than or equal to -2.",
        ),
        (
            with(beat("m", 3).owns(&[], &[]), |it| it.standby_tasks = None),
            "If one task-type is non-null, all must be non-null.",
        ),
        (
            beat("m", 3).topology(0, Vec::new()),
            "Topology can only be provided when (re-)joining.",
        ),
    ] {
        assert_eq!(said(beat), invalid(refused));
    }
    let sized = with(join(), |it| {
        let topology = it.topology.as_mut().unwrap();
        topology.subtopologies[0].state_changelog_topics[0].partitions = 3;
    });
    assert_eq!(
        said(sized),
        "STREAMS_INVALID_TOPOLOGY Changelog topic store must have an undefined partition count, \
         but it is set to 3."
    );
}

#[test]
fn members_are_known_by_their_epochs() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    assert_eq!(
        script.streams_beat(beat("m9", 1)),
        "UNKNOWN_MEMBER_ID Member m9 is not a member of group g."
    );
    assert_eq!(
        script.streams_beat(beat("m9", -1)),
        "UNKNOWN_MEMBER_ID Member m9 is not a member of group g."
    );
    assert_eq!(
        script.streams_beat(beat("m1", 3)),
        "FENCED_MEMBER_EPOCH The streams group member has a greater member epoch (3) than the \
         one known by the group coordinator (2). The member must abandon all its partitions and \
         rejoin."
    );
    assert_eq!(
        script.streams_beat(beat("m1", 1).owns(&[], &[])),
        "FENCED_MEMBER_EPOCH The streams group member has a smaller member epoch (1) than the \
         one known by the group coordinator (2). The member must abandon all its partitions and \
         rejoin."
    );
}

#[test]
fn a_member_that_missed_a_response_may_send_its_previous_epoch() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    script.stream(joining("m2", "p2"));
    script.stream(beat("m1", 2).owns(&[("0", &[0])], &[]));
    // It is in epoch 3 and owns only task 0.
    let fenced = |beat| {
        let mut script = script.restart().0;
        script
            .coordinator
            .begin(std::sync::Arc::new(ready().build()));
        script.streams_beat(beat).starts_with("FENCED_MEMBER_EPOCH")
    };
    assert!(!fenced(beat("m1", 2).owns(&[("0", &[0])], &[])));
    assert!(!fenced(beat("m1", 2).owns(&[], &[])));
    assert!(fenced(beat("m1", 2)));
    assert!(fenced(beat("m1", 2).owns(&[("0", &[0, 1])], &[])));
    assert!(fenced(beat("m1", 2).owns(&[("0", &[0])], &[("0", &[1])])));
    assert!(fenced(beat("m1", 2).owns(&[("1", &[])], &[])));
}

#[test]
fn unknown_tasks_are_refused() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    for index in [2, -1] {
        assert_eq!(
            script.streams_beat(beat("m1", 2).owns(&[("0", &[index])], &[])),
            format!(
                "INVALID_REQUEST Task {index} for subtopology 0 is invalid. Number of tasks for \
                 this subtopology: 2"
            )
        );
    }
    assert_eq!(
        script.streams_beat(beat("m1", 2).owns(&[], &[("9", &[0])])),
        "INVALID_REQUEST Subtopology 9 does not exist in the topology."
    );
}

#[test]
fn contradictory_topologies_are_refused_and_change_nothing() {
    let mut script = Script::with_streams(&ready());
    let same_ids = vec![
        subtopology("0", &["in"], &[]),
        subtopology("0", &["in"], &[]),
    ];
    for (topology, refused) in [
        (
            vec![subtopology("0", &[], &["store"])],
            "STREAMS_INVALID_TOPOLOGY No source topics found for subtopology 0",
        ),
        (same_ids, "UNKNOWN_SERVER_ERROR -"),
    ] {
        let joining = joining("m1", "p1").topology(0, topology);
        assert_eq!(script.streams_beat(joining), refused);
        assert_eq!(script.state("g"), "-");
    }
    let negative = joining("m1", "p1").topology(-1, vec![subtopology("0", &["in"], &[])]);
    assert_eq!(script.streams_beat(negative), "UNKNOWN_SERVER_ERROR -");
    let twice = with(joining("m1", "p1").tagged("zone", "a"), |it| {
        let tags = it.client_tags.as_mut().unwrap();
        tags.push(tags[0].clone());
    });
    assert_eq!(script.streams_beat(twice), "UNKNOWN_SERVER_ERROR -");
    assert_eq!(
        script.streams_beat(joining("m1", "p1").tagged("zone", "a")),
        "m1@2 0:0,1 / -"
    );
}

#[test]
fn a_full_streams_group_refuses_new_members() {
    let mut script = Script::with_streams(&ready());
    script.config.group_streams_max_size = 1;
    script.configure();
    script.stream(joining("m1", "p1"));
    // Not even the existing member.
    for member_id in ["m1", "m2"] {
        assert_eq!(
            script.streams_beat(joining(member_id, "p1")),
            "GROUP_MAX_SIZE_REACHED The streams group has reached its maximum capacity of 1 \
             members."
        );
    }
    assert_eq!(script.streams_beat(beat("m1", 2)), "m1@2");
}

#[test]
fn offsets_of_a_task_that_is_reported_twice_are_refused() {
    let mut script = Script::with_streams(&ready());
    script.stream(joining("m1", "p1"));
    let task = || TaskOffset {
        subtopology_id: "0".into(),
        partition: 1,
        ..Default::default()
    };
    let reporting =
        |offsets: Vec<TaskOffset>| with(beat("m1", 2), |it| it.task_offsets = Some(offsets));
    assert_eq!(
        script.streams_beat(reporting(vec![task(), task()])),
        "INVALID_REQUEST Task offsets contain a duplicate entry for subtopology 0 and partition 1."
    );
    assert_eq!(script.streams_beat(reporting(vec![task()])), "m1@2");
}
