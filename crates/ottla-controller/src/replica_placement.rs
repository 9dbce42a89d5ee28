//! Assigns the replicas of new partitions to brokers.
//!
//! Leaders rotate over the racks, and within a rack over its brokers. The other replicas follow in
//! the next racks. Unfenced brokers are preferred over fenced ones, and a fenced broker never
//! leads. After each full rotation, racks and brokers are shuffled, so that different brokers
//! become neighbours.
//!
//! In Kafka: `StripedReplicaPlacer` (KIP-36, KIP-455).

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_types::BrokerId;

use crate::decision::ControllerContext;

/// A broker that can be assigned replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsableBroker {
    pub id: BrokerId,
    pub rack: Option<ByteString>,
    pub fenced: bool,
}

/// Places `replication_factor` replicas for each of `partition_count` partitions on the cluster's
/// brokers. The error is Kafka's message.
pub(crate) fn place_replicas(
    context: &mut ControllerContext<'_>,
    partition_count: usize,
    replication_factor: i32,
) -> Result<Vec<Vec<BrokerId>>, String> {
    let usable = context
        .image
        .cluster
        .brokers()
        .filter(|broker| broker.has_uncordoned_directories() && !broker.in_controlled_shutdown)
        .map(|broker| UsableBroker {
            id: broker.id,
            rack: broker.rack.clone(),
            fenced: broker.fenced,
        });
    place_on_brokers(usable, context.random, partition_count, replication_factor)
}

/// Places replicas on the given brokers as the controller does, with random numbers from `random`.
pub fn place_on_brokers(
    brokers: impl IntoIterator<Item = UsableBroker>,
    random: &mut dyn FnMut() -> u64,
    partition_count: usize,
    replication_factor: i32,
) -> Result<Vec<Vec<BrokerId>>, String> {
    let mut racks = RackList::new(brokers, random);
    if replication_factor <= 0 {
        return Err(format!(
            "Invalid replication factor {replication_factor}: the replication factor must be positive."
        ));
    }
    if racks.unfenced_count == 0 {
        return Err(
            "All brokers are currently fenced, or have all their log directories cordoned."
                .to_owned(),
        );
    }
    let replication_factor = replication_factor as usize;
    if replication_factor > racks.total_count {
        return Err(format!(
            "The target replication factor of {replication_factor} cannot be reached because only {} \
             broker(s) are registered or some brokers have all their log directories cordoned.",
            racks.total_count
        ));
    }
    Ok((0..partition_count)
        .map(|_| racks.place(random, replication_factor))
        .collect())
}

/// The brokers of one rack, assigned round robin. Each round starts at the next broker.
#[derive(Default)]
struct BrokerList {
    brokers: Vec<BrokerId>,
    index: usize,
    offset: usize,
    round: usize,
}

impl BrokerList {
    fn next(&mut self, round: usize) -> Option<BrokerId> {
        if self.brokers.is_empty() {
            return None;
        }
        if self.round != round {
            self.round = round;
            self.index = 0;
            self.offset = (self.offset + 1) % self.brokers.len();
        }
        if self.index >= self.brokers.len() {
            return None;
        }
        let broker = self.brokers[(self.index + self.offset) % self.brokers.len()];
        self.index += 1;
        Some(broker)
    }
}

#[derive(Default)]
struct Rack {
    fenced: BrokerList,
    unfenced: BrokerList,
}

impl Rack {
    fn next(&mut self, round: usize) -> Option<BrokerId> {
        self.unfenced
            .next(round)
            .or_else(|| self.fenced.next(round))
    }
}

struct RackList {
    racks: Vec<Rack>,
    total_count: usize,
    unfenced_count: usize,
    round: usize,
    offset: usize,
}

impl RackList {
    fn new(
        brokers: impl IntoIterator<Item = UsableBroker>,
        random: &mut dyn FnMut() -> u64,
    ) -> RackList {
        let mut by_name: BTreeMap<Option<ByteString>, Rack> = BTreeMap::new();
        let (mut total_count, mut unfenced_count) = (0, 0);
        for broker in brokers {
            let rack = by_name.entry(broker.rack).or_default();
            total_count += 1;
            if broker.fenced {
                rack.fenced.brokers.push(broker.id);
            } else {
                unfenced_count += 1;
                rack.unfenced.brokers.push(broker.id);
            }
        }
        let mut racks: Vec<Rack> = by_name.into_values().collect();
        for rack in &mut racks {
            rack.fenced.offset = below(random, rack.fenced.brokers.len());
            rack.unfenced.offset = below(random, rack.unfenced.brokers.len());
        }
        RackList {
            offset: below(random, racks.len()),
            racks,
            total_count,
            unfenced_count,
            round: 0,
        }
    }

