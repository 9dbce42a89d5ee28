//! The groups of a coordinator: looking one up, as it was decided last or as it is committed, and putting one in the place
//! of another.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::ClassicGroup;
use super::config::GroupCoordinatorConfig;
use super::consumer::{ConsumerGroup, is_end_of_group};
use super::coordinator::{Change, Effects, Group, GroupCoordinator, refuse_parked};
use super::outcome::WriteId;
use super::share::ShareGroup;
use super::streams::{self, StreamsGroup};
use crate::runtime::Timeline;

impl GroupCoordinator {
    /// What there is in the cluster, before `on_loaded`.
    pub fn begin(&mut self, image: Arc<MetadataImage>) {
        self.metadata.begin(image);
    }

    /// The cluster has changed. Groups look at it with the next heartbeat of a member.
    pub fn on_metadata_changed(&mut self, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        self.metadata.on_changed(image, delta);
    }

    /// Holds for decisions from here on.
    pub fn set_config(&mut self, config: Arc<GroupCoordinatorConfig>) {
        self.config = config;
    }

    /// The group as decided last.
    pub(super) fn group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)?.latest()
    }

    pub(super) fn group_mut(&mut self, group_id: &str) -> Option<&mut Group> {
        self.groups.get_mut(group_id)?.latest_mut()
    }

    /// The group as readers may see it. The members of a classic group are those of now: of such a group only whether it
    /// exists is versioned, as in Kafka.
    pub(super) fn committed_group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)?.committed()
    }

    pub(super) fn classic_group(&self, group_id: &str) -> Option<&ClassicGroup> {
        match self.group(group_id)? {
            Group::Classic(group) => Some(group),
            Group::Consumer(_) | Group::Share(_) | Group::Streams(_) => None,
        }
    }

    pub(super) fn consumer_group(&self, group_id: &str) -> Option<&ConsumerGroup> {
        match self.group(group_id)? {
            Group::Consumer(group) => Some(group),
            Group::Classic(_) | Group::Share(_) | Group::Streams(_) => None,
        }
    }

    pub(super) fn share_group(&self, group_id: &str) -> Option<&ShareGroup> {
        match self.group(group_id)? {
            Group::Share(group) => Some(group),
            Group::Classic(_) | Group::Consumer(_) | Group::Streams(_) => None,
        }
    }

    pub(super) fn streams_group(&self, group_id: &str) -> Option<&StreamsGroup> {
        match self.group(group_id)? {
            Group::Streams(group) => Some(group),
            Group::Classic(_) | Group::Consumer(_) | Group::Share(_) => None,
        }
    }

    /// Puts a group, or none, in the place of what was there, as part of `write`.
    pub(super) fn put_group(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        group: Option<Group>,
    ) {
        let slot = self.groups.entry(group_id.clone()).or_default();
        slot.set(write, group);
        self.journal
            .push_back((write, Change::Group(group_id.clone())));
    }

    /// Sets or removes a group as the log says.
    pub(super) fn replay_group_as(&mut self, group_id: &ByteString, group: Option<Group>) {
        if let Some(write) = self.replaying {
            return self.put_group(write, group_id, group);
        }
        match group {
            Some(group) => {
                let slot = Timeline::of_committed(group);
                self.groups.insert(group_id.clone(), slot);
            }
            None => drop(self.groups.remove(group_id)),
        }
    }

    /// A classic group is about to become one of another kind: its members are to begin anew.
    pub(super) fn end_classic_group(&mut self, group_id: &ByteString, effects: &mut Effects) {
        if let Some(group) = self.group_mut(group_id) {
            refuse_parked(group, ErrorCode::RebalanceInProgress, effects);
        }
        if let Some(group) = self.classic_group(group_id) {
            effects.cancel_timer(group.join_timer());
            effects.cancel_timer(group.sync_timer());
        }
        self.metadata.forget_group(group_id);
    }

    /// Takes in a record of a consumer group, as part of `write` or as committed.
    pub(super) fn apply_to_consumer_group(
        &mut self,
        write: Option<WriteId>,
        group_id: &ByteString,
        key: &GroupRecordKey,
        value: Option<&GroupRecordValue>,
    ) {
        if is_end_of_group(key, value) {
            if self.consumer_group(group_id).is_some() {
                match write {
                    Some(write) => self.put_group(write, group_id, None),
                    None => drop(self.groups.remove(group_id)),
                }
            }
            return;
        }
        let may_begin = match self.group(group_id) {
            None => true,
            Some(Group::Consumer(_)) => false,
            // One that only had offsets so far has become a consumer group.
            Some(Group::Classic(group)) if group.protocol_type().is_none() => true,
            Some(Group::Classic(_) | Group::Share(_) | Group::Streams(_)) => return,
        };
        if may_begin && value.is_none() {
            return;
        }
        if let (None, Some(Group::Consumer(group))) = (write, self.group_mut(group_id)) {
            // Nobody sees what is being loaded.
            group.apply(key, value);
            return;
        }
        let mut group = match self.group(group_id) {
            Some(Group::Consumer(group)) => group.clone(),
            _ => ConsumerGroup::new(group_id.clone()),
        };
        group.apply(key, value);
        match write {
            Some(write) => self.put_group(write, group_id, Some(Group::Consumer(group))),
            None => {
                let slot = Timeline::of_committed(Group::Consumer(group));
                self.groups.insert(group_id.clone(), slot);
            }
        }
    }

    /// Takes in a record of a share group, as part of `write` or as committed.
    pub(super) fn apply_to_share_group(
        &mut self,
        write: Option<WriteId>,
        group_id: &ByteString,
        key: &GroupRecordKey,
        value: Option<&GroupRecordValue>,
        now: Timestamp,
    ) {
        let is_end = matches!(key, GroupRecordKey::ShareGroupMetadata(_)) && value.is_none();
        let group = match self.group(group_id) {
            Some(Group::Share(_)) if is_end => None,
            Some(Group::Share(group)) => Some(group.clone()),
            // One that only had offsets so far has become a share group.
            Some(Group::Classic(group)) if group.protocol_type().is_none() && value.is_some() => {
                Some(ShareGroup::new(group_id.clone()))
            }
            None if value.is_some() => Some(ShareGroup::new(group_id.clone())),
            _ => return,
        };
        let group = group.map(|mut group| {
            group.apply(key, value, now.value());
            Group::Share(group)
        });
        match (write, group) {
            (Some(write), group) => self.put_group(write, group_id, group),
            (None, Some(group)) => {
                let slot = Timeline::of_committed(group);
                self.groups.insert(group_id.clone(), slot);
            }
            (None, None) => drop(self.groups.remove(group_id)),
        }
    }

    /// The same, for a record of a streams group.
    pub(super) fn apply_to_streams_group(
        &mut self,
        write: Option<WriteId>,
        group_id: &ByteString,
        key: &GroupRecordKey,
        value: Option<&GroupRecordValue>,
    ) {
        if streams::is_end_of_group(key, value) {
            if self.streams_group(group_id).is_some() {
                match write {
                    Some(write) => self.put_group(write, group_id, None),
                    None => drop(self.groups.remove(group_id)),
                }
            }
            return;
        }
        let may_begin = match self.group(group_id) {
            None => true,
            Some(Group::Streams(_)) => false,
            // One that only had offsets so far has become a streams group.
            Some(Group::Classic(group)) if group.protocol_type().is_none() => true,
            Some(Group::Classic(_) | Group::Consumer(_) | Group::Share(_)) => return,
        };
        if may_begin && value.is_none() {
            return;
        }
        if let (None, Some(Group::Streams(group))) = (write, self.group_mut(group_id)) {
            // Nobody sees what is being loaded.
            group.apply(key, value);
            return;
        }
        let mut group = match self.group(group_id) {
            Some(Group::Streams(group)) => group.clone(),
            _ => StreamsGroup::new(group_id.clone()),
        };
        group.apply(key, value);
        match write {
            Some(write) => self.put_group(write, group_id, Some(Group::Streams(group))),
            None => {
                let slot = Timeline::of_committed(Group::Streams(group));
                self.groups.insert(group_id.clone(), slot);
            }
        }
    }
}
