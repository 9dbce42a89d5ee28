//! Converts a group with members from one protocol to the other.
//!
//! A classic group is upgraded by the first heartbeat of the consumer protocol: its members become
//! members that use the classic protocol, and keep their partitions. A consumer group is downgraded
//! when the last member of the consumer protocol leaves, or when that static member rejoins with
//! the classic protocol. Source: `GroupMetadataManager.convertToConsumerGroup`,
//! `convertToClassicGroup`, `ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup`.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp};

use super::embedded_protocol::{
    Malformed, by_topic_id, read_assignment, read_subscription, version_of, write_assignment,
};
use super::group::ConsumerGroup;
use super::member::{ClassicMemberMetadata, ConsumerGroupMember, all_in_epoch};
use super::record;
use crate::group::CoordinatorRecord;
use crate::group::classic_group::{CONSUMER_PROTOCOL_TYPE, ClassicGroup, ClassicGroupState};
use crate::group::coordinator::{Context, Deferred, Effects, Group, GroupCoordinator};
use crate::group::member::ClassicGroupMember;
use crate::group::modern::{Assignment, GroupError, MemberState};
use crate::group::recorded::{Decision, GroupRecords, RecordedMember};

/// A consumer group that is being downgraded.
pub(super) struct Downgrade {
    /// The group, still with all members.
    pub(super) group: ConsumerGroup,
    pub(super) generation_id: i32,
    pub(super) leaving: Vec<ByteString>,
    /// Whether the remaining members need a new assignment.
    pub(super) rebalances: bool,
    /// Records that are written before the tombstones of the group.
    pub(super) records: Vec<CoordinatorRecord>,
}

impl Downgrade {
    /// Downgrades the group without the leaving members. The others get a new assignment.
    pub(super) fn without(group: &ConsumerGroup, leaving: &[Arc<ConsumerGroupMember>]) -> Self {
        Downgrade {
            group: group.clone(),
            generation_id: group.group_epoch,
            leaving: leaving.iter().map(|it| it.member_id.clone()).collect(),
            rebalances: true,
            records: Vec::new(),
        }
    }
}

impl GroupCoordinator {
    /// Replaces a classic group with a consumer group.
    pub(super) fn upgrade(
        &self,
        classic: &ClassicGroup,
        now: Timestamp,
    ) -> Result<Decision<ConsumerGroup>, GroupError> {
        let group_id = classic.group_id();
        let mut decision = Decision::about(ConsumerGroup::new(group_id.clone()), now);
        decision.write(CoordinatorRecord::group_tombstone(group_id));
        if classic.is_in(ClassicGroupState::Empty) {
            return Ok(decision);
        }
        let refused = |reason: &str| {
            GroupError::new(
                ErrorCode::GroupIdNotFound,
                format!(
                    "Cannot upgrade classic group {group_id} to consumer group because {reason}"
                ),
            )
        };
        if !self.config.group_consumer_migration_policy.allows_upgrade() {
            return Err(refused("online upgrade is disabled."));
        }
        if !classic.uses_consumer_protocol() {
            return Err(refused(
                "the group does not use the consumer embedded protocol.",
            ));
        }
        let max_size = usize::try_from(self.config.group_consumer_max_size).unwrap_or(0);
        if classic.num_members() > max_size {
            return Err(refused(
                "the group size exceeds the consumer group maximum size.",
            ));
        }
        let malformed = |_: Malformed| refused("the embedded consumer protocol is malformed.");
        let epoch = classic.generation_id();
        let mut members = Vec::with_capacity(classic.num_members());
        for member in classic.members() {
            let assignment = self
                .assignment_of_classic(&member.assignment)
                .map_err(|error| match error {
                    UpgradeError::Malformed => malformed(Malformed),
                    UpgradeError::CustomAssignor => refused(
                        "an unsupported custom assignor is in use. Please refer to the \
                         documentation or switch to a default assignor before re-attempting the \
                         upgrade.",
                    ),
                })?;
            let converted = member_of_classic(classic, member, epoch, &assignment);
            members.push((converted.map_err(malformed)?, assignment));
        }

        for (member, _) in &members {
            decision.write_member(member);
        }
        let mut hashes = crate::group::modern::TopicHashes::default();
        let topics = decision.group.subscribed_topics();
        let hash = hashes.group_hash(topics.names(), self.metadata.image());
        decision.write(decision.group.in_epoch(epoch, hash));
        for (member, assignment) in &members {
            let target = ConsumerGroup::target_assignment(group_id, &member.member_id, assignment);
            decision.write(target);
        }
        decision.write(ConsumerGroup::target_metadata(group_id, epoch, 0));
        for (member, _) in &members {
            decision.write_current_assignment(member);
        }
        Ok(decision)
    }

    fn assignment_of_classic(&self, bytes: &Bytes) -> Result<Assignment, UpgradeError> {
        // A member that has just joined has no assignment yet.
        if bytes.is_empty() {
            return Ok(Assignment::default());
        }
        let assignment = read_assignment(bytes).map_err(|_| UpgradeError::Malformed)?;
        if assignment.user_data.is_some_and(|data| !data.is_empty()) {
            return Err(UpgradeError::CustomAssignor);
        }
        let topics = assignment.assigned_partitions.iter();
        let topics = topics.map(|topic| (&*topic.topic, &*topic.partitions));
        let by_topic_id = by_topic_id(topics, self.metadata.image());
        Ok(by_topic_id
            .into_iter()
            .flat_map(|(topic_id, partitions)| {
                partitions.into_iter().map(move |index| (topic_id, index))
            })
            .collect())
    }

