//! Ranges of records with their state, and merging of newer ranges into older ones.
//!
//! Where ranges overlap, the one with the higher delivery count wins, and among equals the one with
//! the higher state: delivery counts never decrease, and states follow each other in the order of
//! their numbers. Source: `PersisterStateBatch`, `PersisterStateBatchCombiner`. Where Kafka leaves
//! two adjacent ranges of the same state after a split, they are one range here.

use std::collections::BinaryHeap;

use crate::persister::StateBatch;
use ottla_types::Offset;

impl StateBatch {
    fn priority(&self) -> (i16, i8) {
        (self.delivery_count, self.delivery_state)
    }
}

/// The merged ranges: disjoint, in order, and without those before the start offset.
/// `Offset::UNKNOWN` as start offset keeps all.
pub(super) fn combine(
    current: &[StateBatch],
    new: &[StateBatch],
    start_offset: Offset,
) -> Vec<StateBatch> {
    let all = current.iter().chain(new).copied();
    let mut batches: Vec<StateBatch> = all
        .filter(|batch| batch.first_offset <= batch.last_offset)
        .filter(|batch| start_offset == Offset::UNKNOWN || batch.last_offset >= start_offset)
        .map(|batch| StateBatch {
            first_offset: batch.first_offset.max(start_offset),
            ..batch
        })
        .collect();
    batches.sort_by_key(|batch| batch.first_offset);
    overlay(&batches)
}

