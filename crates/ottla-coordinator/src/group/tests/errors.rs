//! Requests for groups, members or generations that do not exist.

use bytestring::ByteString;
use ottla_protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::{
    HeartbeatRequest, LeaveGroupRequest, OffsetDeleteRequest, SyncGroupRequest,
};

use super::{Joining, Script, check, committing, joining};
use crate::runtime::{ReplyId, ReplyTo};

#[test]
fn unknown_groups_members_and_generations() {
    // (request, group does not exist, group is empty, unknown member, wrong generation)
    type Request = fn(&mut Script, member_id: &str, generation_id: i32) -> String;
    let requests: [(&str, Request, [&str; 4]); 4] = [
        (
            "join",
            |script, member_id, _| script.join(joining(member_id)),
            [
                "UNKNOWN_MEMBER_ID",
                "UNKNOWN_MEMBER_ID",
                "UNKNOWN_MEMBER_ID",
                "generation=1",
            ],
        ),
        (
            "sync",
            |script, member_id, generation_id| script.sync(member_id, generation_id, &[]),
            [
                "UNKNOWN_MEMBER_ID",
                "UNKNOWN_MEMBER_ID",
                "UNKNOWN_MEMBER_ID",
                "ILLEGAL_GENERATION",
            ],
        ),
        (
            "heartbeat",
            |script, member_id, generation_id| script.heartbeat(member_id, generation_id),
            [
                "UNKNOWN_MEMBER_ID",
                "UNKNOWN_MEMBER_ID",
                "UNKNOWN_MEMBER_ID",
                "ILLEGAL_GENERATION",
            ],
        ),
        (
            "commit",
            |script, member_id, generation_id| {
                script.commit_offset(committing(member_id, generation_id, 1))
            },
            [
                "GROUP_ID_NOT_FOUND",
                "UNKNOWN_MEMBER_ID",
                "UNKNOWN_MEMBER_ID",
                "ILLEGAL_GENERATION",
            ],
        ),
    ];
    for (name, request, [no_group, empty_group, unknown_member, wrong_generation]) in requests {
        let mut script = Script::new();
        let text = request(&mut script, "c#2", 1);
        assert!(text.contains(no_group), "{name}, no group: {text}");

        let mut script = Script::stable_group_of_two();
        script.leave(&["c#1", "c#2"]);
        assert_eq!(script.state("g"), "Empty");
        let text = request(&mut script, "c#2", 2);
        assert!(text.contains(empty_group), "{name}, empty group: {text}");

        let mut script = Script::stable_group_of_two();
        let text = request(&mut script, "stranger", 1);
        assert!(
            text.contains(unknown_member),
            "{name}, unknown member: {text}"
        );

        let mut script = Script::stable_group_of_two();
        let text = request(&mut script, "c#2", 2);
        assert!(
            text.contains(wrong_generation),
            "{name}, wrong generation: {text}"
        );
    }
}

#[test]
fn leaving_a_group_that_does_not_exist_is_said_of_each_member() {
    let mut script = Script::new();
    check(
        script.leave(&["c#1", "@a"]),
        "reply 1: leave NONE c#1=UNKNOWN_MEMBER_ID a=UNKNOWN_MEMBER_ID",
    );
}

#[test]
fn an_empty_group_id_is_only_good_for_offsets() {
    let mut script = Script::new();
    check(
        script.join(joining("").group("")),
        "reply 1: join INVALID_GROUP_ID member=",
    );
    check(
        script.sync_request(SyncGroupRequest::default()),
        "reply 2: sync INVALID_GROUP_ID",
    );
    check(
        script.heartbeat_request(HeartbeatRequest::default()),
        "reply 3: heartbeat INVALID_GROUP_ID",
    );
    check(
        script.leave_request(LeaveGroupRequest::default()),
        "reply 4: leave INVALID_GROUP_ID",
    );
    let outcome = script.coordinator.handle_offset_delete(
        ReplyTo::new(ReplyId(5)),
        OffsetDeleteRequest::default(),
        script.now(),
    );
    check(script.render(outcome), "reply 5: delete INVALID_GROUP_ID");
    let mut commit = committing("", -1, 7);
    commit.group_id = ByteString::new();
    check(
        script.commit_offset(commit),
        "write 1: offset  t-0 7@5'm'
         reply 5: commit t-0=NONE",
    );
}

