//! AlterPartition (KIP-497): the leader of partitions requests changes of their in-sync replicas.
//!
//! Kafka: `ControllerApis.handleAlterPartitionRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{AlterPartitionRequest, AlterPartitionResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterPartitionRequest,
) -> AlterPartitionResponse {
    match broker.decide_here(context, request).await {
        Ok(response) => response,
        Err(error) => AlterPartitionResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
