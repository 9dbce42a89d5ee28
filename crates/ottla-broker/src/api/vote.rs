//! Vote (KIP-595, KIP-996): another voter requests this node's vote, or asks whether it would get
//! it.
//!
//! Kafka: `KafkaRaftClient.handleVoteRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{VoteRequest, VoteResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: VoteRequest,
) -> VoteResponse {
    let has_endpoints = context.api_version >= 1;
    broker
        .answer_of_quorum(context, request, has_endpoints)
        .await
}
