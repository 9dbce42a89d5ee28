//! AddRaftVoter (KIP-853): a controller becomes a voter of the metadata quorum. The leader decides: a broker hands it on.
//!
//! Kafka: `KafkaRaftClient.handleAddVoterRequest`, `RaftUtil.addVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{AddRaftVoterRequest, AddRaftVoterResponse};
use ottla_raft::ReplicaKey;
use ottla_types::{BrokerId, ErrorCode};

use super::raft_responses::{check_cluster_id_in_words, error_message, voter_endpoints};
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AddRaftVoterRequest,
) -> AddRaftVoterResponse {
    let answered = |error: ErrorCode, message: Option<String>| AddRaftVoterResponse {
        error_code: error.code(),
        error_message: error_message(error, message),
        ..Default::default()
    };
    if let Some(channel) = broker.node.controller_elsewhere(context) {
        let answer = channel.forward(context, &request).await;
        return answer.unwrap_or_else(|error| answered(error, None));
    }
    let Some(quorum) = broker.node.quorum() else {
        return answered(ErrorCode::BrokerNotAvailable, None);
    };
    let requested = request.cluster_id.as_ref();
    if let Err((error, message)) = check_cluster_id_in_words(requested, quorum.cluster_id()) {
        return answered(error, Some(message));
    }
    let request = read(request);
    match quorum.ask(request).await {
        Some((ottla_raft::Response::AddVoter(answer), _)) => answered(answer.error, answer.message),
        Some(_) | None => answered(ErrorCode::BrokerNotAvailable, None),
    }
}

pub(crate) fn read(request: AddRaftVoterRequest) -> ottla_raft::Request {
    ottla_raft::Request::AddVoter(ottla_raft::AddVoterRequest {
        voter: ReplicaKey::new(BrokerId(request.voter_id), request.voter_directory_id),
        endpoints: voter_endpoints!(request.listeners),
        ack_when_committed: request.ack_when_committed,
    })
}
