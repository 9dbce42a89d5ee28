//! Kafka's sticky assignor: as balanced as possible, with as few moves as possible
//! (`org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor`).
//!
//! If all members have the same subscription, the result is that of Kafka's class without racks:
//! members keep their partitions up to their fair share, and the rest goes to the members with the
//! fewest. Where Kafka iterates over members in the order of a hash map, this uses the order of
//! their ids. If the subscriptions differ, members keep their partitions, free ones go to the
//! subscriber with the fewest, and partitions move while a move improves the balance of two
//! members. Kafka's class does the same with other tie-breaks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::subscriber::{Assignment, Subscriber, wanted};
use crate::consumer::Partition;

pub(super) fn assign(members: &[Subscriber], counts: &BTreeMap<String, usize>) -> Assignment {
    let mut partitions: BTreeSet<Partition> = BTreeSet::new();
    for (topic, count) in counts {
        if members.iter().any(|member| member.topics.contains(topic)) {
            partitions.extend((0..*count).map(|partition| (topic.clone(), partition as i32)));
        }
    }
    let owned = kept(members, counts, &partitions);
    let first = members.first().map(|member| wanted(member, counts));
    let are_alike = members
        .iter()
        .all(|member| Some(wanted(member, counts)) == first);
    match are_alike {
        true => assign_alike(&owned, partitions),
        false => assign_different(members, owned, partitions),
    }
}

/// The current partitions of each member that it may keep.
fn kept(
    members: &[Subscriber],
    counts: &BTreeMap<String, usize>,
    partitions: &BTreeSet<Partition>,
) -> Assignment {
    let mut kept: Assignment = members
        .iter()
        .map(|member| (member.member_id.clone(), Vec::new()))
        .collect();
    for (partition, owner) in owners(members) {
        if let Some(owner) = owner
            && partitions.contains(partition)
            && wanted(owner, counts).contains(partition.0.as_str())
            && let Some(partitions) = kept.get_mut(&owner.member_id)
        {
            partitions.push(partition.clone());
        }
    }
    kept
}

/// The owner of each partition. If several members claim a partition, the member with the newest
/// generation owns it; if two have the same generation, neither does.
pub(super) fn owners(members: &[Subscriber]) -> BTreeMap<&Partition, Option<&Subscriber>> {
    let mut claims: BTreeMap<&Partition, Vec<&Subscriber>> = BTreeMap::new();
    for member in members {
        for partition in &member.owned {
            claims.entry(partition).or_default().push(member);
        }
    }
    let mut owners = BTreeMap::new();
    for (partition, mut claimants) in claims {
        let newest = claimants.iter().map(|it| it.generation).max();
        claimants.retain(|it| Some(it.generation) == newest);
        let owner = match claimants[..] {
            [owner] => Some(owner),
            _ => None,
        };
        owners.insert(partition, owner);
    }
    owners
}

/// All members have the same subscription. If the division has a remainder, some members get one
/// partition more: first members that own that many, then members that own the quotient, then the
/// members that reach the quotient last.
fn assign_alike(owned: &Assignment, mut partitions: BTreeSet<Partition>) -> Assignment {
    let members = owned.len();
    if members == 0 {
        return Assignment::new();
    }
    let least = partitions.len() / members;
    let most = partitions.len().div_ceil(members);
    let places_with_most = partitions.len() % members;
    let mut taken_with_most = 0;
    // Members with less than the minimum share, and members with exactly that share, which may get
    // one more.
    let mut wanting: Vec<&str> = Vec::new();
    let mut content: VecDeque<&str> = VecDeque::new();
    let mut assigned = Assignment::new();
    for (member, owned) in owned {
        let mut keeps = owned.clone();
        keeps.sort_by(|one, other| (one.1, &one.0).cmp(&(other.1, &other.0)));
        if keeps.len() < least {
            wanting.push(member);
        } else if keeps.len() >= most && taken_with_most < places_with_most {
            taken_with_most += 1;
            if taken_with_most == places_with_most {
                content.clear();
            }
            keeps.truncate(most);
        } else {
            keeps.truncate(least);
            if taken_with_most < places_with_most {
                content.push_back(member);
            }
        }
        for partition in &keeps {
            partitions.remove(partition);
        }
        assigned.insert(member.clone(), keeps);
    }
    // The rest goes topic by topic to the members in turn.
    let mut turn = 0;
    for partition in partitions {
        if turn >= wanting.len() {
            turn = 0;
        }
        let member = match wanting.get(turn) {
            Some(member) => Some(*member),
            None => content.pop_front(),
        };
        let Some((member, has)) = member.and_then(|it| Some((it, assigned.get_mut(it)?))) else {
            break;
        };
        has.push(partition);
        if wanting.get(turn) == Some(&member) {
            match has.len() < least {
                true => turn += 1,
                false => content.push_back(wanting.remove(turn)),
            }
        }
    }
    assigned
}

