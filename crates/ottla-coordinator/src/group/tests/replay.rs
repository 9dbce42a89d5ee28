//! Loading from the log.

use crate::runtime::Coordinator;
use bytes::Bytes;
use ottla_protocol::coordinator_records::group_metadata_value::MemberMetadata;
use ottla_protocol::coordinator_records::{
    GroupMetadataKey, GroupMetadataValue, GroupRecordKey, GroupRecordValue,
};
use ottla_protocol::messages::describe_groups_response::DescribedGroup;
use ottla_types::{Offset, ProducerId};

use super::{Script, check, committing, fetching, full, joining};
use crate::runtime::ReplayError;

#[test]
fn a_restart_restores_the_group() {
    let mut script = Script::stable_group_of_two();
    script.commit_offset(committing("c#1", 1, 42));
    let (mut script, loaded) = script.restart();
    check(
        loaded,
        "timer session g/c#1 in 10000
         timer session g/c#2 in 10000
         timer expiration in 600000",
    );
    check(
        script.heartbeat("c#1", 1),
        "timer session g/c#1 in 10000
         reply 1: heartbeat NONE",
    );
    check(
        script.sync("c#2", 1, &[]),
        "cancel sync g
         reply 2: sync protocol=range assignment=t-1",
    );
    check(
        script.fetch_offset(&fetching()),
        "reply 3: fetch NONE t-0=42@5'm' t-1=-1@-1''",
    );
    // c#2 died with the old broker.
    script.pass(5_000);
    script.heartbeat("c#1", 1);
    assert!(script.pass(5_000).contains("timer join g in 60000"));
}

#[test]
fn deleted_state_stays_deleted_after_a_restart() {
    let mut script = Script::new();
    script.commit_offset(committing("", -1, 7));
    script.delete_groups(&["g"]);
    let (mut script, _) = script.restart();
    assert_eq!(script.state("g"), "-");
    check(
        script.fetch_offset(&fetching()),
        "reply 1: fetch NONE t-0=-1@-1'' t-1=-1@-1''",
    );
}

#[test]
fn groups_are_listed_by_state_and_type() {
    let mut script = Script::stable_group_of_two();
    script.join_new(joining("").group("h"));
    script.commit_offset({
        let mut commit = committing("", -1, 7);
        commit.group_id = "i".into();
        commit
    });
    let list = |states: &[&'static str], types: &[&'static str]| {
        let states: Vec<_> = states.iter().map(|state| (*state).into()).collect();
        let types: Vec<_> = types.iter().map(|name| (*name).into()).collect();
        let listed = script.coordinator.list_groups(&states, &types);
        let ids = listed
            .iter()
            .map(|group| format!("{}/{}", group.group_id, group.protocol_type));
        ids.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list(&[], &[]), "g/consumer h/consumer i/");
    assert_eq!(
        list(&["stable", " PREPARINGREBALANCE "], &[]),
        "g/consumer h/consumer"
    );
    assert_eq!(list(&["Empty"], &["CLASSIC"]), "i/");
    assert_eq!(list(&[], &["consumer"]), "");
    assert_eq!(list(&["nonsense"], &[]), "");
}

#[test]
fn a_group_is_described_with_what_its_members_agreed_on() {
    let mut script = Script::stable_group_of_two();
    let described = script.coordinator.describe_group(&"g".into(), true);
    assert_eq!(described.group_state, "Stable");
    assert_eq!(described.protocol_type, "consumer");
    assert_eq!(described.protocol_data, "range");
    assert_eq!(described.members[1].member_id, full("c#2"));
    assert_eq!(described.members[1].client_id, "c");
    assert_eq!(described.members[1].client_host, "/192.0.2.1");
    assert_eq!(described.members[1].member_assignment, "t-1");
    assert_eq!(
        described.members[1].member_metadata,
        super::protocol("range", "t").metadata
    );

    script.join(joining("c#1"));
    let described = script.coordinator.describe_group(&"g".into(), true);
    assert_eq!(described.group_state, "PreparingRebalance");
    assert_eq!(described.protocol_data, "");
    assert_eq!(described.members[1].member_metadata, Bytes::new());
    assert_eq!(described.members[1].member_assignment, "t-1");
}

