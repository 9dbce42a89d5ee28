use ottla_protocol::metadata_records::{
    AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord, NoOpRecord, TopicRecord,
};
use ottla_types::{LeaderEpoch, Offset, Timestamp, Uuid};

use super::*;

fn at(last_offset: i64) -> Provenance {
    Provenance {
        last_contained_offset: Offset(last_offset),
        last_contained_epoch: LeaderEpoch(1),
        last_contained_log_time: Timestamp(100),
    }
}

fn topic(name: &'static str, id: u128) -> MetadataRecord {
    MetadataRecord::Topic(TopicRecord {
        name: name.into(),
        topic_id: Uuid::from_u128(id),
        ..Default::default()
    })
}

fn begin() -> MetadataRecord {
    MetadataRecord::BeginTransaction(BeginTransactionRecord::default())
}

fn end() -> MetadataRecord {
    MetadataRecord::EndTransaction(EndTransactionRecord::default())
}

fn abort() -> MetadataRecord {
    MetadataRecord::AbortTransaction(AbortTransactionRecord::default())
}

fn names(loader: &MetadataLoader) -> Vec<&str> {
    loader
        .image()
        .topics
        .iter()
        .map(|topic| &*topic.name)
        .collect()
}

#[test]
fn a_transaction_is_visible_when_it_ends() {
    let mut loader = MetadataLoader::default();
    let delta = loader
        .load_batch(vec![topic("a", 1), begin(), topic("b", 2)], at(2))
        .unwrap();
    assert_eq!(
        delta.unwrap().after.provenance.last_contained_offset,
        Offset(0)
    );
    assert_eq!(names(&loader), ["a"]);

    assert_eq!(loader.load_batch(vec![topic("c", 3)], at(3)), Ok(None));
    assert!(loader.is_in_transaction());

    let delta = loader
        .load_batch(vec![end(), topic("d", 4)], at(5))
        .unwrap()
        .unwrap();
    assert_eq!(delta.topics.created.len(), 3);
    assert_eq!(names(&loader), ["a", "b", "c", "d"]);
    assert_eq!(loader.image().provenance, at(5));
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    let mut loader = MetadataLoader::default();
    loader
        .load_batch(vec![begin(), topic("a", 1)], at(1))
        .unwrap();
    loader
        .load_batch(vec![abort(), topic("b", 2)], at(3))
        .unwrap();
    assert_eq!(names(&loader), ["b"]);
    assert!(!loader.is_in_transaction());
}

#[test]
fn misplaced_markers_are_refused() {
    let load = |records| {
        MetadataLoader::default()
            .load_batch(records, at(1))
            .unwrap_err()
    };
    assert_eq!(load(vec![end()]), ReplayError::NoTransaction);
    assert_eq!(load(vec![abort()]), ReplayError::NoTransaction);
    assert_eq!(load(vec![begin(), begin()]), ReplayError::NestedTransaction);
}

#[test]
fn a_batch_without_effect_still_moves_the_offset() {
    let mut loader = MetadataLoader::default();
    let delta = loader
        .load_batch(vec![MetadataRecord::NoOp(NoOpRecord::default())], at(7))
        .unwrap()
        .unwrap();
    assert!(delta.is_empty());
    assert_eq!(loader.image().provenance, at(7));
}

#[test]
fn a_snapshot_replaces_everything() {
    let mut loader = MetadataLoader::default();
    loader
        .load_batch(
            vec![topic("gone", 1), topic("kept", 2), begin(), topic("x", 9)],
            at(3),
        )
        .unwrap();
    let delta = loader
        .load_snapshot(&[topic("kept", 2), topic("new", 3)], at(20))
        .unwrap();
    assert_eq!(names(&loader), ["kept", "new"]);
    assert!(!loader.is_in_transaction());
    assert_eq!(
        delta.topics.created.iter().copied().collect::<Vec<_>>(),
        [Uuid::from_u128(3)]
    );
    assert_eq!(
        delta.topics.deleted.keys().copied().collect::<Vec<_>>(),
        [Uuid::from_u128(1)]
    );
    assert_eq!(
        delta.topics.changed.keys().copied().collect::<Vec<_>>(),
        [Uuid::from_u128(3)]
    );
}
