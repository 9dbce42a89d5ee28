//! Starting a new segment.

use std::io;
use std::sync::Arc;

use ottla_types::{Offset, Timestamp};

use super::pending_jobs::Spare;
use super::{ActiveSegment, Log};
use crate::batch_tail::{BatchTail, Boundary};
use crate::disk;
use crate::error::StorageError;
use crate::segment::Segment;
use crate::segment_file::SegmentFile;
use ottla_sync::fs::reserve;

impl Log {
    /// Seals the active segment and starts a new one at `base_offset`, which is at or after the log
    /// end offset.
    pub(super) fn roll_at(
        &mut self,
        base_offset: Offset,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let list = self.segments();
        let sealed = list.active();
        if sealed.base_offset == base_offset && sealed.size() == 0 {
            return Ok(());
        }
        if self.config.preallocate {
            // Releases the preallocated blocks.
            let cut = sealed.log_file();
            let cut = cut.and_then(|file| disk::set_len(&file, sealed.size()));
            cut.map_err(|error| StorageError::new("cut a segment of", &self.dir(), error))?;
        }
        let created = self
            .new_segment(base_offset)
            .map_err(|error| StorageError::new("create a segment in", &self.dir(), error))?;
        if let Some(max) = sealed.max_timestamp() {
            sealed.time_index.append_if_younger(max);
        }
        self.producers.set_map_end_offset(base_offset);
        self.order_snapshot();
        self.jobs.flush_below = Some(base_offset);
        self.jobs.dir_version += 1;
        let mut segments = list.segments.clone();
        segments.push(Arc::new(created));
        self.start_active(segments, base_offset, now);
        Ok(())
    }

    /// Publishes a list of segments whose last is new and empty, and makes it the active one. The
    /// next record's offset is at least `next_offset`.
    pub(super) fn start_active(
        &mut self,
        segments: Vec<Arc<Segment>>,
        next_offset: Offset,
        now: Timestamp,
    ) {
        let segment = segments.last().expect("the new segment").clone();
        let random = self.next_random();
        self.jobs.written_back = 0;
        self.active = ActiveSegment {
            created: now,
            first_batch_timestamp: None,
            roll_jitter_ms: self.config.segment_jitter(random),
            bytes_since_last_index_entry: 0,
            segment,
        };
        let tail = Arc::new(BatchTail::new(Boundary {
            next_offset,
            position: 0,
        }));
        self.publish_segments(segments, tail);
    }

    /// The files of the next segment: the spare one if it is ready. On an error no log file
    /// remains, because recovery cuts the previous segment where a later one begins.
    fn new_segment(&mut self, base_offset: Offset) -> io::Result<Segment> {
        let dir = &self.shared.dir;
        // A spare that is still being created stays ordered and becomes the segment after this one.
        let spare = match self.jobs.spare {
            Spare::Ordered => Spare::Ordered,
            _ => std::mem::take(&mut self.jobs.spare),
        };
        if let Spare::Ready(spare) = spare {
            return Segment::from_spare(dir, base_offset, *spare);
        }
        let segment = Segment::create(dir, base_offset)?;
        if self.bytes_to_reserve() > 0 {
            let bytes = self.bytes_to_reserve();
            let reserved = segment.log_file().and_then(|file| reserve(&file, bytes));
            if let Err(error) = reserved {
                // If it cannot be removed, the error is not a temporary one.
                disk::remove_file_if_there(&segment.path(SegmentFile::Log)?)
                    .map_err(io::Error::other)?;
                return Err(error);
            }
        }
        Ok(segment)
    }
}
