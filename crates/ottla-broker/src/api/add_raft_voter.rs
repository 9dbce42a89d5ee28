//! AddRaftVoter (KIP-853): adds a controller to the voters of the metadata quorum. The leader
//! decides; a broker forwards the request to it.
//!
//! Kafka: `KafkaRaftClient.handleAddVoterRequest`, `RaftUtil.addVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{AddRaftVoterRequest, AddRaftVoterResponse};
use ottla_raft::wire::QuorumApi;

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AddRaftVoterRequest,
) -> AddRaftVoterResponse {
    match broker.node.controller_elsewhere(context) {
        Some(channel) => {
            if let Err(code) = broker.authorize(context) {
                return AddRaftVoterRequest::refuse(code);
            }
            let answer = channel.forward(context, &request).await;
            answer.unwrap_or_else(AddRaftVoterRequest::refuse)
        }
        None => broker.answer_of_quorum(context, request, true).await,
    }
}
