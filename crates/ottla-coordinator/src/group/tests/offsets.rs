//! Committing and fetching offsets, and the visibility of uncommitted ones.

use crate::runtime::Coordinator;
use bytes::Bytes;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue, OffsetCommitValue};
use ottla_types::{ErrorCode, Offset, ProducerId, TopicId, Uuid};

use super::{Script, TOPIC_ID, check, committing, fetching, full, joining};
use crate::group::outcome::WriteId;

#[test]
fn a_commit_of_a_member_keeps_its_session_alive() {
    let mut script = Script::stable_group_of_two();
    check(
        script.commit_offset(committing("c#1", 1, 42)),
        "timer session g/c#1 in 10000
         write 3: offset g t-0 42@5'm'
         reply 7: commit t-0=NONE",
    );
    check(
        script.fetch_offset(&fetching()),
        "reply 8: fetch NONE t-0=42@5'm' t-1=-1@-1''",
    );
}

#[test]
fn the_records_are_kafkas_to_the_byte() {
    let mut script = Script::new();
    script.now_ms = 0x0102_0304_0506;
    script.commit_offset(committing("", -1, 42));
    let mut with_retention = committing("", -1, 43);
    with_retention.retention_time_ms = 1;
    script.commit_offset(with_retention);
    let (key, value) = &script.log[0];
    assert_eq!(&key[..], b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00");
    // Version 4 with the topic id as tagged field 0.
    let expected = [
        &b"\x00\x04\x00\x00\x00\x00\x00\x00\x00\x2a\x00\x00\x00\x05\x02m"[..],
        b"\x00\x00\x01\x02\x03\x04\x05\x06\x01\x00\x10",
        &TOPIC_ID.0,
    ]
    .concat();
    assert_eq!(value.as_deref(), Some(&expected[..]));
    // Version 1, the only one with an expiry timestamp.
    let (_, value) = &script.log[1];
    let expected = [
        &b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x2b\x00\x01m"[..],
        b"\x00\x00\x01\x02\x03\x04\x05\x06\x00\x00\x01\x02\x03\x04\x05\x07",
    ]
    .concat();
    assert_eq!(value.as_deref(), Some(&expected[..]));
}

#[test]
fn a_group_record_is_kafkas_to_the_byte() {
    let mut script = Script::new();
    script.now_ms = 0x0102_0304_0506;
    script.join_new(joining("").protocols(&[("r", "t")]));
    script.leave(&["c#1"]);
    script.pass(3_000);
    let (key, value) = script.log.last().expect("the empty group was written");
    assert_eq!(&key[..], b"\x00\x02\x00\x01g");
    // Version 3: type, generation, no protocol, no leader, the time of the change, no members.
    assert_eq!(script.log.len(), 2);
    let expected = [
        &b"\x00\x03\x00\x08consumer\x00\x00\x00\x01\xff\xff\xff\xff"[..],
        b"\x00\x00\x01\x02\x03\x04\x10\xbe\x00\x00\x00\x00",
    ]
    .concat();
    assert_eq!(value.as_deref(), Some(&expected[..]));
}

#[test]
fn anybody_may_commit_to_a_group_without_members() {
    let mut script = Script::new();
    check(
        script.commit_offset(committing("", -1, 7)),
        "write 1: offset g t-0 7@5'm'
         reply 1: commit t-0=NONE",
    );
    assert_eq!(script.state("g"), "Empty");
    let mut script = Script::stable_group_of_two();
    check(
        script.commit_offset(committing("", -1, 7)),
        "reply 7: commit t-0=UNKNOWN_MEMBER_ID",
    );
}

#[test]
fn members_that_wait_for_their_assignment_commit_later() {
    let mut script = Script::stable_group_of_two();
    script.join(joining("c#1"));
    check(
        script.commit_offset(committing("c#2", 1, 7)),
        "timer session g/c#2 in 10000
         write 3: offset g t-0 7@5'm'
         reply 8: commit t-0=NONE",
    );
    script.join(joining("c#2"));
    check(
        script.commit_offset(committing("c#2", 2, 7)),
        "reply 10: commit t-0=REBALANCE_IN_PROGRESS",
    );
}

#[test]
fn metadata_is_counted_in_javas_characters() {
    let mut script = Script::new();
    let mut commit = committing("", -1, 7);
    // 4096 characters in Java, 8192 bytes here.
    commit.topics[0].partitions[0].committed_metadata = Some("\u{e4}".repeat(4096).into());
    assert!(
        script
            .commit_offset(commit.clone())
            .ends_with("commit t-0=NONE\n")
    );
    commit.topics[0].partitions[0].committed_metadata = Some("\u{e4}".repeat(4097).into());
    check(
        script.commit_offset(commit),
        "reply 2: commit t-0=OFFSET_METADATA_TOO_LARGE",
    );
}

#[test]
fn a_pending_offset_is_hidden_and_unstable_for_stable_reads() {
    let mut script = Script::new();
    script.commit_offset(committing("", -1, 7));
    script.commits_at_once = false;
    check(
        script.commit_offset(committing("", -1, 8)),
        "write 2: offset g t-0 8@5'm'",
    );
    check(
        script.fetch_offset(&fetching()),
        "reply 3: fetch NONE t-0=7@5'm' t-1=-1@-1''",
    );
    check(script.fetch_stable_offset(&fetching()), "");
    check(
        script.commit(),
        "reply 2: commit t-0=NONE
         reply 4: fetch NONE t-0=8@5'm' t-1=-1@-1''",
    );
    check(
        script.fetch_stable_offset(&fetching()),
        "reply 5: fetch NONE t-0=8@5'm' t-1=-1@-1''",
    );
}

#[test]
fn a_commit_that_cannot_be_written_never_was() {
    let mut script = Script::new();
    script.commit_offset(committing("", -1, 7));
    script.commits_at_once = false;
    script.commit_offset(committing("", -1, 8));
    script.commit_offset(committing("", -1, 9));
    script.fetch_stable_offset(&fetching());
    check(
        script.fail(2, ErrorCode::NotLeaderOrFollower),
        "reply 2: commit t-0=NOT_COORDINATOR
         reply 3: commit t-0=NOT_COORDINATOR
         reply 4: fetch NOT_COORDINATOR",
    );
    assert!(!script.coordinator.has_outstanding_writes());
    check(
        script.fetch_stable_offset(&fetching()),
        "reply 5: fetch NONE t-0=7@5'm' t-1=-1@-1''",
    );
}

#[test]
fn a_group_whose_first_commit_cannot_be_written_does_not_exist() {
    let mut script = Script::new();
    script.commits_at_once = false;
    script.commit_offset(committing("", -1, 8));
    assert_eq!(script.state("g"), "Empty");
    script.fail(1, ErrorCode::KafkaStorageError);
    assert_eq!(script.state("g"), "-");
}

#[test]
fn a_slow_write_is_not_waited_for_but_still_counts() {
    let mut script = Script::new();
    script.commits_at_once = false;
    script.commit_offset(committing("", -1, 8));
    let outcome = script
        .coordinator
        .on_write_timed_out(WriteId(1), script.now());
    check(
        script.render(outcome),
        "reply 1: commit t-0=COORDINATOR_NOT_AVAILABLE",
    );
    check(script.commit(), "");
    check(
        script.fetch_offset(&fetching()),
        "reply 2: fetch NONE t-0=8@5'm' t-1=-1@-1''",
    );
}

#[test]
fn an_offset_of_an_earlier_topic_of_the_same_name_does_not_count() {
    let mut script = Script::new();
    script.commit_offset(committing("", -1, 7));
    let mut recreated = fetching();
    recreated.topics.as_mut().unwrap()[0].topic_id = Uuid::from_u128(0x8);
    check(
        script.fetch_offset(&recreated),
        "reply 2: fetch NONE t-0=-1@-1'' t-1=-1@-1''",
    );
    let mut by_name = fetching();
    by_name.topics.as_mut().unwrap()[0].topic_id = TopicId::ZERO;
    check(
        script.fetch_offset(&by_name),
        "reply 3: fetch NONE t-0=7@5'm' t-1=-1@-1''",
    );
}

#[test]
fn all_offsets_of_a_group_are_ordered_by_topic_and_partition() {
    let mut script = Script::new();
    for (topic, partition) in [("u", 1), ("t", 3), ("u", 0), ("t", 0)] {
        let mut commit = committing("", -1, 7);
        commit.topics[0].name = topic.into();
        commit.topics[0].partitions[0].partition_index = partition;
        script.commit_offset(commit);
    }
    let mut all = fetching();
    all.topics = None;
    check(
        script.fetch_offset(&all),
        "reply 5: fetch NONE t-0=7@5'm' t-3=7@5'm' u-0=7@5'm' u-1=7@5'm'",
    );
    all.group_id = "x".into();
    check(script.fetch_offset(&all), "reply 6: fetch NONE");
}

#[test]
fn commits_and_heartbeats_wait_for_uncommitted_writes() {
    let mut script = Script::stable_group_of_two();
    script.commits_at_once = false;
    script.commit_offset(committing("c#1", 1, 8));
    check(script.heartbeat("c#2", 1), "timer session g/c#2 in 10000");
    check(
        script.commit(),
        "reply 7: commit t-0=NONE
         reply 8: heartbeat NONE",
    );
}

/// The value of an offset commit as a transactional producer writes it.
fn transactional_commit(offset: i64) -> (Bytes, Bytes) {
    let key = GroupRecordKey::OffsetCommit(ottla_protocol::coordinator_records::OffsetCommitKey {
        group: "g".into(),
        topic: "t".into(),
        partition: 0,
    });
    let value = GroupRecordValue::OffsetCommit(OffsetCommitValue {
        offset,
        ..Default::default()
    });
    (key.encode().unwrap(), value.encode(4).unwrap())
}

#[test]
fn offsets_of_an_open_transaction_are_unstable_until_it_ends() {
    for (is_commit, expected) in [(true, "t-0=50@-1''"), (false, "t-0=7@5'm'")] {
        let mut script = Script::new();
        script.commit_offset(committing("", -1, 7));
        let (key, value) = transactional_commit(50);
        let now = script.now();
        let producer = ProducerId(9);
        script
            .coordinator
            .replay(Offset(1), producer, &key, Some(&value), now)
            .unwrap();
        check(
            script.fetch_stable_offset(&fetching()),
            "reply 2: fetch NONE t-0=UNSTABLE_OFFSET_COMMIT t-1=-1@-1''",
        );
        check(
            script.fetch_offset(&fetching()),
            "reply 3: fetch NONE t-0=7@5'm' t-1=-1@-1''",
        );
        script
            .coordinator
            .replay_end_transaction_marker(producer, is_commit);
        let text = script.fetch_stable_offset(&fetching());
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_transaction_that_ends_late_does_not_undo_a_later_commit() {
    let mut script = Script::new();
    let now = script.now();
    let producer = ProducerId(9);
    let (key, value) = transactional_commit(50);
    script
        .coordinator
        .replay(Offset(0), producer, &key, Some(&value), now)
        .unwrap();
    let (key, value) = transactional_commit(60);
    let none = ProducerId::NONE;
    script
        .coordinator
        .replay(Offset(1), none, &key, Some(&value), now)
        .unwrap();
    script
        .coordinator
        .replay_end_transaction_marker(producer, true);
    check(
        script.fetch_stable_offset(&fetching()),
        "reply 1: fetch NONE t-0=60@-1'' t-1=-1@-1''",
    );
}

#[test]
fn deleting_a_group_takes_the_offsets_of_open_transactions_too() {
    let mut script = Script::new();
    let now = script.now();
    let (key, value) = transactional_commit(50);
    let producer = ProducerId(9);
    script
        .coordinator
        .replay(Offset(0), producer, &key, Some(&value), now)
        .unwrap();
    check(
        script.delete_groups(&["g"]),
        "write 1: offset g t-0 tombstone
         write 1: group g tombstone
         reply 1: delete groups g=NONE",
    );
    script
        .coordinator
        .replay_end_transaction_marker(producer, true);
    check(
        script.fetch_stable_offset(&fetching()),
        "reply 2: fetch NONE t-0=-1@-1'' t-1=-1@-1''",
    );
}

#[test]
fn a_member_id_names_its_client() {
    assert_eq!(full("c#1"), "c-01010101-0101-4101-8101-010101010101");
}

#[test]
fn loaded_offsets_are_shown_once_they_are_committed() {
    let mut script = Script::new();
    let (now, none) = (script.now(), ProducerId::NONE);
    let replay = |script: &mut Script, at: i64, producer: ProducerId, offset: i64| {
        let (key, value) = transactional_commit(offset);
        let replayed = script
            .coordinator
            .replay(Offset(at), producer, &key, Some(&value), now);
        replayed.unwrap();
    };
    replay(&mut script, 0, none, 5);
    let producer = ProducerId(9);
    replay(&mut script, 1, producer, 8);
    let uncommitted = script.coordinator.begin_uncommitted().expect("a write");
    script
        .coordinator
        .replay_end_transaction_marker(producer, true);
    replay(&mut script, 3, none, 9);
    script.coordinator.on_loaded(now);
    check(
        script.fetch_offset(&fetching()),
        "reply 1: fetch NONE t-0=5@-1'' t-1=-1@-1''",
    );
    check(script.fetch_stable_offset(&fetching()), "");
    let late = script.coordinator.on_write_timed_out(uncommitted, now);
    let text = script.render(late);
    assert!(text.starts_with("reply 2: fetch"), "{text}");
    check(script.fetch_stable_offset(&fetching()), "");
    let committed = script.coordinator.on_records_committed(uncommitted, now);
    check(
        script.render(committed),
        "reply 3: fetch NONE t-0=9@-1'' t-1=-1@-1''",
    );
    check(
        script.fetch_offset(&fetching()),
        "reply 4: fetch NONE t-0=9@-1'' t-1=-1@-1''",
    );
}

#[test]
fn a_deleted_group_is_shown_until_its_tombstone_is_committed() {
    let mut script = Script::new();
    let (now, none) = (script.now(), ProducerId::NONE);
    let (key, value) = transactional_commit(5);
    let coordinator = &mut script.coordinator;
    coordinator
        .replay(Offset(0), none, &key, Some(&value), now)
        .unwrap();
    let uncommitted = coordinator.begin_uncommitted().expect("a write");
    coordinator
        .replay(Offset(1), none, &key, None, now)
        .unwrap();
    let group =
        GroupRecordKey::GroupMetadata(ottla_protocol::coordinator_records::GroupMetadataKey {
            group: "g".into(),
        });
    let group = group.encode().unwrap();
    coordinator
        .replay(Offset(2), none, &group, None, now)
        .unwrap();
    coordinator.on_loaded(now);
    let state = |script: &Script| {
        let described = script.coordinator.describe_group(&"g".into(), false);
        described.group_state.to_string()
    };
    assert_eq!(state(&script), "Empty");
    check(
        script.fetch_offset(&fetching()),
        "reply 1: fetch NONE t-0=5@-1'' t-1=-1@-1''",
    );
    script.coordinator.on_records_committed(uncommitted, now);
    assert_eq!(state(&script), "Dead");
    check(
        script.fetch_offset(&fetching()),
        "reply 2: fetch NONE t-0=-1@-1'' t-1=-1@-1''",
    );
}
