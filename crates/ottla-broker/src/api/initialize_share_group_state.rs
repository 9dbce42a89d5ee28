//! InitializeShareGroupState: initialises the state of partitions that a share group starts to
//! read, or sets other start offsets. Kafka: `KafkaApis.handleInitializeShareGroupStateRequest`,
//! `ShareCoordinatorService.initializeState`.

use std::sync::Arc;

use ottla_coordination::share_groups::answer;
use ottla_coordinator::persister::InitializeState;
use ottla_net::RequestContext;
use ottla_protocol::messages::{
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse,
};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse {
    answer::<InitializeState>(&broker.share_groups.coordinators, context, request).await
}
