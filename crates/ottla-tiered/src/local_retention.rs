//! Which local segments of a tiered log may be deleted.
//!
//! While segments are copied, a local segment may be deleted only when remote storage has all of
//! it, or when the log start offset is past it. `local.retention.*` determines how long it stays
//! after that. While copying is disabled, local segments follow `retention.*` as in any log.
//!
//! Kafka: `UnifiedLog.deleteOldSegments`, `deletableSegments`, `isSegmentEligibleForDeletion`.

use ottla_types::{Offset, Timestamp};

use crate::expiry::Retention;
use crate::log_view::{LocalSegment, LogView};
use crate::planted::{Bug, has};

/// The settings of a topic that local retention depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRetention {
    /// `retention.ms` and `retention.bytes`.
    pub retention: Retention,
    /// `local.retention.ms`: -2 for that of `retention.ms`, -1 for no limit.
    pub local_retention_ms: i64,
    /// `local.retention.bytes`: -2 for that of `retention.bytes`, -1 for no limit.
    pub local_retention_bytes: i64,
    /// Whether `cleanup.policy` has `delete`. It may be empty for a tiered topic.
    pub is_delete_policy: bool,
    /// `remote.storage.enable`.
    pub is_remote_storage_enabled: bool,
    /// `remote.log.copy.disable`.
    pub is_copy_disabled: bool,
}

/// What becomes of the local segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalExpiry {
    /// How many segments are deleted, from the oldest. If no segment would remain, a new active
    /// segment is created first.
    pub segments: usize,
    /// The active segment has expired: it is closed, so that it can be copied and deleted later.
    pub is_active_closed: bool,
}

impl LocalRetention {
    fn is_copying(&self) -> bool {
        self.is_remote_storage_enabled && !self.is_copy_disabled
    }

    /// The limits of local segments.
    pub fn effective(&self) -> Retention {
        if !self.is_copying() {
            return self.retention;
        }
        let or_all = |local: i64, all: i64| if local == -2 { all } else { local };
        Retention {
            retention_ms: or_all(self.local_retention_ms, self.retention.retention_ms),
            retention_bytes: or_all(self.local_retention_bytes, self.retention.retention_bytes),
        }
    }

    /// Decides which local segments go: those before the start of the log, then the oldest by
    /// size, then by age.
    pub fn expire(&self, log: &LogView, now: Timestamp) -> LocalExpiry {
        let mut expiry = LocalExpiry::default();
        let start = match self.is_remote_storage_enabled {
            true => log.local_log_start_offset,
            false => log.log_start_offset,
        };
        self.delete_while(log, &mut expiry, |_, next| {
            next.is_some_and(|next| next.base_offset <= start)
        });
        // Without a cleanup policy, only copied segments may expire.
        if !self.is_delete_policy && !self.is_copying() {
            return expiry;
        }
        let Retention {
            retention_ms,
            retention_bytes,
        } = self.effective();
        if let Ok(limit) = u64::try_from(retention_bytes) {
            let left = &log.segments[expiry.segments..];
            let size: u64 = left.iter().map(|it| u64::from(it.size_bytes)).sum();
            let mut too_much = size.checked_sub(limit);
            self.delete_while(log, &mut expiry, |segment, _| {
                let left = too_much.and_then(|it| it.checked_sub(segment.size_bytes.into()));
                too_much = left.or(too_much);
                left.is_some()
            });
        }
        if retention_ms >= 0 {
            self.delete_while(log, &mut expiry, |segment, _| {
                now.0.saturating_sub(segment.largest_timestamp.0) > retention_ms
            });
        }
        expiry
    }

    fn delete_while(
        &self,
        log: &LogView,
        expiry: &mut LocalExpiry,
        mut is_expired: impl FnMut(&LocalSegment, Option<&LocalSegment>) -> bool,
    ) {
        while let Some(segment) = log.segments.get(expiry.segments) {
            let next = log.segments.get(expiry.segments + 1);
            let end = next.map_or(log.log_end_offset, |next| next.base_offset);
            // The log start offset never passes the high watermark.
            if log.high_watermark < end || !is_expired(segment, next) {
                return;
            }
            let is_empty = segment.size_bytes == 0;
            if next.is_none() && self.is_remote_storage_enabled && !is_empty {
                expiry.is_active_closed = true;
            }
            let is_empty_active = next.is_none() && is_empty;
            if is_empty_active || !self.may_go(log, next, end) {
                return;
            }
            expiry.segments += 1;
        }
    }

