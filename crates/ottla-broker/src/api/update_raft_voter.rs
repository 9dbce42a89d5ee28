//! UpdateRaftVoter (KIP-853): a voter reports its directory, endpoints and supported versions to
//! the leader.
//!
//! Kafka: `KafkaRaftClient.handleUpdateVoterRequest`, `RaftUtil.updateVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{UpdateRaftVoterRequest, UpdateRaftVoterResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: UpdateRaftVoterRequest,
) -> UpdateRaftVoterResponse {
    broker.answer_of_quorum(context, request, true).await
}
