//! AddRaftVoter (KIP-853): a controller becomes a voter of the metadata quorum. The leader decides: a broker hands it on.
//!
//! Kafka: `KafkaRaftClient.handleAddVoterRequest`, `RaftUtil.addVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{AddRaftVoterRequest, AddRaftVoterResponse};
use ottla_raft::wire::QuorumApi;

use ottla_net::RequestContext;
use ottla_node::quorum_handle::answer;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AddRaftVoterRequest,
) -> AddRaftVoterResponse {
    match broker.node.controller_elsewhere(context) {
        Some(channel) => {
            let answer = channel.forward(context, &request).await;
            answer.unwrap_or_else(AddRaftVoterRequest::refuse)
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
