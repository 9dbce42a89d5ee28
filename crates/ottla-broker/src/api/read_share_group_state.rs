//! ReadShareGroupState: a new leader of a partition loads the persisted state of share groups.
//! Kafka: `KafkaApis.handleReadShareGroupStateRequest`, `ShareCoordinatorService.readState`.

use std::sync::Arc;

use ottla_coordination::share_groups::answer;
use ottla_coordinator::persister::ReadState;
use ottla_net::RequestContext;
use ottla_protocol::messages::{ReadShareGroupStateRequest, ReadShareGroupStateResponse};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ReadShareGroupStateRequest,
) -> ReadShareGroupStateResponse {
    answer::<ReadState>(&broker.share_groups.coordinators, context, request).await
}
