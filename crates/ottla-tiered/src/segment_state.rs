//! The life cycles of a remote segment and of a remote partition.
//!
//! Kafka: `RemoteLogSegmentState`, `RemotePartitionDeleteState`.

use std::fmt;

/// The state of one upload. The records contain the numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RemoteLogSegmentState {
    /// Announced; the upload may be running, may have failed, or may be complete without its
    /// record. Not readable.
    CopySegmentStarted = 0,
    /// Uploaded and readable.
    CopySegmentFinished = 1,
    /// No longer readable; objects may still exist.
    DeleteSegmentStarted = 2,
    /// The segment is completely deleted. The cache removes it.
    DeleteSegmentFinished = 3,
}

impl RemoteLogSegmentState {
    pub const ALL: [RemoteLogSegmentState; 4] = [
        RemoteLogSegmentState::CopySegmentStarted,
        RemoteLogSegmentState::CopySegmentFinished,
        RemoteLogSegmentState::DeleteSegmentStarted,
        RemoteLogSegmentState::DeleteSegmentFinished,
    ];

    /// The number in the records.
    pub const fn id(self) -> i8 {
        self as i8
    }

    pub const fn from_id(id: i8) -> Option<RemoteLogSegmentState> {
        match id {
            0 => Some(RemoteLogSegmentState::CopySegmentStarted),
            1 => Some(RemoteLogSegmentState::CopySegmentFinished),
            2 => Some(RemoteLogSegmentState::DeleteSegmentStarted),
            3 => Some(RemoteLogSegmentState::DeleteSegmentFinished),
            _ => None,
        }
    }

    /// Whether a segment may go from `source` to `target`; `None` is a segment not yet known. A
    /// state to itself is allowed, so that records can be written again after a failure.
    pub const fn is_valid_transition(source: Option<Self>, target: Self) -> bool {
        use RemoteLogSegmentState::*;
        match (source, target) {
            (None, CopySegmentStarted) => true,
            (None, _) => false,
            (Some(source), target) if source as u8 == target as u8 => true,
            (Some(CopySegmentStarted), CopySegmentFinished | DeleteSegmentStarted) => true,
            (Some(CopySegmentFinished), DeleteSegmentStarted) => true,
            (Some(DeleteSegmentStarted), DeleteSegmentFinished) => true,
            (Some(_), _) => false,
        }
    }
}

/// Kafka's name, such as `COPY_SEGMENT_STARTED`.
impl fmt::Display for RemoteLogSegmentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemoteLogSegmentState::CopySegmentStarted => "COPY_SEGMENT_STARTED",
            RemoteLogSegmentState::CopySegmentFinished => "COPY_SEGMENT_FINISHED",
            RemoteLogSegmentState::DeleteSegmentStarted => "DELETE_SEGMENT_STARTED",
            RemoteLogSegmentState::DeleteSegmentFinished => "DELETE_SEGMENT_FINISHED",
        })
    }
}

/// The state of the deletion of a whole partition. Kafka defines the record; its topic-based
/// metadata manager never writes it, but reads it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RemotePartitionDeleteState {
    DeletePartitionMarked = 0,
    DeletePartitionStarted = 1,
    DeletePartitionFinished = 2,
}

impl RemotePartitionDeleteState {
    pub const ALL: [RemotePartitionDeleteState; 3] = [
        RemotePartitionDeleteState::DeletePartitionMarked,
        RemotePartitionDeleteState::DeletePartitionStarted,
        RemotePartitionDeleteState::DeletePartitionFinished,
    ];

    /// The number in the records.
    pub const fn id(self) -> i8 {
        self as i8
    }

    pub const fn from_id(id: i8) -> Option<RemotePartitionDeleteState> {
        match id {
            0 => Some(RemotePartitionDeleteState::DeletePartitionMarked),
            1 => Some(RemotePartitionDeleteState::DeletePartitionStarted),
            2 => Some(RemotePartitionDeleteState::DeletePartitionFinished),
            _ => None,
        }
    }
}

/// Kafka's name, such as `DELETE_PARTITION_MARKED`.
impl fmt::Display for RemotePartitionDeleteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemotePartitionDeleteState::DeletePartitionMarked => "DELETE_PARTITION_MARKED",
            RemotePartitionDeleteState::DeletePartitionStarted => "DELETE_PARTITION_STARTED",
            RemotePartitionDeleteState::DeletePartitionFinished => "DELETE_PARTITION_FINISHED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::RemoteLogSegmentState::{self, *};

    #[test]
    fn transitions_are_kafkas() {
        let allowed = [
            (None, CopySegmentStarted),
            (Some(CopySegmentStarted), CopySegmentStarted),
            (Some(CopySegmentStarted), CopySegmentFinished),
            (Some(CopySegmentStarted), DeleteSegmentStarted),
            (Some(CopySegmentFinished), CopySegmentFinished),
            (Some(CopySegmentFinished), DeleteSegmentStarted),
            (Some(DeleteSegmentStarted), DeleteSegmentStarted),
            (Some(DeleteSegmentStarted), DeleteSegmentFinished),
            (Some(DeleteSegmentFinished), DeleteSegmentFinished),
        ];
        let sources = RemoteLogSegmentState::ALL.map(Some);
        for source in sources.into_iter().chain([None]) {
            for target in RemoteLogSegmentState::ALL {
                assert_eq!(
                    RemoteLogSegmentState::is_valid_transition(source, target),
                    allowed.contains(&(source, target)),
                    "{source:?} to {target:?}"
                );
            }
        }
    }
}
