//! DeleteShareGroupState: a share group does not read partitions any more.
//! Kafka: `KafkaApis.handleDeleteShareGroupStateRequest`, `ShareCoordinatorService.deleteState`.

use ottla_protocol::messages::delete_share_group_state_response::{
    DeleteStateResult, PartitionResult,
};
use ottla_protocol::messages::{DeleteShareGroupStateRequest, DeleteShareGroupStateResponse};

use super::share_group_state::share_group_state;

share_group_state!(
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    |share_groups, key, _| async move { share_groups.delete_state(key).await },
    |()| PartitionResult::default()
);
