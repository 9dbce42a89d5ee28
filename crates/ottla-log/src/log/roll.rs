//! Beginning a new segment.

use std::sync::Arc;

use ottla_types::{Offset, Timestamp};

use super::{ActiveSegment, Log};
use crate::batch_tail::{BatchTail, Boundary};
use crate::error::StorageError;
use crate::reader::SegmentList;
use crate::segment::Segment;

impl Log {
    /// Seals the active segment and begins a new one at `base_offset`, at or behind the log end offset.
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
        let created = Segment::create(&self.shared.dir, base_offset)
            .map_err(|error| StorageError::new("create segment in", &self.dir(), error))?;
        if let Some(max) = sealed.max_timestamp() {
            sealed.time_index.append_if_younger(max);
        }
        let mut segments = list.segments.clone();
        segments.push(Arc::new(created));
        self.start_active(segments, now)
    }

    /// Publishes a list of segments whose last is new and empty, and makes that the active one.
    pub(super) fn start_active(
        &mut self,
        segments: Vec<Arc<Segment>>,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let segment = segments.last().expect("the new segment").clone();
        let random = self.next_random();
        self.active = ActiveSegment {
            file: segment
                .log_file()
                .map_err(|error| StorageError::new("open segment in", &self.dir(), error))?,
            created: now,
            first_batch_timestamp: None,
            roll_jitter_ms: self.config.segment_jitter(random),
            bytes_since_last_index_entry: 0,
            segment: segment.clone(),
        };
        let tail = Arc::new(BatchTail::new(Boundary {
            next_offset: segment.base_offset,
            position: 0,
        }));
        let list = SegmentList { segments, tail };
        self.shared.segments.store(Arc::new(list));
        Ok(())
    }
}
