//! AssignReplicasToDirs (KIP-858): a broker reports the log directories of its replicas.
//!
//! Kafka: `ControllerApis.handleAssignReplicasToDirs`.

use std::sync::Arc;

use ottla_protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AssignReplicasToDirsRequest,
) -> AssignReplicasToDirsResponse {
    match broker.decide_here(context, request).await {
        Ok(response) => response,
        Err(error) => AssignReplicasToDirsResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
