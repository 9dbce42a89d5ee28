//! What moves cost: the bytes that each broker sends and receives.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    traffic: BTreeMap<i32, Traffic>,
    /// Per broker and move, the bytes per second that producers write and that must be copied in
    /// addition to the existing data.
    written: BTreeMap<i32, Vec<u64>>,
}

/// What one broker copies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

impl Traffic {
    /// The larger direction; throttles limit each by itself.
    pub fn most(&self) -> u64 {
        self.received_bytes.max(self.sent_bytes)
    }
}

impl Cost {
    /// Adds the copies of one partition, from its leader.
    pub fn add(&mut self, leader: Option<i32>, added: &[i32], size_bytes: u64, bytes_in: u64) {
        for broker in added {
            let target = self.traffic.entry(*broker).or_default();
            target.received_bytes += size_bytes;
            self.written.entry(*broker).or_default().push(bytes_in);
            if let Some(leader) = leader {
                self.traffic.entry(leader).or_default().sent_bytes += size_bytes;
            }
        }
        if let Some(leader) = leader.filter(|_| !added.is_empty()) {
            let sent = bytes_in.saturating_mul(added.len() as u64);
            self.written.entry(leader).or_default().push(sent);
        }
    }

    pub fn bytes(&self) -> u64 {
        self.traffic.values().map(|it| it.received_bytes).sum()
    }

    /// The broker that copies most, which determines the time.
    pub fn busiest(&self) -> Option<(i32, Traffic)> {
        let brokers = self.traffic.iter().map(|(broker, it)| (*broker, *it));
        brokers.max_by_key(|(broker, it)| (it.most(), std::cmp::Reverse(*broker)))
    }

    /// The least time that the moves take if no broker sends or receives more than this in a
    /// second.
    pub fn seconds_at(&self, bytes_per_second: u64) -> u64 {
        let most = self.busiest().map_or(0, |(_, it)| it.most());
        most.div_ceil(bytes_per_second.max(1))
    }

    /// Brokers whose moves may never end, because producers write as much as may be copied, and how
    /// much they write. Of a broker's moves, only `at_once` are in progress together, at worst
    /// those with the most writes; finished moves are not throttled any more.
    pub fn outrun_at(&self, bytes_per_second: u64, at_once: usize) -> Vec<(i32, u64)> {
        let most = |written: &Vec<u64>| {
            let mut written = written.clone();
            written.sort_unstable();
            written.iter().rev().take(at_once).sum::<u64>()
        };
        let brokers = self
            .written
            .iter()
            .map(|(broker, written)| (*broker, most(written)));
        brokers
            .filter(|(_, written)| *written >= bytes_per_second)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Cost;

    #[test]
    fn only_moves_that_run_together_share_a_throttle() {
        let mut cost = Cost::default();
        for written in [10, 40, 20, 30] {
            cost.add(Some(1), &[2], 1000, written);
        }
        cost.add(Some(1), &[3, 4], 1000, 15);
        // Broker 1 sends all, at two brokers' pace in the last move.
        assert_eq!(cost.outrun_at(70, 2), [(1, 70), (2, 70)]);
        assert!(cost.outrun_at(71, 2).is_empty());
        assert_eq!(cost.outrun_at(71, 3), [(1, 100), (2, 90)]);
        assert!(cost.outrun_at(41, 1).is_empty());
        assert_eq!(cost.outrun_at(15, 1), [(1, 40), (2, 40), (3, 15), (4, 15)]);
    }
}