#[test]
fn a_group_that_does_not_exist_is_dead() {
    let script = Script::new();
    let dead = DescribedGroup {
        group_id: "x".into(),
        group_state: "Dead".into(),
        ..Default::default()
    };
    assert_eq!(script.coordinator.describe_group(&"x".into(), false), dead);
    let not_found = DescribedGroup {
        error_code: 69,
        error_message: Some("Group x not found.".into()),
        ..dead
    };
    assert_eq!(
        script.coordinator.describe_group(&"x".into(), true),
        not_found
    );
}

fn replay(
    script: &mut Script,
    key: GroupRecordKey,
    value: Option<Bytes>,
) -> Result<(), ReplayError> {
    let now = script.now();
    let key = key.encode().unwrap();
    script
        .coordinator
        .replay(Offset(3), ProducerId::NONE, &key, value.as_ref(), now)
}

#[test]
fn records_of_an_unknown_type_are_passed_over() {
    let mut script = Script::new();
    let key = GroupRecordKey::Unknown {
        record_type: 999,
        bytes: Bytes::from_static(b"\x03\xe7whatever"),
    };
    replay(&mut script, key, Some(Bytes::from_static(b"\x00\x00?"))).unwrap();
    assert!(script.coordinator.list_groups(&[], &[]).is_empty());
}

#[test]
fn records_that_cannot_be_read_are_named() {
    let mut script = Script::new();
    let now = script.now();
    let text = |result: Result<(), ReplayError>| result.unwrap_err().to_string();
    let torn = Bytes::from_static(b"\x00\x01\x00\x05g");
    let result = script
        .coordinator
        .replay(Offset(7), ProducerId::NONE, &torn, None, now);
    assert!(text(result).starts_with("the key of the record at offset 7 cannot be read"));

    let key = || GroupRecordKey::from(GroupMetadataKey { group: "g".into() });
    let result = replay(&mut script, key(), Some(Bytes::from_static(b"\x00\x63")));
    assert!(text(result).starts_with("the value of the record at offset 3 cannot be read"));

    let member = || MemberMetadata {
        member_id: "twice".into(),
        ..Default::default()
    };
    let value = GroupMetadataValue {
        protocol_type: "consumer".into(),
        protocol: Some("range".into()),
        members: vec![member(), member()],
        ..Default::default()
    };
    let value = GroupRecordValue::from(value).encode(3).unwrap();
    let result = replay(&mut script, key(), Some(value));
    assert_eq!(
        text(result),
        "the record at offset 3 describes group g in a way that contradicts itself"
    );
}

#[test]
fn records_of_old_brokers_are_understood() {
    let mut script = Script::new();
    // Type 0 with a value of version 0: offset, metadata, timestamp.
    let key = Bytes::from_static(b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x00");
    let value = Bytes::from_static(b"\x00\x00\0\0\0\0\0\0\0\x2a\x00\x01m\0\0\0\0\0\0\0\x01");
    let now = script.now();
    script
        .coordinator
        .replay(Offset(0), ProducerId::NONE, &key, Some(&value), now)
        .unwrap();
    check(
        script.fetch_offset(&fetching()),
        "reply 1: fetch NONE t-0=42@-1'm' t-1=-1@-1''",
    );
}

#[test]
fn parked_requests_are_answered_when_the_coordinator_is_unloaded() {
    let mut script = Script::stable_group_of_two();
    script.join(joining("c#1"));
    script.join(joining("c#2"));
    script.sync("c#2", 2, &[]);
    script.commits_at_once = false;
    script.sync("c#1", 2, &[]);
    script.heartbeat("c#2", 2);
    script.join_new(joining("").group("h"));
    let outcome = script.coordinator.on_unloaded();
    check(
        script.render(outcome),
        "reply 11: heartbeat NOT_COORDINATOR
         reply 10: sync NOT_COORDINATOR
         reply 9: sync NOT_COORDINATOR
         reply 13: join NOT_COORDINATOR member=c#3",
    );
}
