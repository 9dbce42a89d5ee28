//! Requests to the metadata quorum, besides the Fetch of its log. Nodes of the cluster send Vote
//! (KIP-595, KIP-996), BeginQuorumEpoch and EndQuorumEpoch (KIP-595), FetchSnapshot (KIP-630) and
//! UpdateRaftVoter (KIP-853), clients AddRaftVoter and RemoveRaftVoter (KIP-853).
//!
//! Kafka: `KafkaRaftClient`, `RaftUtil`.

use ottla_protocol::ApiRequest;
use ottla_protocol::messages::{UpdateRaftVoterRequest, UpdateRaftVoterResponse};
use ottla_raft::wire::QuorumApi;

use ottla_net::RequestContext;

use crate::Broker;

/// Answers a request whose version 0 cannot carry the endpoints of the leader.
pub(crate) async fn answer<R: QuorumApi>(
    broker: &Broker,
    context: &RequestContext,
    request: R,
) -> R::Answer {
    let has_endpoints = context.api_version >= 1;
    broker
        .answer_of_quorum(context, request, has_endpoints)
        .await
}

/// A voter reports its directory, endpoints and supported versions to the leader.
pub(crate) async fn update_voter(
    broker: &Broker,
    context: &RequestContext,
    request: UpdateRaftVoterRequest,
) -> UpdateRaftVoterResponse {
    broker.answer_of_quorum(context, request, true).await
}

/// Adds a controller to the voters, or removes one. The leader decides; a broker forwards the
/// request to it.
pub(crate) async fn change_voters<R>(
    broker: &Broker,
    context: &RequestContext,
    request: R,
) -> R::Answer
where
    R: QuorumApi + ApiRequest<Response = <R as QuorumApi>::Answer>,
{
    let Some(channel) = broker.node.controller_elsewhere(context) else {
        return broker.answer_of_quorum(context, request, true).await;
    };
    if let Err(code) = broker.authorize(context) {
        return R::refuse(code);
    }
    let answer = channel.forward(context, &request).await;
    answer.unwrap_or_else(R::refuse)
}
