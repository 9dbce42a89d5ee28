//! RemoveRaftVoter (KIP-853): a controller is no voter of the metadata quorum any more. The leader decides: a broker hands
//! it on.
//!
//! Kafka: `KafkaRaftClient.handleRemoveVoterRequest`, `RaftUtil.removeVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};
use ottla_raft::ReplicaKey;
use ottla_types::{BrokerId, ErrorCode};

use super::raft_responses::{check_cluster_id_in_words, error_message};
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: RemoveRaftVoterRequest,
) -> RemoveRaftVoterResponse {
    let answered = |error: ErrorCode, message: Option<String>| RemoveRaftVoterResponse {
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
    match quorum.ask(read(&request)).await {
        Some((ottla_raft::Response::RemoveVoter(answer), _)) => {
            answered(answer.error, answer.message)
        }
        Some(_) | None => answered(ErrorCode::BrokerNotAvailable, None),
    }
}

pub(crate) fn read(request: &RemoveRaftVoterRequest) -> ottla_raft::Request {
    ottla_raft::Request::RemoveVoter(ottla_raft::RemoveVoterRequest {
        voter: ReplicaKey::new(BrokerId(request.voter_id), request.voter_directory_id),
    })
}
