//! BrokerRegistration (KIP-631): a broker joins the cluster, fenced until it has caught up.
//!
//! Kafka: `ControllerApis.handleBrokerRegistration`.

use std::sync::Arc;

use ottla_protocol::messages::{BrokerRegistrationRequest, BrokerRegistrationResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: BrokerRegistrationRequest,
) -> BrokerRegistrationResponse {
    match broker.decide_here(context, request).await {
        Ok(response) => response,
        Err(error) => BrokerRegistrationResponse {
            error_code: error.code(),
            ..Default::default()
        },
    }
}
