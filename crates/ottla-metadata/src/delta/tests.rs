//! Merging two changes into one.

use ottla_protocol::metadata_records::{
    ConfigRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord, RemoveTopicRecord,
    TopicRecord,
};
use ottla_types::{LeaderEpoch, Offset, Timestamp, Uuid};

use super::*;
use crate::{MetadataLoader, Provenance};

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn topic(name: &'static str, number: u128) -> MetadataRecord {
    MetadataRecord::Topic(TopicRecord {
        name: name.into(),
        topic_id: id(number),
        ..Default::default()
    })
}

fn partition(number: u128, index: i32, replicas: &[i32]) -> MetadataRecord {
    MetadataRecord::Partition(PartitionRecord {
        partition_id: index,
        topic_id: id(number),
        replicas: replicas.to_vec(),
        isr: replicas.to_vec(),
        leader: replicas[0],
        ..Default::default()
    })
}

fn moved(number: u128, index: i32, replicas: &[i32]) -> MetadataRecord {
    MetadataRecord::PartitionChange(PartitionChangeRecord {
        partition_id: index,
        topic_id: id(number),
        replicas: Some(replicas.to_vec()),
        isr: Some(replicas.to_vec()),
        leader: replicas[0],
        ..Default::default()
    })
}

fn removed(number: u128) -> MetadataRecord {
    MetadataRecord::RemoveTopic(RemoveTopicRecord {
        topic_id: id(number),
        ..Default::default()
    })
}

fn setting(name: &'static str) -> MetadataRecord {
    MetadataRecord::Config(ConfigRecord {
        resource_type: 2,
        resource_name: name.into(),
        name: "retention.ms".into(),
        value: Some("5".into()),
        ..Default::default()
    })
}

/// The changes of batches of records, starting with an empty cluster.
fn changes(batches: Vec<Vec<MetadataRecord>>) -> Vec<MetadataDelta> {
    let mut loader = MetadataLoader::default();
    let mut last_offset = -1;
    let changes = batches.into_iter().map(|records| {
        last_offset += records.len() as i64;
        let provenance = Provenance {
            last_contained_offset: Offset(last_offset),
            last_contained_epoch: LeaderEpoch(1),
            last_contained_log_time: Timestamp(100),
        };
        let delta = loader.load_batch(records, provenance).expect("fits");
        delta.expect("no transaction is open")
    });
    changes.collect()
}

/// The last two changes, merged.
fn last_two(batches: Vec<Vec<MetadataRecord>>) -> MetadataDelta {
    let mut changes = changes(batches);
    let (next, first) = (changes.pop().expect("two"), changes.pop().expect("two"));
    let both = first.then(next);
    let between = MetadataDelta::between(both.before.clone(), both.after.clone());
    assert_eq!(both.topics, between.topics);
    for (resource, _) in both.after.configs.resources() {
        let has_changed = between.configs.contains(resource);
        assert!(!has_changed || both.configs.contains(resource));
    }
    both
}

#[test]
fn a_merged_delta_contains_the_changes_of_both() {
    let both = last_two(vec![
        vec![topic("a", 1), partition(1, 0, &[1]), partition(1, 1, &[1])],
        vec![moved(1, 0, &[2, 1]), setting("a")],
        vec![
            moved(1, 1, &[1, 3]),
            topic("b", 2),
            partition(2, 0, &[1]),
            setting("b"),
        ],
    ]);
    let resource = |name| ConfigResource::topic(String::from(name));
    assert_eq!(
        both.configs,
        [resource("a"), resource("b")].into_iter().collect()
    );
    assert_eq!(both.topics.created, [id(2)].into_iter().collect());
    let changes = both.local_changes(BrokerId(1));
    assert_eq!((changes.leaders.len(), changes.followers.len()), (2, 1));
    assert!(!both.features);
}

/// Otherwise this broker would keep the log forever: at the second change, which deletes the topic,
/// it was not a replica any more.
#[test]
fn a_replica_that_was_moved_away_before_its_topic_was_deleted_is_deleted_here() {
    let both = last_two(vec![
        vec![topic("a", 1), partition(1, 0, &[1, 2])],
        vec![moved(1, 0, &[2, 3])],
        vec![removed(1)],
    ]);
    let changes = both.local_changes(BrokerId(1));
    assert_eq!(changes.deleted.len(), 1);
    assert!(both.local_changes(BrokerId(3)).is_empty());
}

#[test]
fn a_topic_created_and_deleted_is_not_in_the_delta() {
    let both = last_two(vec![
        vec![topic("z", 9)],
        vec![topic("a", 1), partition(1, 0, &[1])],
        vec![removed(1), topic("a", 2), partition(2, 0, &[1])],
    ]);
    assert_eq!(both.topics.created, [id(2)].into_iter().collect());
    assert!(both.topics.deleted.is_empty());
    assert_eq!(both.local_changes(BrokerId(1)).leaders.len(), 1);
}

#[test]
#[should_panic(expected = "a change follows another where that one ends")]
fn only_consecutive_deltas_can_be_merged() {
    let mut changes = changes(vec![
        vec![topic("a", 1)],
        vec![topic("b", 2)],
        vec![topic("c", 3)],
    ]);
    let last = changes.pop().expect("three");
    changes.swap_remove(0).then(last);
}
