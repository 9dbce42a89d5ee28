//! The working state of a plan: where each replica and leader is, what each broker has, and
//! whether a replica may move.
//!
//! Brokers, racks, topics and partitions are indices. Only `replace` and `lead` change where
//! something is, so the totals always belong to the placement.

use std::collections::{BTreeMap, BTreeSet};

use crate::image::{Image, Options, PlanError};

/// A partition in the order in which candidates are looked through: by size, and among equals in an
/// order that does not follow the partition numbers. Otherwise neighbouring partitions of a topic
/// would move together.
type BySize = (u64, u32, usize);

/// How many candidates of a suitable size are compared by their topics.
const COMPARED: usize = 8;

pub(crate) struct Placement<'a> {
    pub(crate) image: &'a Image,
    pub(crate) options: &'a Options,
    index: BTreeMap<i32, usize>,
    /// Of each broker.
    pub(crate) racks: Vec<usize>,
    /// The number of racks among the brokers that stay.
    pub(crate) usable_racks: usize,
    /// Runs, and is not emptied.
    pub(crate) stays: Vec<bool>,
    /// Receives replicas and leaders for the sake of balance.
    pub(crate) receives: Vec<bool>,

    /// Of each partition, in the order of preference.
    pub(crate) replicas: Vec<Vec<usize>>,
    log_dirs: Vec<Vec<Option<usize>>>,
    pub(crate) leaders: Vec<Option<usize>>,
    pub(crate) is_movable: Vec<bool>,
    topics: Vec<usize>,

    /// Of each broker, the replicas that may move.
    by_size: Vec<BTreeSet<BySize>>,
    pub(crate) replica_counts: Vec<u64>,
    pub(crate) leader_counts: Vec<u64>,
    pub(crate) bytes: Vec<u64>,
    pub(crate) bytes_in: Vec<u64>,
    topic_counts: Vec<Vec<u32>>,
    /// Used bytes of each log directory when all is done.
    pub(crate) used: Vec<Vec<u64>>,
    /// The same if nothing is deleted: what must fit while replicas move.
    peaks: Vec<Vec<u64>>,
    dir_counts: Vec<Vec<u64>>,
}

