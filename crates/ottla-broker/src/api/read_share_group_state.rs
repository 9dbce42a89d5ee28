//! ReadShareGroupState: the leader of a partition takes up what share groups have persisted of it.
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