/// The members have different subscriptions.
fn assign_different(
    members: &[Subscriber],
    mut assigned: Assignment,
    partitions: BTreeSet<Partition>,
) -> Assignment {
    let wants = |member: &str, topic: &str| {
        members
            .iter()
            .any(|it| it.member_id == member && it.topics.iter().any(|it| it == topic))
    };
    let taken: BTreeSet<Partition> = assigned.values().flatten().cloned().collect();
    // Topics with few subscribers come first, while these still have capacity.
    let mut free: Vec<&Partition> = partitions.difference(&taken).collect();
    free.sort_by_key(|(topic, partition)| {
        let takers = members
            .iter()
            .filter(|it| it.topics.contains(topic))
            .count();
        (takers, topic.clone(), *partition)
    });
    for partition in free {
        let fewest = assigned
            .iter()
            .filter(|(member, _)| wants(member, &partition.0))
            .min_by_key(|(member, partitions)| (partitions.len(), (*member).clone()))
            .map(|(member, _)| member.clone());
        if let Some(partitions) = fewest.and_then(|member| assigned.get_mut(&member)) {
            partitions.push(partition.clone());
        }
    }
    // Every move decreases the sum of the squares, so this terminates.
    while let Some((from, to, index)) = improving_move(&assigned, &wants) {
        let Some(partition) = assigned.get_mut(&from).map(|it| it.remove(index)) else {
            break;
        };
        if let Some(partitions) = assigned.get_mut(&to) {
            partitions.push(partition);
        }
    }
    assigned
}

