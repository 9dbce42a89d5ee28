//! Reconciles a member with its target assignment, one step per heartbeat.
//!
//! A member first revokes the partitions that are not in its target, and stays in its epoch until
//! its heartbeat shows that it has. Then it moves to the epoch of the target and gets the free
//! partitions. It gets the other partitions when their owners have revoked them.
//!
//! | state | the member leaves the state when |
//! | --- | --- |
//! | `Stable` | there is a newer target |
//! | `UnrevokedPartitions` | its heartbeat contains none of the partitions to revoke |
//! | `UnreleasedPartitions` | it sends a heartbeat, which gives it the partitions that have become free |
//! | `Unknown` | it starts again without partitions |
//!
//! Source: `CurrentAssignmentBuilder`.

use std::collections::{BTreeMap, BTreeSet};

use ottla_metadata::MetadataImage;
use ottla_types::{ErrorCode, TopicId};

use super::group::ConsumerGroup;
use super::member::{ConsumerGroupMember, PartitionsWithEpochs};
use crate::group::modern::{GroupError, MemberState};
use crate::planted::{self, Bug};

/// The inputs of a step besides the member.
pub(super) struct Reconciliation<'a> {
    pub(super) group: &'a ConsumerGroup,
    pub(super) image: &'a MetadataImage,
    /// Whether the subscription has changed. The member must not keep topics that it is not
    /// subscribed to, whatever its target contains.
    pub(super) has_subscription_changed: bool,
    /// The partitions that the member reports to own, if it reports any.
    pub(super) owned: Option<&'a [(TopicId, &'a [i32])]>,
}

impl Reconciliation<'_> {
    /// The member after the step; unchanged if no step is possible.
    pub(super) fn step(
        &self,
        member: &ConsumerGroupMember,
    ) -> Result<ConsumerGroupMember, GroupError> {
        let target_epoch = self.group.target.epoch;
        Ok(match member.state {
            MemberState::Stable if member.member_epoch != target_epoch => {
                self.next_assignment(member, member.member_epoch)
            }
            MemberState::Stable if self.has_subscription_changed => self.drop_unwanted(member),
            MemberState::Stable => member.clone(),
            MemberState::UnrevokedPartitions if self.owns_any_of(&member.pending_revocation) => {
                if self.has_subscription_changed {
                    self.drop_unwanted(member)
                } else {
                    member.clone()
                }
            }
            MemberState::UnrevokedPartitions | MemberState::UnreleasedPartitions => {
                self.next_assignment(member, member.member_epoch)
            }
            MemberState::Unknown => {
                if self.owned.is_none_or(|owned| !owned.is_empty()) {
                    return Err(GroupError::new(
                        ErrorCode::FencedMemberEpoch,
                        "The consumer group member is in a unknown state. \
                         The member must abandon all its partitions and rejoin.",
                    ));
                }
                self.next_assignment(member, target_epoch)
            }
        })
    }

    /// Without a report, the member is assumed to own everything still.
    fn owns_any_of(&self, partitions: &PartitionsWithEpochs) -> bool {
        let Some(owned) = self.owned else {
            return true;
        };
        owned.iter().any(|(topic_id, indexes)| {
            partitions
                .get(topic_id)
                .is_some_and(|epochs| indexes.iter().any(|index| epochs.contains_key(index)))
        })
    }

    fn wants(&self, member: &ConsumerGroupMember, topic_id: TopicId) -> bool {
        member
            .subscription(self.group.matches_of(member))
            .contains(topic_id, self.image)
    }

    /// Revokes topics that the member is not subscribed to any more, regardless of its target.
    fn drop_unwanted(&self, member: &ConsumerGroupMember) -> ConsumerGroupMember {
        let (kept, unwanted): (PartitionsWithEpochs, PartitionsWithEpochs) = member
            .assigned
            .clone()
            .into_iter()
            .partition(|(topic_id, _)| self.wants(member, *topic_id));
        if unwanted.is_empty() {
            return member.clone();
        }
        let mut pending_revocation = member.pending_revocation.clone();
        for (topic_id, epochs) in unwanted {
            pending_revocation
                .entry(topic_id)
                .or_default()
                .extend(epochs);
        }
        let next = in_epoch(member, member.member_epoch);
        if self.owns_any_of(&pending_revocation) {
            ConsumerGroupMember {
                state: MemberState::UnrevokedPartitions,
                assigned: kept,
                pending_revocation,
                ..next
            }
        } else {
            ConsumerGroupMember {
                assigned: kept,
                ..next
            }
        }
    }

    fn next_assignment(
        &self,
        member: &ConsumerGroupMember,
        member_epoch: i32,
    ) -> ConsumerGroupMember {
        let target_epoch = self.group.target.epoch;
        let target = self.group.target.of(&member.member_id);
        let nothing = BTreeSet::new();
        let no_epochs = BTreeMap::new();
        let target_of = |topic_id: TopicId| {
            target
                .and_then(|target| target.of_topic(topic_id))
                .filter(|_| self.wants(member, topic_id))
                .unwrap_or(&nothing)
        };
        let target_topics = target.iter().flat_map(|target| target.topics());
        let topics: BTreeSet<TopicId> = target_topics
            .map(|(topic_id, _)| topic_id)
            .chain(member.assigned.keys().copied())
            .collect();

        let mut assigned = PartitionsWithEpochs::new();
        let mut to_revoke = PartitionsWithEpochs::new();
        let mut to_assign = PartitionsWithEpochs::new();
        let mut waits_for_others = false;
        for topic_id in topics {
            let current = member.assigned.get(&topic_id).unwrap_or(&no_epochs);
            let target = target_of(topic_id);
            for (partition, epoch) in current {
                let into = if target.contains(partition) {
                    &mut assigned
                } else {
                    &mut to_revoke
                };
                into.entry(topic_id).or_default().insert(*partition, *epoch);
            }
            let is_giving_up = |partition: i32| {
                member
                    .pending_revocation
                    .get(&topic_id)
                    .is_some_and(|epochs| epochs.contains_key(&partition))
            };
            for partition in target {
                if current.contains_key(partition) {
                    continue;
                }
                // A partition that the member itself is revoking can be assigned to it again,
                // because no other member can own it.
                if self.group.is_partition_free(topic_id, *partition)
                    || is_giving_up(*partition)
                    || planted::has(Bug::AssignWhatOthersHave)
                {
                    to_assign
                        .entry(topic_id)
                        .or_default()
                        .insert(*partition, target_epoch);
                } else {
                    waits_for_others = true;
                }
            }
        }

        let has_them_still = self.owns_any_of(&to_revoke) && !planted::has(Bug::RevokeAtOnce);
        if !to_revoke.is_empty() && has_them_still {
            return ConsumerGroupMember {
                state: MemberState::UnrevokedPartitions,
                assigned,
                pending_revocation: to_revoke,
                ..in_epoch(member, member_epoch)
            };
        }
        for (topic_id, epochs) in to_assign {
            assigned.entry(topic_id).or_default().extend(epochs);
        }
        ConsumerGroupMember {
            state: if waits_for_others {
                MemberState::UnreleasedPartitions
            } else {
                MemberState::Stable
            },
            assigned,
            pending_revocation: PartitionsWithEpochs::new(),
            ..in_epoch(member, target_epoch)
        }
    }
}

/// The member in `member_epoch`, which can be its current epoch.
fn in_epoch(member: &ConsumerGroupMember, member_epoch: i32) -> ConsumerGroupMember {
    ConsumerGroupMember {
        member_epoch,
        previous_member_epoch: member.member_epoch,
        ..member.clone()
    }
}
