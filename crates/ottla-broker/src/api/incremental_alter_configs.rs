//! IncrementalAlterConfigs (KIP-339): decided by the controller. Kafka:
//! `KafkaApis.handleIncrementalAlterConfigsRequest`.

use std::sync::Arc;

use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use crate::controller::own_settings;
use crate::{Broker, RequestContext};

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
    let answer = match broker.controller_elsewhere(context) {
        Some(channel) => {
            own_settings::incremental_alter_configs(broker, channel, context, request).await
        }
        None => broker.ask_controller(request).await,
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
