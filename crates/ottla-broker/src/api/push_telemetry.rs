//! PushTelemetry (KIP-714): receives the metrics of a client.

use std::sync::Arc;

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{PushTelemetryRequest, PushTelemetryResponse};
use ottla_types::{ErrorCode, Uuid};

use super::get_telemetry_subscriptions::facts;
use crate::telemetry::Push;
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: PushTelemetryRequest,
) -> PushTelemetryResponse {
    let error = match is_reserved(request.client_instance_id) {
        true => ErrorCode::InvalidRequest,
        false => push(broker, context, request).await,
    };
    PushTelemetryResponse::of_error(error)
}

async fn push(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: PushTelemetryRequest,
) -> ErrorCode {
    let facts = facts(context, request.client_instance_id);
    let push = Push {
        subscription_id: request.subscription_id,
        is_terminating: request.terminating,
        compression_type: request.compression_type,
        metrics: request.metrics,
    };
    let (broker, now_ms) = (Arc::clone(broker), broker.now_ms());
    // Decompressing up to `telemetry.max.bytes` takes too long for a thread that serves
    // connections.
    let take = move || {
        let image = broker.metadata();
        broker.telemetry.on_push(&image, &facts, &push, now_ms)
    };
    match ottla_sync::task::spawn_blocking(take).await {
        Ok(Ok(())) => ErrorCode::None,
        Ok(Err(error)) => error,
        // The panic was reported where it happened.
        Err(_) => ErrorCode::UnknownServerError,
    }
}

/// The reserved IDs, zero and one (`Uuid.RESERVED`).
fn is_reserved(id: Uuid) -> bool {
    id.0[..15].iter().all(|&byte| byte == 0) && id.0[15] <= 1
}
