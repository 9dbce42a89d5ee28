//! Unlinking renamed files after a delay for readers that are about to open them.

use std::path::PathBuf;
use std::sync::Arc;

use crate::disk;
use crate::error::StorageError;
use crate::segment::Segment;

/// Unlinks files that have been renamed.
pub struct UnlinkJob {
    segments: Vec<Arc<Segment>>,
    paths: Vec<PathBuf>,
    delay_ms: i64,
}

impl UnlinkJob {
    /// The files of `segments`, all of which have been renamed.
    pub(crate) fn of(segments: Vec<Arc<Segment>>, delay_ms: i64) -> UnlinkJob {
        let paths = segments.iter().flat_map(|segment| segment.deleted_paths());
        UnlinkJob {
            paths: paths.collect(),
            segments,
            delay_ms,
        }
    }

    /// Files of segments whose handles are closed elsewhere.
    pub(crate) fn of_paths(paths: Vec<PathBuf>, delay_ms: i64) -> UnlinkJob {
        UnlinkJob {
            segments: Vec::new(),
            paths,
            delay_ms,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// `file.delete.delay.ms`: how long readers without a handle may still open the files.
    pub fn delay_ms(&self) -> i64 {
        self.delay_ms
    }

    pub fn run(self) -> Result<(), StorageError> {
        for path in &self.paths {
            disk::remove_file_if_there(path)
                .map_err(|error| StorageError::new("delete", path, error))?;
        }
        for segment in &self.segments {
            segment.close_files();
        }
        Ok(())
    }
}
