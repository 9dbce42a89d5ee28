//! Expiry of offsets and groups.

use crate::runtime::Coordinator;
use ottla_types::{ErrorCode, Uuid};

use super::{Script, TOPIC_ID, check, committing, fetching, joining};
use crate::group::GroupCoordinatorConfig;

const DAY: i64 = 24 * 60 * 60 * 1000;

/// With a retention of a day and an hourly check.
fn script() -> Script {
    let mut script = Script::with_config(GroupCoordinatorConfig {
        offsets_retention_ms: DAY,
        offsets_retention_check_interval_ms: 3_600_000,
        ..Default::default()
    });
    let now = script.now();
    let outcome = script.coordinator.on_loaded(now);
    check(script.render(outcome), "timer expiration in 3600000");
    script
}

/// The records that were written while time passed.
fn written(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with("write"))
        .collect()
}

#[test]
fn offsets_of_a_group_that_nobody_joined_expire_after_their_commit() {
    let mut script = script();
    script.commit_offset(committing("", -1, 7));
    script.pass(DAY / 2);
    let mut other = committing("", -1, 8);
    other.topics[0].partitions[0].partition_index = 1;
    script.commit_offset(other);
    let text = script.pass(DAY / 2 + 3_600_000);
    assert_eq!(written(&text), ["write 3: offset g t-0 tombstone"]);
    check(
        script.fetch_offset(&fetching()),
        "reply 3: fetch NONE t-0=-1@-1'' t-1=8@5'm'",
    );
    let text = script.pass(DAY / 2);
    assert_eq!(
        written(&text),
        [
            "write 4: offset g t-1 tombstone",
            "write 4: group g tombstone"
        ]
    );
    assert_eq!(script.state("g"), "-");
}

#[test]
fn offsets_of_a_group_that_had_members_expire_after_it_became_empty() {
    let mut script = script();
    script.join_new(joining(""));
    script.pass(3_000);
    script.sync("c#1", 1, &[]);
    script.commit_offset(committing("c#1", 1, 7));
    for _ in 0..30 {
        script.heartbeat("c#1", 1);
        script.now_ms += 3_600_000;
    }
    script.leave(&["c#1"]);
    let text = script.pass(DAY - 1);
    assert_eq!(written(&text), [] as [&str; 0]);
    let text = script.pass(3_600_000);
    assert_eq!(
        written(&text),
        [
            "write 5: offset g t-0 tombstone",
            "write 5: group g tombstone"
        ]
    );
}

#[test]
fn offsets_of_topics_that_a_stable_group_no_longer_reads_expire() {
    let mut script = script();
    script.join_new(joining(""));
    script.pass(3_000);
    script.sync("c#1", 1, &[]);
    script.commit_offset(committing("c#1", 1, 7));
    let mut other = committing("c#1", 1, 8);
    other.topics[0].name = "u".into();
    script.commit_offset(other);
    for _ in 0..10 {
        script.heartbeat("c#1", 1);
        script.now_ms += 3 * 3_600_000;
    }
    script.heartbeat("c#1", 1);
    let text = script.pass(1);
    assert_eq!(written(&text), ["write 5: offset g u-0 tombstone"]);
    assert_eq!(script.state("g"), "Stable");
}

#[test]
fn an_expiry_time_given_by_the_client_overrides_the_retention() {
    let mut script = script();
    let mut commit = committing("", -1, 7);
    commit.retention_time_ms = 3 * DAY;
    script.commit_offset(commit);
    assert_eq!(written(&script.pass(3 * DAY - 3_600_000)), [] as [&str; 0]);
    assert_eq!(
        written(&script.pass(2 * 3_600_000)),
        [
            "write 2: offset g t-0 tombstone",
            "write 2: group g tombstone"
        ]
    );
}

#[test]
fn a_group_without_members_and_offsets_is_deleted_at_the_next_tick() {
    let mut script = script();
    script.join_new(joining(""));
    script.leave(&["c#1"]);
    script.pass(3_000);
    assert_eq!(
        written(&script.pass(3_600_000)),
        ["write 3: group g tombstone"]
    );
    check(
        script.join(joining("c#1")),
        "reply 4: join UNKNOWN_MEMBER_ID member=c#1",
    );
}

