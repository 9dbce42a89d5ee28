//! WriteShareGroupState: the leader of a partition persists the state of records.
//! Source: `ShareCoordinatorShard.writeState`.

use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};

use super::batches::combine;
use super::coordinator::{ShareCoordinator, check_partition};
use super::outcome::{Outcome, StateError};
use super::record::{Change, ShareStateRecord};
use super::state::{Snapshot, Update};
use crate::persister::WriteState;
use crate::runtime::ReplyTo;

impl ShareCoordinator {
    /// `partition_count` is that of the topic, if a topic with this id exists.
    pub fn write_state(
        &mut self,
        to: ReplyTo<Result<(), StateError>>,
        request: WriteState,
        partition_count: Option<i32>,
        now: Timestamp,
    ) -> Outcome {
        if let Err(error) = self.check_write(&request, partition_count) {
            return self.answer(to, Err(error));
        }
        match self.state_record(request, LeaderEpoch::UNKNOWN, now) {
            Some(record) => self.write(vec![record], Some(to.with(Ok(())))),
            None => self.answer(to, Err(StateError::WRITE_UNINITIALIZED)),
        }
    }

    fn check_write(
        &self,
        request: &WriteState,
        partition_count: Option<i32>,
    ) -> Result<(), StateError> {
        let uninitialized = StateError::WRITE_UNINITIALIZED;
        let state = self.state_for_leader(&request.key, request.leader_epoch, uninitialized)?;
        if request.state_epoch != -1 && state.highest_state_epoch > request.state_epoch {
            return Err(StateError::from(ErrorCode::FencedStateEpoch));
        }
        check_partition(request.key.partition, partition_count)
    }

    /// The change as an update, or after many updates as a snapshot of the full state. `None` for
    /// an unknown share partition. A leader epoch in the request replaces the current one.
    pub(super) fn state_record(
        &self,
        request: WriteState,
        new_leader_epoch: LeaderEpoch,
        now: Timestamp,
    ) -> Option<ShareStateRecord> {
        let state = self.latest(&request.key)?;
        let leader_epoch = match new_leader_epoch {
            LeaderEpoch::UNKNOWN => state.leader_epoch,
            leader_epoch => leader_epoch,
        };
        let delivery_complete_count = request.delivery_complete_count;
        let has_many_updates = state.updates >= self.config.snapshot_update_records_per_snapshot;
        let change = if has_many_updates {
            let start_offset = match request.start_offset {
                Offset::UNKNOWN => state.start_offset,
                start_offset => start_offset,
            };
            Change::Snapshot(Snapshot {
                leader_epoch,
                start_offset,
                delivery_complete_count,
                batches: combine(&state.batches, &request.batches, start_offset),
                create_timestamp: now.0,
                write_timestamp: now.0,
                ..state.snapshot()
            })
        } else {
            Change::Update(Update {
                snapshot_epoch: state.snapshot_epoch,
                leader_epoch,
                start_offset: request.start_offset,
                delivery_complete_count,
                batches: combine(&[], &request.batches, request.start_offset),
            })
        };
        Some(ShareStateRecord {
            key: request.key,
            change,
        })
    }
}
