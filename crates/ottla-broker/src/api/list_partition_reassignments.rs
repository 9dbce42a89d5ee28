//! ListPartitionReassignments (KIP-455): which partitions are on their way to other replicas.
//!
//! Kafka: `ControllerApis.handleListPartitionReassignments`.

use std::sync::Arc;

use ottla_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    if let Err(error) = broker.authorize(context) {
        return ListPartitionReassignmentsResponse {
            error_code: error.code(),
            error_message: None,
            ..Default::default()
        };
    }
    if let Some(channel) = broker.node.controller_elsewhere(context) {
        let answer = channel.forward(context, &request).await;
        return answer.unwrap_or_else(|error| ListPartitionReassignmentsResponse {
            error_code: error.code(),
            error_message: None,
            ..Default::default()
        });
    }
    ottla_controller::list_partition_reassignments(&broker.metadata(), &request)
}
