//! WriteShareGroupState: the leader of a partition has persisted what became of records.
//! Kafka: `KafkaApis.handleWriteShareGroupStateRequest`, `ShareCoordinatorService.writeState`.

use ottla_coordinator::persister::{StateBatch, WriteState};
use ottla_protocol::messages::write_share_group_state_response::{
    PartitionResult, WriteStateResult,
};
use ottla_protocol::messages::{WriteShareGroupStateRequest, WriteShareGroupStateResponse};
use ottla_types::{LeaderEpoch, Offset};

use super::share_group_state::share_group_state;

share_group_state!(
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
    |share_groups, key, partition| {
        let batches = partition.state_batches.iter().map(|batch| StateBatch {
            first_offset: Offset(batch.first_offset),
            last_offset: Offset(batch.last_offset),
            delivery_state: batch.delivery_state,
            delivery_count: batch.delivery_count,
        });
        let request = WriteState {
            key,
            state_epoch: partition.state_epoch,
            leader_epoch: LeaderEpoch(partition.leader_epoch),
            start_offset: Offset(partition.start_offset),
            delivery_complete_count: partition.delivery_complete_count,
            batches: batches.collect(),
        };
        async move { share_groups.write_state(request).await }
    },
    |()| PartitionResult::default()
);
