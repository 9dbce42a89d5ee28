//! A decision about a consumer group while it is being made: a copy of the group, and the records that have changed it.
//!
//! Whatever is decided later sees what was decided before. If the decision comes to nothing, it is dropped, and the group
//! is what it was.

use bytestring::ByteString;

use super::group::ConsumerGroup;
use super::member::ConsumerGroupMember;
use super::record;
use crate::group::CoordinatorRecord;

pub(in crate::group) struct Decision {
    pub(super) group: ConsumerGroup,
    pub(super) records: Vec<CoordinatorRecord>,
}

impl Decision {
    pub(super) fn about(group: ConsumerGroup) -> Self {
        Decision {
            group,
            records: Vec::new(),
        }
    }

    pub(super) fn write(&mut self, record: CoordinatorRecord) {
        self.group.apply(&record.key, record.value.as_ref());
        self.records.push(record);
    }

    pub(super) fn group_id(&self) -> ByteString {
        self.group.group_id.clone()
    }

    pub(super) fn write_member(&mut self, member: &ConsumerGroupMember) {
        self.write(record::member_metadata(&self.group_id(), member));
    }

    pub(super) fn write_current_assignment(&mut self, member: &ConsumerGroupMember) {
        self.write(record::current_assignment(&self.group_id(), member));
    }

    /// The next group epoch, for which the target assignment is to be made anew.
    pub(super) fn bump_group_epoch(&mut self, metadata_hash: i64) {
        let epoch = self.group.group_epoch.saturating_add(1);
        self.write(record::group_epoch(&self.group_id(), epoch, metadata_hash));
    }

    pub(super) fn remove_member(&mut self, member_id: &ByteString) {
        for tombstone in record::member_tombstones(&self.group_id(), member_id) {
            self.write(tombstone);
        }
    }
}
