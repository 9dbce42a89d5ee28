//! InitializeShareGroupState, ReadShareGroupState, ReadShareGroupStateSummary, WriteShareGroupState
//! and DeleteShareGroupState (KIP-932): requests of the nodes of the cluster to the share
//! coordinators.
//!
//! Kafka: `KafkaApis`, `ShareCoordinatorService`.

use ottla_coordination::share_groups::{StateQuestion, answer};
use ottla_protocol::ApiRequest;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle<Q: StateQuestion>(
    broker: &Broker,
    context: &RequestContext,
    request: Q::Request,
) -> <Q::Request as ApiRequest>::Response {
    answer::<Q>(&broker.share_groups.coordinators, context, request).await
}
