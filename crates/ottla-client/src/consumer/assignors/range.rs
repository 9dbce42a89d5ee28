//! Kafka's range assignor: every member gets a contiguous range of the partitions of each topic;
//! the first members get one more if the division has a remainder
//! (`org.apache.kafka.clients.consumer.RangeAssignor`).
//!
//! Members with a rack preferably get partitions with a replica in that rack (KIP-881). Topics with
//! the same subscribers and the same number of partitions are co-assigned by partition number.

use std::collections::{BTreeMap, BTreeSet};

use super::subscriber::{Assignment, Racks, Subscriber, Topics, ordered};
use crate::consumer::Partition;

pub(super) fn assign(members: &[Subscriber], topics: &Topics) -> Assignment {
    let mut assigned: Assignment = members
        .iter()
        .map(|member| (member.member_id.clone(), Vec::new()))
        .collect();
    let ordered = ordered(members);
    let mut shares: Vec<Shares> = topics
        .iter()
        .map(|(topic, racks)| Shares::new(topic, racks, &ordered))
        .collect();
    match_racks(&mut shares, &mut assigned);
    for topic in &mut shares {
        topic.give_ranges(|_, _| true, &mut assigned);
    }
    for partitions in assigned.values_mut() {
        partitions.sort();
    }
    assigned
}

