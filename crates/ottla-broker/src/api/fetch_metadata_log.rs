//! Fetch of the metadata log (KIP-595) on a controller listener, for voters and for brokers, which
//! are observers.
//!
//! Kafka: `KafkaRaftClient.handleFetchRequest`, `RaftUtil.singletonFetchResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{FetchRequest, FetchResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FetchRequest,
) -> FetchResponse {
    let has_endpoints = context.api_version >= 17;
    let waiting = context.waited.begin();
    let answer = broker
        .answer_of_quorum(context, request, has_endpoints)
        .await;
    drop(waiting);
    answer
}
