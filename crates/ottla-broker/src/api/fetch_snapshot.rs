//! FetchSnapshot (KIP-630): a part of a snapshot of the metadata log.
//!
//! Kafka: `KafkaRaftClient.handleFetchSnapshotRequest`, `RaftUtil.singletonFetchSnapshotResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{FetchSnapshotRequest, FetchSnapshotResponse};

use ottla_net::RequestContext;
use ottla_node::quorum_handle::answer;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FetchSnapshotRequest,
) -> FetchSnapshotResponse {
    let has_endpoints = context.api_version >= 1;
    let listener_name = &context.listener().name;
    answer(broker.node.quorum(), request, listener_name, has_endpoints).await
}
