//! AlterConfigs: forwarded to the controller. Kafka: `KafkaApis.handleAlterConfigsRequest`.

use ottla_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};

/// Defines `handle` for AlterConfigs and IncrementalAlterConfigs, whose messages have the same
/// fields.
macro_rules! alter_configs {
    ($request:ident, $response:ident, $alter:ident) => {
        pub(crate) async fn handle(
            broker: &std::sync::Arc<$crate::Broker>,
            context: &ottla_net::RequestContext,
            mut request: $request,
        ) -> $response {
            let resources = request.resources.iter();
            let asked =
                resources.map(|resource| (resource.resource_type, resource.resource_name.clone()));
            let asked_twice = $crate::authorization::repeated(asked);
            let mut denied = Vec::new();
            request.resources.retain(|resource| {
                let (kind, name) = (resource.resource_type, &resource.resource_name);
                // The controller rejects these for every client.
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
                true => $response::default(),
                false => decide(broker, context, request).await,
            };
            response.responses.extend(denied);
            response
        }

        async fn decide(
            broker: &std::sync::Arc<$crate::Broker>,
            context: &ottla_net::RequestContext,
            request: $request,
        ) -> $response {
            let resources: Vec<_> = request
                .resources
                .iter()
                .map(|resource| (resource.resource_type, resource.resource_name.clone()))
                .collect();
            let answer = match $crate::Endpoint::of(context.listener()) {
                $crate::Endpoint::Broker => {
                    let hand_on = async |request| broker.forward(context, request).await;
                    ottla_node::own_settings::$alter(&broker.node, request, hand_on).await
                }
                // The broker that received them has validated them.
                $crate::Endpoint::Controller => broker.decide_here(context, request).await,
            };
            match answer {
                Ok(response) => response,
                Err(error) => $response {
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
    };
}

pub(super) use alter_configs;

alter_configs!(AlterConfigsRequest, AlterConfigsResponse, alter_configs);
