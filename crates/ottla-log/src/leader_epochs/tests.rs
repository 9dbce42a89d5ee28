use ottla_types::{LeaderEpoch, Offset};

use super::{LEADER_EPOCH_CHECKPOINT, LeaderEpochs};

fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
    let mut epochs = LeaderEpochs::default();
    for &(epoch, start_offset) in entries {
        epochs.assign(LeaderEpoch(epoch), Offset(start_offset));
    }
    epochs
}

fn pairs(epochs: &LeaderEpochs) -> Vec<(i32, i64)> {
    let entries = epochs.entries().iter();
    entries
        .map(|entry| (entry.epoch.0, entry.start_offset.0))
        .collect()
}

fn end(epochs: &LeaderEpochs, epoch: i32, log_end_offset: i64) -> Option<(i32, i64)> {
    let found = epochs.end_offset_for(LeaderEpoch(epoch), Offset(log_end_offset));
    found.map(|(epoch, offset)| (epoch.0, offset.0))
}

#[test]
fn an_epoch_keeps_its_first_offset() {
    assert_eq!(pairs(&epochs(&[(1, 0), (1, 5), (2, 9)])), [(1, 0), (2, 9)]);
    assert_eq!(pairs(&epochs(&[(-1, 0), (1, -1)])), []);
}

#[test]
fn entries_that_contradict_a_new_one_are_dropped() {
    assert_eq!(pairs(&epochs(&[(1, 0), (3, 8), (2, 9)])), [(1, 0), (2, 9)]);
    assert_eq!(pairs(&epochs(&[(1, 0), (2, 8), (3, 8)])), [(1, 0), (3, 8)]);
    assert_eq!(pairs(&epochs(&[(1, 5), (2, 8), (2, 3)])), [(2, 3)]);
}

#[test]
fn an_epoch_ends_where_the_next_starts() {
    let epochs = epochs(&[(2, 5), (4, 9), (7, 20)]);
    assert_eq!(end(&epochs, -1, 30), None);
    assert_eq!(end(&epochs, 1, 30), Some((1, 5)));
    assert_eq!(end(&epochs, 2, 30), Some((2, 9)));
    assert_eq!(end(&epochs, 3, 30), Some((2, 9)));
    assert_eq!(end(&epochs, 6, 30), Some((4, 20)));
    assert_eq!(end(&epochs, 7, 30), Some((7, 30)));
    assert_eq!(end(&epochs, 8, 30), None);
    assert_eq!(end(&LeaderEpochs::default(), 0, 30), None);
}

#[test]
fn offsets_belong_to_the_epoch_that_started_before_them() {
    let epochs = epochs(&[(2, 5), (4, 9)]);
    let epoch = |offset| epochs.epoch_for(Offset(offset)).map(|epoch| epoch.0);
    assert_eq!(
        [4, 5, 8, 9, 100].map(epoch),
        [None, Some(2), Some(2), Some(4), Some(4)]
    );
}

#[test]
fn truncation_cuts_at_both_ends() {
    let mut list = epochs(&[(2, 5), (4, 9), (7, 20)]);
    assert!(!list.truncate_from_end(Offset(21)));
    assert!(list.truncate_from_end(Offset(20)));
    assert_eq!(pairs(&list), [(2, 5), (4, 9)]);
    assert!(!list.truncate_from_start(Offset(4)));
    assert!(!list.truncate_from_start(Offset(5)));
    assert!(list.truncate_from_start(Offset(7)));
    assert_eq!(pairs(&list), [(2, 7), (4, 9)]);
    assert!(list.truncate_from_start(Offset(100)));
    assert_eq!(pairs(&list), [(4, 100)]);
}

#[test]
fn the_file_is_kafkas() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        LeaderEpochs::read(dir.path()).unwrap(),
        LeaderEpochs::default()
    );
    let list = epochs(&[(2, 5), (4, 9)]);
    list.write(dir.path()).unwrap();
    let text = std::fs::read_to_string(dir.path().join(LEADER_EPOCH_CHECKPOINT)).unwrap();
    assert_eq!(text, "0\n2\n2 5\n4 9\n");
    assert_eq!(LeaderEpochs::read(dir.path()).unwrap(), list);
}
