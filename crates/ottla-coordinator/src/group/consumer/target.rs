//! The target assignment of a consumer group, computed again when the group epoch is newer.
//!
//! A small one is computed at once, so that a member gets its partitions with its first heartbeat. A
//! large one would hold up all groups of the coordinator. The shell computes it from a snapshot of the
//! group, and the result comes back as an event. Meanwhile members keep their target, as between
//! two assignments, and there is one computation for each group at a time.
//!
//! The result becomes the target of the epoch of the snapshot, even if the group epoch is newer by
//! then, because a group that changes all the time would otherwise get no target. The next heartbeat
//! orders the target of the newer epoch. A result is dropped if the state of its snapshot was not
//! written, or if the group was deleted or replaced. Source:
//! `GroupMetadataManager.maybeUpdateTargetAssignment`; for large ones KIP-1263, which Kafka 4.3 does
//! not have.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp};

use super::group::ConsumerGroup;
use super::target_computation::{Changes, ComputeTarget, ComputedTarget, TargetOrder};
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::membership::is_target_due;
use crate::group::modern::GroupError;
use crate::group::outcome::{Command, Outcome};
use crate::group::recorded::Decision;

impl GroupCoordinator {
    /// Computes a new target assignment if the group epoch is newer than the current one and the
    /// minimum interval is over. Returns a large one, which is to be ordered with
    /// [`Self::order_target`] when the decision is final. Does nothing while one is being computed.
    pub(super) fn update_target(
        &self,
        decision: &mut Decision<ConsumerGroup>,
    ) -> Result<Option<ComputeTarget>, GroupError> {
        let group = &decision.group;
        let interval_ms = self.consumer_assignment_interval_ms(&group.group_id);
        if !is_target_due(group, interval_ms, decision.now)
            || self.computing.contains_key(&group.group_id)
        {
            return Ok(None);
        }
        let target = ComputeTarget {
            number: self.next_target,
            snapshot: group.clone(),
            image: Arc::clone(self.metadata.image()),
            assignor: self.config.assignor(group.preferred_server_assignor()),
        };
        if self.consumer_assignor_offload(&group.group_id) && self.is_large(group) {
            return Ok(Some(target));
        }
        let changes = target.changes();
        decision.write_target(changes.map_err(|_| ErrorCode::UnknownServerError)?);
        Ok(None)
    }

    fn is_large(&self, group: &ConsumerGroup) -> bool {
        let topics = &self.metadata.image().topics;
        let subscribed = group.subscribed_topics().names();
        let partitions: usize = subscribed
            .filter_map(|name| topics.by_name(name))
            .map(|topic| topic.partition_count())
            .sum();
        group.num_members() + partitions > self.config.group_consumer_inline_assignment_max
    }

    /// Lets the shell compute a target assignment.
    pub(super) fn order_target(&mut self, target: Option<ComputeTarget>, effects: &mut Effects) {
        let Some(target) = target else {
            return;
        };
        let TargetOrder { group_id, number } = target.order();
        self.computing.insert(group_id, number);
        self.next_target += 1;
        effects.command(Command::ComputeTarget(Box::new(target)));
    }

    /// Handles the result of a [`ComputeTarget`].
    pub fn on_target_computed(&mut self, computed: &ComputedTarget, now: Timestamp) -> Outcome {
        let mut effects = self.effects();
        let ComputedTarget {
            order,
            snapshot,
            changes,
        } = computed;
        if !self.end_order(order) {
            return self.finish(effects);
        }
        // If the assignor has failed, the next heartbeat tries again.
        let group = self.consumer_group(&order.group_id).cloned();
        if let (Some(group), Ok(changes)) = (group, changes)
            && group.target.epoch < snapshot.group_epoch
        {
            let mut decision = Decision::about(group, now);
            let changes = changes.iter().filter_map(|(member_id, assignment)| {
                let member_id = successor(snapshot, &decision.group, member_id)?;
                Some((member_id.clone(), Arc::clone(assignment)))
            });
            let changes: Changes = changes.collect();
            decision.write_target_of(snapshot.group_epoch, changes);
            self.conclude(decision, Deferred::Nothing, &mut effects);
        }
        self.finish(effects)
    }

    /// The shell could not compute a target assignment. The next heartbeat orders another.
    pub fn on_target_not_computed(&mut self, order: &TargetOrder) -> Outcome {
        self.end_order(order);
        Outcome::default()
    }

    /// Whether the result of an order will be used. Not if the state of its snapshot was not written,
    /// or if the group was deleted or replaced.
    pub fn is_target_wanted(&self, order: &TargetOrder) -> bool {
        self.computing.get(&order.group_id) == Some(&order.number)
    }

    /// The shell has finished an order. Returns whether its result is still wanted.
    fn end_order(&mut self, order: &TargetOrder) -> bool {
        let is_wanted = self.is_target_wanted(order);
        if is_wanted {
            self.computing.remove(&order.group_id);
        }
        is_wanted
    }
}

/// The member that takes the place of a member of the snapshot: itself, the static member that has
/// replaced it, or none. A replacement that was in the snapshot itself keeps its own place.
fn successor<'a>(
    snapshot: &'a ConsumerGroup,
    group: &'a ConsumerGroup,
    member_id: &'a ByteString,
) -> Option<&'a ByteString> {
    if group.has_member(member_id) {
        return Some(member_id);
    }
    let instance_id = snapshot.member(member_id)?.instance_id.as_ref()?;
    group
        .static_member_id(instance_id)
        .filter(|it| !snapshot.has_member(it))
}
