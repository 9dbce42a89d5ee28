//! The groups of a coordinator: lookup of the latest or of the committed state, and replacement.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::{MetadataDelta, MetadataImage};
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_types::{ErrorCode, Timestamp};

use super::classic_group::ClassicGroup;
use super::config::GroupCoordinatorConfig;
use super::consumer::ConsumerGroup;
use super::coordinator::{Change, Effects, Group, GroupCoordinator, refuse_parked};
use super::outcome::WriteId;
use super::recorded::RecordedGroup;
use super::recorded_kind::{RecordedKind, is_end_of_group};
use super::share::ShareGroup;
use super::streams::StreamsGroup;
use crate::runtime::Timeline;

impl GroupCoordinator {
    /// Sets the cluster metadata before `on_loaded`.
    pub fn begin(&mut self, image: Arc<MetadataImage>) {
        self.metadata.begin(image);
    }

    /// Handles a metadata change. A group uses it at the next heartbeat of a member.
    pub fn on_metadata_changed(&mut self, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        self.metadata.on_changed(image, delta);
    }

    /// Applies to decisions from here on.
    pub fn set_config(&mut self, config: Arc<GroupCoordinatorConfig>) {
        self.config = config;
    }

    /// The latest state of the group.
    pub(super) fn group(&self, group_id: &str) -> Option<&Group> {
        self.groups.get(group_id)?.latest()
    }

    pub(super) fn group_mut(&mut self, group_id: &str) -> Option<&mut Group> {
        self.groups.get_mut(group_id)?.latest_mut()
    }

    /// The committed state of the group. The members of a classic group are the latest ones: only
    /// its existence is versioned, as in Kafka.
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
        self.group_of(group_id)
    }

    pub(super) fn share_group(&self, group_id: &str) -> Option<&ShareGroup> {
        self.group_of(group_id)
    }

    pub(super) fn streams_group(&self, group_id: &str) -> Option<&StreamsGroup> {
        self.group_of(group_id)
    }

    /// Replaces or removes a group as part of `write`.
    pub(super) fn put_group(
        &mut self,
        write: WriteId,
        group_id: &ByteString,
        group: Option<Group>,
    ) {
        self.note_share_group(group_id, group.as_ref());
        if !matches!(group, Some(Group::Consumer(_))) {
            self.computing.remove(group_id);
        }
        let slot = self.groups.entry(group_id.clone()).or_default();
        slot.set(write, group);
        self.journal
            .push_back((write, Change::Group(group_id.clone())));
    }

    /// Applies a group record of the log.
    pub(super) fn replay_group_as(&mut self, group_id: &ByteString, group: Option<Group>) {
        self.put_group_as(self.replaying, group_id, group);
    }

    fn put_group_as(
        &mut self,
        write: Option<WriteId>,
        group_id: &ByteString,
        group: Option<Group>,
    ) {
        match (write, group) {
            (Some(write), group) => self.put_group(write, group_id, group),
            (None, Some(group)) => {
                self.note_share_group(group_id, Some(&group));
                let slot = Timeline::of_committed(group);
                self.groups.insert(group_id.clone(), slot);
            }
            (None, None) => {
                self.groups.remove(group_id);
                self.share_group_ids.remove(group_id);
            }
        }
    }

    fn note_share_group(&mut self, group_id: &ByteString, group: Option<&Group>) {
        if matches!(group, Some(Group::Share(_))) && !self.share_group_ids.contains(group_id) {
            self.share_group_ids.insert(group_id.clone());
        }
    }

    /// The latest states of all share groups.
    pub(super) fn share_groups(&self) -> impl Iterator<Item = &ShareGroup> {
        let ids = self.share_group_ids.iter();
        ids.filter_map(|group_id| self.share_group(group_id))
    }

    /// Ends a classic group that is replaced by another kind. Its members must rejoin. If the log
    /// refuses the replacement, the group continues with `on_restored`.
    pub(super) fn end_classic_group(&mut self, group_id: &ByteString, effects: &mut Effects) {
        if let Some(group) = self.group_mut(group_id) {
            refuse_parked(group, ErrorCode::RebalanceInProgress, effects);
        }
        if let Some(group) = self.classic_group(group_id) {
            effects.cancel_timer(group.join_timer());
            effects.cancel_timer(group.sync_timer());
            group.keep_sessions(effects);
        }
        self.metadata.forget_group(group_id);
    }

    /// Applies a record of a consumer, share or streams group, as part of `write` or as committed.
    pub(super) fn apply_to_group(
        &mut self,
        write: Option<WriteId>,
        (kind, group_id): (RecordedKind, &ByteString),
        key: &GroupRecordKey,
        value: Option<&GroupRecordValue>,
        now: Timestamp,
    ) {
        let group = match self.group_mut(group_id) {
            Some(group) if group.kind() == Some(kind) => {
                if is_end_of_group(key, value) {
                    None
                } else if write.is_none() {
                    // No request reads the group while it is being loaded.
                    return group.apply(key, value, now);
                } else {
                    Some(group.cloned())
                }
            }
            // A group that only has offsets becomes a group of this kind.
            Some(Group::Classic(group)) if group.protocol_type().is_some() => return,
            None | Some(Group::Classic(_)) if value.is_some() => Some(Group::begin(kind, group_id)),
            _ => return,
        };
        let group = group.map(|mut group| {
            group.apply(key, value, now);
            group
        });
        self.put_group_as(write, group_id, group);
    }
}

impl Group {
    fn begin(kind: RecordedKind, group_id: &ByteString) -> Group {
        match kind {
            RecordedKind::Consumer => ConsumerGroup::new(group_id.clone()).into(),
            RecordedKind::Share => ShareGroup::new(group_id.clone()).into(),
            RecordedKind::Streams => StreamsGroup::new(group_id.clone()).into(),
        }
    }

    /// `None` for a classic group.
    fn kind(&self) -> Option<RecordedKind> {
        match self {
            Group::Classic(_) => None,
            Group::Consumer(_) => Some(RecordedKind::Consumer),
            Group::Share(_) => Some(RecordedKind::Share),
            Group::Streams(_) => Some(RecordedKind::Streams),
        }
    }

    fn cloned(&self) -> Group {
        match self {
            Group::Classic(_) => unreachable!("a classic group is changed in place"),
            Group::Consumer(group) => Group::Consumer(group.clone()),
            Group::Share(group) => Group::Share(group.clone()),
            Group::Streams(group) => Group::Streams(group.clone()),
        }
    }

    fn apply(&mut self, key: &GroupRecordKey, value: Option<&GroupRecordValue>, now: Timestamp) {
        match self {
            Group::Classic(_) => unreachable!("records of classic groups are not applied here"),
            Group::Consumer(group) => group.apply(key, value, now),
            Group::Share(group) => group.apply(key, value, now),
            Group::Streams(group) => group.apply(key, value, now),
        }
    }
}
