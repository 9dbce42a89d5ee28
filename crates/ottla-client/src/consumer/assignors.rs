//! Who of a group reads which partitions, decided by one of its members (`group.protocol=classic`).
//!
//! Pure functions from members and numbers of partitions to an assignment; the same as those of Kafka's
//! Java client, so that members of both kinds can share a group.

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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Assignor {
    Range,
    RoundRobin,
    /// Keeps what members have, as far as that is balanced.
    Sticky,
    /// As `Sticky`; what moves is given up first and assigned in another round, while the rest is read on.
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

    /// By the name in the protocol, or that of Kafka's class.
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
    pub fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
            Assignor::Sticky => "sticky",
            Assignor::CooperativeSticky => "cooperative-sticky",
        }
    }

    /// Members go on reading what they keep while the others are waited for.
    pub(super) fn is_cooperative(self) -> bool {
        self == Assignor::CooperativeSticky
    }

    /// The partitions of each member. Racks matter to [`Assignor::Range`] only.
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

/// Leaves out what another member still has, or two members say that they have: it is given up first.
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
