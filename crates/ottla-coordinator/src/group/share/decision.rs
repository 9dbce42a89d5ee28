//! A decision about a share group while it is being made: a copy of the group, and the records that have changed it.
//!
//! Whatever is decided later sees what was decided before. If the decision comes to nothing, it is dropped, and the group
//! is what it was.

use bytestring::ByteString;
use ottla_types::Timestamp;

use super::group::ShareGroup;
use super::record;
use crate::group::CoordinatorRecord;

pub(in crate::group) struct Decision {
    pub(super) group: ShareGroup,
    pub(super) records: Vec<CoordinatorRecord>,
    now: Timestamp,
}

impl Decision {
    pub(super) fn about(group: ShareGroup, now: Timestamp) -> Self {
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

    /// The next group epoch, for which the target assignment is to be made anew.
    pub(super) fn bump_group_epoch(&mut self, metadata_hash: i64) {
        let epoch = self.group.group_epoch.saturating_add(1);
        self.write(record::group_epoch(&self.group_id(), epoch, metadata_hash));
    }
}
