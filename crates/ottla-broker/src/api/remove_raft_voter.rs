//! RemoveRaftVoter (KIP-853): a controller is no voter of the metadata quorum any more. The leader decides: a broker hands
//! it on.
//!
//! Kafka: `KafkaRaftClient.handleRemoveVoterRequest`, `RaftUtil.removeVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};
use ottla_raft::wire::QuorumApi;

use ottla_net::RequestContext;
use ottla_node::quorum_handle::answer;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: RemoveRaftVoterRequest,
) -> RemoveRaftVoterResponse {
    match broker.node.controller_elsewhere(context) {
        Some(channel) => {
            let answer = channel.forward(context, &request).await;
            answer.unwrap_or_else(RemoveRaftVoterRequest::refuse)
        }
        None => {
            answer(
                broker.node.quorum(),
                request,
                &context.listener().name,
                true,
            )
            .await
        }
    }
}
