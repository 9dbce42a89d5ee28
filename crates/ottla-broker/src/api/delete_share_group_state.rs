//! DeleteShareGroupState: deletes the state of partitions that a share group no longer reads.
//! Kafka: `KafkaApis.handleDeleteShareGroupStateRequest`, `ShareCoordinatorService.deleteState`.

use std::sync::Arc;

use ottla_coordination::share_groups::{DeleteState, answer};
use ottla_net::RequestContext;
use ottla_protocol::messages::{DeleteShareGroupStateRequest, DeleteShareGroupStateResponse};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteShareGroupStateRequest,
) -> DeleteShareGroupStateResponse {
    answer::<DeleteState>(&broker.share_groups.coordinators, context, request).await
}
