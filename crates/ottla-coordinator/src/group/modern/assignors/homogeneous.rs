//! `uniform` for members with the same subscriptions: one pass removes surplus partitions, and a
//! second one assigns the free ones. Source: `UniformHomogeneousAssignmentBuilder`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::TopicId;

use crate::group::modern::assignor::GroupAssignment;
use crate::group::modern::{Assignment, GroupSpec};

/// A member, with the number of partitions that it still gets.
struct UnfilledMember<'a> {
    member_id: &'a ByteString,
    quota: usize,
}

pub(super) fn assign(spec: &GroupSpec<'_>) -> GroupAssignment {
    let Some(first) = spec.members.values().next() else {
        return GroupAssignment::new();
    };
    let topics: BTreeSet<TopicId> = first.subscription.topic_ids(spec.image).collect();
    let num_partitions: usize = topics.iter().map(|topic| spec.num_partitions(*topic)).sum();
    let num_members = spec.members.len();
    let minimum_quota = num_partitions / num_members;
    // The number of members that still get one partition more than the minimum.
    let mut extra_partitions = num_partitions % num_members;

    let mut assigned = AssignedPartitions::new(spec, &topics);
    let mut kept: Vec<(&ByteString, Arc<Assignment>)> = Vec::with_capacity(num_members);
    let mut unfilled = Vec::new();
    for (index, (member_id, member)) in spec.members.iter().enumerate() {
        let may_take_extra = extra_partitions > 0;
        let mut quota = minimum_quota + usize::from(may_take_extra);
        let mut keeps_all = true;
        let mut keep = |topic_id: TopicId, partition: i32| {
            let keeps = quota > 0 && assigned.claim(topic_id, partition);
            quota -= usize::from(keeps);
            keeps_all &= keeps;
            keeps
        };
        let filtered = member.assignment.filtered(&mut keep);
        let assignment = if keeps_all {
            Arc::clone(&member.assignment)
        } else {
            Arc::new(filtered)
        };
        // A member without the extra partition leaves it to one that has it already, unless the
        // remaining members are only as many as the remaining extra partitions.
        let gives_up_extra = may_take_extra && quota > 0 && num_members - index > extra_partitions;
        quota -= usize::from(gives_up_extra);
        extra_partitions -= usize::from(may_take_extra && !gives_up_extra);
        if quota > 0 {
            unfilled.push(UnfilledMember { member_id, quota });
        }
        kept.push((member_id, assignment));
    }

    let mut target: GroupAssignment = kept
        .into_iter()
        .map(|(member_id, assignment)| (member_id.clone(), assignment))
        .collect();
    let mut free = assigned.free();
    for UnfilledMember { member_id, quota } in unfilled {
        let Some(assignment) = target.get_mut(member_id) else {
            continue;
        };
        let assignment = Arc::make_mut(assignment);
        for (topic_id, partition) in free.by_ref().take(quota) {
            assignment.insert(topic_id, partition);
        }
    }
    target
}

/// The partitions of the subscribed topics that are assigned.
struct AssignedPartitions {
    by_topic: BTreeMap<TopicId, Vec<bool>>,
}

impl AssignedPartitions {
    fn new(spec: &GroupSpec<'_>, topics: &BTreeSet<TopicId>) -> Self {
        let by_topic = topics
            .iter()
            .map(|topic_id| (*topic_id, vec![false; spec.num_partitions(*topic_id)]));
        AssignedPartitions {
            by_topic: by_topic.collect(),
        }
    }

    /// `false` if no member is subscribed to the topic, or the partition is assigned already.
    fn claim(&mut self, topic_id: TopicId, partition: i32) -> bool {
        let slot = self
            .by_topic
            .get_mut(&topic_id)
            .zip(usize::try_from(partition).ok())
            .and_then(|(slots, index)| slots.get_mut(index));
        slot.is_some_and(|is_assigned| !std::mem::replace(is_assigned, true))
    }

    fn free(self) -> impl Iterator<Item = (TopicId, i32)> {
        self.by_topic.into_iter().flat_map(|(topic_id, slots)| {
            slots
                .into_iter()
                .zip(0..)
                .filter(|(is_assigned, _)| !is_assigned)
                .map(move |(_, partition)| (topic_id, partition))
        })
    }
}
