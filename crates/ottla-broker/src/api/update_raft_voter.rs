//! UpdateRaftVoter (KIP-853): a voter tells the leader of its directory, endpoints and versions.
//!
//! Kafka: `KafkaRaftClient.handleUpdateVoterRequest`, `RaftUtil.updateVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{UpdateRaftVoterRequest, UpdateRaftVoterResponse};

use ottla_net::RequestContext;
use ottla_node::quorum_handle::answer;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: UpdateRaftVoterRequest,
) -> UpdateRaftVoterResponse {
    answer(
        broker.node.quorum(),
        request,
        &context.listener().name,
        true,
    )
    .await
}
