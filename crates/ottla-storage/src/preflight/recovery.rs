//! The size of a directory, and how much of it a start must read after an unclean stop.

use std::ops::AddAssign;
use std::path::Path;

use ottla_log::checkpoint::{OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT};
use ottla_types::{Offset, TopicPartition};

use super::log_scan;

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct DirSize {
    pub(super) bytes: u64,
    pub(super) to_recover: u64,
    pub(super) logs_to_recover: usize,
}

impl AddAssign for DirSize {
    fn add_assign(&mut self, other: DirSize) {
        self.bytes += other.bytes;
        self.to_recover += other.to_recover;
        self.logs_to_recover += other.logs_to_recover;
    }
}

/// An estimate: recovery reads every segment that extends beyond the recovery point completely.
pub(super) fn size_of(dir: &Path, partitions: &[TopicPartition], is_clean: bool) -> DirSize {
    // An unreadable checkpoint was reported already; recovery then starts at the beginning of every
    // log.
    let path = dir.join(RECOVERY_POINT_CHECKPOINT);
    let recovery_points = OffsetCheckpoint::read(&path).unwrap_or_default();
    let mut size = DirSize::default();
    for partition in partitions {
        let segments = log_scan::segments(&dir.join(partition.dir_name())).unwrap_or_default();
        let recovery_point = recovery_points.offsets.get(partition);
        let recovery_point = recovery_point.copied().unwrap_or(Offset::ZERO);
        let before = size.to_recover;
        for (index, segment) in segments.iter().enumerate() {
            size.bytes += segment.size;
            let ends_before = segments
                .get(index + 1)
                .is_some_and(|next| next.base_offset <= recovery_point);
            if !is_clean && !ends_before {
                size.to_recover += segment.size;
            }
        }
        size.logs_to_recover += usize::from(size.to_recover > before);
    }
    size
}
