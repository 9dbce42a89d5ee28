//! The target assignment of a streams group, computed again when the group epoch is newer. Source:
//! `GroupMetadataManager.maybeUpdateStreamsTargetAssignment`, `computeDelayedTargetAssignment`,
//! `TargetAssignmentBuilder`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp};

use super::configured_topology::ConfiguredTopology;
use super::group::StreamsGroup;
use super::sticky_assignor::{MemberSpec, SubtopologySpec, assign};
use super::task_offsets::ReportedOffsets;
use super::tasks::TasksTuple;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::membership::is_target_due;
use crate::group::modern::GroupError;
use crate::group::recorded::Decision;

/// The settings that assignments depend on, with their names in records. Kafka's assignor does not
/// use the second one either.
pub(super) const NUM_STANDBY_REPLICAS: &str = "num.standby.replicas";
pub(super) const REQUIRED_TAGS: &str = "rack.aware.assignment.tags";

/// The target assignment of one member.
pub(super) struct Target {
    pub(super) epoch: i32,
    pub(super) tasks: Arc<TasksTuple>,
}

impl Target {
    pub(super) fn of(group: &StreamsGroup, member_id: &str) -> Self {
        Target {
            epoch: group.target.epoch,
            tasks: group.target.of(member_id).cloned().unwrap_or_default(),
        }
    }

    /// Nothing is assigned before the first assignment.
    pub(super) fn none_yet(group: &StreamsGroup) -> Self {
        Target {
            epoch: group.target.epoch,
            tasks: Arc::default(),
        }
    }
}

impl GroupCoordinator {
    /// Computes a new target if the current one is outdated. Returns whether that must wait for the
    /// minimum interval.
    pub(super) fn update_streams_target(
        &self,
        decision: &mut Decision<StreamsGroup>,
        configured: &ConfiguredTopology,
        offsets: &ReportedOffsets,
    ) -> Result<bool, GroupError> {
        let group = &decision.group;
        if group.target.epoch >= group.group_epoch {
            return Ok(false);
        }
        let interval_ms = self.streams_assignment_interval_ms(&group.group_id);
        if !is_target_due(group, interval_ms, decision.now) {
            return Ok(true);
        }
        let mut assigned = self.assign_tasks(group, configured, offsets)?;
        let changes = group.members().filter_map(|member| {
            let tasks = assigned.remove(&member.member_id).unwrap_or_default();
            let former = group.target.of(&member.member_id);
            former
                .is_none_or(|former| **former != tasks)
                .then(|| (member.member_id.clone(), Arc::new(tasks)))
        });
        decision.write_target(changes.collect());
        Ok(false)
    }

    /// No tasks are assigned while topics are missing.
    fn assign_tasks(
        &self,
        group: &StreamsGroup,
        configured: &ConfiguredTopology,
        offsets: &ReportedOffsets,
    ) -> Result<BTreeMap<ByteString, TasksTuple>, GroupError> {
        let Some(subtopologies) = configured.ready() else {
            return Ok(BTreeMap::new());
        };
        let members: Vec<MemberSpec<'_>> = group
            .members()
            .map(|member| MemberSpec {
                member_id: &member.member_id,
                process_id: &member.process_id,
                target: group.target.of(&member.member_id).map(Arc::as_ref),
                offsets: offsets.of(&member.member_id),
            })
            .collect();
        let subtopologies: Vec<SubtopologySpec<'_>> = subtopologies
            .iter()
            .map(|(id, subtopology)| SubtopologySpec {
                id,
                number_of_tasks: subtopology.number_of_tasks,
                is_stateful: subtopology.is_stateful(),
            })
            .collect();
        // The value that the group has applied. A log can contain anything.
        let num_standby_replicas = group
            .last_assignment_configs
            .get(NUM_STANDBY_REPLICAS)
            .and_then(|number| number.parse::<usize>().ok())
            .unwrap_or(0);
        assign(&members, &subtopologies, num_standby_replicas)
            .map_err(|_| ErrorCode::UnknownServerError.into())
    }

    /// The initial delay before the first assignment is over.
    pub(in crate::group) fn on_streams_initial_rebalance(
        &mut self,
        group_id: &ByteString,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some(unwritten) = self.unwritten.get_mut(group_id) else {
            return;
        };
        unwritten.delays_assignment = false;
        let configured = unwritten.configured.clone();
        let offsets = unwritten.task_offsets.clone();
        // If the group was only created so far, the next heartbeat configures the topology and
        // computes the assignment.
        let (Some(configured), Some(group)) = (configured, self.streams_group(group_id)) else {
            return;
        };
        if group.is_empty() {
            return;
        }
        let mut decision = Decision::about(group.clone(), now);
        if self
            .update_streams_target(&mut decision, &configured, &offsets)
            .is_ok()
        {
            self.conclude(decision, Deferred::Nothing, effects);
        }
    }
}