impl<'a> Placement<'a> {
    pub(crate) fn new(image: &'a Image, options: &'a Options) -> Result<Placement<'a>, PlanError> {
        let brokers = image.brokers.len();
        let index: BTreeMap<i32, usize> =
            (0..brokers).map(|at| (image.brokers[at].id, at)).collect();
        let alive = image.brokers.iter().filter(|it| it.is_alive);
        let known = index.keys().copied().collect();
        options.check(&known, &alive.map(|it| it.id).collect())?;
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        let mut racks = Vec::with_capacity(brokers);
        for (at, broker) in image.brokers.iter().enumerate() {
            let own = brokers + at;
            let rack = broker.rack.as_deref().filter(|_| !options.ignores_racks);
            let number = names.len();
            racks.push(rack.map_or(own, |rack| *names.entry(rack).or_insert(number)));
        }
        let stays: Vec<bool> = image
            .brokers
            .iter()
            .map(|it| it.is_alive && !options.emptied.contains(&it.id))
            .collect();
        let receives = image.brokers.iter().zip(&stays).map(|(broker, stays)| {
            let is_meant = match options.added.is_empty() {
                true => options.emptied.is_empty(),
                false => options.added.contains(&broker.id),
            };
            *stays && is_meant
        });
        let receives = receives.collect();
        let staying = (0..brokers).filter(|at| stays[*at]);
        let usable_racks = staying.map(|at| racks[at]).collect::<BTreeSet<_>>().len();
        let of_dirs = || image.brokers.iter().map(|it| vec![0; it.log_dirs.len()]);
        let used: Vec<Vec<u64>> = image
            .brokers
            .iter()
            .map(|it| it.log_dirs.iter().map(|dir| dir.used_bytes).collect())
            .collect();
        let mut placement = Placement {
            image,
            options,
            index,
            racks,
            usable_racks,
            stays,
            receives,
            replicas: Vec::with_capacity(image.partitions.len()),
            log_dirs: Vec::with_capacity(image.partitions.len()),
            leaders: Vec::with_capacity(image.partitions.len()),
            is_movable: Vec::with_capacity(image.partitions.len()),
            topics: Vec::with_capacity(image.partitions.len()),
            by_size: vec![BTreeSet::new(); brokers],
            replica_counts: vec![0; brokers],
            leader_counts: vec![0; brokers],
            bytes: vec![0; brokers],
            bytes_in: vec![0; brokers],
            topic_counts: Vec::new(),
            peaks: used.clone(),
            used,
            dir_counts: of_dirs().collect(),
        };
        placement.fill();
        Ok(placement)
    }

    fn fill(&mut self) {
        let image = self.image;
        let balances_all = self.options.added.is_empty() && self.options.emptied.is_empty();
        let mut topics: BTreeMap<&str, usize> = BTreeMap::new();
        for (partition, it) in image.partitions.iter().enumerate() {
            let number = topics.len();
            let topic = *topics.entry(&it.topic).or_insert(number);
            if topic == self.topic_counts.len() {
                self.topic_counts.push(vec![0; image.brokers.len()]);
            }
            self.topics.push(topic);
            let is_movable = it.is_movable && it.leader.is_some();
            self.is_movable.push(is_movable);
            let replicas: Vec<usize> = it
                .replicas
                .iter()
                .map(|it| self.index[&it.broker])
                .collect();
            // Elections of preferred leaders are part of balancing the whole cluster.
            let preferred = it.replicas.first().filter(|first| {
                let at = self.index[&first.broker];
                balances_all && is_movable && first.is_in_sync && self.stays[at]
            });
            let leader = preferred.map(|it| it.broker).or(it.leader);
            let leader = leader.and_then(|id| self.index_of(id));
            self.leaders.push(leader);
            if let Some(leader) = leader {
                self.leader_counts[leader] += 1;
                self.bytes_in[leader] += it.bytes_in;
            }
            let log_dirs = it.replicas.iter().zip(&replicas).map(|(it, broker)| {
                let dirs = self.dir_counts[*broker].len();
                it.log_dir.filter(|dir| *dir < dirs)
            });
            let log_dirs: Vec<Option<usize>> = log_dirs.collect();
            for (broker, dir) in replicas.iter().zip(&log_dirs) {
                self.replica_counts[*broker] += 1;
                self.bytes[*broker] += it.size_bytes;
                self.topic_counts[topic][*broker] += 1;
                if is_movable {
                    self.by_size[*broker].insert(by_size(it.size_bytes, partition));
                }
                if let Some(dir) = dir {
                    self.dir_counts[*broker][*dir] += 1;
                }
            }
            self.replicas.push(replicas);
            self.log_dirs.push(log_dirs);
        }
    }

    pub(crate) fn broker_count(&self) -> usize {
        self.racks.len()
    }

    pub(crate) fn index_of(&self, broker: i32) -> Option<usize> {
        self.index.get(&broker).copied()
    }

    /// How many replicas of a partition a rack may have.
    pub(crate) fn share_of_rack(&self, partition: usize) -> usize {
        self.replicas[partition]
            .len()
            .div_ceil(self.usable_racks.max(1))
    }

    pub(crate) fn in_rack(&self, partition: usize, rack: usize) -> usize {
        let replicas = self.replicas[partition].iter();
        replicas
            .filter(|broker| self.racks[**broker] == rack)
            .count()
    }

    /// The limit of a log directory.
    pub(crate) fn limit(&self, broker: usize, dir: usize) -> Option<u64> {
        let total = self.image.brokers[broker].log_dirs[dir].total_bytes?;
        let limit = u128::from(total) * u128::from(self.options.max_disk_percent) / 100;
        Some(limit as u64)
    }

    /// The log directory that a broker gives to a new replica: the one with the fewest. `None` if
    /// there is no room in it; `Some(None)` if the broker reports no directories.
    fn directory_for(&self, partition: usize, broker: usize) -> Option<Option<usize>> {
        let dirs = &self.image.brokers[broker].log_dirs;
        if dirs.is_empty() {
            return Some(None);
        }
        let open = (0..dirs.len()).filter(|dir| dirs[*dir].accepts_replicas);
        let dir = open.min_by_key(|dir| self.dir_counts[broker][*dir])?;
        let size = self.image.partitions[partition].size_bytes;
        let fits = self
            .limit(broker, dir)
            .is_none_or(|limit| self.peaks[broker][dir].saturating_add(size) <= limit);
        fits.then_some(Some(dir))
    }

    /// Whether a replica may move: the target has none, its rack keeps to its share, and it has room.
    pub(crate) fn may_move(&self, partition: usize, from: usize, to: usize) -> bool {
        // A replica does not return either: the old one is still there, in its own directory.
        let is_there = self.replicas[partition].contains(&to) || self.was_on(partition, to);
        if !self.stays[to] || is_there {
            return false;
        }
        let rack = self.racks[to];
        let keeps_share = self.racks[from] == rack
            || self.in_rack(partition, rack) < self.share_of_rack(partition);
        keeps_share && self.directory_for(partition, to).is_some()
    }

    /// The broker with the fewest replicas among the brokers that may take one.
    pub(crate) fn best_target(
        &self,
        partition: usize,
        from: usize,
        is_meant: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let targets = (0..self.broker_count()).filter(|to| is_meant(*to));
        targets
            .filter(|to| self.may_move(partition, from, *to))
            .min_by_key(|to| (self.replica_counts[*to], self.bytes[*to], *to))
    }

    /// A replica to move from one broker to another. Prefers a size that also balances their bytes
    /// and, among replicas of about this size, a topic with more replicas on the source.
    pub(crate) fn candidate(&self, from: usize, to: usize) -> Option<usize> {
        let surplus = self.replica_counts[from].saturating_sub(self.replica_counts[to]);
        let size = self.bytes[from].saturating_sub(self.bytes[to]) / surplus.max(1);
        self.near(from, size)
            .filter(|partition| self.may_move(*partition, from, to))
            .take(COMPARED)
            .enumerate()
            .max_by_key(|(order, partition)| {
                let counts = &self.topic_counts[self.topics[*partition]];
                let excess = i64::from(counts[from]) - i64::from(counts[to]);
                (excess, std::cmp::Reverse(*order))
            })
            .map(|(_, partition)| partition)
    }

    /// The movable replicas of a broker, the nearest to a size first.
    pub(crate) fn near(&self, broker: usize, size: u64) -> impl Iterator<Item = usize> + '_ {
        let set = &self.by_size[broker];
        let mut below = set.range(..(size, 0, 0)).rev().peekable();
        let mut above = set.range((size, 0, 0)..).peekable();
        std::iter::from_fn(move || {
            let takes_below = match (below.peek(), above.peek()) {
                (Some(low), Some(high)) => size - low.0 < high.0 - size,
                (low, _) => low.is_some(),
            };
            let next = if takes_below {
                below.next()
            } else {
                above.next()
            };
            next.map(|(_, _, partition)| *partition)
        })
    }

    /// The movable replicas of a broker in this log directory, from this size up, and then the
    /// smaller ones from the largest down.
    pub(crate) fn in_directory(
        &self,
        broker: usize,
        dir: usize,
        size: u64,
    ) -> impl Iterator<Item = usize> + '_ {
        let set = &self.by_size[broker];
        let larger = set.range((size, 0, 0)..);
        let smaller = set.range(..(size, 0, 0)).rev();
        larger.chain(smaller).filter_map(move |(_, _, partition)| {
            let replicas = self.replicas[*partition].iter();
            let place = replicas
                .zip(&self.log_dirs[*partition])
                .find(|(it, _)| **it == broker);
            place
                .is_some_and(|(_, at)| *at == Some(dir))
                .then_some(*partition)
        })
    }

    /// Moves a replica, with its leadership.
    pub(crate) fn replace(&mut self, partition: usize, from: usize, to: usize) {
        let size = self.image.partitions[partition].size_bytes;
        let new_dir = self.directory_for(partition, to).flatten();
        let at = self.replicas[partition].iter().position(|it| *it == from);
        let at = at.expect("the replica is there");
        let old_dir = self.log_dirs[partition][at];
        if let Some(dir) = old_dir {
            self.used[from][dir] = self.used[from][dir].saturating_sub(size);
            self.dir_counts[from][dir] -= 1;
            // A replica that arrived in this plan is never copied here.
            if !self.was_on(partition, from) {
                self.peaks[from][dir] -= size;
            }
        }
        if let Some(dir) = new_dir {
            self.used[to][dir] += size;
            self.dir_counts[to][dir] += 1;
            self.peaks[to][dir] += size;
        }
        self.replicas[partition][at] = to;
        self.log_dirs[partition][at] = new_dir;
        for (broker, arrives) in [(from, false), (to, true)] {
            let key = by_size(size, partition);
            let topic = &mut self.topic_counts[self.topics[partition]][broker];
            if arrives {
                *topic += 1;
                self.replica_counts[broker] += 1;
                self.bytes[broker] += size;
                self.by_size[broker].insert(key);
            } else {
                *topic -= 1;
                self.replica_counts[broker] -= 1;
                self.bytes[broker] -= size;
                self.by_size[broker].remove(&key);
            }
        }
        if self.leaders[partition] == Some(from) {
            self.lead(partition, to);
        }
    }

    /// Makes a broker the leader.
    pub(crate) fn lead(&mut self, partition: usize, broker: usize) {
        let bytes_in = self.image.partitions[partition].bytes_in;
        if let Some(before) = self.leaders[partition].replace(broker) {
            self.leader_counts[before] -= 1;
            self.bytes_in[before] -= bytes_in;
        }
        self.leader_counts[broker] += 1;
        self.bytes_in[broker] += bytes_in;
    }

    /// Whether a broker has a replica before the plan.
    pub(crate) fn was_on(&self, partition: usize, broker: usize) -> bool {
        let id = self.image.brokers[broker].id;
        let mut before = self.image.partitions[partition].replicas.iter();
        before.any(|replica| replica.broker == id)
    }

    /// Whether the plan moves a replica of the partition.
    pub(crate) fn has_moved(&self, partition: usize) -> bool {
        let replicas = &self.replicas[partition];
        replicas
            .iter()
            .any(|broker| !self.was_on(partition, *broker))
    }

    /// Whether a replica may lead: its broker stays, and it is in sync, or will be once it has moved.
    pub(crate) fn may_lead(&self, partition: usize, broker: usize) -> bool {
        let id = self.image.brokers[broker].id;
        let before = &self.image.partitions[partition].replicas;
        let replica = before.iter().find(|replica| replica.broker == id);
        self.stays[broker] && replica.is_none_or(|replica| replica.is_in_sync)
    }
}

fn by_size(size: u64, partition: usize) -> BySize {
    (
        size,
        (partition as u32).wrapping_mul(0x9E37_79B1),
        partition,
    )
}
