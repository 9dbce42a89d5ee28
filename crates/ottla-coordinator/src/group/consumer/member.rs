//! A member of a consumer group. Immutable: a change creates a new value.
//!
//! Source: `ConsumerGroupMember`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::coordinator_records::consumer_group_current_member_assignment_value::TopicPartitions;
use ottla_protocol::coordinator_records::{
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupMemberMetadataValue,
};
use ottla_types::TopicId;

use crate::group::member::{Protocol, owned};
use crate::group::modern::{Assignment, MemberState, ModernMember, Subscription};
use crate::group::recorded::RecordedMember;

use super::topic_regex::ResolvedRegex;

/// The member epoch with which a member leaves.
pub(super) const LEAVE_GROUP_EPOCH: i32 = -1;
/// The member epoch with which a static member leaves temporarily.
pub(super) const LEAVE_GROUP_STATIC_EPOCH: i32 = -2;

/// Partitions by topic, each with the member epoch in which it was assigned.
pub(super) type PartitionsWithEpochs = BTreeMap<TopicId, BTreeMap<i32, i32>>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::group) struct ConsumerGroupMember {
    pub(super) member_id: ByteString,
    pub(super) member_epoch: i32,
    /// The epoch before `member_epoch`. A member that missed a response still has it.
    pub(super) previous_member_epoch: i32,
    pub(super) instance_id: Option<ByteString>,
    pub(super) rack_id: Option<ByteString>,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) client_id: ByteString,
    pub(super) client_host: ByteString,
    pub(super) subscribed_topic_names: BTreeSet<ByteString>,
    /// Empty or `None` without an expression. The record distinguishes the two.
    pub(super) subscribed_topic_regex: Option<ByteString>,
    pub(super) server_assignor: Option<ByteString>,
    pub(super) state: MemberState,
    /// The partitions that the member owns, including those assigned by the last response.
    pub(super) assigned: PartitionsWithEpochs,
    /// The partitions that the member must revoke.
    pub(super) pending_revocation: PartitionsWithEpochs,
    /// Set for a member that uses the classic protocol.
    pub(super) classic: Option<ClassicMemberMetadata>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClassicMemberMetadata {
    pub(super) session_timeout_ms: i32,
    /// In the member's order of preference.
    pub(super) supported_protocols: Vec<Protocol>,
}

impl ConsumerGroupMember {
    /// The protocols with which the member joined, if it uses the classic protocol.
    pub(in crate::group) fn classic_protocols(&self) -> Option<&[Protocol]> {
        let classic = self.classic.as_ref()?;
        Some(&classic.supported_protocols)
    }
}

impl ModernMember for ConsumerGroupMember {
    type Assignment = Assignment;

    fn member_id(&self) -> &ByteString {
        &self.member_id
    }

    fn instance_id(&self) -> Option<&ByteString> {
        self.instance_id.as_ref()
    }

    fn subscribed_topic_names(&self) -> &BTreeSet<ByteString> {
        &self.subscribed_topic_names
    }
}

impl RecordedMember for ConsumerGroupMember {
    fn new(member_id: ByteString) -> Self {
        ConsumerGroupMember {
            member_id,
            member_epoch: 0,
            previous_member_epoch: -1,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: -1,
            client_id: ByteString::new(),
            client_host: ByteString::new(),
            subscribed_topic_names: BTreeSet::new(),
            subscribed_topic_regex: Some(ByteString::new()),
            server_assignor: None,
            state: MemberState::Stable,
            assigned: PartitionsWithEpochs::new(),
            pending_revocation: PartitionsWithEpochs::new(),
            classic: None,
        }
    }

    fn without_current_assignment(&self) -> Self {
        ConsumerGroupMember {
            member_epoch: LEAVE_GROUP_EPOCH,
            previous_member_epoch: LEAVE_GROUP_EPOCH,
            assigned: PartitionsWithEpochs::new(),
            pending_revocation: PartitionsWithEpochs::new(),
            ..self.clone()
        }
    }

    fn revocation(&self) -> Option<(i32, i32)> {
        (self.state == MemberState::UnrevokedPartitions)
            .then_some((self.member_epoch, self.rebalance_timeout_ms))
    }
}

impl ConsumerGroupMember {
    pub(super) fn uses_classic_protocol(&self) -> bool {
        self.classic.is_some()
    }

    pub(super) fn is_reconciled_to(&self, target_epoch: i32) -> bool {
        self.state == MemberState::Stable && self.member_epoch == target_epoch
    }

    /// The member's regular expression, if it has one.
    pub(super) fn regex(&self) -> Option<&ByteString> {
        self.subscribed_topic_regex
            .as_ref()
            .filter(|regex| !regex.is_empty())
    }

