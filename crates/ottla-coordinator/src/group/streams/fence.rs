//! Members go: because they say so, or because nobody has heard of them.
//! Source: `GroupMetadataManager.streamsGroupLeave`, `streamsGroupFenceMember`.

use std::sync::Arc;

use ottla_protocol::messages::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};
use ottla_types::Timestamp;

use super::decision::Decision;
use super::group::StreamsGroup;
use super::heartbeat::unknown_member;
use super::member::StreamsGroupMember;
use super::{record, timers};
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::modern::GroupError;
use crate::group::outcome::{ReplyTo, StreamsHeartbeat};

impl GroupCoordinator {
    pub(super) fn streams_leave(
        &mut self,
        to: ReplyTo<StreamsHeartbeat>,
        request: &StreamsGroupHeartbeatRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let group_id = &request.group_id;
        let group = self.streams_group(group_id).cloned();
        let group = group.ok_or_else(|| self.not_a_group(group_id, "streams"))?;
        if request.shutdown_application {
            // Kafka takes anybody's word for it, also of who is no member.
            self.unwritten
                .of(&group.group_id)
                .shutdown_requested_by
                .get_or_insert_with(|| crate::group::member::owned(&request.member_id));
        }
        let member = group
            .member(&request.member_id)
            .cloned()
            .ok_or_else(|| unknown_member(&request.member_id, group_id))?;
        let response = StreamsGroupHeartbeatResponse {
            member_id: member.member_id.clone(),
            member_epoch: request.member_epoch,
            status: Some(Vec::new()),
            ..Default::default()
        };
        let heartbeat = StreamsHeartbeat {
            response: Box::new(response),
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(heartbeat));
        self.fence_streams_member(group, &member, reply, now, effects);
        Ok(())
    }

    /// Puts a member out.
    pub(super) fn fence_streams_member(
        &mut self,
        group: StreamsGroup,
        member: &Arc<StreamsGroupMember>,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let mut decision = Decision::about(group);
        decision.remove_member(&member.member_id);
        let group_id = decision.group_id();
        let StreamsGroup {
            group_epoch,
            metadata_hash,
            validated_topology_epoch,
            ref last_assignment_configs,
            ..
        } = decision.group;
        let next_epoch = record::group_metadata(
            &group_id,
            group_epoch.saturating_add(1),
            metadata_hash,
            validated_topology_epoch,
            last_assignment_configs,
        );
        decision.write(next_epoch);
        timers::cancel_all(&group_id, member, effects);
        if decision.group.is_empty()
            && let Some(unwritten) = self.unwritten.get_mut(&group_id)
        {
            unwritten.shutdown_requested_by = None;
        }
        self.conclude_streams(decision, deferred, now, effects);
    }
}
