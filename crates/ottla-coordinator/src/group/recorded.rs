//! Groups whose entire state is in records: consumer, share and streams groups. Their common part
//! is a [`ModernGroup`]. This module has the traits for the rest, and [`Decision`], which works on
//! a group of any kind.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_types::Timestamp;

use super::member::owned;
use super::modern::{ModernGroup, ModernMember};
use super::record::CoordinatorRecord;

pub(super) trait RecordedMember: ModernMember + Clone {
    fn new(member_id: ByteString) -> Self;

    /// The member after the tombstone of its current assignment, which precedes its removal.
    fn without_current_assignment(&self) -> Self;

    /// The epoch in which the member revokes something and the timeout for it, if it revokes
    /// anything.
    fn revocation(&self) -> Option<(i32, i32)>;
}

/// The facts about its members that a group maintains.
pub(super) trait CountsMembers<M> {
    /// Adds a member.
    fn count(&mut self, _member: &M) {}

    /// Removes a member that was added as it is.
    fn uncount(&mut self, _member: &M) {}
}

pub(super) trait RecordedGroup:
    Clone
    + Deref<Target = ModernGroup<Self::Member>>
    + DerefMut
    + CountsMembers<Self::Member>
    + GroupRecords<Self::Member>
{
    type Member: RecordedMember;

    /// The name in messages, and in its capitalized form.
    const KIND: &'static str;
    const CAPITALIZED_KIND: &'static str;

    fn new(group_id: ByteString) -> Self;

    /// Applies a record of this group other than its tombstone. This is the only way in which the
    /// state of a group changes, both for decisions and for loading.
    ///
    /// A compacted log may lack any record that a later one replaced, so nothing is assumed: the
    /// tombstone of something that does not exist is ignored. Source: the `replay` methods of
    /// `GroupMetadataManager`.
    fn apply(&mut self, key: &GroupRecordKey, value: Option<&GroupRecordValue>, now: Timestamp);

    // For `apply`

    fn put_member(&mut self, member: Self::Member) {
        let member = Arc::new(member);
        if let Some(former) = self.update_member(Arc::clone(&member)) {
            self.uncount(&former);
        }
        self.count(&member);
    }

    fn drop_member(&mut self, member_id: &str) {
        if let Some(removed) = self.remove_member(member_id) {
            self.uncount(&removed);
        }
    }

    fn member_or_new(&self, member_id: &ByteString) -> Self::Member {
        match self.member(member_id) {
            Some(member) => Self::Member::clone(member),
            None => Self::Member::new(owned(member_id)),
        }
    }

    fn drop_current_assignment(&mut self, member_id: &str) {
        if let Some(member) = self.member(member_id) {
            let member = member.without_current_assignment();
            self.put_member(member);
        }
    }
}

/// [`RecordedGroup::apply`]: applies the records that groups of every kind have, and the others as
/// the match arms at the end say. A record of another kind, or a value that does not match its key,
/// has no effect.
macro_rules! apply_record {
    (
        $group:ident, $key:ident, $value:ident;
        member: $Member:ident,
        current: $Current:ident,
        target: $Target:ident($target:ident) => $assignment:expr,
        target_metadata: $TargetMetadata:ident;
        $($other:tt)*
    ) => {
        match ($key, $value) {
            (GroupRecordKey::$Member(key), Some(GroupRecordValue::$Member(value))) => {
                let member = $group.member_or_new(&key.member_id).with_metadata(value);
                $group.put_member(member);
            }
            (GroupRecordKey::$Member(key), None) => $group.drop_member(&key.member_id),
            (GroupRecordKey::$Current(key), Some(GroupRecordValue::$Current(value))) => {
                let member = $group.member_or_new(&key.member_id);
                $group.put_member(member.with_current_assignment(value));
            }
            (GroupRecordKey::$Current(key), None) => {
                $group.drop_current_assignment(&key.member_id);
            }
            (GroupRecordKey::$Target(key), Some(GroupRecordValue::$Target($target))) => {
                let assignment = std::sync::Arc::new($assignment);
                $group.target.set(owned(&key.member_id), assignment);
            }
            (GroupRecordKey::$Target(key), None) => {
                $group.target.remove(&key.member_id);
            }
            (
                GroupRecordKey::$TargetMetadata(_),
                Some(GroupRecordValue::$TargetMetadata(value)),
            ) => {
                let (epoch, timestamp_ms) = (value.assignment_epoch, value.assignment_timestamp);
                $group.target.set_metadata(epoch, timestamp_ms);
            }
            (GroupRecordKey::$TargetMetadata(_), None) => $group.target.clear_metadata(),
            $($other)*
            _ => {}
        }
    };
}
pub(super) use apply_record;

