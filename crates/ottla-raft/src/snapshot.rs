//! Snapshots of the metadata log: their names, when the next is due, and which may be deleted.
//!
//! A snapshot `<offset>-<epoch>` holds the state up to `offset`, exclusive; `epoch` is that of its
//! last record. The log may start no later than the oldest retained snapshot.
//!
//! Kafka: `Snapshots`, `SnapshotGenerator`, `KafkaRaftLog.maybeClean`.

use std::fmt;

use ottla_types::{LeaderEpoch, Offset, Timestamp};

/// Identifies a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SnapshotId {
    /// Exclusive: the first offset that is not in the snapshot.
    pub end_offset: Offset,
    pub epoch: LeaderEpoch,
}

impl SnapshotId {
    /// Written when the directory is formatted; holds the initial records of the cluster.
    pub const BOOTSTRAP: SnapshotId = SnapshotId {
        end_offset: Offset(0),
        epoch: LeaderEpoch(0),
    };

    pub const SUFFIX: &'static str = ".checkpoint";

    /// `00000000000000000042-0000000003.checkpoint`
    pub fn file_name(self) -> String {
        format!("{self}{}", Self::SUFFIX)
    }

    /// `None` for other files, and for partial or deleted snapshots.
    pub fn from_file_name(name: &str) -> Option<SnapshotId> {
        let (offset, epoch) = name.strip_suffix(Self::SUFFIX)?.split_once('-')?;
        let is_number = |text: &str, width| {
            text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(offset, 20) || !is_number(epoch, 10) {
            return None;
        }
        Some(SnapshotId {
            end_offset: Offset(offset.parse().ok()?),
            epoch: LeaderEpoch(epoch.parse().ok()?),
        })
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:020}-{:010}",
            self.end_offset.value(),
            self.epoch.value()
        )
    }
}

/// When a snapshot is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotPolicy {
    /// `metadata.log.max.record.bytes.between.snapshots`
    pub max_bytes_between: u64,
    /// `metadata.log.max.snapshot.interval.ms`; 0 for no limit by time.
    pub max_interval_ms: i64,
}

/// Progress of commits since the last snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotProgress {
    bytes: u64,
    last_snapshot: Timestamp,
}

impl SnapshotProgress {
    pub fn new(now: Timestamp) -> SnapshotProgress {
        SnapshotProgress {
            bytes: 0,
            last_snapshot: now,
        }
    }

    /// Counts the records after the last snapshot that were found when the log was loaded.
    pub fn add_loaded(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Adds `bytes` of committed records. Returns whether a snapshot is due.
    pub fn on_committed(&mut self, bytes: u64, now: Timestamp, policy: &SnapshotPolicy) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        self.is_due(now, policy)
    }

    pub fn is_due(&self, now: Timestamp, policy: &SnapshotPolicy) -> bool {
        let waited_ms = now.value().saturating_sub(self.last_snapshot.value());
        self.bytes > 0
            && (self.bytes >= policy.max_bytes_between
                || (policy.max_interval_ms > 0 && waited_ms >= policy.max_interval_ms))
    }

    pub fn on_snapshot_written(&mut self, now: Timestamp) {
        *self = SnapshotProgress::new(now);
    }
}

/// Retention of snapshots; -1 for no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotRetention {
    /// `metadata.max.retention.bytes`, over log and snapshots together.
    pub max_bytes: i64,
    /// `metadata.max.retention.ms`, by the time of the last record in the snapshot.
    pub max_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredSnapshot {
    pub id: SnapshotId,
    pub size_bytes: u64,
    pub last_contained_log_time: Timestamp,
}

impl SnapshotRetention {
    /// The oldest snapshot to keep, if older ones may be deleted: the log then starts at its end
    /// offset. The newest snapshot is always kept. `snapshots` must be sorted, oldest first.
    pub fn oldest_to_keep(
        &self,
        snapshots: &[StoredSnapshot],
        log_bytes: u64,
        now: Timestamp,
    ) -> Option<SnapshotId> {
        let mut total = log_bytes
            + snapshots
                .iter()
                .map(|snapshot| snapshot.size_bytes)
                .sum::<u64>();
        let mut kept = None;
        for pair in snapshots.windows(2) {
            let age_ms = now
                .value()
                .saturating_sub(pair[0].last_contained_log_time.value());
            let too_large = self.max_bytes >= 0 && total > self.max_bytes as u64;
            let too_old = self.max_ms >= 0 && age_ms > self.max_ms;
            if !too_large && !too_old {
                break;
            }
            total -= pair[0].size_bytes;
            kept = Some(pair[1].id);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(end_offset: i64, epoch: i32) -> SnapshotId {
        SnapshotId {
            end_offset: Offset(end_offset),
            epoch: LeaderEpoch(epoch),
        }
    }

    #[test]
    fn names_round_trip() {
        let name = "00000000000000000042-0000000003.checkpoint";
        assert_eq!(id(42, 3).file_name(), name);
        assert_eq!(SnapshotId::from_file_name(name), Some(id(42, 3)));
        for other in [
            "00000000000000000042-0000000003.checkpoint.deleted",
            "00000000000000000042-0000000003-1234.checkpoint.part",
            "00000000000000000042.log",
            "42-3.checkpoint",
            "99999999999999999999-0000000003.checkpoint",
            "bootstrap.checkpoint",
        ] {
            assert_eq!(SnapshotId::from_file_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_snapshot_is_due_by_bytes_or_by_time() {
        let policy = SnapshotPolicy {
            max_bytes_between: 100,
            max_interval_ms: 1000,
        };
        let mut progress = SnapshotProgress::new(Timestamp(0));
        assert!(
            !progress.is_due(Timestamp(5000), &policy),
            "nothing was committed"
        );
        assert!(!progress.on_committed(99, Timestamp(999), &policy));
        assert!(progress.is_due(Timestamp(1000), &policy));
        assert!(progress.on_committed(1, Timestamp(999), &policy));
        progress.on_snapshot_written(Timestamp(999));
        assert!(!progress.on_committed(1, Timestamp(1000), &policy));
    }

    #[test]
    fn the_newest_snapshot_is_always_kept() {
        let stored = |end_offset, time| StoredSnapshot {
            id: id(end_offset, 1),
            size_bytes: 10,
            last_contained_log_time: Timestamp(time),
        };
        let snapshots = [stored(0, 0), stored(50, 500), stored(90, 900)];
        let keep = |max_bytes, max_ms| {
            SnapshotRetention { max_bytes, max_ms }.oldest_to_keep(&snapshots, 100, Timestamp(1000))
        };
        assert_eq!(keep(-1, -1), None);
        assert_eq!(keep(130, -1), None);
        assert_eq!(keep(129, -1), Some(id(50, 1)));
        assert_eq!(keep(0, -1), Some(id(90, 1)));
        assert_eq!(keep(-1, 600), Some(id(50, 1)));
        assert_eq!(keep(-1, 1), Some(id(90, 1)));
        assert_eq!(keep(-1, 1000), None);
    }
}
