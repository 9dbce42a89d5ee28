//! The plan: what changes, what each broker has before and after, what moves cost, and which goals
//! are not reached.

use crate::cost::Cost;
use crate::disks::{over_limit, relieve_disks};
use crate::empty::empty_brokers;
use crate::image::{Image, Options, PlanError};
use crate::leader_spread::spread_leaders;
use crate::placement::Placement;
use crate::racks::{spread_over_racks, surplus};
use crate::replica_spread::{Range, spread_replicas, staying};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// In the order of the image's partitions.
    pub changes: Vec<Change>,
    /// In the order of the image's brokers: before and after.
    pub brokers: Vec<(BrokerLoad, BrokerLoad)>,
    /// The goals that are not reached.
    pub unmet: Vec<Unmet>,
    pub cost: Cost,
}

/// The new replicas of a partition. Its first replica becomes the leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Index into [`Image::partitions`].
    pub partition: usize,
    pub replicas: Vec<i32>,
    pub added: Vec<i32>,
    pub removed: Vec<i32>,
    /// Whether another broker leads it afterwards.
    pub changes_leader: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BrokerLoad {
    pub replicas: u64,
    pub leaders: u64,
    /// Per second, of the partitions that it leads.
    pub bytes_in: u64,
    /// The size of its replicas.
    pub bytes: u64,
    /// Of its fullest log directory; `None` if the broker does not report sizes.
    pub disk_percent: Option<u64>,
}

/// A goal that is not reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unmet {
    /// Partitions with more replicas in a rack than its share, and one of them.
    Racks { partitions: usize, first: usize },
    /// A log directory over the limit.
    Disk { broker: i32, percent: u64 },
    Replicas {
        broker: i32,
        has: u64,
        lower: u64,
        upper: u64,
    },
    Leaders {
        broker: i32,
        has: u64,
        lower: u64,
        upper: u64,
    },
    BytesIn {
        broker: i32,
        has: u64,
        lower: u64,
        upper: u64,
    },
}

impl Plan {
    /// The number of replicas that are copied to another broker.
    pub fn moves(&self) -> usize {
        self.changes.iter().map(|change| change.added.len()).sum()
    }
}

/// Plans a rebalance.
pub fn plan(image: &Image, options: &Options) -> Result<Plan, PlanError> {
    let mut placement = Placement::new(image, options)?;
    let before = actual_loads(&placement);
    empty_brokers(&mut placement)?;
    spread_over_racks(&mut placement);
    relieve_disks(&mut placement);
    spread_replicas(&mut placement);
    spread_leaders(&mut placement);
    let after = loads(&placement);
    let changes: Vec<Change> = (0..image.partitions.len())
        .filter_map(|partition| change(&placement, partition))
        .collect();
    Ok(Plan {
        brokers: before.into_iter().zip(after).collect(),
        unmet: unmet(&placement),
        cost: cost(image, &changes),
        changes,
    })
}

fn loads(placement: &Placement) -> Vec<BrokerLoad> {
    let load = |broker: usize| {
        let dirs = &placement.image.brokers[broker].log_dirs;
        let percents = dirs
            .iter()
            .zip(&placement.used[broker])
            .filter_map(|(dir, used)| {
                let total = dir.total_bytes.filter(|total| *total > 0)?;
                Some(percent(*used, total))
            });
        BrokerLoad {
            replicas: placement.replica_counts[broker],
            leaders: placement.leader_counts[broker],
            bytes_in: placement.bytes_in[broker],
            bytes: placement.bytes[broker],
            disk_percent: percents.max(),
        }
    };
    (0..placement.broker_count()).map(load).collect()
}

/// With the leaders of now, before elections of preferred ones.
fn actual_loads(placement: &Placement) -> Vec<BrokerLoad> {
    let mut loads = loads(placement);
    for load in &mut loads {
        (load.leaders, load.bytes_in) = (0, 0);
    }
    for partition in &placement.image.partitions {
        if let Some(leader) = partition.leader.and_then(|id| placement.index_of(id)) {
            let load = &mut loads[leader];
            load.leaders += 1;
            load.bytes_in += partition.bytes_in;
        }
    }
    loads
}

fn percent(used: u64, total: u64) -> u64 {
    (u128::from(used) * 100 / u128::from(total)) as u64
}

fn change(placement: &Placement, partition: usize) -> Option<Change> {
    let it = &placement.image.partitions[partition];
    let id = |broker: &usize| placement.image.brokers[*broker].id;
    let before: Vec<i32> = it.replicas.iter().map(|it| it.broker).collect();
    let mut replicas: Vec<i32> = placement.replicas[partition].iter().map(id).collect();
    let leader = placement.leaders[partition].as_ref().map(id);
    if replicas == before && leader == it.leader {
        return None;
    }
    if let Some(leader) = leader
        && let Some(at) = replicas.iter().position(|it| *it == leader)
    {
        replicas[..=at].rotate_right(1);
    }
    let added = replicas.iter().filter(|it| !before.contains(it)).copied();
    let removed = before.iter().filter(|it| !replicas.contains(it)).copied();
    Some(Change {
        partition,
        added: added.collect(),
        removed: removed.collect(),
        replicas,
        changes_leader: leader != it.leader,
    })
}

fn cost(image: &Image, changes: &[Change]) -> Cost {
    let mut cost = Cost::default();
    for change in changes {
        let it = &image.partitions[change.partition];
        cost.add(it.leader, &change.added, it.size_bytes, it.bytes_in);
    }
    cost
}

fn unmet(placement: &Placement) -> Vec<Unmet> {
    let mut unmet = Vec::new();
    let partitions = 0..placement.replicas.len();
    let crowded: Vec<usize> = partitions
        .filter(|partition| !surplus(placement, *partition).is_empty())
        .collect();
    if let Some(first) = crowded.first() {
        unmet.push(Unmet::Racks {
            partitions: crowded.len(),
            first: *first,
        });
    }
    for (broker, dir) in over_limit(placement) {
        let total = placement.image.brokers[broker].log_dirs[dir].total_bytes;
        unmet.push(Unmet::Disk {
            broker: placement.image.brokers[broker].id,
            percent: percent(placement.used[broker][dir], total.unwrap_or(0).max(1)),
        });
    }
    type ToUnmet = fn(i32, u64, Range) -> Unmet;
    let goals: [(&[u64], ToUnmet); 3] = [
        (
            &placement.replica_counts,
            |broker, has, Range { lower, upper }| Unmet::Replicas {
                broker,
                has,
                lower,
                upper,
            },
        ),
        (
            &placement.leader_counts,
            |broker, has, Range { lower, upper }| Unmet::Leaders {
                broker,
                has,
                lower,
                upper,
            },
        ),
        (
            &placement.bytes_in,
            |broker, has, Range { lower, upper }| Unmet::BytesIn {
                broker,
                has,
                lower,
                upper,
            },
        ),
    ];
    for (values, to_unmet) in goals {
        let range = Range::of(placement, values);
        for broker in staying(placement).filter(|it| placement.receives[*it]) {
            if !range.contains(values[broker]) {
                unmet.push(to_unmet(
                    placement.image.brokers[broker].id,
                    values[broker],
                    range,
                ));
            }
        }
    }
    unmet
}
