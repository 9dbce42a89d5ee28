//! The state of a consumer group. Cheap to clone, so that a decision works on a clone
//! (`recorded.rs`).
//!
//! Changed only by records (`replay.rs`). Counts over the members are maintained, so that a
//! heartbeat in a large group does not iterate over all of them. Invariants: `partition_epochs`
//! contains a partition while a member owns or revokes it, with the epoch of that member; there are
//! no resolved regular expressions without members. Source: `ConsumerGroup`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::{TopicId, named_enum};
use rpds::RedBlackTreeMapSync;

use super::counts::Counts;
use super::member::ConsumerGroupMember;
use super::topic_regex::ResolvedRegex;
use crate::group::modern::{ModernGroup, SubscriptionType};
use crate::group::recorded::{CountsMembers, deref_to_base};

named_enum! {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(in crate::group) enum ConsumerGroupState {
        Empty => "Empty",
        /// The target assignment is older than the group epoch.
        Assigning => "Assigning",
        /// Some members have not reached the target assignment.
        Reconciling => "Reconciling",
        Stable => "Stable",
    }
}

#[derive(Clone, Debug)]
pub(in crate::group) struct ConsumerGroup {
    base: ModernGroup<ConsumerGroupMember>,
    server_assignors: Counts,
    num_classic_members: usize,
    /// The protocols of the members that use the classic protocol.
    classic_protocols: Counts,
    /// The epoch of the member that owns the partition.
    partition_epochs: RedBlackTreeMapSync<(TopicId, i32), i32>,
    subscribed_regexes: Counts,
    resolved_regexes: RedBlackTreeMapSync<ByteString, Arc<ResolvedRegex>>,
    /// Whether the log has the record of the subscription metadata that older versions wrote before
    /// the metadata hash.
    pub(super) has_subscription_metadata_record: bool,
}

deref_to_base!(ConsumerGroup, ConsumerGroupMember);

impl ConsumerGroup {
    pub(in crate::group) fn new(group_id: ByteString) -> Self {
        ConsumerGroup {
            base: ModernGroup::new(group_id),
            server_assignors: Counts::default(),
            num_classic_members: 0,
            classic_protocols: Counts::default(),
            partition_epochs: RedBlackTreeMapSync::new_sync(),
            subscribed_regexes: Counts::default(),
            resolved_regexes: RedBlackTreeMapSync::new_sync(),
            has_subscription_metadata_record: false,
        }
    }

    pub(in crate::group) fn state(&self) -> ConsumerGroupState {
        let target_epoch = self.target.epoch;
        if self.is_empty() {
            ConsumerGroupState::Empty
        } else if self.group_epoch > target_epoch {
            ConsumerGroupState::Assigning
        } else if self
            .members()
            .all(|member| member.is_reconciled_to(target_epoch))
        {
            ConsumerGroupState::Stable
        } else {
            ConsumerGroupState::Reconciling
        }
    }

    /// Whether all members except the leaving ones use the classic protocol.
    pub(super) fn all_use_classic_protocol_but(&self, going: &[Arc<ConsumerGroupMember>]) -> bool {
        let classic_going = going.iter().filter(|it| it.uses_classic_protocol()).count();
        self.num_classic_members - classic_going == self.num_members() - going.len()
    }

