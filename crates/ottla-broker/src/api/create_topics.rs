//! CreateTopics: decided by the controller. Kafka: `ControllerApis.handleCreateTopics`.

use std::sync::Arc;

use ottla_protocol::messages::create_topics_response::CreatableTopicResult;
use ottla_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let names: Vec<_> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => CreateTopicsResponse {
            topics: names
                .into_iter()
                .map(|name| CreatableTopicResult {
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
