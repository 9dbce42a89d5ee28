//! What moves cost: the bytes that each broker sends and receives.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Cost {
    traffic: BTreeMap<i32, Traffic>,
}

/// What one broker copies.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Per second, what producers write to the partitions of which it receives a replica.
    pub bytes_in: u64,
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
            target.bytes_in += bytes_in;
            if let Some(leader) = leader {
                self.traffic.entry(leader).or_default().sent_bytes += size_bytes;
            }
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

    /// Brokers whose new replicas may never catch up: producers write as much as may be copied.
    pub fn outrun_at(&self, bytes_per_second: u64) -> Vec<(i32, u64)> {
        let brokers = self
            .traffic
            .iter()
            .map(|(broker, it)| (*broker, it.bytes_in));
        brokers
            .filter(|(_, bytes_in)| *bytes_in >= bytes_per_second)
            .collect()
    }
}
