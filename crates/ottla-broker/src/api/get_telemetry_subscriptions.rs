//! GetTelemetrySubscriptions (KIP-714): the metrics that a client should push.

use std::sync::Arc;

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
use ottla_types::Uuid;

use crate::telemetry::{ACCEPTED_COMPRESSION_TYPES, ClientFacts};
use ottla_net::RequestContext;
use ottla_storage::random_uuid;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: GetTelemetrySubscriptionsRequest,
) -> GetTelemetrySubscriptionsResponse {
    // A client without an ID gets one.
    let client_instance_id = match request.client_instance_id.is_zero() {
        true => random_uuid(),
        false => request.client_instance_id,
    };
    let facts = facts(context, client_instance_id);
    let telemetry = &broker.telemetry;
    match telemetry.on_get(&broker.metadata(), &facts, broker.now_ms()) {
        Ok(requested) => GetTelemetrySubscriptionsResponse {
            client_instance_id,
            subscription_id: requested.subscription_id,
            accepted_compression_types: ACCEPTED_COMPRESSION_TYPES.to_vec(),
            push_interval_ms: requested.push_interval_ms,
            telemetry_max_bytes: i32::try_from(telemetry.max_bytes()).unwrap_or(i32::MAX),
            // Exported values are cumulative.
            delta_temporality: false,
            requested_metrics: requested.metrics.into_iter().map(Into::into).collect(),
            ..Default::default()
        },
        Err(error) => GetTelemetrySubscriptionsResponse::of_error(error),
    }
}

pub(super) fn facts(context: &RequestContext, client_instance_id: Uuid) -> ClientFacts {
    ClientFacts {
        client_instance_id,
        client_id: context.client_id(),
        software: context.connection.client_software(),
        address: context.peer_addr(),
    }
}
