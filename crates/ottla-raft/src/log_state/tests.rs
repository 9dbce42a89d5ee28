use super::OffsetValidity::{Diverging, Snapshot, Valid};
use super::*;

fn log(start: i64, end: i64, epochs: &[(i32, i64)], snapshots: &[(i64, i32)]) -> LogState {
    LogState::new(
        Offset(start),
        Offset(end),
        epochs
            .iter()
            .map(|&(epoch, start_offset)| EpochStart {
                epoch: LeaderEpoch(epoch),
                start_offset: Offset(start_offset),
            })
            .collect(),
        snapshots
            .iter()
            .map(|&(end_offset, epoch)| id(end_offset, epoch)),
    )
}

fn id(end_offset: i64, epoch: i32) -> SnapshotId {
    SnapshotId {
        end_offset: Offset(end_offset),
        epoch: LeaderEpoch(epoch),
    }
}

fn end(offset: i64, epoch: i32) -> LogEnd {
    LogEnd {
        offset: Offset(offset),
        epoch: LeaderEpoch(epoch),
    }
}

#[test]
fn a_replica_appends_truncates_or_fetches_a_snapshot() {
    let whole = log(0, 100, &[(1, 0), (3, 20), (5, 60)], &[]);
    let cut = log(50, 100, &[(3, 50), (5, 60)], &[(50, 3), (80, 5)]);
    let empty = log(80, 80, &[], &[(80, 5)]);
    for (log, offset, epoch, expected) in [
        (&whole, 0, 0, Valid),
        (&whole, 20, 1, Valid),
        (&whole, 21, 1, Diverging(end(20, 1))),
        (&whole, 30, 2, Diverging(end(20, 1))),
        (&whole, 60, 3, Valid),
        (&whole, 100, 5, Valid),
        (&whole, 101, 5, Diverging(end(100, 5))),
        (&whole, 90, 6, Diverging(end(100, 5))),
        (&cut, 0, 0, Snapshot(id(80, 5))),
        (&cut, 49, 3, Snapshot(id(80, 5))),
        (&cut, 50, 3, Valid),
        (&cut, 50, 2, Snapshot(id(80, 5))),
        (&cut, 70, 2, Snapshot(id(80, 5))),
        (&cut, 70, 4, Diverging(end(60, 3))),
        (&cut, 100, 5, Valid),
        (&empty, 80, 5, Valid),
        (&empty, 80, 4, Snapshot(id(80, 5))),
        (&empty, 90, 5, Diverging(end(80, 5))),
    ] {
        let found = log.validate(Offset(offset), LeaderEpoch(epoch));
        assert_eq!(found, expected, "offset {offset}, epoch {epoch}");
    }
}

#[test]
fn a_diverging_log_is_truncated_to_the_common_prefix() {
    let local = log(0, 100, &[(1, 0), (3, 20), (5, 60)], &[]);
    for (offset, epoch, expected) in [
        (40, 3, 40),
        (70, 3, 60),
        (70, 4, 60),
        (10, 1, 10),
        (30, 0, 30),
        (130, 0, 100),
        (90, 7, 100),
    ] {
        assert_eq!(
            local.truncation_offset(end(offset, epoch)),
            Offset(expected),
            "offset {offset}, epoch {epoch}"
        );
    }
}

#[test]
fn a_truncation_removes_epochs() {
    let mut local = log(0, 100, &[(1, 0), (3, 20), (5, 60)], &[]);
    local.truncate_to(Offset(60));
    assert_eq!(local.end(), end(60, 3));
    assert_eq!(local.flushed_offset(), Offset(60));
    local.assign_epoch(LeaderEpoch(6));
    local.append_up_to(Offset(61));
    assert_eq!(local.end(), end(61, 6));
    assert_eq!(local.flushed_offset(), Offset(60));
    local.set_snapshots([id(30, 3)], Offset(30));
    assert_eq!(local, {
        let mut expected = log(30, 60, &[(3, 30), (6, 60)], &[(30, 3)]);
        expected.append_up_to(Offset(61));
        expected
    });
    local.restart_at(id(200, 9));
    assert_eq!(local.end(), end(200, 9));
}
