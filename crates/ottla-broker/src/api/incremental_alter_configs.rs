//! IncrementalAlterConfigs (KIP-339): decided by the controller. Kafka:
//! `KafkaApis.handleIncrementalAlterConfigsRequest`.

use std::sync::Arc;

use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use crate::dispatch::Endpoint;
use ottla_net::RequestContext;
use ottla_node::own_settings;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let resources: Vec<_> = request
        .resources
        .iter()
        .map(|resource| (resource.resource_type, resource.resource_name.clone()))
        .collect();
    let answer = match Endpoint::of(context.listener()) {
        Endpoint::Broker => {
            let hand_on = async |request| broker.forward(context, request).await;
            own_settings::incremental_alter_configs(&broker.node, request, hand_on).await
        }
        // The broker that was asked has judged them.
        Endpoint::Controller => broker.decide_here(request).await,
    };
    match answer {
        Ok(response) => response,
        Err(error) => IncrementalAlterConfigsResponse {
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
