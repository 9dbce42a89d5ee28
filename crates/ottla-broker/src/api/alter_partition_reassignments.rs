//! AlterPartitionReassignments (KIP-455): decided by the controller. Kafka: `ControllerApis.handleAlterPartitionReassignments`.

use std::sync::Arc;

use ottla_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => AlterPartitionReassignmentsResponse {
            error_code: error.code(),
            error_message: None,
            ..Default::default()
        },
    }
}