#[test]
fn session_timeouts_have_bounds() {
    let with = |session_timeout_ms: i32| {
        let mut joining: Joining = joining("");
        joining.request.session_timeout_ms = session_timeout_ms;
        joining
    };
    let mut script = Script::new();
    for refused in [5_999, 1_800_001, -1] {
        let text = script.join(with(refused));
        assert!(
            text.contains("INVALID_SESSION_TIMEOUT"),
            "{refused}: {text}"
        );
    }
    for accepted in [6_000, 1_800_000] {
        let text = script.join(with(accepted));
        assert!(text.contains("MEMBER_ID_REQUIRED"), "{accepted}: {text}");
    }
}

#[test]
fn a_sync_for_another_protocol_is_refused() {
    let mut script = Script::stable_group_of_two();
    let request = |protocol_type: &'static str, protocol_name: &'static str| SyncGroupRequest {
        group_id: "g".into(),
        generation_id: 1,
        member_id: super::full("c#2"),
        protocol_type: Some(protocol_type.into()),
        protocol_name: Some(protocol_name.into()),
        ..Default::default()
    };
    check(
        script.sync_request(request("connect", "range")),
        "reply 7: sync INCONSISTENT_GROUP_PROTOCOL",
    );
    check(
        script.sync_request(request("consumer", "sticky")),
        "reply 8: sync INCONSISTENT_GROUP_PROTOCOL",
    );
    check(
        script.sync_request(request("consumer", "range")),
        "cancel sync g
         reply 9: sync protocol=range assignment=t-1",
    );
}

#[test]
fn offsets_that_members_are_subscribed_to_are_not_deleted() {
    let mut script = Script::stable_group_of_two();
    script.commit_offset(committing("c#1", 1, 5));
    let mut other = committing("c#1", 1, 6);
    other.topics[0].name = "u".into();
    script.commit_offset(other);
    let delete = |topic: &'static str| OffsetDeleteRequest {
        group_id: "g".into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: topic.into(),
            partitions: vec![
                OffsetDeleteRequestPartition { partition_index: 0 },
                OffsetDeleteRequestPartition { partition_index: 1 },
            ],
        }],
    };
    let to = script.next_reply_to();
    let outcome = script
        .coordinator
        .handle_offset_delete(to, delete("t"), script.now());
    check(
        script.render(outcome),
        "reply 9: delete NONE t-0=GROUP_SUBSCRIBED_TO_TOPIC t-1=GROUP_SUBSCRIBED_TO_TOPIC",
    );
    let to = script.next_reply_to();
    let outcome = script
        .coordinator
        .handle_offset_delete(to, delete("u"), script.now());
    check(
        script.render(outcome),
        "write 5: offset g u-0 tombstone
         reply 10: delete NONE u-0=NONE u-1=NONE",
    );
}

#[test]
fn offsets_of_a_group_that_is_not_of_consumers_are_deleted_only_when_it_is_empty() {
    let mut script = Script::new();
    let mut worker = joining("");
    worker.request.protocol_type = "connect".into();
    script.join_new(worker);
    let request = || OffsetDeleteRequest {
        group_id: "g".into(),
        ..Default::default()
    };
    let to = script.next_reply_to();
    let outcome = script
        .coordinator
        .handle_offset_delete(to, request(), script.now());
    check(script.render(outcome), "reply 3: delete NON_EMPTY_GROUP");
    script.leave(&["c#1"]);
    script.pass(3_000);
    assert_eq!(script.state("g"), "Empty");
    let to = script.next_reply_to();
    let outcome = script
        .coordinator
        .handle_offset_delete(to, request(), script.now());
    check(script.render(outcome), "reply 5: delete NONE");
    let unknown = OffsetDeleteRequest {
        group_id: "x".into(),
        ..Default::default()
    };
    let to = script.next_reply_to();
    let outcome = script
        .coordinator
        .handle_offset_delete(to, unknown, script.now());
    check(script.render(outcome), "reply 6: delete GROUP_ID_NOT_FOUND");
}

#[test]
fn groups_are_deleted_only_when_they_are_empty() {
    let mut script = Script::stable_group_of_two();
    script.commit_offset(committing("c#1", 1, 5));
    check(
        script.delete_groups(&["g", "x"]),
        "reply 8: delete groups g=NON_EMPTY_GROUP x=GROUP_ID_NOT_FOUND",
    );
    script.leave(&["c#1", "c#2"]);
    check(
        script.delete_groups(&["g"]),
        "write 5: offset g t-0 tombstone
         write 5: group g tombstone
         reply 10: delete groups g=NONE",
    );
    assert_eq!(script.state("g"), "-");
}
