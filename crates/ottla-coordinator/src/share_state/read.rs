//! ReadShareGroupState and ReadShareGroupStateSummary: a new leader reads the state of a share
//! partition, or a client queries its offsets.
//!
//! A read by a leader fences earlier leaders: its epoch is written to the log. Source:
//! `ShareCoordinatorShard.readStateAndMaybeUpdateLeaderEpoch`,
//! `ShareCoordinatorShard.readStateSummary`.

use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::coordinator::{ShareCoordinator, check_partition};
use super::outcome::{Outcome, StateError};
use super::state::ShareState;
use crate::persister::{ReadState, SharePartitionKey, StateRead, StateSummary, WriteState};
use crate::runtime::ReplyTo;

impl ShareCoordinator {
    /// `partition_count` is that of the topic, if a topic with this id exists.
    pub fn read_state(
        &mut self,
        to: ReplyTo<Result<StateRead, StateError>>,
        request: ReadState,
        partition_count: Option<i32>,
        now: Timestamp,
    ) -> Outcome {
        let state = match self.check_read(&request, partition_count) {
            Ok(state) => state,
            Err(error) => return self.answer(to, Err(error)),
        };
        let response = Ok(StateRead {
            state_epoch: state.state_epoch,
            start_offset: state.start_offset,
            batches: state.batches.clone(),
        });
        let is_known = state.highest_leader_epoch == request.leader_epoch;
        if is_known || request.leader_epoch == LeaderEpoch::UNKNOWN {
            return self.answer(to, response);
        }
        let write = WriteState {
            key: request.key,
            state_epoch: state.state_epoch,
            leader_epoch: request.leader_epoch,
            start_offset: state.start_offset,
            delivery_complete_count: state.delivery_complete_count,
            batches: Vec::new(),
        };
        let record = self.state_record(write, request.leader_epoch, now);
        self.write(record.into_iter().collect(), Some(to.with(response)))
    }

    /// For a share partition that was never read, the summary says so.
    pub fn read_state_summary(
        &mut self,
        to: ReplyTo<Result<StateSummary, StateError>>,
        key: &SharePartitionKey,
        partition_count: Option<i32>,
    ) -> Outcome {
        let summary = self.summary(key, partition_count);
        self.answer(to, summary)
    }

    fn summary(
        &self,
        key: &SharePartitionKey,
        partition_count: Option<i32>,
    ) -> Result<StateSummary, StateError> {
        check_partition(key.partition, partition_count)?;
        let unknown = StateSummary {
            state_epoch: 0,
            leader_epoch: LeaderEpoch(0),
            start_offset: Offset::UNKNOWN,
            delivery_complete_count: -1,
        };
        Ok(self.latest(key).map_or(unknown, |state| StateSummary {
            state_epoch: state.state_epoch,
            leader_epoch: state.leader_epoch,
            start_offset: state.start_offset,
            delivery_complete_count: state.delivery_complete_count,
        }))
    }

    fn check_read(
        &self,
        request: &ReadState,
        partition_count: Option<i32>,
    ) -> Result<&ShareState, StateError> {
        let ReadState { key, leader_epoch } = request;
        let uninitialized = StateError::READ_UNINITIALIZED;
        let state = self.state_for_leader(key, *leader_epoch, uninitialized)?;
        check_partition(key.partition, partition_count)?;
        Ok(state)
    }
}
