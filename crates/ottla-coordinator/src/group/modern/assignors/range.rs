//! `range`: the partitions of each topic are assigned in ranges to its subscribers, so that the
//! same member gets partition 3 of all topics. No partition is sticky; static members come first
//! and keep their order. Source: `RangeAssignor`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::TopicId;

use crate::group::modern::assignor::GroupAssignment;
use crate::group::modern::{Assignment, Assignor, AssignorError, GroupSpec, MemberSpec};

#[derive(Debug)]
pub struct RangeAssignor;

/// A topic that is being assigned.
#[derive(Default)]
struct Topic {
    num_members: usize,
    num_partitions: usize,
    /// The number of members that have got their range.
    served: usize,
    next: usize,
}

impl Topic {
    /// The range of the next member. The first members get one partition more if the division has a
    /// remainder.
    fn take_range(&mut self) -> std::ops::Range<usize> {
        let has_extra = self.served < self.num_partitions % self.num_members;
        let start = self.next;
        self.next = start + self.num_partitions / self.num_members + usize::from(has_extra);
        self.served += 1;
        start..self.next
    }
}

impl Assignor for RangeAssignor {
    fn name(&self) -> &'static str {
        "range"
    }

    fn assign(&self, spec: &GroupSpec<'_>) -> Result<GroupAssignment, AssignorError> {
        let mut topics: BTreeMap<TopicId, Topic> = BTreeMap::new();
        for member in spec.members.values() {
            for topic_id in member.subscription.topic_ids(spec.image) {
                topics.entry(topic_id).or_default().num_members += 1;
            }
        }
        for (topic_id, topic) in &mut topics {
            topic.num_partitions = spec.num_partitions(*topic_id);
        }

        let mut target = GroupAssignment::new();
        for (member_id, member) in in_order(spec) {
            let mut assignment = Assignment::default();
            for topic_id in member.subscription.topic_ids(spec.image) {
                let range = topics.get_mut(&topic_id).map(Topic::take_range);
                for partition in range.into_iter().flatten() {
                    assignment.insert(topic_id, partition as i32);
                }
            }
            target.insert(member_id.clone(), Arc::new(assignment));
        }
        Ok(target)
    }
}

/// Static members by instance id, then the others by member id.
fn in_order<'a>(spec: &'a GroupSpec<'_>) -> Vec<(&'a ByteString, &'a MemberSpec<'a>)> {
    let mut members: Vec<_> = spec.members.iter().collect();
    members.sort_by_key(|(member_id, member)| {
        (
            member.instance_id.is_none(),
            member.instance_id.unwrap_or(member_id),
        )
    });
    members
}