    /// Whether the segment that ends before `end` is no longer needed on the local disk.
    fn may_go(&self, log: &LogView, next: Option<&LocalSegment>, end: Offset) -> bool {
        if !self.is_copying() || has(Bug::IgnoreRemoteEnd) {
            return true;
        }
        let is_copied = end.0 > 0 && end.0 - 1 <= log.highest_remote_offset.0;
        is_copied || next.is_some_and(|next| log.log_start_offset >= next.base_offset)
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{Offset, Timestamp};

    use super::{LocalExpiry, LocalRetention};
    use crate::test_segments::log;
    use crate::{LeaderEpochs, LogView, Retention};

    const TIERED: LocalRetention = LocalRetention {
        retention: Retention {
            retention_ms: 1000,
            retention_bytes: -1,
        },
        local_retention_ms: -2,
        local_retention_bytes: -2,
        is_delete_policy: true,
        is_remote_storage_enabled: true,
        is_copy_disabled: false,
    };

    /// Segments of ten records and ten bytes; a record's timestamp is its offset.
    fn copied_to(highest: i64) -> LogView {
        let mut log = log(&[0, 10, 20, 30], 35, LeaderEpochs::from([(0, 0)]));
        log.highest_remote_offset = Offset(highest);
        log
    }

    fn expire(settings: &LocalRetention, log: &LogView, now: i64) -> (usize, bool) {
        let LocalExpiry {
            segments,
            is_active_closed,
        } = settings.expire(log, Timestamp(now));
        (segments, is_active_closed)
    }

    #[test]
    fn only_copied_segments_are_deleted() {
        let local = LocalRetention {
            local_retention_ms: 5,
            ..TIERED
        };
        assert_eq!(expire(&local, &copied_to(-1), 100), (0, false));
        assert_eq!(expire(&local, &copied_to(18), 100), (1, false));
        assert_eq!(expire(&local, &copied_to(19), 100), (2, false));
        assert_eq!(expire(&local, &copied_to(29), 24), (1, false));
        // Also the active segment has expired.
        assert_eq!(expire(&local, &copied_to(29), 100), (3, true));
        assert_eq!(expire(&TIERED, &copied_to(29), 100), (0, false));
        let by_size = LocalRetention {
            local_retention_bytes: 15,
            ..TIERED
        };
        assert_eq!(expire(&by_size, &copied_to(29), 100), (2, false));
        assert_eq!(expire(&by_size, &copied_to(9), 100), (1, false));
    }

    #[test]
    fn segments_before_the_log_start_are_deleted_uncopied() {
        let mut log = copied_to(-1);
        log.log_start_offset = Offset(20);
        log.local_log_start_offset = Offset(20);
        assert_eq!(expire(&TIERED, &log, 100), (2, false));
    }

    #[test]
    fn without_copying_local_segments_follow_the_topic_retention() {
        let disabled = LocalRetention {
            is_copy_disabled: true,
            local_retention_ms: 5,
            ..TIERED
        };
        assert_eq!(expire(&disabled, &copied_to(-1), 100), (0, false));
        assert_eq!(expire(&disabled, &copied_to(-1), 1015), (1, false));
    }

    #[test]
    fn an_empty_policy_lets_copied_segments_go() {
        let mut empty = LocalRetention {
            is_delete_policy: false,
            local_retention_ms: 5,
            ..TIERED
        };
        assert_eq!(expire(&empty, &copied_to(19), 100), (2, false));
        empty.is_copy_disabled = true;
        assert_eq!(expire(&empty, &copied_to(19), 5000), (0, false));
    }

    #[test]
    fn no_segment_beyond_the_high_watermark_is_deleted() {
        let local = LocalRetention {
            local_retention_ms: 5,
            ..TIERED
        };
        let mut log = copied_to(29);
        log.high_watermark = Offset(15);
        assert_eq!(expire(&local, &log, 100), (1, false));
    }
}
