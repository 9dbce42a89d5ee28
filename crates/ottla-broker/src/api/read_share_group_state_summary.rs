//! ReadShareGroupStateSummary: somebody wants to know how far share groups are.
//! Kafka: `KafkaApis.handleReadShareGroupStateSummaryRequest`, `ShareCoordinatorService.readStateSummary`.

use ottla_protocol::messages::read_share_group_state_summary_response::{
    PartitionResult, ReadStateSummaryResult,
};
use ottla_protocol::messages::{
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse,
};

use super::share_group_state::share_group_state;

share_group_state!(
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
    |share_groups, key, _| async move { share_groups.read_state_summary(key).await },
    |summary| PartitionResult {
        state_epoch: summary.state_epoch,
        leader_epoch: summary.leader_epoch.0,
        start_offset: summary.start_offset.0,
        delivery_complete_count: summary.delivery_complete_count,
        ..Default::default()
    }
);
