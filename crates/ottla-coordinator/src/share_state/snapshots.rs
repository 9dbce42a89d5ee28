//! Snapshots of inactive share partitions, and deletion of the log before snapshots.
//! Source: `ShareCoordinatorShard.snapshotColdPartitions`, `ShareCoordinatorOffsetsManager`.

use ottla_types::{Offset, Timestamp};

use super::coordinator::ShareCoordinator;
use super::outcome::Outcome;
use super::record::{Change, ShareStateRecord};
use super::state::Snapshot;
use crate::persister::SharePartitionKey;

impl ShareCoordinator {
    /// Writes new snapshots of inactive share partitions, which would otherwise prevent the
    /// deletion of the log after their last one. Done only while some other share partition is
    /// active.
    pub(super) fn snapshot_cold(&mut self, now: Timestamp) -> Outcome {
        let states = || {
            self.states
                .iter()
                .filter_map(|(key, state)| Some((key, state.latest()?)))
        };
        let rests = |created: i64, written: i64| created != written;
        if states().all(|(_, state)| rests(state.create_timestamp, state.write_timestamp)) {
            return Outcome::default();
        }
        let interval_ms = self.config.cold_partition_snapshot_interval_ms;
        let mut cold: Vec<(SharePartitionKey, Snapshot)> = states()
            .filter(|(_, state)| {
                let age_ms = now.0.saturating_sub(state.write_timestamp);
                u64::try_from(age_ms).is_ok_and(|age_ms| age_ms >= interval_ms)
            })
            .map(|(key, state)| (key.clone(), state.snapshot()))
            .collect();
        if cold.is_empty() {
            return Outcome::default();
        }
        cold.sort_by(|(one, _), (other, _)| one.cmp(other));
        let records = cold.into_iter().map(|(key, snapshot)| ShareStateRecord {
            key,
            change: Change::Snapshot(Snapshot {
                write_timestamp: now.0,
                ..snapshot
            }),
        });
        self.write(records.collect(), None)
    }

    /// Records before the oldest of the newest snapshots are redundant.
    pub(super) fn redundant_before(&self) -> Option<Offset> {
        let oldest_needed = self.snapshot_offsets.values().min().copied();
        // If there is no snapshot to keep, only tombstones are left.
        let redundant = oldest_needed.or(self.last_tombstone);
        redundant.filter(|offset| offset.0 > 0)
    }
}