    /// The member's subscription. An unresolved expression matches nothing.
    pub(super) fn subscription<'a>(
        &'a self,
        resolved: Option<&'a ResolvedRegex>,
    ) -> Subscription<'a> {
        Subscription {
            names: &self.subscribed_topic_names,
            matches: resolved.map(|resolved| &resolved.topics),
        }
    }

    /// The epoch in which a partition was assigned that the member owns or revokes.
    pub(super) fn assignment_epoch(&self, topic_id: TopicId, partition: i32) -> Option<i32> {
        let epoch_in =
            |partitions: &PartitionsWithEpochs| partitions.get(&topic_id)?.get(&partition).copied();
        epoch_in(&self.assigned).or_else(|| epoch_in(&self.pending_revocation))
    }

    /// All partitions that no other member may own.
    pub(super) fn held(&self) -> impl Iterator<Item = (TopicId, i32)> {
        partitions(&self.assigned).chain(partitions(&self.pending_revocation))
    }

    pub(super) fn with_metadata(&self, value: &ConsumerGroupMemberMetadataValue) -> Self {
        let classic = value.classic_member_metadata.as_ref();
        ConsumerGroupMember {
            instance_id: value.instance_id.as_ref().map(owned),
            rack_id: value.rack_id.as_ref().map(owned),
            client_id: owned(&value.client_id),
            client_host: owned(&value.client_host),
            subscribed_topic_names: value.subscribed_topic_names.iter().map(owned).collect(),
            subscribed_topic_regex: value.subscribed_topic_regex.as_ref().map(owned),
            rebalance_timeout_ms: value.rebalance_timeout_ms,
            server_assignor: value.server_assignor.as_ref().map(owned),
            classic: classic.map(|classic| ClassicMemberMetadata {
                session_timeout_ms: classic.session_timeout_ms,
                supported_protocols: classic
                    .supported_protocols
                    .iter()
                    .map(|protocol| Protocol {
                        name: owned(&protocol.name),
                        metadata: Bytes::copy_from_slice(&protocol.metadata),
                    })
                    .collect(),
            }),
            ..self.clone()
        }
    }

    pub(super) fn with_current_assignment(
        &self,
        value: &ConsumerGroupCurrentMemberAssignmentValue,
    ) -> Self {
        ConsumerGroupMember {
            member_epoch: value.member_epoch,
            previous_member_epoch: value.previous_member_epoch,
            state: MemberState::from_code(value.state),
            assigned: from_record(&value.assigned_partitions, value.member_epoch),
            pending_revocation: from_record(
                &value.partitions_pending_revocation,
                value.member_epoch,
            ),
            ..self.clone()
        }
    }
}

pub(super) fn partitions(
    partitions: &PartitionsWithEpochs,
) -> impl Iterator<Item = (TopicId, i32)> {
    partitions
        .iter()
        .flat_map(|(topic_id, epochs)| epochs.keys().map(move |partition| (*topic_id, *partition)))
}

/// Every partition of `assignment`, assigned in `epoch`.
pub(super) fn all_in_epoch(assignment: &Assignment, epoch: i32) -> PartitionsWithEpochs {
    assignment
        .topics()
        .map(|(topic_id, partitions)| {
            let epochs = partitions.iter().map(|partition| (*partition, epoch));
            (topic_id, epochs.collect())
        })
        .collect()
}

/// Older records have no epoch per partition; the member's epoch is used then.
fn from_record(topics: &[TopicPartitions], member_epoch: i32) -> PartitionsWithEpochs {
    let mut partitions = PartitionsWithEpochs::new();
    for topic in topics {
        let epochs = topic
            .assignment_epochs
            .as_ref()
            .filter(|epochs| epochs.len() == topic.partitions.len());
        let with_epochs: BTreeMap<i32, i32> = match epochs {
            Some(epochs) => topic
                .partitions
                .iter()
                .copied()
                .zip(epochs.iter().copied())
                .collect(),
            None => topic
                .partitions
                .iter()
                .map(|partition| (*partition, member_epoch.max(0)))
                .collect(),
        };
        if !with_epochs.is_empty() {
            partitions.insert(topic.topic_id, with_epochs);
        }
    }
    partitions
}

pub(super) fn to_record(partitions: &PartitionsWithEpochs) -> Vec<TopicPartitions> {
    partitions
        .iter()
        .map(|(topic_id, epochs)| TopicPartitions {
            topic_id: *topic_id,
            partitions: epochs.keys().copied().collect(),
            assignment_epochs: Some(epochs.values().copied().collect()),
            ..Default::default()
        })
        .collect()
}
