//! ListPartitionReassignments (KIP-455): the reassignments in progress.
//!
//! Kafka: `ControllerApis.handleListPartitionReassignments`.

use std::sync::Arc;

use ottla_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use ottla_net::RequestContext;
use ottla_types::ErrorCode;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let refused = |error: ErrorCode| ListPartitionReassignmentsResponse {
        error_code: error.code(),
        error_message: denial_message(context, error),
        ..Default::default()
    };
    if let Err(error) = broker.authorize(context) {
        return refused(error);
    }
    if let Some(channel) = broker.node.controller_elsewhere(context) {
        let answer = channel.forward(context, &request).await;
        return answer.unwrap_or_else(refused);
    }
    ottla_controller::list_partition_reassignments(&broker.metadata(), &request)
}
