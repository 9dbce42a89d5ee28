//! The state of one share partition.
//! Source: `ShareGroupOffset`.

use ottla_protocol::coordinator_records::{ShareSnapshotValue, ShareUpdateValue};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::batches::combine;
use crate::persister::StateBatch;

/// The recorded state, and counters that exist only in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ShareState {
    /// Raised with every snapshot.
    pub(super) snapshot_epoch: i32,
    pub(super) state_epoch: i32,
    pub(super) leader_epoch: LeaderEpoch,
    /// `Offset::UNKNOWN` until the partition is read for the first time.
    pub(super) start_offset: Offset,
    /// -1 if it is not known.
    pub(super) delivery_complete_count: i32,
    pub(super) batches: Vec<StateBatch>,
    pub(super) create_timestamp: i64,
    pub(super) write_timestamp: i64,
    /// The highest epoch seen so far: requests with lower ones are fenced.
    pub(super) highest_leader_epoch: LeaderEpoch,
    pub(super) highest_state_epoch: i32,
    /// The number of update records since the last snapshot.
    pub(super) updates: i32,
}

impl ShareState {
    /// Checks the leader epoch of a request. A request without an epoch is not from a leader, and
    /// is allowed.
    pub(super) fn check_leader_epoch(&self, leader_epoch: LeaderEpoch) -> Result<(), ErrorCode> {
        let is_of_a_leader = leader_epoch != LeaderEpoch::UNKNOWN;
        if is_of_a_leader && self.highest_leader_epoch > leader_epoch {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        Ok(())
    }

    /// The state after a snapshot.
    pub(super) fn on_snapshot(
        before: Option<&ShareState>,
        snapshot: &Snapshot,
        limit: i32,
    ) -> Self {
        let highest_leader_epoch = before.map(|state| state.highest_leader_epoch);
        let highest_state_epoch = before.map(|state| state.highest_state_epoch);
        let updates = before.map_or(0, |state| state.updates);
        ShareState {
            snapshot_epoch: snapshot.snapshot_epoch,
            state_epoch: snapshot.state_epoch,
            leader_epoch: snapshot.leader_epoch,
            start_offset: snapshot.start_offset,
            delivery_complete_count: snapshot.delivery_complete_count,
            batches: snapshot.batches.clone(),
            create_timestamp: snapshot.create_timestamp,
            write_timestamp: snapshot.write_timestamp,
            highest_leader_epoch: highest_leader_epoch
                .max(Some(snapshot.leader_epoch))
                .unwrap_or_default(),
            highest_state_epoch: highest_state_epoch
                .max(Some(snapshot.state_epoch))
                .unwrap_or_default(),
            updates: if updates >= limit { 0 } else { updates },
        }
    }

    /// The state after an update.
    pub(super) fn on_update(before: Option<&ShareState>, update: &Update) -> Self {
        let Some(before) = before else {
            // The snapshot before the update is missing. As in Kafka, the update is then the entire
            // state.
            return ShareState {
                snapshot_epoch: update.snapshot_epoch,
                state_epoch: 0,
                leader_epoch: update.leader_epoch,
                start_offset: update.start_offset,
                delivery_complete_count: update.delivery_complete_count,
                batches: update.batches.clone(),
                create_timestamp: 0,
                write_timestamp: 0,
                highest_leader_epoch: update.leader_epoch,
                highest_state_epoch: 0,
                updates: 1,
            };
        };
        let start_offset = match update.start_offset {
            Offset::UNKNOWN => before.start_offset,
            start_offset => start_offset,
        };
        ShareState {
            leader_epoch: match update.leader_epoch {
                LeaderEpoch::UNKNOWN => before.leader_epoch,
                leader_epoch => leader_epoch,
            },
            start_offset,
            delivery_complete_count: update.delivery_complete_count,
            batches: combine(&before.batches, &update.batches, start_offset),
            highest_leader_epoch: before.highest_leader_epoch.max(update.leader_epoch),
            updates: before.updates.saturating_add(1),
            ..*before
        }
    }

    /// The state as a snapshot.
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            snapshot_epoch: self.snapshot_epoch.saturating_add(1),
            state_epoch: self.state_epoch,
            leader_epoch: self.leader_epoch,
            start_offset: self.start_offset,
            delivery_complete_count: self.delivery_complete_count,
            batches: self.batches.clone(),
            create_timestamp: self.create_timestamp,
            write_timestamp: self.write_timestamp,
        }
    }
}

/// The state of a share partition in one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    pub(super) snapshot_epoch: i32,
    pub(super) state_epoch: i32,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) start_offset: Offset,
    pub(super) delivery_complete_count: i32,
    pub(super) batches: Vec<StateBatch>,
    pub(super) create_timestamp: i64,
    pub(super) write_timestamp: i64,
}

/// The changed fields in one record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    pub(super) snapshot_epoch: i32,
    pub(super) leader_epoch: LeaderEpoch,
    /// `Offset::UNKNOWN` if unchanged.
    pub(super) start_offset: Offset,
    pub(super) delivery_complete_count: i32,
    pub(super) batches: Vec<StateBatch>,
}

impl From<&ShareSnapshotValue> for Snapshot {
    fn from(value: &ShareSnapshotValue) -> Self {
        Snapshot {
            snapshot_epoch: value.snapshot_epoch,
            state_epoch: value.state_epoch,
            leader_epoch: LeaderEpoch(value.leader_epoch),
            start_offset: Offset(value.start_offset),
            delivery_complete_count: value.delivery_complete_count,
            batches: value.state_batches.iter().map(StateBatch::from).collect(),
            create_timestamp: value.create_timestamp,
            write_timestamp: value.write_timestamp,
        }
    }
}

impl From<&Snapshot> for ShareSnapshotValue {
    fn from(snapshot: &Snapshot) -> Self {
        ShareSnapshotValue {
            snapshot_epoch: snapshot.snapshot_epoch,
            state_epoch: snapshot.state_epoch,
            leader_epoch: snapshot.leader_epoch.0,
            start_offset: snapshot.start_offset.0,
            delivery_complete_count: snapshot.delivery_complete_count,
            create_timestamp: snapshot.create_timestamp,
            write_timestamp: snapshot.write_timestamp,
            state_batches: snapshot.batches.iter().map(Into::into).collect(),
            ..Default::default()
        }
    }
}

impl From<&ShareUpdateValue> for Update {
    fn from(value: &ShareUpdateValue) -> Self {
        Update {
            snapshot_epoch: value.snapshot_epoch,
            leader_epoch: LeaderEpoch(value.leader_epoch),
            start_offset: Offset(value.start_offset),
            delivery_complete_count: value.delivery_complete_count,
            batches: value.state_batches.iter().map(StateBatch::from).collect(),
        }
    }
}

impl From<&Update> for ShareUpdateValue {
    fn from(update: &Update) -> Self {
        ShareUpdateValue {
            snapshot_epoch: update.snapshot_epoch,
            leader_epoch: update.leader_epoch.0,
            start_offset: update.start_offset.0,
            delivery_complete_count: update.delivery_complete_count,
            state_batches: update.batches.iter().map(Into::into).collect(),
            ..Default::default()
        }
    }
}
