//! Common handling for the kinds of groups whose members the coordinator assigns: finding or
//! creating the group that a member joins, checking the member, refreshing the topic metadata, and
//! storing the result of a decision. Source: `GroupMetadataManager`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_types::{ErrorCode, Timestamp};

use super::consumer::ConsumerGroup;
use super::coordinator::{Deferred, Effects, Group, GroupCoordinator};
use super::member::owned;
use super::modern::GroupError;
use super::outcome::TimerKey;
use super::recorded::{Decision, RecordedGroup, RecordedMember};
use super::share::ShareGroup;
use super::streams::StreamsGroup;

/// A kind of group as a variant of [`Group`].
pub(super) trait Kind: RecordedGroup + Into<Group> {
    fn of(group: &Group) -> Option<&Self>;
}

macro_rules! kinds {
    ($($Variant:ident($GroupOfKind:ty)),+) => {$(
        impl From<$GroupOfKind> for Group {
            fn from(group: $GroupOfKind) -> Self {
                Group::$Variant(group)
            }
        }

        impl Kind for $GroupOfKind {
            fn of(group: &Group) -> Option<&Self> {
                match group {
                    Group::$Variant(group) => Some(group),
                    _ => None,
                }
            }
        }
    )+};
}

kinds!(
    Consumer(ConsumerGroup),
    Share(ShareGroup),
    Streams(StreamsGroup)
);

impl GroupCoordinator {
    // The group

    pub(super) fn group_of<G: Kind>(&self, group_id: &str) -> Option<&G> {
        G::of(self.group(group_id)?)
    }

    pub(super) fn existing_group<G: Kind>(&self, group_id: &str) -> Result<&G, GroupError> {
        of_kind(self.group(group_id), group_id)
    }

    /// The committed state of the group.
    pub(super) fn committed_group_of<G: Kind>(&self, group_id: &str) -> Result<&G, GroupError> {
        of_kind(self.committed_group(group_id), group_id)
    }

    /// The group that a member joins or belongs to. Source: `getOrMaybeCreateConsumerGroup` and its
    /// counterparts.
    pub(super) fn group_to_join<G: Kind>(
        &self,
        group_id: &ByteString,
        creates: bool,
    ) -> Result<G, GroupError> {
        match self.group(group_id) {
            None if creates => Ok(G::new(owned(group_id))),
            None => Err(GroupError::new(
                ErrorCode::GroupIdNotFound,
                format!("{} group {group_id} not found.", G::CAPITALIZED_KIND),
            )),
            group => of_kind(group, group_id).cloned(),
        }
    }

    /// Writes the records of a decision, and replaces the group with its new state.
    pub(super) fn conclude<G: Kind>(
        &mut self,
        decision: Decision<G>,
        deferred: Deferred,
        effects: &mut Effects,
    ) {
        let Decision {
            group,
            records,
            now,
        } = decision;
        if records.is_empty() {
            self.defer_until_committed(deferred, now, effects);
            return;
        }
        let group_id = group.group_id.clone();
        if self.classic_group(&group_id).is_some() {
            self.end_classic_group(&group_id, effects);
        }
        self.put_group(effects.next_write(), &group_id, Some(group.into()));
        effects.write(records, deferred);
    }

    // Its topics

    /// Refreshes the topic metadata if it may have changed, and raises the group epoch if it has,
    /// or if `bumps_epoch`. Returns whether the epoch was raised; `None` if there was nothing to
    /// refresh.
    pub(super) fn look_at_topics<G: Kind>(
        &mut self,
        decision: &mut Decision<G>,
        bumps_epoch: bool,
    ) -> Option<bool> {
        let (group_id, now_ms) = (decision.group_id(), decision.now.value());
        let metadata = &mut self.metadata;
        if !bumps_epoch && !metadata.is_look_due(&group_id, now_ms, decision.group.group_epoch) {
            return None;
        }
        let hash = metadata.look(&group_id, decision.group.subscribed_topics());
        let bumps_epoch = bumps_epoch || hash != decision.group.metadata_hash;
        if bumps_epoch {
            decision.bump_group_epoch(hash);
        }
        metadata.has_looked(&group_id, now_ms, decision.group.group_epoch);
        Some(bumps_epoch)
    }

    // Its timers

    /// The group and the member whose timer has expired, if the timeout still applies.
    fn timed_out<G: Kind>(&self, key: &TimerKey) -> Option<(G, Arc<G::Member>)> {
        let (group_id, member_id, left_epoch) = key.member()?;
        let group: &G = self.group_of(group_id)?;
        let member = group.member(member_id)?;
        // The revocation may have been cancelled.
        let is_revoking = |epoch| member.revocation().is_some_and(|(left, _)| left == epoch);
        left_epoch
            .is_none_or(is_revoking)
            .then(|| (group.clone(), Arc::clone(member)))
    }

    /// Removes a member whose timeout has expired. Source: `scheduleConsumerGroupSessionTimeout`
    /// and its counterparts.
    pub(super) fn on_member_timer(&mut self, key: TimerKey, now: Timestamp, effects: &mut Effects) {
        if let Some((group, member)) = self.timed_out(&key) {
            self.fence(group, &[member], Deferred::Timer(key), now, effects);
        } else if let Some((group, member)) = self.timed_out(&key) {
            self.fence_share_member(group, &member, Deferred::Timer(key), now, effects);
        } else if let Some((group, member)) = self.timed_out(&key) {
            self.fence_streams_member(group, &member, Deferred::Timer(key), now, effects);
        }
    }
}

fn of_kind<'a, G: Kind>(group: Option<&'a Group>, group_id: &str) -> Result<&'a G, GroupError> {
    let message = match group {
        None => format!("Group {group_id} not found."),
        Some(group) => match G::of(group) {
            Some(group) => return Ok(group),
            None => format!("Group {group_id} is not a {} group.", G::KIND),
        },
    };
    Err(GroupError::new(ErrorCode::GroupIdNotFound, message))
}
