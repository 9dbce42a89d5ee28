//! FetchSnapshot (KIP-630): a part of a snapshot of the metadata log.
//!
//! Kafka: `KafkaRaftClient.handleFetchSnapshotRequest`, `RaftUtil.singletonFetchSnapshotResponse`.

use std::sync::Arc;

use ottla_protocol::messages::{FetchSnapshotRequest, FetchSnapshotResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: FetchSnapshotRequest,
) -> FetchSnapshotResponse {
    let has_endpoints = context.api_version >= 1;
    broker
        .answer_of_quorum(context, request, has_endpoints)
        .await
}
