//! BeginQuorumEpoch (KIP-595): a new leader of the metadata quorum announces itself.
//!
//! Kafka: `KafkaRaftClient.handleBeginQuorumEpochRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{BeginQuorumEpochRequest, BeginQuorumEpochResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: BeginQuorumEpochRequest,
) -> BeginQuorumEpochResponse {
    let has_endpoints = context.api_version >= 1;
    broker
        .answer_of_quorum(context, request, has_endpoints)
        .await
}