    pub(super) fn may_downgrade_without(
        &self,
        group: &ConsumerGroup,
        leaving: &[Arc<ConsumerGroupMember>],
    ) -> bool {
        let left = group.num_members().saturating_sub(leaving.len());
        left > 0 && group.all_use_classic_protocol_but(leaving) && self.may_be_classic(left)
    }

    /// Whether the group can be downgraded when `member` rejoins with the classic protocol.
    pub(super) fn may_downgrade_with(
        &self,
        group: &ConsumerGroup,
        member: &Arc<ConsumerGroupMember>,
    ) -> bool {
        !member.uses_classic_protocol()
            && group.all_use_classic_protocol_but(std::slice::from_ref(member))
            && self.may_be_classic(group.num_members())
    }

    fn may_be_classic(&self, num_members: usize) -> bool {
        let max_size = usize::try_from(self.config.group_max_size).unwrap_or(0);
        self.config
            .group_consumer_migration_policy
            .allows_downgrade()
            && num_members <= max_size
    }

    /// The classic group with the remaining members. Each has the partitions of its target
    /// assignment.
    pub(super) fn classic_group_of(
        &self,
        downgrade: &Downgrade,
        now: Timestamp,
    ) -> Result<ClassicGroup, Malformed> {
        let Downgrade { group, leaving, .. } = downgrade;
        let staying = || {
            group
                .members()
                .filter(|it| !leaving.contains(&it.member_id))
        };
        let mut members = Vec::new();
        for member in staying() {
            let classic = member.classic.as_ref().ok_or(Malformed)?;
            members.push(ClassicGroupMember {
                member_id: member.member_id.clone(),
                group_instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                session_timeout_ms: classic.session_timeout_ms,
                protocol_type: CONSUMER_PROTOCOL_TYPE.into(),
                supported_protocols: classic.supported_protocols.clone(),
                assignment: Bytes::new(),
                awaiting_join: None,
                awaiting_sync: None,
                is_new: false,
            });
        }
        let mut classic = ClassicGroup::stable(
            group.group_id.clone(),
            downgrade.generation_id,
            members,
            now.value(),
        )
        .ok_or(Malformed)?;
        let protocol_name = classic.protocol_name().cloned().ok_or(Malformed)?;
        let nothing = Arc::new(Assignment::default());
        for member in classic.members_mut() {
            let subscription = member.metadata(&protocol_name).ok_or(Malformed)?;
            let target = group.target.of(&member.member_id).unwrap_or(&nothing);
            member.assignment =
                write_assignment(target, version_of(subscription)?, self.metadata.image())?;
        }
        Ok(classic)
    }

    pub(super) fn conclude_downgrade(
        &mut self,
        downgrade: Downgrade,
        mut classic: ClassicGroup,
        deferred: Deferred,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Downgrade {
            group,
            rebalances,
            mut records,
            ..
        } = downgrade;
        let group_id = group.group_id.clone();
        records.extend(record::group_tombstones(&group));
        let in_order: Vec<Bytes> = classic.members().map(|it| it.assignment.clone()).collect();
        let mut in_order = in_order.into_iter();
        let record =
            CoordinatorRecord::group_metadata(&classic, |_| in_order.next().unwrap_or_default());
        records.push(record);
        for member in classic.members() {
            let timer = classic.session_timer(&member.member_id);
            effects.set_timer(timer, member.session_timeout_ms);
        }
        let write = effects.next_write();
        effects.write(records, deferred);
        let config = Arc::clone(&self.config);
        let cx = Context {
            config: &config,
            now_ms: now.value(),
        };
        if rebalances {
            classic.prepare_rebalance(cx, effects);
        }
        self.metadata.forget_group(&group_id);
        self.put_group(write, &group_id, Some(Group::Classic(classic)));
    }
}

enum UpgradeError {
    Malformed,
    CustomAssignor,
}

/// Converts a member of a classic group to one of a consumer group. Its epoch is assumed to be the
/// group's; if it is not, the member receives an error and rejoins, which corrects the epoch.
fn member_of_classic(
    classic: &ClassicGroup,
    member: &ClassicGroupMember,
    epoch: i32,
    assignment: &Assignment,
) -> Result<ConsumerGroupMember, Malformed> {
    let protocol_name = classic.protocol_name().or_else(|| {
        // Before the first generation no protocol is selected.
        member.supported_protocols.first().map(|it| &it.name)
    });
    let subscription = protocol_name
        .and_then(|name| member.metadata(name))
        .ok_or(Malformed)?;
    let subscription = read_subscription(subscription)?;
    Ok(ConsumerGroupMember {
        member_epoch: epoch,
        previous_member_epoch: epoch,
        instance_id: member.group_instance_id.clone(),
        rack_id: subscription.rack_id.filter(|rack| !rack.is_empty()),
        rebalance_timeout_ms: member.rebalance_timeout_ms,
        client_id: member.client_id.clone(),
        client_host: member.client_host.clone(),
        subscribed_topic_names: subscription.topics.into_iter().collect(),
        state: MemberState::Stable,
        assigned: all_in_epoch(assignment, epoch),
        classic: Some(ClassicMemberMetadata {
            session_timeout_ms: member.session_timeout_ms,
            supported_protocols: member.supported_protocols.clone(),
        }),
        ..ConsumerGroupMember::new(member.member_id.clone())
    })
}
