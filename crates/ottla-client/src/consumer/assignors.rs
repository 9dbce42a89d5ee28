//! Assignment of partitions by a member of the group (`group.protocol=classic`).
//!
//! Pure functions from members and partition counts to an assignment. The assignments are equal to
//! the assignments of Kafka's Java client, so that members with either client can share a group.

#[cfg(test)]
mod comparison;
mod range;
mod round_robin;
mod sticky;
pub(super) mod sticky_data;
mod subscriber;

use std::collections::BTreeMap;

use super::Partition;
use subscriber::Assignment;
pub(super) use subscriber::{Racks, Subscriber, Topics};

/// Kafka's assignors.
///
/// ```
/// use ottla_client::{Assignor, ConsumerConfig};
///
/// let config = ConsumerConfig {
///     partition_assignment_strategy: vec![Assignor::CooperativeSticky],
///     ..ConsumerConfig::default()
/// };
/// # assert_eq!(config.partition_assignment_strategy.len(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Assignor {
    Range,
    RoundRobin,
    /// Keeps the existing assignment as far as it is balanced.
    Sticky,
    /// As `Sticky`, but partitions that move are revoked first and assigned in a second rebalance,
    /// while the members continue to read their other partitions.
    CooperativeSticky,
}

impl Assignor {
    pub(super) const ACCEPTED: &str = "range, roundrobin, sticky or cooperative-sticky, or the Java \
         classes org.apache.kafka.clients.consumer.RangeAssignor, RoundRobinAssignor, StickyAssignor or \
         CooperativeStickyAssignor, separated by commas";

    const ALL: [Assignor; 4] = [
        Assignor::Range,
        Assignor::RoundRobin,
        Assignor::Sticky,
        Assignor::CooperativeSticky,
    ];

    /// By its name in the protocol or by the name of Kafka's class.
    ///
    /// ```
    /// use ottla_client::Assignor;
    ///
    /// let class = "org.apache.kafka.clients.consumer.RangeAssignor";
    /// assert_eq!(Assignor::from_name(class), Some(Assignor::Range));
    /// assert_eq!(Assignor::from_name("range"), Some(Assignor::Range));
    /// ```
    pub fn from_name(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|assignor| {
            let class = match assignor {
                Assignor::Range => "RangeAssignor",
                Assignor::RoundRobin => "RoundRobinAssignor",
                Assignor::Sticky => "StickyAssignor",
                Assignor::CooperativeSticky => "CooperativeStickyAssignor",
            };
            let qualified = name.strip_prefix("org.apache.kafka.clients.consumer.");
            assignor.name() == name || qualified == Some(class)
        })
    }

    /// The name in the protocol.
    ///
    /// ```
    /// assert_eq!(ottla_client::Assignor::Sticky.name(), "sticky");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::Sticky => "sticky",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// Whether members continue to read the partitions that they keep during a rebalance.
    pub(super) fn is_cooperative(self) -> bool {
        self == Assignor::CooperativeSticky
    }

    /// The partitions of each member. Only [`Assignor::Range`] uses racks.
    pub(super) fn assign(self, members: &[Subscriber], topics: &Topics) -> Assignment {
        let counts: BTreeMap<String, usize> = topics
            .iter()
            .map(|(topic, partitions)| (topic.clone(), partitions.len()))
            .collect();
        match self {
            Assignor::Range => range::assign(members, topics),
            Assignor::RoundRobin => round_robin::assign(members, &counts),
            Assignor::Sticky => sticky::assign(members, &counts),
            Assignor::CooperativeSticky => {
                let assigned = sticky::assign(members, &counts);
                without_moving(members, assigned)
            }
        }
    }
}

/// Removes partitions that another member still owns, or that two members claim: they must be
/// revoked first.
fn without_moving(members: &[Subscriber], assigned: Assignment) -> Assignment {
    let owners = sticky::owners(members);
    let moves = |member: &str, partition: &Partition| {
        let owner = owners.get(partition);
        owner.is_some_and(|owner| owner.is_none_or(|owner| owner.member_id != member))
    };
    assigned
        .into_iter()
        .map(|(member, mut partitions)| {
            partitions.retain(|partition| !moves(&member, partition));
            (member, partitions)
        })
        .collect()
}
