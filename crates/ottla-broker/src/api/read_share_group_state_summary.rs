//! ReadShareGroupStateSummary: the start offsets of share groups. Kafka:
//! `KafkaApis.handleReadShareGroupStateSummaryRequest`, `ShareCoordinatorService.readStateSummary`.

use std::sync::Arc;

use ottla_coordination::share_groups::{ReadSummary, answer};
use ottla_net::RequestContext;
use ottla_protocol::messages::{
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse,
};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ReadShareGroupStateSummaryRequest,
) -> ReadShareGroupStateSummaryResponse {
    answer::<ReadSummary>(&broker.share_groups.coordinators, context, request).await
}