/// A group has the fields and methods of its common part, `base`.
macro_rules! deref_to_base {
    ($Group:ident, $Member:ident) => {
        impl std::ops::Deref for $Group {
            type Target = $crate::group::modern::ModernGroup<$Member>;

            fn deref(&self) -> &Self::Target {
                &self.base
            }
        }

        impl std::ops::DerefMut for $Group {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.base
            }
        }
    };
}
pub(super) use deref_to_base;

/// The records that groups of every kind have, in the versions that Kafka 4.3.1 writes. Source:
/// `GroupCoordinatorRecordHelpers`, `StreamsCoordinatorRecordHelpers`.
pub(super) trait GroupRecords<M: ModernMember> {
    fn group_key(group_id: &ByteString) -> GroupRecordKey;
    fn member_key(group_id: &ByteString, member_id: &ByteString) -> GroupRecordKey;
    fn current_key(group_id: &ByteString, member_id: &ByteString) -> GroupRecordKey;
    fn target_key(group_id: &ByteString, member_id: &ByteString) -> GroupRecordKey;
    fn target_metadata_key(group_id: &ByteString) -> GroupRecordKey;

    /// The metadata of a member.
    fn member_metadata(group_id: &ByteString, member: &M) -> CoordinatorRecord;

    fn current_assignment(group_id: &ByteString, member: &M) -> CoordinatorRecord;

    fn target_assignment(
        group_id: &ByteString,
        member_id: &ByteString,
        assignment: &M::Assignment,
    ) -> CoordinatorRecord;

    fn target_metadata(group_id: &ByteString, epoch: i32, timestamp_ms: i64) -> CoordinatorRecord;

    /// This group in another epoch.
    fn in_epoch(&self, epoch: i32, metadata_hash: i64) -> CoordinatorRecord;

    /// Removes a member: the tombstones of its current assignment, of its target assignment and of
    /// the member.
    fn member_tombstones(group_id: &ByteString, member_id: &ByteString) -> [CoordinatorRecord; 3] {
        [
            CoordinatorRecord::tombstone(Self::current_key(group_id, member_id)),
            CoordinatorRecord::tombstone(Self::target_key(group_id, member_id)),
            CoordinatorRecord::tombstone(Self::member_key(group_id, member_id)),
        ]
    }

    /// The tombstones of all members, in Kafka's order. The tombstone of the group itself follows
    /// them.
    fn tombstones_of_members(group: &ModernGroup<M>) -> Vec<CoordinatorRecord> {
        let group_id = &group.group_id;
        let of_each = |key: fn(&ByteString, &ByteString) -> GroupRecordKey| {
            let members = group.members();
            members.map(move |it| CoordinatorRecord::tombstone(key(group_id, it.member_id())))
        };
        of_each(Self::current_key)
            .chain(of_each(Self::target_key))
            .chain([CoordinatorRecord::tombstone(Self::target_metadata_key(
                group_id,
            ))])
            .chain(of_each(Self::member_key))
            .collect()
    }
}

/// The keys of [`GroupRecords`] for a kind of group, and the record whose fields are the same for
/// every kind.
macro_rules! record_keys {
    (
        group: $Group:ident,
        member: $Member:ident,
        current: $Current:ident,
        target: $Target:ident,
        target_metadata: $TargetMetadata:ident => $TargetMetadataValue:ident $(,)?
    ) => {
        fn group_key(group_id: &ByteString) -> GroupRecordKey {
            let group_id = group_id.clone();
            $Group { group_id }.into()
        }

        fn member_key(group_id: &ByteString, member_id: &ByteString) -> GroupRecordKey {
            let (group_id, member_id) = (group_id.clone(), member_id.clone());
            $Member {
                group_id,
                member_id,
            }
            .into()
        }

        fn current_key(group_id: &ByteString, member_id: &ByteString) -> GroupRecordKey {
            let (group_id, member_id) = (group_id.clone(), member_id.clone());
            $Current {
                group_id,
                member_id,
            }
            .into()
        }

        fn target_key(group_id: &ByteString, member_id: &ByteString) -> GroupRecordKey {
            let (group_id, member_id) = (group_id.clone(), member_id.clone());
            $Target {
                group_id,
                member_id,
            }
            .into()
        }

        fn target_metadata_key(group_id: &ByteString) -> GroupRecordKey {
            let group_id = group_id.clone();
            $TargetMetadata { group_id }.into()
        }

        fn target_metadata(
            group_id: &ByteString,
            epoch: i32,
            timestamp_ms: i64,
        ) -> CoordinatorRecord {
            let value = $TargetMetadataValue {
                assignment_epoch: epoch,
                assignment_timestamp: timestamp_ms,
                ..Default::default()
            };
            CoordinatorRecord::new(Self::target_metadata_key(group_id), value)
        }
    };
}
pub(super) use record_keys;

