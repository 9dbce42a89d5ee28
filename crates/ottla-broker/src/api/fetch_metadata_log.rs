//! Fetch of the metadata log (KIP-595), as it is served on a listener of the controller: to the other voters,
//! and to brokers, which observe it.
//!
//! Kafka: `KafkaRaftClient.handleFetchRequest`, `RaftUtil.singletonFetchResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{FetchRequest, FetchResponse};

use ottla_net::RequestContext;
use ottla_node::quorum_handle::answer;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FetchRequest,
) -> FetchResponse {
    let has_endpoints = context.api_version >= 17;
    let listener_name = &context.listener().name;
    let waiting = context.waited.begin();
    let answer = answer(broker.node.quorum(), request, listener_name, has_endpoints).await;
    drop(waiting);
    answer
}