/// A partition whose move improves the balance of two members: from, to, and its index.
fn improving_move(
    assigned: &Assignment,
    wants: &impl Fn(&str, &str) -> bool,
) -> Option<(String, String, usize)> {
    let mut fullest: Vec<_> = assigned.iter().collect();
    fullest.sort_by_key(|(_, partitions)| std::cmp::Reverse(partitions.len()));
    for (from, partitions) in &fullest {
        for (to, others) in fullest.iter().rev() {
            if others.len() + 1 >= partitions.len() {
                break;
            }
            let movable = partitions.iter().rposition(|(topic, _)| wants(to, topic));
            if let Some(index) = movable {
                return Some(((*from).clone(), (*to).clone(), index));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consumer::assignors::Assignor;

    fn member(id: &str, topics: &[&str], owned: &[(&str, i32)]) -> Subscriber {
        Subscriber {
            member_id: id.into(),
            instance_id: None,
            rack: None,
            topics: topics.iter().map(|topic| (*topic).into()).collect(),
            owned: owned
                .iter()
                .map(|(topic, partition)| ((*topic).into(), *partition))
                .collect(),
            generation: if owned.is_empty() { -1 } else { 1 },
        }
    }

    fn counts(counts: &[(&str, usize)]) -> BTreeMap<String, usize> {
        let counts = counts
            .iter()
            .map(|(topic, count)| ((*topic).into(), *count));
        counts.collect()
    }

    fn shown(assigned: &Assignment) -> Vec<String> {
        assigned
            .iter()
            .map(|(member, partitions)| {
                let mut partitions: Vec<String> = partitions
                    .iter()
                    .map(|(topic, partition)| format!("{topic}{partition}"))
                    .collect();
                partitions.sort();
                format!("{member}: {}", partitions.join(" "))
            })
            .collect()
    }

    #[test]
    fn a_new_group_is_balanced() {
        let members = ["A", "B", "C"].map(|id| member(id, &["t", "u"], &[]));
        let assigned = assign(&members, &counts(&[("t", 2), ("u", 2)]));
        assert_eq!(shown(&assigned), ["A: t0 u1", "B: t1", "C: u0"]);
    }

    #[test]
    fn members_keep_owned_partitions_up_to_their_share() {
        let members = [
            member("A", &["t"], &[("t", 0), ("t", 1), ("t", 2)]),
            member("B", &["t"], &[("t", 3), ("t", 4), ("t", 5)]),
            member("C", &["t"], &[]),
        ];
        let assigned = assign(&members, &counts(&[("t", 6)]));
        assert_eq!(shown(&assigned), ["A: t0 t1", "B: t3 t4", "C: t2 t5"]);
        // One member has left: its partitions go to the remaining members, and no other partition
        // moves.
        let assigned = assign(&members[..2], &counts(&[("t", 8)]));
        assert_eq!(shown(&assigned), ["A: t0 t1 t2 t6", "B: t3 t4 t5 t7"]);
    }

    #[test]
    fn cooperative_members_revoke_before_a_partition_moves() {
        let members = [
            member("A", &["t"], &[("t", 0), ("t", 1), ("t", 2)]),
            member("B", &["t"], &[]),
        ];
        let partitions = BTreeMap::from([("t".to_owned(), vec![Default::default(); 3])]);
        let assigned = Assignor::CooperativeSticky.assign(&members, &partitions);
        assert_eq!(shown(&assigned), ["A: t0 t1", "B: "]);
        let members = [
            member("A", &["t"], &[("t", 0), ("t", 1)]),
            Subscriber {
                generation: 1,
                ..member("B", &["t"], &[])
            },
        ];
        let assigned = Assignor::CooperativeSticky.assign(&members, &partitions);
        assert_eq!(shown(&assigned), ["A: t0 t1", "B: t2"]);
    }

    #[test]
    fn partitions_claimed_by_an_old_generation_are_reassigned() {
        let mut members = [
            member("A", &["t"], &[("t", 0), ("t", 1)]),
            member("B", &["t"], &[("t", 0), ("t", 1)]),
        ];
        members[1].generation = 2;
        let assigned = assign(&members, &counts(&[("t", 2)]));
        assert_eq!(shown(&assigned), ["A: t1", "B: t0"]);
    }

    /// For any subscriptions and previous assignments: every partition is assigned once, to a
    /// subscriber, and no single move improves the balance.
    #[test]
    fn different_subscriptions_are_balanced() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand::rngs::StdRng::seed_from_u64(7);
        for _ in 0..300 {
            let topics = ["a", "b", "c", "d"];
            let counts: BTreeMap<String, usize> = topics
                .iter()
                .map(|topic| ((*topic).to_owned(), random.random_range(1..6)))
                .collect();
            let mut members: Vec<Subscriber> = (0..random.random_range(1..6))
                .map(|id| {
                    let wanted: Vec<&str> = topics
                        .into_iter()
                        .filter(|_| random.random_bool(0.6))
                        .collect();
                    member(&format!("m{id}"), &wanted, &[])
                })
                .collect();
            for _ in 0..3 {
                let assigned = assign(&members, &counts);
                let mut seen = BTreeSet::new();
                for (id, partitions) in &assigned {
                    let it = members.iter().find(|it| it.member_id == *id).unwrap();
                    for partition in partitions {
                        assert!(it.topics.contains(&partition.0));
                        assert!(seen.insert(partition.clone()), "given twice");
                    }
                }
                let wanted = |topic: &String| members.iter().any(|it| it.topics.contains(topic));
                let expected: usize = counts
                    .iter()
                    .filter(|(topic, _)| wanted(topic))
                    .map(|(_, count)| count)
                    .sum();
                assert_eq!(seen.len(), expected);
                let wants = |member: &str, topic: &str| {
                    let it = members.iter().find(|it| it.member_id == member).unwrap();
                    it.topics.iter().any(|it| it == topic)
                };
                assert_eq!(improving_move(&assigned, &wants), None);
                // With the same input, nothing moves. Then one member leaves.
                for member in &mut members {
                    member.owned = assigned[&member.member_id].clone();
                    member.generation = 1;
                }
                let again = assign(&members, &counts);
                assert_eq!(shown(&again), shown(&assigned));
                if members.len() > 1 {
                    members.pop();
                }
            }
        }
    }
}
