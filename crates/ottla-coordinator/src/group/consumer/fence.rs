//! Removal of members: they leave, time out, or are removed by an administrator.
//! Source: `GroupMetadataManager.consumerGroupLeave`, `consumerGroupFenceMembers`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use ottla_types::Timestamp;

use super::conversion::Downgrade;
use super::group::ConsumerGroup;
use super::member::{ConsumerGroupMember, LEAVE_GROUP_STATIC_EPOCH, PartitionsWithEpochs};
use super::record;
use crate::group::coordinator::{Deferred, Effects, GroupCoordinator};
use crate::group::membership::existing_member;
use crate::group::modern::GroupError;
use crate::group::outcome::{ReplyTo, TimerKey};
use crate::group::recorded::Decision;

impl GroupCoordinator {
    pub(super) fn leave(
        &mut self,
        to: ReplyTo<ConsumerGroupHeartbeatResponse>,
        request: &ConsumerGroupHeartbeatRequest,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), GroupError> {
        let group_id = &request.group_id;
        let group = self.existing_group::<ConsumerGroup>(group_id)?.clone();
        let instance_id = request.instance_id.as_ref();
        let member = Arc::clone(existing_member(&group, &request.member_id, instance_id)?);
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(member.member_id.clone()),
            member_epoch: request.member_epoch,
            ..Default::default()
        };
        let reply = Deferred::Reply(to.with(response));
        let comes_back =
            request.instance_id.is_some() && request.member_epoch == LEAVE_GROUP_STATIC_EPOCH;
        if comes_back {
            let mut decision = Decision::about(group, now);
            decision.write_current_assignment(&away(&member));
            self.conclude(decision, reply, effects);
        } else {
            self.fence(group, &[member], reply, now, effects);
        }
        Ok(())
    }

    /// Removes members. If all remaining ones use the classic protocol, the group is converted to a
    /// classic group.
    pub(in crate::group) fn fence(
        &mut self,
        group: ConsumerGroup,
        members: &[Arc<ConsumerGroupMember>],
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        if members.is_empty() {
            self.defer_until_committed(deferred, now, effects);
            return;
        }
        if self.may_downgrade_without(&group, members) {
            let downgrade = Downgrade::without(&group, members);
            // If the metadata of a remaining member cannot be parsed, the group stays a consumer
            // group.
            if let Ok(classic) = self.classic_group_of(&downgrade, now) {
                self.conclude_downgrade(downgrade, classic, deferred, now, effects);
                return;
            }
        }
        let mut decision = Decision::about(group, now);
        for member in members {
            decision.remove_member(&member.member_id);
        }
        for regex in regexes_left_by(members) {
            if decision.group.subscribed_regexes().get(&regex) == 0 {
                let group_id = decision.group_id();
                decision.write(record::regex_tombstone(&group_id, &regex));
            }
        }
        let group_id = decision.group_id();
        let hash = self
            .metadata
            .look(&group_id, decision.group.subscribed_topics());
        decision.bump_group_epoch(hash);
        for member in members {
            cancel_timers(&group_id, member, effects);
        }
        self.conclude(decision, deferred, effects);
    }
}

/// A static member that left temporarily. Its partitions are kept for the member id with which it
/// returns.
fn away(member: &ConsumerGroupMember) -> ConsumerGroupMember {
    let from_the_beginning =
        |epochs: &BTreeMap<i32, i32>| epochs.keys().map(|partition| (*partition, 0)).collect();
    ConsumerGroupMember {
        member_epoch: LEAVE_GROUP_STATIC_EPOCH,
        pending_revocation: PartitionsWithEpochs::new(),
        assigned: member
            .assigned
            .iter()
            .map(|(topic_id, epochs)| (*topic_id, from_the_beginning(epochs)))
            .collect(),
        ..member.clone()
    }
}

fn regexes_left_by(members: &[Arc<ConsumerGroupMember>]) -> Vec<ByteString> {
    let mut regexes: Vec<ByteString> = members
        .iter()
        .filter_map(|member| member.regex().cloned())
        .collect();
    regexes.sort_unstable();
    regexes.dedup();
    regexes
}

fn cancel_timers(group_id: &ByteString, member: &ConsumerGroupMember, effects: &mut Effects) {
    let member_id = &member.member_id;
    effects.cancel_timer(TimerKey::session(group_id, member_id));
    effects.cancel_timer(TimerKey::revocation(
        group_id,
        member_id,
        member.member_epoch,
    ));
    effects.cancel_timer(TimerKey::rejoin(group_id, member_id));
    effects.cancel_timer(TimerKey::member_sync(group_id, member_id));
}
