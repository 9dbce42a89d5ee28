//! CreatePartitions: decided by the controller. Kafka: `ControllerApis.handleCreatePartitions`.

use std::sync::Arc;

use ottla_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use ottla_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let names: Vec<_> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => CreatePartitionsResponse {
            results: names
                .into_iter()
                .map(|name| CreatePartitionsTopicResult {
                    name,
                    error_code: error.code(),
                    error_message: None,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        },
    }
}
