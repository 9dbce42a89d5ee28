//! The input and the output of all assignors.

use std::collections::{BTreeMap, BTreeSet};

use crate::consumer::Partition;

/// A member of the group with its identity, which determines its order, and its subscription.
#[derive(Clone, Default, Debug)]
pub(in crate::consumer) struct Subscriber {
    pub(in crate::consumer) member_id: String,
    pub(in crate::consumer) instance_id: Option<String>,
    /// The member's rack, if it has one.
    pub(in crate::consumer) rack: Option<String>,
    pub(in crate::consumer) topics: Vec<String>,
    /// The partitions that the member reports to own.
    pub(in crate::consumer) owned: Vec<Partition>,
    /// The generation of `owned`; -1 if unknown.
    pub(in crate::consumer) generation: i32,
}

/// The racks of a partition's replicas.
pub(in crate::consumer) type Racks = BTreeSet<String>;

/// The existing topics, with the replica racks of each partition.
pub(in crate::consumer) type Topics = BTreeMap<String, Vec<Racks>>;

pub(in crate::consumer) type Assignment = BTreeMap<String, Vec<Partition>>;

/// Static members come first, ordered by instance id, so that they keep their order over restarts.
pub(super) fn ordered(members: &[Subscriber]) -> Vec<&Subscriber> {
    let mut ordered: Vec<&Subscriber> = members.iter().collect();
    ordered.sort_by_key(|member| {
        (
            member.instance_id.is_none(),
            &member.instance_id,
            &member.member_id,
        )
    });
    ordered
}

/// The existing topics that a member subscribes to.
pub(super) fn wanted<'a>(
    member: &'a Subscriber,
    counts: &BTreeMap<String, usize>,
) -> BTreeSet<&'a str> {
    let topics = member.topics.iter().map(String::as_str);
    topics.filter(|topic| counts.contains_key(*topic)).collect()
}
