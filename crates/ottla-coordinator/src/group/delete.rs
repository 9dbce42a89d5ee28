//! DeleteGroups: deletes empty groups with all their offsets.
//! Source: `GroupCoordinatorShard.deleteGroups`.

use bytestring::ByteString;
use ottla_protocol::messages::delete_groups_response::DeletableGroupResult;
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::ClassicGroupState;
use super::consumer::group_tombstones;
use super::coordinator::{Deferred, Group, GroupCoordinator};
use super::outcome::{Outcome, ReplyTo, TimerKey};
use super::record::CoordinatorRecord;
use super::share::share_group_tombstones;
use super::streams;

impl GroupCoordinator {
    /// All of `group_ids` must belong to this coordinator's partition, each once.
    pub fn handle_delete_groups(
        &mut self,
        to: ReplyTo<Vec<DeletableGroupResult>>,
        group_ids: &[ByteString],
        now: Timestamp,
    ) -> Outcome {
        let mut effects = self.effects();
        let mut records = Vec::new();
        let mut results = Vec::with_capacity(group_ids.len());
        for group_id in group_ids {
            // Of a share group that has a member again, the state is initialized from now on.
            self.share_deletions.remove(group_id);
            let error = match self.group(group_id) {
                None => ErrorCode::GroupIdNotFound,
                Some(Group::Classic(group)) if !group.is_in(ClassicGroupState::Empty) => {
                    ErrorCode::NonEmptyGroup
                }
                Some(Group::Consumer(group)) if !group.is_empty() => ErrorCode::NonEmptyGroup,
                Some(Group::Share(group)) if !group.is_empty() => ErrorCode::NonEmptyGroup,
                Some(Group::Streams(group)) if !group.is_empty() => ErrorCode::NonEmptyGroup,
                Some(group) => {
                    records.extend(self.offset_tombstones(group_id));
                    records.extend(tombstones_of(group));
                    if let Group::Streams(_) = group {
                        effects.cancel_timer(TimerKey::initial_rebalance(group_id));
                    }
                    ErrorCode::None
                }
            };
            results.push(DeletableGroupResult {
                group_id: group_id.clone(),
                error_code: error.code(),
                ..Default::default()
            });
        }
        let reply = Deferred::Reply(to.with(results));
        self.apply_and_write(records, reply, now, &mut effects);
        self.finish(effects)
    }

    /// One tombstone for each partition with an offset or with a pending offset of an open
    /// transaction.
    fn offset_tombstones(&self, group_id: &ByteString) -> Vec<CoordinatorRecord> {
        let committed = self
            .offsets
            .latest_of_group(group_id)
            .map(|(partition, _)| partition);
        let pending = self.offsets.pending_of_group(group_id);
        let pending =
            pending.filter(|partition| self.offsets.latest(group_id, partition).is_none());
        committed
            .chain(pending)
            .map(|(topic, partition)| {
                CoordinatorRecord::offset_tombstone(group_id, topic, *partition)
            })
            .collect()
    }
}

/// The tombstones of a group without members.
pub(super) fn tombstones_of(group: &Group) -> Vec<CoordinatorRecord> {
    match group {
        Group::Classic(group) => vec![CoordinatorRecord::group_tombstone(group.group_id())],
        Group::Consumer(group) => group_tombstones(group),
        Group::Share(group) => share_group_tombstones(group),
        Group::Streams(group) => streams::group_tombstones(group),
    }
}