/// Assigns partitions with a replica in the member's rack, in topics for which racks make a
/// difference.
fn match_racks(shares: &mut [Shares<'_>], assigned: &mut Assignment) {
    if !shares.iter().any(|topic| topic.minds_racks) {
        return;
    }
    let mut alike: BTreeMap<(Vec<&str>, usize), Vec<usize>> = BTreeMap::new();
    for (index, topic) in shares.iter().enumerate() {
        let members = topic.members.iter().map(|it| it.member_id.as_str());
        let key = (members.collect(), topic.racks.len());
        alike.entry(key).or_default().push(index);
    }
    let groups: Vec<Vec<usize>> = alike.into_values().collect();
    for group in groups {
        let stands = |index: &usize| shares[*index].members.iter().any(|it| it.rack.is_some());
        if !group.iter().all(stands) {
            continue;
        }
        match group[..] {
            [alone] => {
                let topic = &mut shares[alone];
                if topic.minds_racks {
                    let racks = topic.racks;
                    topic.give_ranges(|member, number| is_near(member, &racks[number]), assigned);
                }
            }
            _ => match_racks_together(shares, &group, assigned),
        }
    }
}

/// Assigns each partition number of several topics to a member whose rack has replicas of all of
/// them.
fn match_racks_together(shares: &mut [Shares<'_>], group: &[usize], assigned: &mut Assignment) {
    let Some(first) = group.first().map(|index| &shares[*index]) else {
        return;
    };
    let count = first.racks.len();
    let mut remaining: Vec<&Subscriber> = first.members.clone();
    for number in 0..count {
        let takes = |member: &Subscriber| {
            group.iter().all(|index| {
                let topic = &shares[*index];
                is_near(member, &topic.racks[number]) && topic.room(member) > 0
            })
        };
        let Some(place) = remaining.iter().position(|member| takes(member)) else {
            continue;
        };
        let member = remaining[place];
        for index in group {
            shares[*index].give(member, &[number], assigned);
        }
        if group.iter().all(|index| shares[*index].room(member) == 0) {
            remaining.remove(place);
            if remaining.is_empty() {
                break;
            }
        }
    }
}

/// A member without a rack matches every partition.
fn is_near(member: &Subscriber, racks: &Racks) -> bool {
    member.rack.as_ref().is_none_or(|rack| racks.contains(rack))
}

/// The unassigned partitions of a topic, and the remaining quotas of its subscribers.
struct Shares<'a> {
    topic: &'a str,
    racks: &'a [Racks],
    members: Vec<&'a Subscriber>,
    minds_racks: bool,
    free: BTreeSet<usize>,
    given: BTreeMap<&'a str, usize>,
    each: usize,
    /// The number of members that still get one partition more.
    more: usize,
}

impl<'a> Shares<'a> {
    fn new(topic: &'a str, racks: &'a [Racks], ordered: &[&'a Subscriber]) -> Shares<'a> {
        let members: Vec<&Subscriber> = ordered
            .iter()
            .filter(|member| member.topics.iter().any(|it| it == topic))
            .copied()
            .collect();
        let standing: BTreeSet<&String> =
            members.iter().filter_map(|it| it.rack.as_ref()).collect();
        let replicas: BTreeSet<&String> = racks.iter().flatten().collect();
        // If every rack has replicas of every partition, racks make no difference.
        let minds_racks = !standing.is_disjoint(&replicas)
            && racks.iter().any(|racks| racks.len() != replicas.len());
        let (each, more) = match members.len() {
            0 => (0, 0),
            count => (racks.len() / count, racks.len() % count),
        };
        Shares {
            topic,
            racks,
            minds_racks,
            free: (0..racks.len()).collect(),
            given: BTreeMap::new(),
            each,
            more,
            members,
        }
    }

    /// The remaining quota of the member.
    fn room(&self, member: &Subscriber) -> usize {
        let given = self.given.get(member.member_id.as_str());
        (self.each + usize::from(self.more > 0)).saturating_sub(given.copied().unwrap_or(0))
    }

    /// Gives each member in turn the first free partitions that it may have, up to its quota.
    fn give_ranges(
        &mut self,
        may_have: impl Fn(&Subscriber, usize) -> bool,
        assigned: &mut Assignment,
    ) {
        for member in self.members.clone() {
            let room = self.room(member);
            let free = self.free.iter().copied();
            let numbers = free.filter(|number| may_have(member, *number)).take(room);
            let numbers: Vec<usize> = numbers.collect();
            self.give(member, &numbers, assigned);
        }
    }

    fn give(&mut self, member: &'a Subscriber, numbers: &[usize], assigned: &mut Assignment) {
        if numbers.is_empty() {
            return;
        }
        let given = self.given.entry(&member.member_id).or_default();
        *given += numbers.len();
        if *given > self.each {
            self.more = self.more.saturating_sub(1);
        }
        for number in numbers {
            self.free.remove(number);
        }
        if let Some(partitions) = assigned.get_mut(&member.member_id) {
            let topic = self.topic;
            let as_partition = |number: &usize| -> Partition { (topic.to_owned(), *number as i32) };
            partitions.extend(numbers.iter().map(as_partition));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str]) -> Subscriber {
        Subscriber {
            member_id: id.into(),
            topics: topics.iter().map(|topic| (*topic).into()).collect(),
            ..Subscriber::default()
        }
    }

    fn without_racks(counts: &[(&str, usize)]) -> Topics {
        let topics = counts.iter();
        topics
            .map(|(topic, count)| ((*topic).into(), vec![Racks::new(); *count]))
            .collect()
    }

    fn numbers(assigned: &Assignment, id: &str, topic: &str) -> Vec<i32> {
        assigned[id]
            .iter()
            .filter(|(name, _)| name == topic)
            .map(|(_, number)| *number)
            .collect()
    }

    #[test]
    fn the_first_members_get_the_remainder() {
        let members = [
            member("b", &["t"]),
            member("a", &["t"]),
            member("c", &["t"]),
        ];
        let assigned = assign(&members, &without_racks(&[("t", 7)]));
        assert_eq!(numbers(&assigned, "a", "t"), [0, 1, 2]);
        assert_eq!(numbers(&assigned, "b", "t"), [3, 4]);
        assert_eq!(numbers(&assigned, "c", "t"), [5, 6]);
    }

    #[test]
    fn only_subscribers_get_a_topic() {
        let members = [member("a", &["t", "u"]), member("b", &["u"])];
        let assigned = assign(&members, &without_racks(&[("t", 2), ("u", 2)]));
        assert_eq!(numbers(&assigned, "a", "t"), [0, 1]);
        assert_eq!(numbers(&assigned, "a", "u"), [0]);
        assert_eq!(numbers(&assigned, "b", "u"), [1]);
    }

    #[test]
    fn static_members_come_first() {
        let mut last = member("z", &["t"]);
        last.instance_id = Some("one".into());
        let assigned = assign(&[member("a", &["t"]), last], &without_racks(&[("t", 1)]));
        assert_eq!(numbers(&assigned, "z", "t"), [0]);
        assert_eq!(numbers(&assigned, "a", "t"), Vec::<i32>::new());
    }
}
