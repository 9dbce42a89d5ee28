//! Whether remote segments belong to the history of a log, and where remote storage begins and
//! ends for it.
//!
//! After an unclean election, remote storage may have segments with records that the log does not
//! have. They differ in their leader epochs.
//!
//! Kafka: `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`, `findHighestRemoteOffset`,
//! `findLogStartOffset`.

use std::ops::Range;

use ottla_types::{LeaderEpoch, Offset};

use crate::leader_epochs::LeaderEpochs;
use crate::log_view::LogView;
use crate::metadata_cache::RemoteLogMetadataCache;
use crate::planted::{Bug, has};
use crate::remote_segment::RemoteSegment;

/// Whether the records of a segment belong to the history of the log. `leader_epochs` are the
/// epochs of the log without empty ones. Epochs of the segment below the first one of the log are
/// not compared: they were before its start.
pub fn is_within_leader_epochs(
    segment: &RemoteSegment,
    log_end_offset: Offset,
    leader_epochs: &LeaderEpochs,
) -> bool {
    if has(Bug::IgnoreLineage) {
        return true;
    }
    let segment_epochs = segment.segment_leader_epochs.without_empty();
    let (Some(last), Some(earliest), Some(latest)) = (
        segment_epochs.latest(),
        leader_epochs.earliest(),
        leader_epochs.latest(),
    ) else {
        return false;
    };
    if last.epoch < earliest.epoch || last.epoch > latest.epoch {
        return false;
    }
    let compared = segment_epochs.entries().iter();
    let mut compared = compared
        .filter(|entry| entry.epoch >= earliest.epoch)
        .peekable();
    let Some(first) = compared.peek().map(|entry| entry.epoch) else {
        return false;
    };
    for entry in compared {
        let Some(of_log) = leader_epochs.get(entry.epoch) else {
            return false;
        };
        let has_older = leader_epochs.previous(entry.epoch).is_some();
        if entry.epoch == first && has_older && entry.start_offset < of_log.start_offset {
            return false;
        }
        let next = leader_epochs.next(entry.epoch);
        if entry.epoch == last.epoch {
            if next.is_some_and(|next| segment.end_offset >= next.start_offset) {
                return false;
            }
        } else if next != segment_epochs.next(entry.epoch) {
            return false;
        }
    }
    segment.end_offset < log_end_offset
}

/// A segment with records of this epoch of the log alone belongs to the history of the log if it has no other
/// offsets than these: [`is_within_leader_epochs`] for such segments.
pub fn offsets_of(
    epoch: LeaderEpoch,
    log_end_offset: Offset,
    leader_epochs: &LeaderEpochs,
) -> Range<Offset> {
    let (lowest, highest) = (Offset(i64::MIN), Offset(i64::MAX));
    if has(Bug::IgnoreLineage) {
        return lowest..highest;
    }
    let of_log = leader_epochs.get(epoch);
    // Records before the first epoch were before the start of the log, and are not compared.
    let start = leader_epochs.previous(epoch).and(of_log);
    let next = leader_epochs.next(epoch);
    let end = next.map_or(highest, |next| next.start_offset);
    start.map_or(lowest, |of_log| of_log.start_offset)..end.min(log_end_offset)
}

/// The exclusive end of the records that a segment has in common with the log, starting from a
/// common record of `epoch`: the end of the segment, or the offset from which their epochs differ.
///
/// After an unclean election, a former leader may have copied records of an epoch that the log does not
/// have, in one segment with records that it has.
pub fn common_end(
    segment: &RemoteSegment,
    epoch: LeaderEpoch,
    leader_epochs: &LeaderEpochs,
) -> Offset {
    let of_segment = segment.segment_leader_epochs.without_empty();
    let of_log = leader_epochs.without_empty();
    let mut epoch = epoch;
    loop {
        let next = (of_segment.next(epoch), of_log.next(epoch));
        if let (Some(in_segment), Some(in_log)) = next
            && in_segment == in_log
        {
            epoch = in_log.epoch;
            continue;
        }
        let starts = [next.0, next.1].into_iter().flatten();
        let first = starts.map(|entry| entry.start_offset).min();
        let end = segment.next_offset();
        return first.map_or(end, |first| first.min(end));
    }
}

/// The highest offset of the log that remote storage has, -1 for none. Expired segments count too,
/// because they are before the start of the log. Remote storage has all local records below this
/// offset.
///
/// Kafka counts all segments that were ever copied. If tiering is disabled, and enabled again, it
/// neither copies nor keeps the local segments whose copies were deleted. Nor does it if a copy was
/// deleted between others.
pub fn highest_remote_offset(cache: &RemoteLogMetadataCache, log: &LogView) -> Offset {
    let copied = highest(log, |epoch| cache.highest_offset_for_epoch(epoch));
    let readable = highest(log, |epoch| cache.last_offset(epoch));
    let highest = copied.min(readable.max(log.log_start_offset.plus(-1)));
    let first = log.local_log_start_offset.max(log.log_start_offset);
    let missing = first_missing(cache, log, first, highest);
    missing.map_or(highest, |missing| missing.plus(-1))
}

