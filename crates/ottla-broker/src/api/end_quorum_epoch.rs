//! EndQuorumEpoch (KIP-595): the leader of the metadata quorum resigns.
//!
//! Kafka: `KafkaRaftClient.handleEndQuorumEpochRequest`.

use std::sync::Arc;

use ottla_protocol::messages::{EndQuorumEpochRequest, EndQuorumEpochResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: EndQuorumEpochRequest,
) -> EndQuorumEpochResponse {
    let has_endpoints = context.api_version >= 1;
    broker
        .answer_of_quorum(context, request, has_endpoints)
        .await
}