    /// Both loops terminate because at least one broker is unfenced and there are
    /// `replication_factor` brokers.
    fn place(
        &mut self,
        random: &mut dyn FnMut() -> u64,
        replication_factor: usize,
    ) -> Vec<BrokerId> {
        if self.round == self.unfenced_count && self.unfenced_count > 1 {
            self.shuffle(random);
            self.round = 0;
        }
        let rack_count = self.racks.len();
        self.offset %= rack_count;
        let mut replicas = Vec::with_capacity(replication_factor);
        let mut first_rack = Some(self.offset);
        for index in (self.offset..self.offset + rack_count).map(|index| index % rack_count) {
            if let Some(leader) = self.racks[index].unfenced.next(self.round) {
                replicas.push(leader);
                first_rack = Some(index);
                break;
            }
        }
        let mut rack = self.offset;
        while replicas.len() < replication_factor {
            if first_rack == Some(rack) {
                // The leader's rack had its turn in the first round.
                first_rack = None;
            } else if let Some(replica) = self.racks[rack].next(self.round) {
                replicas.push(replica);
            }
            rack = (rack + 1) % rack_count;
        }
        self.round += 1;
        self.offset += 1;
        replicas
    }

    fn shuffle(&mut self, random: &mut dyn FnMut() -> u64) {
        shuffle(&mut self.racks, random);
        for rack in &mut self.racks {
            shuffle(&mut rack.fenced.brokers, random);
            shuffle(&mut rack.unfenced.brokers, random);
        }
    }
}

fn shuffle<T>(items: &mut [T], random: &mut dyn FnMut() -> u64) {
    for index in (1..items.len()).rev() {
        items.swap(index, below(random, index + 1));
    }
}

fn below(random: &mut dyn FnMut() -> u64, bound: usize) -> usize {
    (random() % bound.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::test_support::Cluster;

    #[test]
    fn a_single_broker_gets_all_replicas() {
        let mut cluster = Cluster::single_node();
        let placed = place_replicas(&mut cluster.context(), 3, 1).unwrap();
        assert_eq!(placed, vec![vec![BrokerId(1)]; 3]);
    }

    #[test]
    fn replicas_are_distinct_and_leaders_balanced() {
        let mut cluster = Cluster::with_brokers(&[1, 2, 3]);
        let placed = place_replicas(&mut cluster.context(), 30, 2).unwrap();
        let mut leaders = [0; 4];
        for replicas in &placed {
            assert_eq!(
                replicas.iter().collect::<BTreeSet<_>>().len(),
                2,
                "{replicas:?}"
            );
            leaders[replicas[0].value() as usize] += 1;
        }
        assert_eq!(leaders, [0, 10, 10, 10]);
    }

    #[test]
    fn fenced_brokers_are_placed_as_followers_only() {
        let mut cluster = Cluster::with_brokers(&[1, 2]).fence(2);
        for replicas in place_replicas(&mut cluster.context(), 8, 2).unwrap() {
            assert_eq!(replicas, [BrokerId(1), BrokerId(2)]);
        }
    }

    #[test]
    fn impossible_placements_are_refused() {
        let error = |cluster: &mut Cluster, factor| {
            place_replicas(&mut cluster.context(), 1, factor).unwrap_err()
        };
        let mut one = Cluster::single_node();
        assert_eq!(
            error(&mut one, 2),
            "The target replication factor of 2 cannot be reached because only 1 broker(s) are registered \
             or some brokers have all their log directories cordoned."
        );
        assert_eq!(
            error(&mut one, 0),
            "Invalid replication factor 0: the replication factor must be positive."
        );
        let mut fenced = Cluster::single_node().fence(1);
        assert_eq!(
            error(&mut fenced, 1),
            "All brokers are currently fenced, or have all their log directories cordoned."
        );
    }
}
