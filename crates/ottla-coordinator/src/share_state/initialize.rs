//! InitializeShareGroupState: a share group starts to read a partition, or an administrator sets
//! its offset.
//! Source: `ShareCoordinatorShard.initializeState`.

use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};

use super::coordinator::{ShareCoordinator, check_partition};
use super::outcome::{Outcome, StateError};
use super::record::{Change, ShareStateRecord};
use super::state::Snapshot;
use crate::persister::InitializeState;
use crate::runtime::ReplyTo;

impl ShareCoordinator {
    /// `partition_count` is that of the topic, if a topic with this id exists.
    pub fn initialize_state(
        &mut self,
        to: ReplyTo<Result<(), StateError>>,
        request: InitializeState,
        partition_count: Option<i32>,
        now: Timestamp,
    ) -> Outcome {
        if let Err(error) = self.check_initialize(&request, partition_count) {
            return self.answer(to, Err(error));
        }
        let before = self.latest(&request.key);
        let snapshot = Snapshot {
            snapshot_epoch: before.map_or(0, |state| state.snapshot_epoch.saturating_add(1)),
            state_epoch: request.state_epoch,
            leader_epoch: LeaderEpoch(0),
            start_offset: request.start_offset,
            // The lag is unknown before anything was read.
            delivery_complete_count: match request.start_offset {
                Offset::UNKNOWN => -1,
                _ => 0,
            },
            batches: Vec::new(),
            create_timestamp: now.0,
            write_timestamp: now.0,
        };
        let record = ShareStateRecord {
            key: request.key,
            change: Change::Snapshot(snapshot),
        };
        self.write(vec![record], Some(to.with(Ok(()))))
    }

    fn check_initialize(
        &self,
        request: &InitializeState,
        partition_count: Option<i32>,
    ) -> Result<(), StateError> {
        let highest = self
            .latest(&request.key)
            .map(|state| state.highest_state_epoch);
        if request.state_epoch != -1 && highest > Some(request.state_epoch) {
            return Err(StateError::from(ErrorCode::FencedStateEpoch));
        }
        check_partition(request.key.partition, partition_count)
    }
}
