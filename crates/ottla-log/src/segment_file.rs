//! The kinds of files that a segment has.

use std::path::{Path, PathBuf};

use ottla_types::Offset;

use crate::file_names::{
    LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name,
};

/// The files of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentFile {
    Log,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
}

impl SegmentFile {
    pub(crate) const ALL: [SegmentFile; 4] = [
        SegmentFile::Log,
        SegmentFile::OffsetIndex,
        SegmentFile::TimeIndex,
        SegmentFile::TransactionIndex,
    ];

    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            SegmentFile::Log => LOG_SUFFIX,
            SegmentFile::OffsetIndex => OFFSET_INDEX_SUFFIX,
            SegmentFile::TimeIndex => TIME_INDEX_SUFFIX,
            SegmentFile::TransactionIndex => TRANSACTION_INDEX_SUFFIX,
        }
    }

    /// The path of a file of a segment that has not been renamed.
    pub(crate) fn path_in(self, dir: &Path, base_offset: Offset) -> PathBuf {
        dir.join(file_name(base_offset, self.suffix()))
    }
}
