//! DeleteTopics: decided by the controller. Kafka: `ControllerApis.handleDeleteTopics`.

use std::sync::Arc;

use ottla_protocol::messages::delete_topics_response::DeletableTopicResult;
use ottla_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_types::{ErrorCode, Uuid};

use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    // A controller elsewhere has a setting of its own.
    let is_decided_here = broker.node.controller_elsewhere(context).is_none();
    if is_decided_here && !broker.config().delete_topic_enable {
        // Versions below 3 do not know the code that says it.
        let error = match context.api_version {
            ..3 => ErrorCode::InvalidRequest,
            _ => ErrorCode::TopicDeletionDisabled,
        };
        return all_failed(&request, error);
    }
    let failed = |error| all_failed(&request, error);
    match broker.forward(context, request.clone()).await {
        Ok(response) => response,
        Err(error) => failed(error),
    }
}

fn all_failed(request: &DeleteTopicsRequest, error: ErrorCode) -> DeleteTopicsResponse {
    let by_name = request
        .topic_names
        .iter()
        .map(|name| (Some(name.clone()), Uuid::ZERO));
    let either = request
        .topics
        .iter()
        .map(|topic| (topic.name.clone(), topic.topic_id));
    DeleteTopicsResponse {
        responses: by_name
            .chain(either)
            .map(|(name, topic_id)| DeletableTopicResult {
                name,
                topic_id,
                error_code: error.code(),
                error_message: None,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}
