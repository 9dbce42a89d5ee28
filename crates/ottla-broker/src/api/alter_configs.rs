//! AlterConfigs: decided by the controller. Kafka: `KafkaApis.handleAlterConfigsRequest`.

use std::sync::Arc;

use ottla_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};

use crate::endpoint::Endpoint;
use ottla_net::RequestContext;
use ottla_node::own_settings;

use crate::Broker;
use crate::authorization::repeated;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let resources = request.resources.iter();
    let asked = resources.map(|resource| (resource.resource_type, resource.resource_name.clone()));
    let asked_twice = repeated(asked);
    let mut denied = Vec::new();
    request.resources.retain(|resource| {
        let (kind, name) = (resource.resource_type, &resource.resource_name);
        // The controller refuses these, whoever asks.
        if asked_twice.contains(&(kind, name.clone())) {
            return true;
        }
        let allowed = broker.authorize_alter_configs(context, kind, name);
        if let Err(error) = allowed {
            denied.push(AlterConfigsResourceResponse {
                error_code: error.code(),
                error_message: None,
                resource_type: kind,
                resource_name: name.clone(),
                ..Default::default()
            });
        }
        allowed.is_ok()
    });
    let mut response = match request.resources.is_empty() {
        true => AlterConfigsResponse::default(),
        false => decide(broker, context, request).await,
    };
    response.responses.extend(denied);
    response
}

async fn decide(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let resources: Vec<_> = request
        .resources
        .iter()
        .map(|resource| (resource.resource_type, resource.resource_name.clone()))
        .collect();
    let answer = match Endpoint::of(context.listener()) {
        Endpoint::Broker => {
            let hand_on = async |request| broker.forward(context, request).await;
            own_settings::alter_configs(&broker.node, request, hand_on).await
        }
        // The broker that was asked has judged them.
        Endpoint::Controller => broker.decide_here(context, request).await,
    };
    match answer {
        Ok(response) => response,
        Err(error) => AlterConfigsResponse {
            responses: resources
                .into_iter()
                .map(
                    |(resource_type, resource_name)| AlterConfigsResourceResponse {
                        error_code: error.code(),
                        error_message: None,
                        resource_type,
                        resource_name,
                        ..Default::default()
                    },
                )
                .collect(),
            ..Default::default()
        },
    }
}
