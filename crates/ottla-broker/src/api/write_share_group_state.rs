//! WriteShareGroupState: the leader of a partition persists the state of share groups. Kafka:
//! `KafkaApis.handleWriteShareGroupStateRequest`, `ShareCoordinatorService.writeState`.

use std::sync::Arc;

use ottla_coordination::share_groups::answer;
use ottla_coordinator::persister::WriteState;
use ottla_net::RequestContext;
use ottla_protocol::messages::{WriteShareGroupStateRequest, WriteShareGroupStateResponse};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: WriteShareGroupStateRequest,
) -> WriteShareGroupStateResponse {
    answer::<WriteState>(&broker.share_groups.coordinators, context, request).await
}
