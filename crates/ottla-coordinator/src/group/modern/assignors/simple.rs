//! The assignor of share groups, in which several members can read a partition.
//!
//! Every partition gets the same number of members, the smallest number with which no member is
//! idle, and the members have equal numbers of partitions, plus or minus one. Within these limits,
//! members keep their partitions. If the members have different subscriptions, each topic is
//! assigned separately. Source: `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`,
//! `SimpleHeterogeneousAssignmentBuilder`. Where Kafka uses the order of a hash table, this uses
//! the order of the ids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::TopicId;

use crate::group::modern::assignor::GroupAssignment;
use crate::group::modern::{
    Assignment, Assignor, AssignorError, GroupSpec, MemberSpec, SubscriptionType,
};

pub struct SimpleAssignor;

type TopicPartition = (TopicId, i32);

impl Assignor for SimpleAssignor {
    fn name(&self) -> &'static str {
        "simple"
    }

    fn assign(&self, spec: &GroupSpec<'_>) -> Result<GroupAssignment, AssignorError> {
        let mut shared: BTreeMap<ByteString, Assignment> = BTreeMap::new();
        let mut share_topics = |topics: &[TopicId], members: &[(&ByteString, &MemberSpec<'_>)]| {
            let partitions = topics
                .iter()
                .flat_map(|topic_id| partitions_of(spec, *topic_id));
            let partitions: BTreeSet<TopicPartition> = partitions.collect();
            let held = members.iter().map(|(_, member)| {
                let held = member.assignment.iter();
                held.filter(|partition| partitions.contains(partition))
                    .collect()
            });
            let result = share(&partitions, held.collect());
            for ((member_id, _), partitions) in members.iter().zip(result) {
                let assignment = shared.entry(ByteString::clone(member_id)).or_default();
                for (topic_id, partition) in partitions {
                    assignment.insert(topic_id, partition);
                }
            }
        };
        let members: Vec<(&ByteString, &MemberSpec<'_>)> = spec.members.iter().collect();
        let topics_of = |member: &MemberSpec<'_>| -> BTreeSet<TopicId> {
            member.subscription.topic_ids(spec.image).collect()
        };
        match spec.subscription_type {
            SubscriptionType::Homogeneous => {
                let topics = members.first().map(|(_, member)| topics_of(member));
                let topics: Vec<TopicId> = topics.into_iter().flatten().collect();
                share_topics(&topics, &members);
            }
            SubscriptionType::Heterogeneous => {
                let mut by_topic: BTreeMap<TopicId, Vec<_>> = BTreeMap::new();
                for (member_id, member) in &members {
                    for topic_id in topics_of(member) {
                        by_topic
                            .entry(topic_id)
                            .or_default()
                            .push((*member_id, *member));
                    }
                }
                for (topic_id, subscribed) in &by_topic {
                    share_topics(&[*topic_id], subscribed);
                }
            }
        }
        let assignments = shared.into_iter();
        Ok(assignments
            .map(|(member_id, assignment)| (member_id, Arc::new(assignment)))
            .collect())
    }
}

fn partitions_of(spec: &GroupSpec<'_>, topic_id: TopicId) -> impl Iterator<Item = TopicPartition> {
    let partitions = 0..spec.num_partitions(topic_id) as i32;
    let assignable = partitions.filter(move |index| spec.is_assignable(topic_id, *index));
    assignable.map(move |index| (topic_id, index))
}

