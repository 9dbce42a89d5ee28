//! DeleteTopics: forwarded to the controller. Kafka: `ControllerApis.handleDeleteTopics`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::delete_topics_response::DeletableTopicResult;
use ottla_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use ottla_types::{ErrorCode, Uuid};

use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_security::CLUSTER_NAME;

use crate::Broker;
use crate::authorization::repeated;

/// From this version on, clients know `THROTTLING_QUOTA_EXCEEDED` (KIP-599).
const STRICT_SINCE: i16 = 5;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    // A controller on another node has its own setting.
    let is_decided_here = broker.node.controller_elsewhere(context).is_none();
    if is_decided_here && !broker.config().delete_topic_enable {
        // Versions below 3 do not know TOPIC_DELETION_DISABLED.
        let error = match context.api_version {
            ..3 => ErrorCode::InvalidRequest,
            _ => ErrorCode::TopicDeletionDisabled,
        };
        return all_failed(&request, error);
    }
    let denied = take_denied(broker, context, &mut request);
    let is_strict = context.api_version >= STRICT_SINCE;
    let counting = broker.count_mutations(context, is_strict);
    let mut response = if request.topic_names.is_empty() && request.topics.is_empty() {
        DeleteTopicsResponse::default()
    } else {
        let failed = |error| all_failed(&request, error);
        let decided = broker.forward(&counting, request.clone()).await;
        decided.unwrap_or_else(failed)
    };
    response.throttle_time_ms = broker.mutation_throttle_ms(&counting, response.throttle_time_ms);
    response.responses.extend(denied);
    response
}

/// Removes the topics that the client may not delete or describe. Requests that are invalid for
/// every client are left to the controller.
fn take_denied(
    broker: &Broker,
    context: &RequestContext,
    request: &mut DeleteTopicsRequest,
) -> Vec<DeletableTopicResult> {
    let authorizer = &broker.authorizer;
    let delete = Operation::Delete;
    if authorizer.is_allowed_quietly(context, delete, ResourceType::Cluster, CLUSTER_NAME) {
        return Vec::new();
    }
    let image = broker.metadata().clone();
    let is_allowed = |operation, name: &str| {
        authorizer.is_allowed(context, operation, ResourceType::Topic, name)
    };
    let names = request.topic_names.iter();
    let names = names.map(|name| (Some(name.clone()), Uuid::ZERO));
    let topics = request.topics.iter();
    let topics = topics.map(|topic| (topic.name.clone(), topic.topic_id));
    let asked_twice = repeated(names.chain(topics));
    let mut denied = Vec::new();
    let mut is_denied = |asked_name: Option<&ByteString>, topic_id: Uuid| {
        if asked_twice.contains(&(asked_name.cloned(), topic_id)) {
            return false;
        }
        let known = match asked_name {
            Some(name) => image.topics.by_name(name),
            None => image.topics.by_id(topic_id),
        };
        let name = asked_name.or(known.map(|topic| &topic.name));
        let Some(name) = name else {
            // Unknown topic ID.
            return false;
        };
        let is_visible = is_allowed(Operation::Describe, name);
        let is_deletable = is_allowed(delete, name);
        let may_be_deleted = match asked_name {
            // A client that may describe a topic may also know that it does not exist.
            Some(_) => is_visible && (known.is_none() || is_deletable),
            None => is_deletable,
        };
        if may_be_deleted {
            return false;
        }
        let is_named = asked_name.is_some() || is_visible;
        denied.push(DeletableTopicResult {
            name: is_named.then(|| name.clone()),
            topic_id,
            error_code: ErrorCode::TopicAuthorizationFailed.code(),
            error_message: Some(ErrorCode::TopicAuthorizationFailed.message().into()),
            ..Default::default()
        });
        true
    };
    request
        .topic_names
        .retain(|name| !is_denied(Some(name), Uuid::ZERO));
    request.topics.retain(|topic| {
        // A topic with both name and ID, or with neither, is invalid for every client.
        let is_either = topic.name.is_some() == topic.topic_id.is_zero();
        !is_either || !is_denied(topic.name.as_ref(), topic.topic_id)
    });
    denied
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
