//! The brokers to which leadership can move: for each pair of brokers, the partitions that one
//! leads and the other has an eligible replica of.

use std::collections::BTreeSet;

use crate::placement::Placement;

pub(crate) struct LeaderLinks {
    brokers: usize,
    /// By leader and follower: bytes in, and the partition.
    links: Vec<BTreeSet<(u64, usize)>>,
}

impl LeaderLinks {
    pub(crate) fn new(placement: &Placement) -> LeaderLinks {
        let brokers = placement.broker_count();
        let mut links = LeaderLinks {
            brokers,
            links: vec![BTreeSet::new(); brokers * brokers],
        };
        for partition in 0..placement.replicas.len() {
            links.set(placement, partition, true);
        }
        links
    }

    /// Adds the links of a partition, or removes them.
    fn set(&mut self, placement: &Placement, partition: usize, adds: bool) {
        let Some(leader) = placement.leaders[partition] else {
            return;
        };
        // While brokers are only emptied, other partitions stay as they are.
        let is_free = placement.is_movable[partition]
            && (may_take_over(placement) || placement.has_moved(partition));
        if !is_free {
            return;
        }
        let key = (placement.image.partitions[partition].bytes_in, partition);
        for follower in &placement.replicas[partition] {
            let may_receive = placement.receives[*follower] || !may_take_over(placement);
            if *follower == leader || !may_receive || !placement.may_lead(partition, *follower) {
                continue;
            }
            let link = &mut self.links[leader * self.brokers + follower];
            if adds {
                link.insert(key);
            } else {
                link.remove(&key);
            }
        }
    }

    pub(crate) fn between(&self, from: usize, to: usize) -> &BTreeSet<(u64, usize)> {
        &self.links[from * self.brokers + to]
    }

    /// The partition with bytes in nearest to this.
    pub(crate) fn nearest(&self, from: usize, to: usize, bytes_in: u64) -> Option<(u64, usize)> {
        let link = self.between(from, to);
        let below = link.range(..(bytes_in, 0)).next_back();
        let above = link.range((bytes_in, 0)..).next();
        let distance = |it: &&(u64, usize)| it.0.abs_diff(bytes_in);
        below.into_iter().chain(above).min_by_key(distance).copied()
    }

    pub(crate) fn transfer(&mut self, placement: &mut Placement, partition: usize, to: usize) {
        self.set(placement, partition, false);
        placement.lead(partition, to);
        self.set(placement, partition, true);
    }
}

/// Whether leaders move for balance, and not only away from emptied brokers.
fn may_take_over(placement: &Placement) -> bool {
    placement.options.emptied.is_empty() || !placement.options.added.is_empty()
}