#[test]
fn an_expiry_that_cannot_be_written_is_tried_again() {
    let mut script = script();
    script.commit_offset(committing("", -1, 7));
    script.commits_at_once = false;
    script.pass(DAY + 3_600_000 - 1);
    script.fail(2, ErrorCode::NotEnoughReplicas);
    check(
        script.fetch_offset(&fetching()),
        "reply 2: fetch NONE t-0=7@5'm' t-1=-1@-1''",
    );
    script.commits_at_once = true;
    assert_eq!(
        written(&script.pass(3_600_000)),
        [
            "write 3: offset g t-0 tombstone",
            "write 3: group g tombstone"
        ]
    );
}

#[test]
fn many_tombstones_are_written_in_pieces() {
    let mut script = script();
    for partition in 0..1_500 {
        let mut commit = committing("", -1, 7);
        commit.topics[0].partitions[0].partition_index = partition;
        script.commit_offset(commit);
    }
    let text = script.pass(DAY + 3_600_000);
    let first = text
        .lines()
        .filter(|line| line.starts_with("write 1501:"))
        .count();
    let second = text
        .lines()
        .filter(|line| line.starts_with("write 1502:"))
        .count();
    assert_eq!((first, second), (1_000, 501));
    assert!(text.contains("write 1502: group g tombstone"));
}

#[test]
fn offsets_of_a_deleted_topic_are_deleted_but_not_of_its_successor() {
    let mut script = Script::new();
    script.commit_offset(committing("", -1, 7));
    let mut other_topic = committing("", -1, 8);
    other_topic.topics[0].name = "u".into();
    script.commit_offset(other_topic);
    let mut unknown_id = committing("", -1, 9);
    unknown_id.topics[0].topic_id = Uuid::ZERO;
    unknown_id.topics[0].partitions[0].partition_index = 1;
    script.commit_offset(unknown_id);
    let mut successor = committing("", -1, 10);
    successor.topics[0].topic_id = Uuid::from_u128(0x8);
    successor.topics[0].partitions[0].partition_index = 2;
    script.commit_offset(successor);
    let now = script.now();
    let outcome = script
        .coordinator
        .on_topics_deleted(&[("t".into(), TOPIC_ID)], now);
    check(
        script.render(outcome),
        "write 5: offset g t-0 tombstone
         write 5: offset g t-1 tombstone",
    );
}

/// Requests get their turns between the steps.
#[test]
fn very_many_groups_expire_in_steps() {
    let mut script = script();
    for number in 0..6_000 {
        let mut commit = committing("", -1, 7);
        commit.group_id = format!("g{number:04}").into();
        script.commit_offset(commit);
    }
    script.pass(DAY - 1);
    let mut groups = Vec::new();
    let mut steps = 0;
    while groups.len() < 6_000 {
        steps += 1;
        let text = script.fire_next_timer();
        let tombstones = text
            .lines()
            .filter_map(|line| line.strip_suffix(" tombstone"));
        let gone = tombstones.filter_map(|line| Some(line.split_once(": group ")?.1.to_owned()));
        groups.extend(gone);
        let next = match groups.len() {
            6_000 => "timer expiration in 3600000\n",
            _ => "timer expiration in 20\n",
        };
        assert!(text.contains(next), "after {} groups", groups.len());
    }
    assert_eq!(steps, 3, "a group and its offset are two things to look at");
    assert!(groups.is_sorted() && groups[0] == "g0000" && groups[5_999] == "g5999");
    assert_eq!(written(&script.pass(DAY)), [] as [&str; 0]);
}

/// Against a search through all offsets.
#[test]
fn the_offsets_of_a_deleted_topic_are_found_among_many_topics() {
    let mut script = Script::new();
    let mut expected = Vec::new();
    for number in 0..600 {
        let mut commit = committing("", -1, 7);
        commit.group_id = format!("g{:02}", number % 20).into();
        let topic = ["s", "t", "t2", "u"][number / 20 % 4];
        commit.topics[0].name = topic.into();
        commit.topics[0].partitions[0].partition_index = (number % 7) as i32;
        if topic == "t" {
            expected.push(format!(
                "offset g{:02} t-{} tombstone",
                number % 20,
                number % 7
            ));
        }
        script.commit_offset(commit);
    }
    expected.sort();
    expected.dedup();
    for expected in [expected, Vec::new()] {
        let now = script.now();
        let topics = [("t".into(), TOPIC_ID)];
        let outcome = script.coordinator.on_topics_deleted(&topics, now);
        let text = script.render(outcome);
        let found = text
            .lines()
            .filter_map(|line| Some(line.split_once(": ")?.1));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