/// Whether remote storage has all records of the log from `first` to `last` (inclusive).
pub fn is_copied(
    cache: &RemoteLogMetadataCache,
    log: &LogView,
    first: Offset,
    last: Offset,
) -> bool {
    let has_epochs = log.leader_epochs.epoch_for(first).is_some();
    has_epochs && first_missing(cache, log, first, last).is_none()
}

/// The first offset from `first` to `last` (inclusive) that is not readable in remote storage. Records
/// without an epoch, and all after them, are not looked for.
fn first_missing(
    cache: &RemoteLogMetadataCache,
    log: &LogView,
    first: Offset,
    last: Offset,
) -> Option<Offset> {
    let mut offset = first;
    while offset <= last {
        let epoch = log.leader_epochs.epoch_for(offset)?;
        let Some(end) = cache.readable_until(epoch, offset) else {
            return Some(offset);
        };
        // Later records of the epoch are of another history. The next epoch with records starts after the offset.
        let next = log.leader_epochs.next(epoch);
        offset = next.map_or(end, |next| end.min(next.start_offset));
    }
    None
}

/// The highest offset of the newest epoch of the log that has one, if it is in the log.
fn highest(log: &LogView, of_epoch: impl Fn(LeaderEpoch) -> Option<Offset>) -> Offset {
    let epochs = log.leader_epochs.entries().iter().rev();
    for entry in epochs {
        let Some(highest) = of_epoch(entry.epoch) else {
            continue;
        };
        let end = log
            .leader_epochs
            .end_offset_for(entry.epoch, log.log_end_offset);
        // An older leader may have copied records of its epoch that this log never had.
        return match end {
            Some((_, end_offset)) if end_offset <= highest => Offset(end_offset.0 - 1),
            _ => highest,
        };
    }
    Offset::UNKNOWN
}

/// The first offset of the partition in either tier: the start of the first readable segment of the
/// log's epochs, or the local start.
///
/// Kafka takes the first segment in any state. The log can then start with a segment that a former
/// leader was deleting, and readers of its offsets get `OFFSET_OUT_OF_RANGE`.
pub fn first_offset(cache: &RemoteLogMetadataCache, log: &LogView) -> Offset {
    let epochs = log.leader_epochs.entries().iter();
    let mut first_of_each = epochs.filter_map(|entry| cache.first_segment(entry.epoch));
    let first = first_of_each.next().map(|segment| segment.start_offset);
    first.map_or(log.local_log_start_offset, |first| {
        first.min(log.local_log_start_offset)
    })
}