/// The part of [`GroupRecords`] that is the same for groups that assign partitions of topics.
macro_rules! records_with_topics {
    (target: $Target:ident of $TopicPartition:ident, group: $Group:ident $(,)?) => {
        fn target_assignment(
            group_id: &ByteString,
            member_id: &ByteString,
            assignment: &Assignment,
        ) -> CoordinatorRecord {
            let topics = assignment.topics();
            let topics = topics.map(|(topic_id, partitions)| $TopicPartition {
                topic_id,
                partitions: partitions.iter().copied().collect(),
                ..Default::default()
            });
            let value = $Target {
                topic_partitions: topics.collect(),
                ..Default::default()
            };
            CoordinatorRecord::new(Self::target_key(group_id, member_id), value)
        }

        fn in_epoch(&self, epoch: i32, metadata_hash: i64) -> CoordinatorRecord {
            let value = $Group {
                epoch,
                metadata_hash,
                ..Default::default()
            };
            CoordinatorRecord::new(Self::group_key(&self.group_id), value)
        }
    };
}
pub(super) use records_with_topics;

/// A decision about a group: a copy of the group, and the records that have been applied to it.
///
/// Each step sees the effects of the earlier ones. If the decision fails, it is dropped and the
/// group is unchanged.
pub(super) struct Decision<G> {
    pub(super) group: G,
    pub(super) records: Vec<CoordinatorRecord>,
    pub(super) now: Timestamp,
}

impl<G: RecordedGroup> Decision<G> {
    pub(super) fn about(group: G, now: Timestamp) -> Self {
        Decision {
            group,
            records: Vec::new(),
            now,
        }
    }

    pub(super) fn write(&mut self, record: CoordinatorRecord) {
        self.group
            .apply(&record.key, record.value.as_ref(), self.now);
        self.records.push(record);
    }

    pub(super) fn group_id(&self) -> ByteString {
        self.group.group_id.clone()
    }

    pub(super) fn write_member(&mut self, member: &G::Member) {
        self.write(G::member_metadata(&self.group_id(), member));
    }

    pub(super) fn write_current_assignment(&mut self, member: &G::Member) {
        self.write(G::current_assignment(&self.group_id(), member));
    }

    /// Raises the group epoch, so that a new target assignment is computed.
    pub(super) fn bump_group_epoch(&mut self, metadata_hash: i64) {
        let epoch = self.group.group_epoch.saturating_add(1);
        self.write(self.group.in_epoch(epoch, metadata_hash));
    }

    pub(super) fn remove_member(&mut self, member_id: &ByteString) {
        for tombstone in G::member_tombstones(&self.group_id(), member_id) {
            self.write(tombstone);
        }
    }

    /// A static member returned with another member id: the new member takes over the target of the
    /// old one. Source: `replaceMember`, `replaceStreamsMember`.
    pub(super) fn replace_member(&mut self, old_id: &ByteString, new: &G::Member)
    where
        <G::Member as ModernMember>::Assignment: Default,
    {
        let target = self.group.target.of(old_id).cloned().unwrap_or_default();
        self.remove_member(old_id);
        self.write_member(new);
        let group_id = self.group_id();
        self.write(G::target_assignment(&group_id, new.member_id(), &target));
        self.write_current_assignment(new);
    }

    /// Writes the target assignment of the group's epoch, as far as it differs from the previous
    /// one.
    pub(super) fn write_target(
        &mut self,
        changes: Vec<(ByteString, Arc<<G::Member as ModernMember>::Assignment>)>,
    ) {
        self.write_target_of(self.group.group_epoch, changes);
    }

    /// The same for an epoch that may be older.
    pub(super) fn write_target_of(
        &mut self,
        epoch: i32,
        changes: Vec<(ByteString, Arc<<G::Member as ModernMember>::Assignment>)>,
    ) {
        let group_id = self.group_id();
        for (member_id, assignment) in changes {
            self.write(G::target_assignment(&group_id, &member_id, &assignment));
        }
        let now_ms = self.now.value();
        self.write(G::target_metadata(&group_id, epoch, now_ms));
    }
}
