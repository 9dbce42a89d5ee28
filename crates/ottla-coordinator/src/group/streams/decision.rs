//! A decision about a streams group while it is being made: a copy of the group, and the records that have changed it.
//!
//! Whatever is decided later sees what was decided before. If the decision comes to nothing, it is dropped, and the group
//! is what it was.

use bytestring::ByteString;

use super::group::StreamsGroup;
use super::member::StreamsGroupMember;
use super::record;
use crate::group::CoordinatorRecord;

pub(super) struct Decision {
    pub(super) group: StreamsGroup,
    pub(super) records: Vec<CoordinatorRecord>,
}

impl Decision {
    pub(super) fn about(group: StreamsGroup) -> Self {
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

    pub(super) fn write_member(&mut self, member: &StreamsGroupMember) {
        self.write(record::member_metadata(&self.group_id(), member));
    }

    pub(super) fn write_current_assignment(&mut self, member: &StreamsGroupMember) {
        self.write(record::current_assignment(&self.group_id(), member));
    }

    pub(super) fn remove_member(&mut self, member_id: &ByteString) {
        for tombstone in record::member_tombstones(&self.group_id(), member_id) {
            self.write(tombstone);
        }
    }
}
