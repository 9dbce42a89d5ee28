//! Goal 4: each broker's number of replicas is near the average.
//!
//! The fewest moves: each takes a replica from a broker with too many, and gives it to the broker
//! with the fewest, until no broker has too many; then each gives one to a broker with too few. This
//! makes as many moves as the larger of the surplus and the lack, and no plan can do with fewer,
//! unless racks or disks block moves between two brokers.

use std::cmp::Reverse;

use crate::placement::Placement;

/// The range in which a broker is balanced: both ends are included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) lower: u64,
    pub(crate) upper: u64,
}

impl Range {
    /// Around the average, and at least the whole numbers around it.
    pub(crate) fn around(total: u64, brokers: usize, tolerance_percent: u32) -> Range {
        let (total, brokers) = (u128::from(total), brokers.max(1) as u128);
        let tolerance = u128::from(tolerance_percent);
        let lower = total * (100 - tolerance.min(100)) / (100 * brokers);
        let upper = (total * (100 + tolerance)).div_ceil(100 * brokers);
        Range {
            lower: lower as u64,
            upper: upper as u64,
        }
    }

    /// The range of the values of the remaining brokers.
    pub(crate) fn of(placement: &Placement, values: &[u64]) -> Range {
        let staying: Vec<usize> = staying(placement).collect();
        let total = staying.iter().map(|broker| values[*broker]).sum();
        Range::around(total, staying.len(), placement.options.tolerance_percent)
    }

    pub(crate) fn contains(self, value: u64) -> bool {
        (self.lower..=self.upper).contains(&value)
    }
}

pub(crate) fn staying(placement: &Placement) -> impl Iterator<Item = usize> {
    (0..placement.broker_count()).filter(|broker| placement.stays[*broker])
}

pub(crate) fn spread_replicas(placement: &mut Placement) {
    let range = Range::of(placement, &placement.replica_counts);
    // Pairs between which racks or disks forbid every move.
    let mut blocked = Blocked::none(placement.broker_count());
    while let Some((partition, from, to)) = from_fullest(placement, range, &mut blocked) {
        placement.replace(partition, from, to);
    }
    while let Some((partition, from, to)) = to_emptiest(placement, range, &mut blocked) {
        placement.replace(partition, from, to);
    }
}

/// A partition, the broker that gives a replica, and the one that takes it.
type Move = (usize, usize, usize);

struct Blocked {
    brokers: usize,
    pairs: Vec<bool>,
}

impl Blocked {
    fn none(brokers: usize) -> Blocked {
        Blocked {
            brokers,
            pairs: vec![false; brokers * brokers],
        }
    }

    fn pair(&mut self, from: usize, to: usize) -> &mut bool {
        &mut self.pairs[from * self.brokers + to]
    }
}

/// The brokers with more than `count` replicas, fullest first.
fn fuller(placement: &Placement, count: u64) -> Vec<usize> {
    let counts = &placement.replica_counts;
    let mut brokers: Vec<usize> = staying(placement)
        .filter(|it| counts[*it] > count)
        .collect();
    brokers.sort_by_key(|it| (Reverse(counts[*it]), Reverse(placement.bytes[*it]), *it));
    brokers
}

/// The brokers that may receive replicas and have fewer than `count`, emptiest first.
fn emptier(placement: &Placement, count: u64) -> Vec<usize> {
    let counts = &placement.replica_counts;
    let mut brokers: Vec<usize> = staying(placement)
        .filter(|it| placement.receives[*it] && counts[*it] < count)
        .collect();
    brokers.sort_by_key(|it| (counts[*it], placement.bytes[*it], *it));
    brokers
}

fn from_fullest(placement: &Placement, range: Range, blocked: &mut Blocked) -> Option<Move> {
    let targets = emptier(placement, range.upper);
    for from in fuller(placement, range.upper) {
        for to in &targets {
            if let Some(partition) = candidate(placement, from, *to, blocked) {
                return Some((partition, from, *to));
            }
        }
    }
    None
}

fn to_emptiest(placement: &Placement, range: Range, blocked: &mut Blocked) -> Option<Move> {
    let sources = fuller(placement, range.lower);
    for to in emptier(placement, range.lower) {
        for from in &sources {
            if let Some(partition) = candidate(placement, *from, to, blocked) {
                return Some((partition, *from, to));
            }
        }
    }
    None
}

fn candidate(
    placement: &Placement,
    from: usize,
    to: usize,
    blocked: &mut Blocked,
) -> Option<usize> {
    let is_blocked = blocked.pair(from, to);
    if from == to || *is_blocked {
        return None;
    }
    let found = placement.candidate(from, to);
    *is_blocked = found.is_none();
    found
}

#[cfg(test)]
mod tests {
    use super::Range;

    #[test]
    fn a_range_contains_the_whole_numbers_around_the_average() {
        for (total, brokers, tolerance, lower, upper) in [
            (18, 3, 0, 6, 6),
            (19, 3, 0, 6, 7),
            (18, 3, 10, 5, 7),
            (3000, 3, 10, 900, 1100),
            (0, 3, 10, 0, 0),
            (5, 0, 10, 4, 6),
        ] {
            assert_eq!(
                Range::around(total, brokers, tolerance),
                Range { lower, upper }
            );
        }
    }
}
