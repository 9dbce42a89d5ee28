//! Which remote segments expire, and in which order.
//!
//! Kafka: `RLMExpirationTask.cleanupExpiredRemoteLogSegments`, `RemoteLogRetentionHandler`. Kafka
//! continues unfinished deletions only up to the first segment that stays, so the objects of failed
//! and abandoned uploads wait for retention; without retention they stay forever. It does not move
//! the log start past segments that a former leader was deleting.

use std::collections::BTreeSet;

use ottla_types::{Offset, Timestamp, Uuid};

use crate::leader_epochs::LeaderEpochs;
use crate::lineage::{
    first_offset, highest_remote_offset, is_copied, is_within_leader_epochs, offsets_of,
};
use crate::log_view::LogView;
use crate::metadata_cache::{RemoteLogMetadataCache, RemoteLogStats};
use crate::planted::{Bug, has};
use crate::remote_segment::RemoteSegment;
use crate::segment_state::RemoteLogSegmentState;

/// An upload that began longer ago than this, and that the leader itself does not run, is
/// abandoned. A former leader may continue its upload for a while, and objects that it writes after
/// the deletion stay in the store. The largest segment takes 34 minutes at the lowest upload rate
/// of the chunked store.
///
/// The start time comes from the clock of the broker that began the upload, which may be hours off.
/// So the leader must also have led for as long, by its own clock. Otherwise:
/// 1. a former leader uploads a segment, and does not know yet that it no longer leads,
/// 2. the new leader takes the upload for abandoned, and begins to copy the same records,
/// 3. the former leader finishes the segment and the one after it,
/// 4. the record of the new leader deletes the finished segment,
/// 5. the new leader fails. The next one takes all records before the segment of step 3 for copied,
///    and deletes the only remaining copy, the local one.
const ABANDONED_AFTER_MS: u64 = 3_600_000;

/// How long records are kept in either tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// `retention.ms`, -1 for no limit.
    pub retention_ms: i64,
    /// `retention.bytes`, -1 for no limit.
    pub retention_bytes: i64,
}

/// The leader's knowledge of uploads besides their records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leading {
    /// The segment that it copies at the moment.
    pub being_copied: Option<Uuid>,
    /// How long it has led, by a clock that does not jump.
    pub for_ms: u64,
}

/// The deletions of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Expiry {
    /// Where the log starts after it, if retention moves the start.
    pub log_start_offset: Option<Offset>,
    /// The segments to delete: expired segments, segments with an unfinished deletion and abandoned
    /// uploads, by epoch and offset, then segments older than the first epoch of the log.
    pub segments: Vec<RemoteSegment>,
    pub stats: RemoteLogStats,
    /// The size of the partition in both tiers. Only if `retention.bytes` limits it, otherwise 0.
    pub retained_bytes: u64,
}

/// Decides what to delete. Looks at the segments that expire and at those that are not readable, but not at
/// most others.
pub fn expire(
    log: &LogView,
    cache: &RemoteLogMetadataCache,
    retention: Retention,
    leading: Leading,
    now: Timestamp,
) -> Expiry {
    let stats = cache.stats();
    let mut expiry = Expiry {
        stats,
        ..Expiry::default()
    };
    let limit = u64::try_from(retention.retention_bytes).ok();
    if stats.segments == 0 {
        expiry.retained_bytes = limit.map_or(0, |_| log.size_bytes());
        return expiry;
    }
    let lineage = log.leader_epochs.without_empty();
    if let Some(limit) = limit {
        expiry.retained_bytes = retained_bytes(log, cache, limit, stats, &lineage);
    }
    let breached_bytes = limit.and_then(|limit| expiry.retained_bytes.checked_sub(limit));
    let mut rules = Rules {
        cleanup_until: cleanup_until(retention, now),
        remaining_breached_bytes: breached_bytes.filter(|bytes| *bytes > 0),
        log_start_offset: None,
    };
    let mut chosen = BTreeSet::new();
    let epochs = lineage.entries().iter();
    let mut walks = epochs.map(|entry| cache.walk(entry.epoch)).peekable();
    let mut is_over = false;
    while let Some(walk) = walks.peek_mut() {
        // After the first one that stays, readable ones stay too.
        let Some(segment) = walk.next_segment(is_over) else {
            walks.next();
            continue;
        };
        // Segments after it are not copied yet.
        if leading.being_copied == Some(segment.id) {
            is_over = true;
            continue;
        }
        if chosen.contains(&segment.id) {
            continue;
        }
        let is_begun = segment.state == RemoteLogSegmentState::DeleteSegmentStarted;
        let is_expired = if is_begun {
            !has(Bug::ForgetBegunDeletions)
        } else if is_left_behind(&segment, leading, now) {
            true
        } else if is_over {
            false
        } else {
            let verdict = rules.judge(&segment, log, &lineage);
            is_over = matches!(verdict, Verdict::Keep);
            matches!(verdict, Verdict::Delete)
        };
        if is_expired {
            chosen.insert(segment.id);
            expiry.segments.push(segment);
        }
    }
    // A former leader may have started to delete the first segments of the log.
    let first = first_offset(cache, log);
    if first > log.log_start_offset && first <= log.high_watermark {
        rules.log_start_offset = rules.log_start_offset.max(Some(first));
    }
    expiry.log_start_offset = rules.log_start_offset;
    expiry.segments.extend(before(log, cache));
    expiry
}

fn is_left_behind(segment: &RemoteSegment, leading: Leading, now: Timestamp) -> bool {
    let age_ms = now.0.saturating_sub(segment.event_timestamp.0);
    segment.state == RemoteLogSegmentState::CopySegmentStarted
        && u64::try_from(age_ms).is_ok_and(|age_ms| age_ms > ABANDONED_AFTER_MS)
        && leading.for_ms > ABANDONED_AFTER_MS
}

