//! UpdateRaftVoter (KIP-853): a voter tells the leader of its directory, endpoints and versions.
//!
//! Kafka: `KafkaRaftClient.handleUpdateVoterRequest`, `RaftUtil.updateVoterResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{UpdateRaftVoterRequest, UpdateRaftVoterResponse};

use crate::quorum::served::answer;
use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: UpdateRaftVoterRequest,
) -> UpdateRaftVoterResponse {
    answer(broker.quorum(), request, &context.listener().name, true).await
}