    /// Whether a member of the classic protocol with `protocols` can join this group.
    pub(super) fn supports_classic_protocols<'a>(
        &self,
        protocol_type: &str,
        protocols: impl IntoIterator<Item = &'a ByteString>,
    ) -> bool {
        let is_of_all = |name: &ByteString| {
            self.is_empty() || self.classic_protocols.get(name) == self.num_classic_members
        };
        protocol_type == "consumer" && protocols.into_iter().any(is_of_all)
    }

    /// The assignor that most members request.
    pub(super) fn preferred_server_assignor(&self) -> Option<&ByteString> {
        let most = self.server_assignors.iter().map(|(_, count)| count).max()?;
        self.server_assignors
            .iter()
            .find(|(_, count)| *count == most)
            .map(|(name, _)| name)
    }

    pub(super) fn is_partition_free(&self, topic_id: TopicId, partition: i32) -> bool {
        !self.partition_epochs.contains_key(&(topic_id, partition))
    }

    /// Whether a member waits for a partition that another member has not given up.
    pub(super) fn waits_for_unreleased_partition(&self, member: &ConsumerGroupMember) -> bool {
        let Some(target) = self.target.of(&member.member_id) else {
            return false;
        };
        target.iter().any(|(topic_id, partition)| {
            let has_it = member
                .assigned
                .get(&topic_id)
                .is_some_and(|epochs| epochs.contains_key(&partition));
            !has_it && !self.is_partition_free(topic_id, partition)
        })
    }

    // Regular expressions

    pub(super) fn subscribed_regexes(&self) -> &Counts {
        &self.subscribed_regexes
    }

    pub(super) fn resolved_regexes(
        &self,
    ) -> impl Iterator<Item = (&ByteString, &Arc<ResolvedRegex>)> {
        self.resolved_regexes.iter()
    }

    pub(super) fn resolved_regex(&self, regex: &str) -> Option<&Arc<ResolvedRegex>> {
        self.resolved_regexes.get(regex)
    }

    pub(super) fn num_resolved_regexes(&self) -> usize {
        self.resolved_regexes.size()
    }

    /// The topics that the regular expression of a member matches, if it is resolved.
    pub(super) fn matches_of(&self, member: &ConsumerGroupMember) -> Option<&ResolvedRegex> {
        self.resolved_regex(member.regex()?).map(Arc::as_ref)
    }

    pub(super) fn subscription_type(&self) -> SubscriptionType {
        let num_members = self.num_members();
        match self.subscribed_regexes.iter().next() {
            None => self.subscribed_topics().subscription_type(num_members),
            Some((_, count)) => self
                .subscribed_topics()
                .subscription_type_with_regexes(count, num_members),
        }
    }

    // Changes, called for records

    pub(super) fn put_resolved_regex(&mut self, regex: ByteString, resolved: ResolvedRegex) {
        self.drop_resolved_regex(&regex);
        self.subscribed_topics_mut().add_matches(&resolved.topics);
        self.resolved_regexes.insert_mut(regex, Arc::new(resolved));
    }

    pub(super) fn drop_resolved_regex(&mut self, regex: &str) {
        if let Some(resolved) = self.resolved_regexes.get(regex).cloned() {
            self.subscribed_topics_mut()
                .remove_matches(&resolved.topics);
            self.resolved_regexes.remove_mut(regex);
        }
    }
}

impl CountsMembers<ConsumerGroupMember> for ConsumerGroup {
    fn count(&mut self, member: &ConsumerGroupMember) {
        if let Some(name) = &member.server_assignor {
            self.server_assignors.add(name);
        }
        if let Some(regex) = member.regex() {
            self.subscribed_regexes.add(regex);
        }
        if let Some(classic) = &member.classic {
            self.num_classic_members += 1;
            for protocol in &classic.supported_protocols {
                self.classic_protocols.add(&protocol.name);
            }
        }
        for partition in member.held() {
            // In a compacted log the record that assigns a partition can precede the record with
            // which another member gave it up. The later epoch is right.
            let epoch = self.partition_epochs.get(&partition).copied();
            if epoch.is_none_or(|epoch| epoch < member.member_epoch) {
                self.partition_epochs
                    .insert_mut(partition, member.member_epoch);
            }
        }
    }

    fn uncount(&mut self, member: &ConsumerGroupMember) {
        if let Some(name) = &member.server_assignor {
            self.server_assignors.remove(name);
        }
        if let Some(regex) = member.regex() {
            self.subscribed_regexes.remove(regex);
        }
        if let Some(classic) = &member.classic {
            self.num_classic_members -= 1;
            for protocol in &classic.supported_protocols {
                self.classic_protocols.remove(&protocol.name);
            }
        }
        for partition in member.held() {
            if self.partition_epochs.get(&partition) == Some(&member.member_epoch) {
                self.partition_epochs.remove_mut(&partition);
            }
        }
    }
}
