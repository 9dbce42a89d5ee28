//! How much of a log can be cleaned, and how badly it needs it.
//!
//! The log has a clean section, up to the offset in the checkpoint; a dirty one that can be cleaned; and an
//! uncleanable one, which begins at the active segment, at the first offset that is not stable, or with the
//! first segment that is younger than `min.compaction.lag.ms`, whichever comes first.
//!
//! Kafka: `LogToClean`, `LogCleanerManager.cleanableOffsets`, `LogCleanerManager.maxCompactionDelay`.

use std::io;
use std::sync::Arc;

use ottla_types::{Offset, Timestamp};

use crate::batch_scan::{BatchScanner, LOOKUP_WINDOW};
use crate::reader::{LogReader, SegmentList};
use crate::segment::Segment;

/// A log and what of it can be cleaned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LogToClean {
    /// Where the dirty section begins.
    pub first_dirty_offset: Offset,
    /// Where the section that can be cleaned ends: the base of a segment.
    pub first_uncleanable_offset: Offset,
    pub clean_bytes: u64,
    pub cleanable_bytes: u64,
    /// How long ago the log should have been cleaned for `max.compaction.lag.ms`; 0 where it is not due.
    pub compaction_delay_ms: i64,
    /// The checkpoint cannot be right: `first_dirty_offset` is to be put into its place.
    pub is_checkpoint_invalid: bool,
    /// How often the log had been truncated when it was looked at: after another time none of this holds.
    pub truncations: u64,
}

impl LogToClean {
    /// Looks at a log that has been cleaned up to `last_clean_offset`. May read from the disk.
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
                    "the log ends before where it was cleaned; all of it is taken for dirty"
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
        // The oldest dirty record is looked up only where it could be too old.
        if clean_until > 0 {
            for segment in dirty {
                let first = first_batch_timestamp(segment)?;
                if let Some(first) = first.filter(|first| first.0 > 0) {
                    compaction_delay_ms = (clean_until - first.0).max(compaction_delay_ms);
                }
            }
        }
        // A segment that holds the first uncleanable offset is not cleaned in part.
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

    /// Which part of what could be cleaned is dirty; 0 where there is nothing.
    pub fn cleanable_ratio(&self) -> f64 {
        let total = self.clean_bytes + self.cleanable_bytes;
        match total {
            0 => 0.0,
            total => self.cleanable_bytes as f64 / total as f64,
        }
    }

    /// Whether the log is to be cleaned at all, with its `min.cleanable.dirty.ratio`.
    pub fn is_due(&self, min_cleanable_dirty_ratio: f64) -> bool {
        (self.compaction_delay_ms > 0 && self.cleanable_bytes > 0)
            || self.cleanable_ratio() > min_cleanable_dirty_ratio
    }
}

/// The segments with a base below `to`.
fn below(list: &SegmentList, to: Offset) -> &[Arc<Segment>] {
    let end = list
        .segments
        .partition_point(|segment| segment.base_offset < to);
    &list.segments[..end]
}

/// The segments that may hold offsets from `from` to below `to`.
pub(super) fn range(list: &SegmentList, from: Offset, to: Offset) -> &[Arc<Segment>] {
    let segments = below(list, to);
    let first = list.floor(from).unwrap_or(0);
    match from < to {
        true => segments.get(first..).unwrap_or_default(),
        false => &[],
    }
}

/// The segments before the active one that may hold offsets from `from` on.
fn sealed_from(list: &SegmentList, from: Offset) -> &[Arc<Segment>] {
    range(list, from, list.active().base_offset)
}

/// The largest timestamp of the first batch, by which the age of a segment counts.
fn first_batch_timestamp(segment: &Segment) -> io::Result<Option<Timestamp>> {
    let file = segment.log_file()?;
    let mut scanner = BatchScanner::new(&file, 0, segment.size(), LOOKUP_WINDOW);
    let first = scanner.next_batch().ok().flatten();
    Ok(first.map(|batch| batch.max_timestamp))
}
