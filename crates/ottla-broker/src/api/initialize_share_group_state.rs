//! InitializeShareGroupState: a share group begins to read partitions, or is sent to other offsets.
//! Kafka: `KafkaApis.handleInitializeShareGroupStateRequest`, `ShareCoordinatorService.initializeState`.

use ottla_coordinator::persister::InitializeState;
use ottla_protocol::messages::initialize_share_group_state_response::{
    InitializeStateResult, PartitionResult,
};
use ottla_protocol::messages::{
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse,
};
use ottla_types::Offset;

use super::share_group_state::share_group_state;

share_group_state!(
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    |share_groups, key, partition| {
        let request = InitializeState {
            key,
            state_epoch: partition.state_epoch,
            start_offset: Offset(partition.start_offset),
        };
        async move { share_groups.initialize_state(request).await }
    },
    |()| PartitionResult::default()
);
