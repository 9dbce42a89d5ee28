//! Parts of a topic: ranges of offsets by partition, as an answer lists them and a later request
//! gives them back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::selection::Range;
use crate::problem::Problem;

/// Ranges that are named in a text.
const MOST_NAMED: usize = 20;

/// Of each partition: in order, not empty, without overlaps.
pub(crate) type Ranges = BTreeMap<i32, Vec<Range>>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PartitionRange {
    partition: i32,
    start: i64,
    /// Exclusive.
    end: i64,
}

pub(crate) fn listed(ranges: &Ranges) -> Vec<PartitionRange> {
    let ranges = ranges.iter().flat_map(|(partition, ranges)| {
        let of_partition = move |it: &Range| PartitionRange {
            partition: *partition,
            start: it.start,
            end: it.end,
        };
        ranges.iter().map(of_partition)
    });
    ranges.collect()
}

/// The reverse of [`listed`], for ranges in a request.
pub(crate) fn parsed(listed: &[PartitionRange]) -> Result<Ranges, Problem> {
    let refused = |it: &PartitionRange, why: &str| {
        let PartitionRange {
            partition,
            start,
            end,
        } = it;
        Problem::invalid(
            "ranges",
            format!("partition {partition}, offsets {start} to {end} (exclusive): {why}"),
        )
    };
    let mut listed = listed.to_vec();
    listed.sort_unstable_by_key(|it| (it.partition, it.start));
    let mut ranges = Ranges::new();
    for it in &listed {
        if it.partition < 0 || it.start < 0 || it.start >= it.end {
            return Err(refused(
                it,
                "give numbers, 0 or more, and an end after the start",
            ));
        }
        let of_partition = ranges.entry(it.partition).or_default();
        if of_partition.last().is_some_and(|last| last.end > it.start) {
            return Err(refused(it, "it overlaps another range"));
        }
        of_partition.push(Range {
            start: it.start,
            end: it.end,
        });
    }
    match ranges.is_empty() {
        true => Err(Problem::invalid("ranges", "there are no ranges")),
        false => Ok(ranges),
    }
}

/// One range of each partition. Empty ones are left out.
pub(crate) fn of_each(ranges: &BTreeMap<i32, Range>) -> Ranges {
    let some = ranges.iter().filter(|(_, it)| it.start < it.end);
    some.map(|(partition, range)| (*partition, vec![*range]))
        .collect()
}

/// From the first offset to the last one of each partition.
pub(crate) fn hulls(ranges: &Ranges) -> BTreeMap<i32, Range> {
    let hulls = ranges.iter().filter_map(|(partition, ranges)| {
        let (start, end) = (ranges.first()?.start, ranges.last()?.end);
        Some((*partition, Range { start, end }))
    });
    hulls.collect()
}

/// Whether an offset is in one of the ranges of a partition.
pub(crate) fn contain(ranges: &Ranges, partition: i32, offset: i64) -> bool {
    ranges.get(&partition).is_some_and(|ranges| {
        let at = ranges.partition_point(|it| it.end <= offset);
        ranges.get(at).is_some_and(|it| it.start <= offset)
    })
}

/// The offsets that are in both.
pub(crate) fn common(one: &Ranges, other: &Ranges) -> Ranges {
    let both = one.iter().filter_map(|(partition, ranges)| {
        let found = common_of_partition(ranges, other.get(partition)?);
        (!found.is_empty()).then_some((*partition, found))
    });
    both.collect()
}

fn common_of_partition(one: &[Range], other: &[Range]) -> Vec<Range> {
    let (mut at, mut beside) = (0, 0);
    let mut found = Vec::new();
    while let (Some(a), Some(b)) = (one.get(at), other.get(beside)) {
        let range = Range {
            start: a.start.max(b.start),
            end: a.end.min(b.end),
        };
        if range.start < range.end {
            found.push(range);
        }
        match a.end <= b.end {
            true => at += 1,
            false => beside += 1,
        }
    }
    found
}

/// As a log line has them.
pub(crate) fn text(ranges: &Ranges) -> String {
    let all = listed(ranges);
    let named = all.iter().take(MOST_NAMED).map(|it| {
        let PartitionRange {
            partition,
            start,
            end,
        } = it;
        format!("partition {partition} from {start} to {}", end - 1)
    });
    let mut named: Vec<String> = named.collect();
    if all.len() > MOST_NAMED {
        named.push(format!("{} more ranges", all.len() - MOST_NAMED));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(of: &[(i32, i64, i64)]) -> Ranges {
        let listed = of.iter().map(|(partition, start, end)| PartitionRange {
            partition: *partition,
            start: *start,
            end: *end,
        });
        parsed(&listed.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn listed_ranges_can_be_parsed() {
        let all = ranges(&[(1, 9, 12), (0, 2, 5), (1, 3, 4)]);
        assert_eq!(parsed(&listed(&all)).unwrap(), all);
        assert_eq!(hulls(&all)[&1], Range { start: 3, end: 12 });
        assert_eq!(
            text(&all),
            "partition 0 from 2 to 4, partition 1 from 3 to 3, partition 1 from 9 to 11"
        );
        for (offset, is_in) in [(2, false), (3, true), (4, false), (9, true), (12, false)] {
            assert_eq!(contain(&all, 1, offset), is_in, "{offset}");
        }
        assert!(!contain(&all, 7, 3));
    }

    #[test]
    fn ranges_that_overlap_or_are_empty_are_refused() {
        let of = |start, end| PartitionRange {
            partition: 0,
            start,
            end,
        };
        for wrong in [
            &[][..],
            &[of(3, 3)],
            &[of(-1, 3)],
            &[of(0, 5), of(4, 6)],
            &[of(4, 6), of(0, 5)],
        ] {
            assert_eq!(parsed(wrong).unwrap_err().status(), 422, "{wrong:?}");
        }
        assert!(parsed(&[of(0, 4), of(4, 6)]).is_ok());
    }

    #[test]
    fn common_offsets_are_in_both() {
        let one = ranges(&[(0, 0, 10), (0, 20, 30), (1, 0, 5)]);
        let other = ranges(&[(0, 5, 22), (0, 25, 26), (2, 0, 5)]);
        let both = ranges(&[(0, 5, 10), (0, 20, 22), (0, 25, 26)]);
        assert_eq!(common(&one, &other), both);
        assert_eq!(common(&other, &one), both);
    }
}
