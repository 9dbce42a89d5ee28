//! How much of a log can be cleaned, and how urgently.
//!
//! A log has a clean section, up to the offset in the checkpoint; a dirty section that can be
//! cleaned; and an uncleanable section. The last begins at the active segment, at the first
//! unstable offset, or at the first segment younger than `min.compaction.lag.ms`, whichever comes
//! first.
//!
//! Kafka: `LogToClean`, `LogCleanerManager.cleanableOffsets`, `LogCleanerManager.maxCompactionDelay`.

use std::io;
use std::sync::Arc;

use ottla_types::{Offset, Timestamp};

use crate::batch_scan::{BatchScanner, LOOKUP_WINDOW};
use crate::reader::{LogReader, SegmentList};
use crate::segment::Segment;

/// A log and its cleanable section.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LogToClean {
    /// Start of the dirty section.
    pub first_dirty_offset: Offset,
    /// End of the cleanable section, exclusive: the base offset of a segment.
    pub first_uncleanable_offset: Offset,
    pub clean_bytes: u64,
    pub cleanable_bytes: u64,
    /// By how many milliseconds `max.compaction.lag.ms` is exceeded; 0 if it is not.
    pub compaction_delay_ms: i64,
    /// The checkpoint is outside the log and must be replaced by `first_dirty_offset`.
    pub is_checkpoint_invalid: bool,
    /// [`LogReader::truncations`] at the time of the look: after another truncation, this struct is
    /// stale.
    pub truncations: u64,
}

impl LogToClean {
    /// Examines a log that is clean below `last_clean_offset`. May read from the disk.
    pub fn examine(
        log: &LogReader,
        last_clean_offset: Option<Offset>,
        now: Timestamp,
    ) -> io::Result<LogToClean> {
        let truncations = log.truncations();
        let config = log.config();
        let (start, end) = (log.log_start_offset(), log.log_end_offset());
        let stable = log.last_stable_offset();
        let list = log.shared.segments.load_full();
        let (first_dirty_offset, is_checkpoint_invalid) = match last_clean_offset {
            Some(checkpoint) if checkpoint < start => {
                let is_start_moved_by_retention =
                    config.cleanup_policy.compact && config.cleanup_policy.delete;
                if !is_start_moved_by_retention {
                    tracing::warn!(
                        partition = %log.topic_partition(), %checkpoint, log_start_offset = %start,
                        "the log was cleaned up to before its start; its dirty section begins there"
                    );
                }
                (start, true)
            }
            Some(checkpoint) if checkpoint > end => {
                tracing::warn!(
                    partition = %log.topic_partition(), %checkpoint, log_end_offset = %end,
                    "the log ends before where it was cleaned; all of it counts as dirty"
                );
                (start, true)
            }
            checkpoint => (checkpoint.unwrap_or(start), false),
        };
        let dirty = sealed_from(&list, first_dirty_offset);
        let mut uncleanable = stable.min(list.active().base_offset);
        let min_lag_ms = config.min_compaction_lag_ms.max(0);
        if min_lag_ms > 0 {
            for segment in dirty {
                if segment.largest_timestamp()?.0 > now.0.saturating_sub(min_lag_ms) {
                    uncleanable = uncleanable.min(segment.base_offset);
                    break;
                }
            }
        }
        let uncleanable = uncleanable.max(first_dirty_offset);
        let clean_until = now.0.saturating_sub(config.max_compaction_lag_ms.max(0));
        let mut compaction_delay_ms = 0;
        // The timestamps of the dirty segments are read only if one could be too old.
        if clean_until > 0 {
            for segment in dirty {
                let first = first_batch_timestamp(segment)?;
                if let Some(first) = first.filter(|first| first.0 > 0) {
                    compaction_delay_ms = (clean_until - first.0).max(compaction_delay_ms);
                }
            }
        }
        // A segment that holds the first uncleanable offset is not cleaned partially.
        let first_uncleanable = sealed_from(&list, uncleanable).first();
        let first_uncleanable_offset =
            first_uncleanable.map_or(list.active().base_offset, |segment| segment.base_offset);
        let sum = |segments: &[Arc<Segment>]| segments.iter().map(|s| s.size()).sum();
        let clean = below(&list, first_dirty_offset);
        let from = first_dirty_offset.min(first_uncleanable_offset);
        Ok(LogToClean {
            first_dirty_offset,
            first_uncleanable_offset,
            clean_bytes: sum(clean),
            cleanable_bytes: sum(range(&list, from, first_uncleanable_offset)),
            compaction_delay_ms,
            is_checkpoint_invalid,
            truncations,
        })
    }

    /// The dirty share of the bytes that are clean or cleanable, between 0 and 1; 0 for an empty
    /// log.
    pub fn cleanable_ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        match total {
            0 => 0.0,
            total => self.cleanable_bytes as f64 / total as f64,
        }
    }

    /// Whether the log should be cleaned, given its `min.cleanable.dirty.ratio`.
    pub fn is_due(&self, min_cleanable_dirty_ratio: f64) -> bool {
        (self.compaction_delay_ms > 0 && self.cleanable_bytes > 0)
            || self.cleanable_ratio() > min_cleanable_dirty_ratio
    }
}

/// The segments whose base offset is below `to`.
fn below(list: &SegmentList, to: Offset) -> &[Arc<Segment>] {
    let end = list
        .segments
        .partition_point(|segment| segment.base_offset < to);
    &list.segments[..end]
}

/// The segments that may hold offsets in `[from, to)`.
pub(super) fn range(list: &SegmentList, from: Offset, to: Offset) -> &[Arc<Segment>] {
    let segments = below(list, to);
    let first = list.floor(from).unwrap_or(0);
    match from < to {
        true => segments.get(first..).unwrap_or_default(),
        false => &[],
    }
}

/// The sealed segments that may hold offsets from `from` on.
fn sealed_from(list: &SegmentList, from: Offset) -> &[Arc<Segment>] {
    range(list, from, list.active().base_offset)
}

/// The largest timestamp of the first batch, from which the age of the segment is counted.
fn first_batch_timestamp(segment: &Segment) -> io::Result<Option<Timestamp>> {
    let file = segment.log_file()?;
    let mut scanner = BatchScanner::new(&file, 0, segment.size(), LOOKUP_WINDOW);
    let first = scanner.next_batch().ok().flatten();
    Ok(first.map(|batch| batch.max_timestamp))
}
