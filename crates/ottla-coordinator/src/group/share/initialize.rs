//! Initializes the state of a share group's partitions at the share coordinator, before they are
//! assigned to members.
//!
//! 1. A heartbeat finds partitions of subscribed topics whose state is not initialized, and writes
//!    a record that their initialization starts.
//! 2. When the record is committed, the shell sends the request to the share coordinator
//!    ([`InitializeShareState`]).
//! 3. `on_share_state_initialized` handles the response. The next heartbeat of any member then
//!    computes a new assignment.
//! 4. Partitions that could not be initialized are removed (`on_share_state_not_initialized`), and
//!    a later heartbeat finds them again.
//!
//! While state of the group is being deleted for an administrator, step 1 waits. In Kafka it does
//! not wait, and a member that joins during the deletion can be assigned partitions whose state is
//! gone.
//!
//! Source: `GroupMetadataManager.maybeCreateInitializeShareGroupStateRequest`, `initializeShareGroupState`,
//! `uninitializeShareGroupState`, `maybeCleanupShareGroupState`.

use bytestring::ByteString;
use ottla_types::{Timestamp, TopicId};

use super::group::ShareGroup;
use super::record;
use super::state_partitions::{PartitionsOfTopics, StatePartitions, is_recent};
use crate::group::coordinator::{Deferred, GroupCoordinator};
use crate::group::outcome::{InitializeShareState, Outcome};
use crate::group::recorded::Decision;

impl GroupCoordinator {
    /// Writes the record with the partitions to initialize, if there are any.
    pub(super) fn begin_to_initialize(
        &self,
        decision: &mut Decision<ShareGroup>,
        now: Timestamp,
    ) -> Option<InitializeShareState> {
        let (group, image) = (&decision.group, self.metadata.image());
        if self.is_deleting_share_state(&group.group_id, now) {
            return None;
        }
        let missing = group.state_partitions().missing(
            group.subscribed_topics().names(),
            image,
            self.config.group_share_initialize_retry_interval_ms,
            now.value(),
        );
        if missing.is_empty() {
            return None;
        }
        let state = group
            .state_partitions()
            .with_initializing(&missing, image, now.value());
        let (group_id, state_epoch) = (decision.group_id(), decision.group.group_epoch);
        decision.write(record::state_partitions(&group_id, &state, image));
        Some(InitializeShareState {
            group_id,
            state_epoch,
            partitions: missing,
        })
    }

    /// Whether share coordinators may be deleting state of a group at present. State that is
    /// initialized during the deletion could be deleted as well, although the group records it as
    /// initialized. A deletion that takes too long counts as abandoned, as an initialization does.
    fn is_deleting_share_state(&self, group_id: &ByteString, now: Timestamp) -> bool {
        let since = self.share_deletions.get(group_id);
        since.is_some_and(|since| self.is_recent(*since, now))
    }

    fn is_recent(&self, since_ms: i64, now: Timestamp) -> bool {
        let limit_ms = self.config.group_share_initialize_retry_interval_ms;
        is_recent(since_ms, now.value(), limit_ms)
    }

    /// The shell is about to delete state of the group. Until the deletion has ended, or was
    /// abandoned, nothing is initialized.
    pub(super) fn on_share_deletion_begun(&mut self, group_id: ByteString, now: Timestamp) {
        let mut others = std::mem::take(&mut self.share_deletions);
        others.retain(|_, since| self.is_recent(*since, now));
        others.insert(group_id, now.value());
        self.share_deletions = others;
    }

    /// The group coordinator may have moved before a deletion ended, and the share coordinators may
    /// still be deleting. The record of the group contains the topics of the deletion.
    pub(in crate::group) fn on_share_groups_loaded(&mut self, now: Timestamp) {
        let deleting = self
            .share_groups()
            .filter(|group| !group.state_partitions().deleting.is_empty())
            .map(|group| (group.group_id.clone(), now.value()));
        self.share_deletions = deleting.collect();
    }

    /// The share coordinator has initialized these partitions.
    pub fn on_share_state_initialized(
        &mut self,
        group_id: &ByteString,
        partitions: &PartitionsOfTopics,
        now: Timestamp,
    ) -> Outcome {
        self.change_state_partitions(group_id, now, |state, coordinator| {
            state.with_initialized(partitions, coordinator.metadata.image(), now.value())
        })
    }

    /// The share coordinator has refused these partitions, or did not answer.
    pub fn on_share_state_not_initialized(
        &mut self,
        group_id: &ByteString,
        partitions: &PartitionsOfTopics,
        now: Timestamp,
    ) -> Outcome {
        self.change_state_partitions(group_id, now, |state, _| {
            state.without_initializing(partitions)
        })
    }

    /// These topics were deleted. The share coordinator learns that from the metadata itself.
    pub fn on_topics_of_share_groups_deleted(
        &mut self,
        topics: &[TopicId],
        now: Timestamp,
    ) -> Outcome {
        let concerned = self.share_groups().filter(|group| {
            let state = group.state_partitions();
            topics.iter().any(|topic_id| state.has_topic(*topic_id))
        });
        let groups: Vec<ShareGroup> = concerned.cloned().collect();
        let mut effects = self.effects();
        for group in groups {
            let state = group
                .state_partitions()
                .without_topics(|it| topics.contains(&it));
            let decision = self.with_state_partitions(group, state, now);
            self.conclude(decision, Deferred::Nothing, &mut effects);
        }
        self.finish(effects)
    }

    fn change_state_partitions(
        &mut self,
        group_id: &ByteString,
        now: Timestamp,
        change: impl FnOnce(&StatePartitions, &Self) -> StatePartitions,
    ) -> Outcome {
        let mut effects = self.effects();
        // The group may have been deleted.
        if let Some(group) = self.share_group(group_id).cloned() {
            let state = change(group.state_partitions(), self);
            let decision = self.with_state_partitions(group, state, now);
            self.conclude(decision, Deferred::Nothing, &mut effects);
        }
        self.finish(effects)
    }

    pub(super) fn with_state_partitions(
        &self,
        group: ShareGroup,
        state: StatePartitions,
        now: Timestamp,
    ) -> Decision<ShareGroup> {
        let is_changed = *group.state_partitions() != state;
        let mut decision = Decision::about(group, now);
        if is_changed {
            let (group_id, image) = (decision.group_id(), self.metadata.image());
            decision.write(record::state_partitions(&group_id, &state, image));
        }
        decision
    }
}
