//! RemoveRaftVoter (KIP-853): removes a controller from the voters of the metadata quorum. The
//! leader decides; a broker forwards the request to it.
//!
//! Kafka: `KafkaRaftClient.handleRemoveVoterRequest`, `RaftUtil.removeVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};
use ottla_raft::wire::QuorumApi;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: RemoveRaftVoterRequest,
) -> RemoveRaftVoterResponse {
    match broker.node.controller_elsewhere(context) {
        Some(channel) => {
            if let Err(code) = broker.authorize(context) {
                return RemoveRaftVoterRequest::refuse(code);
            }
            let answer = channel.forward(context, &request).await;
            answer.unwrap_or_else(RemoveRaftVoterRequest::refuse)
        }
        None => broker.answer_of_quorum(context, request, true).await,
    }
}
