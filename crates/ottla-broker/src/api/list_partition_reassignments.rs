//! ListPartitionReassignments (KIP-455): which partitions are on their way to other replicas.
//!
//! Kafka: `ControllerApis.handleListPartitionReassignments`.

use std::sync::Arc;

use ottla_protocol::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};

use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    _context: &RequestContext,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ottla_controller::list_partition_reassignments(&broker.metadata(), &request)
}
