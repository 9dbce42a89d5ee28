//! ReadShareGroupState: the leader of a partition takes up what share groups have persisted of it.
//! Kafka: `KafkaApis.handleReadShareGroupStateRequest`, `ShareCoordinatorService.readState`.

use ottla_coordinator::persister::ReadState;
use ottla_protocol::messages::read_share_group_state_response::{
    PartitionResult, ReadStateResult, StateBatch,
};
use ottla_protocol::messages::{ReadShareGroupStateRequest, ReadShareGroupStateResponse};
use ottla_types::LeaderEpoch;

use super::share_group_state::share_group_state;

share_group_state!(
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    |share_groups, key, partition| {
        let request = ReadState {
            key,
            leader_epoch: LeaderEpoch(partition.leader_epoch),
        };
        async move { share_groups.read_state(request).await }
    },
    |read| PartitionResult {
        state_epoch: read.state_epoch,
        start_offset: read.start_offset.0,
        state_batches: read
            .batches
            .iter()
            .map(|batch| StateBatch {
                first_offset: batch.first_offset.0,
                last_offset: batch.last_offset.0,
                delivery_state: batch.delivery_state,
                delivery_count: batch.delivery_count,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
);
