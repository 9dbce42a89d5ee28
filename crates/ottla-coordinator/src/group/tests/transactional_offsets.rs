//! Offsets that are part of a transaction, and the markers that end it.

use ottla_protocol::messages::OffsetCommitRequest;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::{Script, check, committing, fetching, full, joining};
use crate::runtime::{TransactionEnd, TransactionalProducer};

fn request(offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: "g".into(),
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                committed_metadata: Some("m".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn commit(script: &mut Script, request: OffsetCommitRequest) -> String {
    commit_of(script, request, false)
}

/// `tells_stale_members` from version 6 on.
fn commit_of(
    script: &mut Script,
    request: OffsetCommitRequest,
    tells_stale_members: bool,
) -> String {
    let producer = TransactionalProducer {
        id: ProducerId(9),
        epoch: ProducerEpoch(3),
    };
    let (to, now) = (script.next_reply_to(), script.now());
    let outcome = script.coordinator.handle_txn_offset_commit(
        to,
        &request,
        producer,
        Some(4),
        tells_stale_members,
        now,
    );
    script.render(outcome)
}

fn end(script: &mut Script, is_commit: bool) -> String {
    let producer = TransactionalProducer {
        id: ProducerId(9),
        epoch: ProducerEpoch(4),
    };
    let marker = TransactionEnd {
        is_commit,
        coordinator_epoch: 0,
        transaction_version: 2,
    };
    let to = script.next_reply_to();
    let outcome = script
        .coordinator
        .handle_transaction_end(to, producer, marker);
    script.render(outcome)
}

#[test]
fn offsets_count_when_their_transaction_is_committed() {
    for (is_commit, result, stable) in [
        (true, "commit", "t-0=50@-1'm'"),
        (false, "abort", "t-0=7@5'm'"),
    ] {
        let mut script = Script::new();
        script.commit_offset(committing("", -1, 7));
        check(
            commit(&mut script, request(50)),
            "write 2 of 9:3 guard Some(4): offset g t-0 50@-1'm'
             reply 2: commit t-0=NONE",
        );
        check(
            script.fetch_stable_offset(&fetching()),
            "reply 3: fetch NONE t-0=UNSTABLE_OFFSET_COMMIT t-1=-1@-1''",
        );
        check(
            end(&mut script, is_commit),
            &format!(
                "write 3 {result} 9:4 v2
                 reply 4: transaction end NONE"
            ),
        );
        check(
            script.fetch_stable_offset(&fetching()),
            &format!("reply 5: fetch NONE {stable} t-1=-1@-1''"),
        );
    }
}

#[test]
fn there_is_no_marker_of_no_producer() {
    let mut script = Script::new();
    for (id, epoch) in [(-1, 4), (9, -1)] {
        let producer = TransactionalProducer {
            id: ProducerId(id),
            epoch: ProducerEpoch(epoch),
        };
        let marker = TransactionEnd {
            is_commit: false,
            coordinator_epoch: 0,
            transaction_version: 0,
        };
        let to = script.next_reply_to();
        let coordinator = &mut script.coordinator;
        let outcome = coordinator.handle_transaction_end(to, producer, marker);
        assert!(outcome.writes.is_empty());
        let rendered = script.render(outcome);
        let expected = "transaction end UNKNOWN_SERVER_ERROR";
        assert!(rendered.trim_end().ends_with(expected), "{rendered}");
    }
}

#[test]
fn a_marker_that_cannot_be_written_ends_nothing() {
    let mut script = Script::new();
    script.commit_offset(committing("", -1, 7));
    commit(&mut script, request(50));
    script.commits_at_once = false;
    end(&mut script, true);
    check(
        script.fail(3, ErrorCode::NotLeaderOrFollower),
        "reply 3: transaction end NOT_LEADER_OR_FOLLOWER",
    );
    check(
        script.fetch_stable_offset(&fetching()),
        "reply 4: fetch NONE t-0=UNSTABLE_OFFSET_COMMIT t-1=-1@-1''",
    );
    script.commits_at_once = true;
    end(&mut script, true);
    check(
        script.fetch_offset(&fetching()),
        "reply 6: fetch NONE t-0=50@-1'm' t-1=-1@-1''",
    );
}

#[test]
fn offsets_that_cannot_be_written_are_not_waited_for() {
    let mut script = Script::new();
    commit(&mut script, request(50));
    script.commits_at_once = false;
    commit(&mut script, request(60));
    // A later commit of another group, which is valid.
    let mut other = committing("", -1, 1);
    other.group_id = "h".into();
    script.commit_offset(other);
    check(
        script.fail(2, ErrorCode::InvalidProducerEpoch),
        "reply 2: commit t-0=INVALID_PRODUCER_EPOCH
         reply 3: commit t-0=COORDINATOR_NOT_AVAILABLE",
    );
    script.commits_at_once = true;
    end(&mut script, true);
    check(
        script.fetch_offset(&fetching()),
        "reply 5: fetch NONE t-0=50@-1'm' t-1=-1@-1''",
    );
}

#[test]
fn a_join_after_a_failed_offset_write_is_refused() {
    let mut script = Script::new();
    script.commits_at_once = false;
    commit(&mut script, request(50));
    script.join_new(joining(""));
    check(
        script.fail(1, ErrorCode::InvalidProducerEpoch),
        "reply 3: join COORDINATOR_NOT_AVAILABLE member=c#1
         reply 1: commit t-0=INVALID_PRODUCER_EPOCH",
    );
}

#[test]
fn a_deletion_that_cannot_be_written_leaves_them_waiting() {
    let mut script = Script::new();
    commit(&mut script, request(50));
    script.commits_at_once = false;
    script.delete_groups(&["g"]);
    check(
        script.fail(2, ErrorCode::NotEnoughReplicas),
        "reply 2: delete groups g=COORDINATOR_NOT_AVAILABLE",
    );
    check(
        script.fetch_stable_offset(&fetching()),
        "reply 3: fetch NONE t-0=UNSTABLE_OFFSET_COMMIT t-1=-1@-1''",
    );
}

#[test]
fn members_are_checked_where_they_are_named() {
    let mut script = Script::stable_group_of_two();
    // Older clients send no member id or generation.
    let text = commit(&mut script, request(50));
    assert!(text.contains("commit t-0=NONE"), "{text}");
    for (member_id, generation_id, error) in [
        ("c#1", 1, "NONE"),
        ("c#1", 0, "ILLEGAL_GENERATION"),
        ("c#9", 1, "UNKNOWN_MEMBER_ID"),
    ] {
        let mut request = request(50);
        request.member_id = full(member_id);
        request.generation_id_or_member_epoch = generation_id;
        let text = commit(&mut script, request);
        assert!(
            text.contains(&format!("t-0={error}")),
            "{member_id}: {text}"
        );
    }
    let mut of_unknown_group = request(50);
    of_unknown_group.group_id = "unknown".into();
    of_unknown_group.generation_id_or_member_epoch = 1;
    let text = commit(&mut script, of_unknown_group.clone());
    assert!(text.contains("t-0=ILLEGAL_GENERATION"), "{text}");
    let text = commit_of(&mut script, of_unknown_group, true);
    assert!(text.contains("t-0=GROUP_ID_NOT_FOUND"), "{text}");
}

#[test]
fn metadata_may_be_too_long() {
    let mut script = Script::new();
    let mut long = request(50);
    long.topics[0].partitions[0].committed_metadata = Some("x".repeat(4097).into());
    let text = commit(&mut script, long);
    check(text, "reply 1: commit t-0=OFFSET_METADATA_TOO_LARGE");
}