/// The new assignment of each member, given its current partitions.
fn share(
    partitions: &BTreeSet<TopicPartition>,
    mut held: Vec<BTreeSet<TopicPartition>>,
) -> Vec<BTreeSet<TopicPartition>> {
    let members = held.len();
    if partitions.is_empty() || members == 0 {
        return vec![BTreeSet::new(); members];
    }
    let sharing = members.div_ceil(partitions.len());
    let wanted = wanted_by_member(sharing * partitions.len(), members);
    let mut holders: BTreeMap<TopicPartition, BTreeSet<usize>> = partitions
        .iter()
        .map(|partition| (*partition, BTreeSet::new()))
        .collect();
    for (member, held) in held.iter_mut().enumerate() {
        while held.len() > wanted[member] {
            held.pop_first();
        }
        for partition in held.iter() {
            holders.entry(*partition).or_default().insert(member);
        }
    }
    for (partition, holders) in &mut holders {
        while holders.len() > sharing {
            if let Some(member) = holders.pop_first() {
                held[member].remove(partition);
            }
        }
    }
    let is_unfilled =
        |held: &[BTreeSet<TopicPartition>], member: usize| held[member].len() < wanted[member];
    let mut unfilled: Vec<usize> = (0..members).filter(|it| is_unfilled(&held, *it)).collect();
    let mut next = 0;
    for (partition, holders) in &mut holders {
        // Members that have the partition already are skipped, each once; a slight imbalance can
        // remain.
        let mut passed_over = 0;
        while holders.len() < sharing && passed_over < unfilled.len() {
            next %= unfilled.len();
            let member = unfilled[next];
            if !holders.insert(member) {
                passed_over += 1;
                next += 1;
                continue;
            }
            passed_over = 0;
            held[member].insert(*partition);
            if is_unfilled(&held, member) {
                next += 1;
            } else {
                // The next member takes its index.
                unfilled.remove(next);
            }
        }
    }
    held
}

/// The number of partitions that each member should have.
fn wanted_by_member(assignments: usize, members: usize) -> Vec<usize> {
    let up_to = |member: usize| (assignments * member).div_ceil(members);
    (0..members)
        .map(|member| up_to(member + 1) - up_to(member))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ottla_types::Uuid;

    use super::{TopicPartition, share};

    const TOPIC: Uuid = Uuid::from_u128(5);

    fn partitions(count: i32) -> BTreeSet<TopicPartition> {
        (0..count).map(|index| (TOPIC, index)).collect()
    }

    fn shared(count: i32, held: &[&[i32]]) -> Vec<Vec<i32>> {
        let held = held
            .iter()
            .map(|held| held.iter().map(|index| (TOPIC, *index)).collect());
        let result = share(&partitions(count), held.collect());
        let indexes = |held: &BTreeSet<TopicPartition>| held.iter().map(|it| it.1).collect();
        result.iter().map(indexes).collect()
    }

    #[test]
    fn partitions_are_shared_out_evenly() {
        assert_eq!(shared(4, &[&[], &[]]), [[0, 2], [1, 3]]);
        assert_eq!(shared(1, &[&[], &[], &[]]), [[0], [0], [0]]);
        assert_eq!(shared(2, &[&[], &[], &[]]), [vec![0, 1], vec![0], vec![1]]);
        assert_eq!(shared(0, &[&[]]), [[0; 0]]);
    }

    #[test]
    fn members_keep_what_they_have() {
        assert_eq!(shared(4, &[&[1, 3], &[]]), [[1, 3], [0, 2]]);
        // A new member takes its share, and nothing else moves.
        assert_eq!(
            shared(4, &[&[0, 1], &[2, 3], &[]]),
            [vec![0, 1], vec![3], vec![2]]
        );
    }

    #[test]
    fn every_member_and_every_partition_is_assigned() {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        for _ in 0..3000 {
            let (members, count) = (1 + below(9) as usize, 1 + below(9) as i32);
            let all = partitions(count);
            let held = (0..members)
                .map(|_| all.iter().copied().filter(|_| below(3) == 0).collect())
                .collect();
            let result = share(&all, held);
            let sharing = members.div_ceil(all.len());
            let sizes: Vec<usize> = result.iter().map(BTreeSet::len).collect();
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            assert!(least >= Some(&1) || members > all.len(), "{result:?}");
            assert!(
                most <= Some(&(sharing * all.len()).div_ceil(members)),
                "{result:?}"
            );
            for partition in &all {
                let holders = result
                    .iter()
                    .filter(|held| held.contains(partition))
                    .count();
                assert!(
                    (1..=sharing).contains(&holders),
                    "{partition:?} of {result:?}"
                );
            }
            assert_eq!(
                share(&all, result.clone()),
                result,
                "a second time changes nothing"
            );
        }
    }
}
