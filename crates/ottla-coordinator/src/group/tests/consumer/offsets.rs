//! Offsets of consumer groups.

use ottla_protocol::messages::OffsetCommitRequest;
use ottla_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;

use super::{alive, check, joining};
use crate::group::modern::test_image::{TestImage, topic_id};
use crate::group::tests::{Script, committing, fetching};

fn committing_of(member_id: &str, epoch: i32, partition: i32) -> OffsetCommitRequest {
    let mut request = committing(member_id, epoch, 7);
    request.topics[0].topic_id = topic_id("t");
    request.topics[0].partitions[0].partition_index = partition;
    request
}

fn fetching_as(member_id: &'static str, member_epoch: i32) -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup {
        member_id: Some(member_id.into()),
        member_epoch,
        ..fetching()
    }
}

/// `m1` is in epoch 3 and owns partition 0 of `t` since epoch 2; partition 1 is moving to `m2`.
fn group() -> Script {
    let mut script = Script::with_topics(TestImage::new().topic("t", 2));
    script.send(joining("m1", &["t"]));
    script.send(joining("m2", &["t"]));
    script.send(alive("m1", 2).owns(&[("t", &[0, 1])]));
    script.send(alive("m1", 2).owns(&[("t", &[0])]));
    script
}

#[test]
fn members_commit_with_their_epoch_or_that_of_the_assignment() {
    let mut script = group();
    let mut commit = |member, epoch, partition| {
        let text = script.commit_offset(committing_of(member, epoch, partition));
        let (_, result) = text.split_once("commit t-").expect("a reply").to_owned();
        result.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(commit("m1", 3, 0), "0=NONE");
    assert_eq!(commit("m1", 2, 0), "0=NONE", "it has it since 2");
    assert_eq!(commit("m1", 1, 0), "0=STALE_MEMBER_EPOCH");
    assert_eq!(
        commit("m1", 2, 1),
        "1=STALE_MEMBER_EPOCH",
        "it is not its own any more"
    );
    assert_eq!(commit("m1", 4, 0), "0=STALE_MEMBER_EPOCH");
    assert_eq!(commit("m2", 3, 0), "0=NONE");
    assert_eq!(commit("nobody", 3, 0), "0=UNKNOWN_MEMBER_ID");
    assert_eq!(commit("", -1, 0), "0=UNKNOWN_MEMBER_ID");
}

#[test]
fn members_read_in_their_epoch() {
    let mut script = group();
    script.commit_offset(committing_of("m1", 3, 0));
    let read = |script: &mut Script, request| {
        let text = script.fetch_offset(&request);
        let (_, result) = text.split_once("fetch ").expect("a reply").to_owned();
        result.trim().to_owned()
    };
    let found = "NONE t-0=-1@-1'' t-1=-1@-1''";
    assert_eq!(read(&mut script, fetching_as("m1", 3)), found);
    assert_eq!(read(&mut script, fetching()), found, "an administrator");
    assert_eq!(
        read(&mut script, fetching_as("m1", 2)),
        "STALE_MEMBER_EPOCH"
    );
    assert_eq!(read(&mut script, fetching_as("m9", 2)), "UNKNOWN_MEMBER_ID");
}

#[test]
fn an_empty_group_and_its_offsets_go_when_they_are_old() {
    let mut script = group();
    script.commit_offset(committing_of("m1", 3, 0));
    check(
        script.delete_groups(&["g"]),
        "reply 6: delete groups g=NON_EMPTY_GROUP",
    );
    script.send(alive("m1", -1));
    script.send(alive("m2", -1));
    let now = script.now();
    let outcome = crate::runtime::Coordinator::on_loaded(&mut script.coordinator, now);
    script.render(outcome);
    let text = script.pass(8 * 24 * 60 * 60 * 1000);
    assert!(text.contains("offset g t-0 tombstone"), "{text}");
    assert!(text.contains("g tombstone"), "{text}");
    assert_eq!(script.state("g"), "-");
    script.check_restart();
}

#[test]
fn an_empty_group_can_be_deleted() {
    let mut script = group();
    script.commit_offset(committing_of("m1", 3, 0));
    script.send(alive("m1", -1));
    script.send(alive("m2", -1));
    check(
        script.delete_groups(&["g"]),
        "write 8: offset g t-0 tombstone
         write 8: g target tombstone
         write 8: g topics tombstone
         write 8: g tombstone
         reply 8: delete groups g=NONE",
    );
    assert_eq!(script.state("g"), "-");
    script.check_restart();
}