/// Segments whose newest record is older than this expire.
fn cleanup_until(retention: Retention, now: Timestamp) -> Option<Timestamp> {
    let until = now.0.checked_sub(retention.retention_ms)?;
    (retention.retention_ms > -1 && until >= 0).then_some(Timestamp(until))
}

/// The size of the log in both tiers: the local segments that remote storage does not have, and the
/// readable remote ones. Of these, all count while that is not more than `limit`, and otherwise those
/// of the log's history.
///
/// The log of a leader that was restarted does not know yet what remote storage has, and if copying is
/// disabled, it never does. Kafka then counts segments twice that are in both tiers, and lets so much
/// too much expire. So it would if a copy is missing before others.
fn retained_bytes(
    log: &LogView,
    cache: &RemoteLogMetadataCache,
    limit: u64,
    stats: RemoteLogStats,
    lineage: &LeaderEpochs,
) -> u64 {
    let highest = highest_remote_offset(cache, log).max(log.highest_remote_offset);
    let local: u64 = log
        .only_local_segments(highest)
        .filter(|segment| {
            let (first, end) = (segment.base_offset, log.end_of(segment));
            !is_copied(cache, log, first, end.plus(-1))
        })
        .map(|segment| u64::from(segment.size_bytes))
        .sum();
    if local + stats.finished_bytes <= limit {
        return local + stats.finished_bytes;
    }
    let epochs = || lineage.entries().iter().map(|entry| entry.epoch);
    let of_one_epoch: u64 = epochs()
        .map(|epoch| {
            let offsets = offsets_of(epoch, log.log_end_offset, lineage);
            cache.bytes_within(epoch, offsets.start, offsets.end)
        })
        .sum();
    let others = epochs().flat_map(|epoch| cache.unreferenced_of(epoch));
    let others: u64 = others
        .chain(cache.segments_of_several_epochs())
        .filter(|segment| {
            segment.state == RemoteLogSegmentState::CopySegmentFinished
                && is_within_leader_epochs(segment, log.log_end_offset, lineage)
        })
        .map(|segment| segment.size_bytes())
        .sum();
    local + of_one_epoch + others
}

/// The rules for segments of the log's epochs, in the order of the offsets.
struct Rules {
    cleanup_until: Option<Timestamp>,
    remaining_breached_bytes: Option<u64>,
    log_start_offset: Option<Offset>,
}

enum Verdict {
    Delete,
    /// It stays, and so does everything after it.
    Keep,
    /// It is not part of the log's history, so the retention of the log does not apply.
    OtherHistory,
}

impl Rules {
    fn judge(&mut self, segment: &RemoteSegment, log: &LogView, lineage: &LeaderEpochs) -> Verdict {
        if is_before_log_start(segment, log.log_start_offset, lineage) {
            return Verdict::Delete;
        }
        if !is_within_leader_epochs(segment, log.log_end_offset, lineage) {
            return Verdict::OtherHistory;
        }
        // The log start offset cannot pass the high watermark, which a new leader may not know yet.
        let is_below = segment.next_offset() <= log.high_watermark;
        if !is_below || !self.is_too_old(segment) && !self.is_too_much(segment) {
            return Verdict::Keep;
        }
        if !has(Bug::ExpireWithoutMovingStart) {
            self.log_start_offset = self.log_start_offset.max(Some(segment.next_offset()));
        }
        Verdict::Delete
    }

    fn is_too_old(&mut self, segment: &RemoteSegment) -> bool {
        let is_old = self
            .cleanup_until
            .is_some_and(|until| segment.max_timestamp < until);
        if is_old && let Some(remaining) = &mut self.remaining_breached_bytes {
            *remaining = remaining.saturating_sub(segment.size_bytes());
        }
        is_old
    }

    /// A segment is deleted for its size only as a whole, so that not less than `retention.bytes`
    /// remain.
    fn is_too_much(&mut self, segment: &RemoteSegment) -> bool {
        let Some(remaining) = self.remaining_breached_bytes.filter(|bytes| *bytes > 0) else {
            return false;
        };
        let left = remaining.checked_sub(segment.size_bytes());
        self.remaining_breached_bytes = left.or(Some(remaining));
        left.is_some()
    }
}

/// The log start offset was moved past the segment, which has no newer epochs than the log's first.
/// The epochs of such a segment are gone from the log, so its history is not compared.
fn is_before_log_start(
    segment: &RemoteSegment,
    log_start_offset: Offset,
    lineage: &LeaderEpochs,
) -> bool {
    let Some(first) = lineage.earliest() else {
        return false;
    };
    let latest = segment.segment_leader_epochs.latest();
    latest.is_none_or(|latest| latest.epoch <= first.epoch) && segment.end_offset < log_start_offset
}

/// The segments whose epochs are all older than the first epoch of the log, left by an unclean
/// election or a failed deletion.
fn before(log: &LogView, cache: &RemoteLogMetadataCache) -> Vec<RemoteSegment> {
    let Some(first) = log.leader_epochs.earliest() else {
        return Vec::new();
    };
    let mut chosen = BTreeSet::new();
    cache
        .epochs_before(first.epoch)
        .flat_map(|epoch| cache.segments_of(epoch))
        .filter(|segment| {
            let latest = segment.segment_leader_epochs.latest();
            latest.is_none_or(|latest| latest.epoch < first.epoch) && chosen.insert(segment.id)
        })
        .collect()
}

#[cfg(test)]
mod tests;
