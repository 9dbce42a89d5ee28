//! Which offsets in the checkpoints of a log directory have changed, so that a checkpoint costs
//! nothing while all logs are idle.

use std::sync::atomic::{AtomicBool, Ordering};

/// The offsets of a log that are in checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckpointedOffset {
    RecoveryPoint,
    /// Also stands for the base offset of the first segment, on which the checkpoint depends.
    LogStartOffset,
    HighWatermark,
}

impl CheckpointedOffset {
    const ALL: [CheckpointedOffset; 3] = [
        CheckpointedOffset::RecoveryPoint,
        CheckpointedOffset::LogStartOffset,
        CheckpointedOffset::HighWatermark,
    ];
}

/// One mark for each kind of offset, shared by the logs of a directory.
///
/// A log sets a mark after it has changed the offset, and writes only if the mark is not set, so
/// that appends of many threads do not write to one cache line. A processor may carry out that load
/// before its change of the offset is visible to others: a thread that takes the mark in between
/// still reads the old offset, and the mark is not set again. Therefore the offsets have to be
/// read once more in the round after the one that took a mark.
#[derive(Default, Debug)]
pub struct CheckpointMarks([AtomicBool; CheckpointedOffset::ALL.len()]);

impl CheckpointMarks {
    #[inline]
    pub(crate) fn set(&self, offset: CheckpointedOffset) {
        let mark = &self.0[offset as usize];
        if !mark.load(Ordering::Relaxed) {
            mark.store(true, Ordering::Release);
        }
    }

    pub fn set_all(&self) {
        for offset in CheckpointedOffset::ALL {
            self.set(offset);
        }
    }

    /// Clears a mark and returns whether it was set.
    pub fn take(&self, offset: CheckpointedOffset) -> bool {
        self.0[offset as usize].swap(false, Ordering::AcqRel)
    }
}