/// Sweeps over the ranges from left to right, with those at the current offset in a heap, the
/// winning one first.
fn overlay(sorted: &[StateBatch]) -> Vec<StateBatch> {
    let mut result: Vec<StateBatch> = Vec::with_capacity(sorted.len());
    let mut reaching: BinaryHeap<((i16, i8), Offset)> = BinaryHeap::new();
    let mut coming = sorted.iter().peekable();
    let Some(mut at) = sorted.first().map(|batch| batch.first_offset) else {
        return result;
    };
    loop {
        while let Some(batch) = coming.next_if(|batch| batch.first_offset <= at) {
            reaching.push((batch.priority(), batch.last_offset));
        }
        let next = coming.peek().map(|batch| batch.first_offset);
        while reaching.peek().is_some_and(|(_, last)| *last < at) {
            reaching.pop();
        }
        let Some(((delivery_count, delivery_state), last)) = reaching.peek().copied() else {
            match next {
                Some(next) => at = next,
                None => return result,
            }
            continue;
        };
        let last_offset = next.map_or(last, |next| last.min(next.plus(-1)));
        let same = result.last_mut().filter(|before| {
            before.last_offset.plus(1) == at
                && before.priority() == (delivery_count, delivery_state)
        });
        match same {
            Some(before) => before.last_offset = last_offset,
            None => result.push(StateBatch {
                first_offset: at,
                last_offset,
                delivery_state,
                delivery_count,
            }),
        }
        if last_offset.0 == i64::MAX {
            return result;
        }
        at = last_offset.plus(1);
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::Offset;

    use super::{StateBatch, combine};

    /// First offset, last offset, state, delivery count.
    type Range = (i64, i64, i8, i16);

    fn batch((first, last, delivery_state, delivery_count): Range) -> StateBatch {
        StateBatch {
            first_offset: Offset(first),
            last_offset: Offset(last),
            delivery_state,
            delivery_count,
        }
    }

    fn combined(current: &[Range], new: &[Range], start: i64) -> Vec<Range> {
        let current: Vec<StateBatch> = current.iter().map(|range| batch(*range)).collect();
        let new: Vec<StateBatch> = new.iter().map(|range| batch(*range)).collect();
        combine(&current, &new, Offset(start))
            .iter()
            .map(|b| {
                (
                    b.first_offset.0,
                    b.last_offset.0,
                    b.delivery_state,
                    b.delivery_count,
                )
            })
            .collect()
    }

    /// The cases of `PersisterStateBatchCombinerTest`.
    #[test]
    fn ranges_are_laid_over_each_other() {
        for (current, new, start, expected) in [
            // No overlap.
            (
                vec![(100, 110, 0, 1)],
                vec![(120, 130, 0, 1)],
                -1,
                vec![(100, 110, 0, 1), (120, 130, 0, 1)],
            ),
            // Same state: adjacent and overlapping ranges are merged.
            (
                vec![(100, 110, 0, 1)],
                vec![(111, 120, 0, 1)],
                -1,
                vec![(100, 120, 0, 1)],
            ),
            (
                vec![(100, 110, 0, 1)],
                vec![(105, 120, 0, 1)],
                -1,
                vec![(100, 120, 0, 1)],
            ),
            (
                vec![(100, 130, 0, 1)],
                vec![(105, 110, 0, 1)],
                -1,
                vec![(100, 130, 0, 1)],
            ),
            // A higher delivery count wins in its entire range.
            (
                vec![(100, 110, 0, 1)],
                vec![(100, 110, 0, 2)],
                -1,
                vec![(100, 110, 0, 2)],
            ),
            (
                vec![(100, 110, 0, 1)],
                vec![(100, 105, 0, 2)],
                -1,
                vec![(100, 105, 0, 2), (106, 110, 0, 1)],
            ),
            (
                vec![(100, 110, 0, 2)],
                vec![(100, 115, 0, 1)],
                -1,
                vec![(100, 110, 0, 2), (111, 115, 0, 1)],
            ),
            (
                vec![(100, 120, 0, 1)],
                vec![(105, 110, 2, 1)],
                -1,
                vec![(100, 104, 0, 1), (105, 110, 2, 1), (111, 120, 0, 1)],
            ),
            (
                vec![(100, 120, 0, 2)],
                vec![(105, 110, 0, 1)],
                -1,
                vec![(100, 120, 0, 2)],
            ),
            (
                vec![(100, 110, 0, 1)],
                vec![(105, 115, 0, 2)],
                -1,
                vec![(100, 104, 0, 1), (105, 115, 0, 2)],
            ),
            (
                vec![(100, 110, 0, 2)],
                vec![(105, 115, 0, 1)],
                -1,
                vec![(100, 110, 0, 2), (111, 115, 0, 1)],
            ),
            // The start offset truncates.
            (
                vec![(100, 110, 0, 1)],
                vec![(111, 120, 2, 1)],
                105,
                vec![(105, 110, 0, 1), (111, 120, 2, 1)],
            ),
            (vec![(100, 110, 0, 1)], vec![], 111, vec![]),
            // A range that covers two others.
            (
                vec![(100, 110, 0, 1), (115, 120, 0, 1)],
                vec![(105, 117, 0, 1)],
                -1,
                vec![(100, 120, 0, 1)],
            ),
            // Invalid ranges are dropped. The largest possible offset is valid.
            (
                vec![(100, 90, 0, 1)],
                vec![(5, i64::MAX, 2, 1)],
                -1,
                vec![(5, i64::MAX, 2, 1)],
            ),
        ] {
            assert_eq!(
                combined(&current, &new, start),
                expected,
                "{current:?} {new:?} {start}"
            );
        }
    }

    #[test]
    fn merged_batches_keep_the_best_state_of_each_offset() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % bound) as i64
        };
        for _ in 0..2000 {
            let mut some = |count: i64| -> Vec<Range> {
                (0..count)
                    .map(|_| {
                        let first = below(40);
                        (
                            first,
                            first + below(8),
                            [0, 2, 4][below(3) as usize],
                            below(3) as i16,
                        )
                    })
                    .collect()
            };
            let (current, new) = (some(4), some(3));
            let start = below(20) - 1;
            let result = combined(&current, &new, start);
            for offset in 0..60 {
                let covering = |ranges: &[Range]| {
                    let covering = ranges.iter().filter(|r| r.0 <= offset && offset <= r.1);
                    covering.map(|r| (r.3, r.2)).max()
                };
                let expected = if offset < start {
                    None
                } else {
                    covering(&current).max(covering(&new))
                };
                assert_eq!(
                    covering(&result),
                    expected,
                    "{offset} of {current:?} {new:?} {start}"
                );
            }
            for pair in result.windows(2) {
                let is_one =
                    pair[0].1 + 1 == pair[1].0 && pair[0].2 == pair[1].2 && pair[0].3 == pair[1].3;
                assert!(pair[0].1 < pair[1].0 && !is_one, "{result:?}");
            }
        }
    }
}
