//! When a group must refresh the metadata of its topics.
//!
//! This is not part of the group's state: it is not written to the log, and not rolled back when a
//! write fails. It therefore contains the group epoch in which it was set: if that epoch was rolled
//! back, the group refreshes again. Source: `ModernGroup.DeadlineAndEpoch`, `hasMetadataExpired`.
//! Source: `ModernGroup.DeadlineAndEpoch`, `hasMetadataExpired`.

/// The maximum age of metadata without reported changes.
const METADATA_REFRESH_INTERVAL_MS: i64 = i32::MAX as i64;

/// A new group has a deadline that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MetadataRefresh {
    deadline_ms: i64,
    group_epoch: i32,
}

impl MetadataRefresh {
    /// The group has been refreshed, and is or will be in `group_epoch`.
    pub fn done(now_ms: i64, group_epoch: i32) -> Self {
        MetadataRefresh {
            deadline_ms: now_ms.saturating_add(METADATA_REFRESH_INTERVAL_MS),
            group_epoch,
        }
    }

    pub fn is_due(&self, now_ms: i64, group_epoch: i32) -> bool {
        now_ms >= self.deadline_ms || group_epoch < self.group_epoch
    }
}

#[cfg(test)]
mod tests {
    use super::MetadataRefresh;

    #[test]
    fn a_refresh_is_due_at_first_and_after_its_epoch_was_lost() {
        assert!(MetadataRefresh::default().is_due(0, 1));
        let refresh = MetadataRefresh::done(1_000, 5);
        assert!(!refresh.is_due(2_000, 5));
        assert!(!refresh.is_due(2_000, 6));
        assert!(refresh.is_due(2_000, 4));
        assert!(refresh.is_due(1_000 + i64::from(i32::MAX), 5));
    }
}
