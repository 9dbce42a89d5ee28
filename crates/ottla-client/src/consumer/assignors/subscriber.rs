//! What every assignor is given and gives back.

use std::collections::{BTreeMap, BTreeSet};

use crate::consumer::Partition;

/// A member that takes part: what orders it among the others, and the topics it wants.
#[derive(Clone, Default, Debug)]
pub(in crate::consumer) struct Subscriber {
    pub(in crate::consumer) member_id: String,
    pub(in crate::consumer) instance_id: Option<String>,
    /// Where it stands, if it says so.
    pub(in crate::consumer) rack: Option<String>,
    pub(in crate::consumer) topics: Vec<String>,
    /// What it has, as it says itself.
    pub(in crate::consumer) owned: Vec<Partition>,
    /// In which generation it got that; -1 where it does not say.
    pub(in crate::consumer) generation: i32,
}

/// Where the replicas of a partition stand.
pub(in crate::consumer) type Racks = BTreeSet<String>;

/// The topics that exist, with the partitions that each has.
pub(in crate::consumer) type Topics = BTreeMap<String, Vec<Racks>>;

pub(in crate::consumer) type Assignment = BTreeMap<String, Vec<Partition>>;

/// Static members come first, by their instance ids, so that they keep their place over restarts.
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

/// The topics that exist and that a member wants.
pub(super) fn wanted<'a>(
    member: &'a Subscriber,
    counts: &BTreeMap<String, usize>,
) -> BTreeSet<&'a str> {
    let topics = member.topics.iter().map(String::as_str);
    topics.filter(|topic| counts.contains_key(*topic)).collect()
}