#[cfg(test)]
mod tests {
    use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};

    use super::{common_end, highest_remote_offset, is_within_leader_epochs, offsets_of};
    use crate::test_segments::{cache_of, log, segment};
    use crate::{LeaderEpochs, RemoteLogMetadataCache, RemoteLogSegmentState};

    /// Segment (start, end, epochs) and the epochs of a log that ends at 300.
    #[track_caller]
    fn check<const S: usize, const L: usize>(
        range: (i64, i64),
        epochs: [(i32, i64); S],
        log: [(i32, i64); L],
        expected: bool,
    ) {
        let segment = segment(1, range.0, range.1, LeaderEpochs::from(epochs));
        let log = LeaderEpochs::from(log).without_empty();
        let found = is_within_leader_epochs(&segment, Offset(300), &log);
        assert_eq!(found, expected, "{epochs:?} in {log:?}");
    }

    #[test]
    fn segments_of_the_log_are_within() {
        check(
            (5, 50),
            [(5, 10), (7, 15)],
            [(5, 10), (7, 15), (9, 100)],
            true,
        );
        check(
            (14, 150),
            [(5, 14), (7, 15), (9, 100)],
            [(7, 51), (9, 100)],
            true,
        );
        check((0, 99), [(1, 0)], [(1, 20), (2, 100)], true);
        check((0, 100), [(1, 0)], [(1, 20), (2, 100)], false);
    }

    #[test]
    fn other_histories_are_not() {
        let log = [(5, 10), (7, 15), (9, 100)];
        check((0, 9), [(4, 0)], log, false);
        check((100, 120), [(10, 100)], log, false);
        check((15, 60), [(6, 15), (7, 20)], log, false);
        check((12, 60), [(5, 12), (7, 16)], log, false);
        check((14, 60), [(7, 14)], log, false);
        check((100, 299), [(9, 100)], log, true);
        check((100, 300), [(9, 100)], log, false);
        check((0, 9), [(4, 0)], [], false);
    }

    #[test]
    fn a_segment_of_one_epoch_is_within_if_its_offsets_are() {
        let log = LeaderEpochs::from([(5, 10), (7, 15), (9, 100)]);
        for (epoch, start) in [5, 7, 9].into_iter().flat_map(|epoch| {
            let starts = [0, 9, 10, 14, 15, 16, 50, 100, 101];
            starts.map(|start| (epoch, start))
        }) {
            let offsets = offsets_of(LeaderEpoch(epoch), Offset(300), &log);
            for end in [14, 15, 99, 100, 299, 300] {
                let segment = segment(1, start, end, LeaderEpochs::from([(epoch, start)]));
                assert_eq!(
                    is_within_leader_epochs(&segment, Offset(300), &log),
                    segment.start_offset >= offsets.start && segment.end_offset < offsets.end,
                    "{segment:?}"
                );
            }
        }
    }

    #[test]
    fn epochs_without_records_do_not_count() {
        let log = [(1, 0), (2, 50), (3, 50), (4, 90)];
        check((0, 89), [(1, 0), (2, 50), (3, 50)], log, true);
        check((0, 89), [(1, 0), (3, 50)], log, true);
    }

    #[test]
    fn a_segment_is_the_logs_up_to_where_their_epochs_differ() {
        let end = |range: (i64, i64), epochs: LeaderEpochs, epoch, log: LeaderEpochs| {
            let segment = segment(1, range.0, range.1, epochs);
            common_end(&segment, LeaderEpoch(epoch), &log).0
        };
        let log = || LeaderEpochs::from([(5, 0), (6, 150), (7, 150), (8, 220)]);
        let same = LeaderEpochs::from([(5, 100), (7, 150), (8, 220)]);
        assert_eq!(end((100, 299), same.clone(), 5, log()), 300);
        assert_eq!(end((100, 299), same, 8, log()), 300);
        assert_eq!(end((0, 99), LeaderEpochs::from([(5, 0)]), 5, log()), 100);
        let longer = LeaderEpochs::from([(5, 100)]);
        assert_eq!(end((100, 199), longer, 5, log()), 150);
        let other = LeaderEpochs::from([(5, 100), (6, 150), (9, 180)]);
        assert_eq!(end((100, 199), other.clone(), 5, log()), 150);
        assert_eq!(
            end((100, 199), other, 5, LeaderEpochs::from([(5, 0), (6, 150)])),
            180
        );
        let shorter = LeaderEpochs::from([(5, 100), (6, 120)]);
        assert_eq!(end((100, 199), shorter, 5, log()), 120);
    }

    #[test]
    fn copies_that_were_deleted_do_not_count_unless_they_expired() {
        let epochs = |start: i64| LeaderEpochs::from([(0, start)]);
        let mut cache = cache_of(&[segment(1, 0, 9, epochs(0)), segment(2, 10, 19, epochs(10))]);
        let mut log = log(&[0, 10, 20], 25, epochs(0));
        assert_eq!(highest_remote_offset(&cache, &log), Offset(19));
        let delete = |cache: &mut RemoteLogMetadataCache, id| {
            let segment = cache.get(Uuid::from_u128(id)).unwrap();
            let state = RemoteLogSegmentState::DeleteSegmentStarted;
            let update = segment.to_state(state, Timestamp(1), BrokerId(1));
            cache.update(&update).unwrap();
        };
        delete(&mut cache, 2);
        assert_eq!(highest_remote_offset(&cache, &log), Offset(9));
        delete(&mut cache, 1);
        assert_eq!(highest_remote_offset(&cache, &log), Offset::UNKNOWN);
        log.log_start_offset = Offset(20);
        assert_eq!(highest_remote_offset(&cache, &log), Offset(19));
    }

    #[test]
    fn copies_after_a_missing_one_do_not_count_while_its_records_are_local() {
        let epochs = |start: i64| LeaderEpochs::from([(0, start)]);
        let mut cache = cache_of(&[
            segment(1, 0, 9, epochs(0)),
            segment(2, 10, 19, epochs(10)),
            segment(3, 20, 29, LeaderEpochs::from([(0, 20), (1, 25)])),
        ]);
        let of_log = LeaderEpochs::from([(0, 0), (1, 25)]);
        let mut log = log(&[0, 10, 20, 30], 35, of_log);
        assert_eq!(highest_remote_offset(&cache, &log), Offset(29));
        let second = cache.get(Uuid::from_u128(2)).unwrap();
        let deleting = RemoteLogSegmentState::DeleteSegmentStarted;
        let update = second.to_state(deleting, Timestamp(1), BrokerId(1));
        cache.update(&update).unwrap();
        assert_eq!(highest_remote_offset(&cache, &log), Offset(9));
        log.local_log_start_offset = Offset(20);
        assert_eq!(highest_remote_offset(&cache, &log), Offset(29));
    }
}
