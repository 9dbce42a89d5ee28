//! CreateTopics: forwarded to the controller. Kafka: `ControllerApis.handleCreateTopics`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::create_topics_response::CreatableTopicResult;
use ottla_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};

use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_raft::wire::METADATA_TOPIC;
use ottla_types::ErrorCode;

use crate::authorization::repeated;
use crate::{Broker, is_internal_topic};

/// From this version on, clients know `THROTTLING_QUOTA_EXCEEDED` (KIP-599).
const STRICT_SINCE: i16 = 6;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let denied = take_denied(broker, context, &mut request);
    let is_strict = context.api_version >= STRICT_SINCE;
    let counting = broker.count_mutations(context, is_strict);
    let mut response = decide(broker, &counting, request).await;
    response.throttle_time_ms = broker.mutation_throttle_ms(&counting, response.throttle_time_ms);
    for topic in &mut response.topics {
        let (operation, of_topic) = (Operation::DescribeConfigs, ResourceType::Topic);
        let authorizer = &broker.authorizer;
        let is_created = topic.error_code == ErrorCode::None.code();
        if is_created && !authorizer.is_allowed_quietly(context, operation, of_topic, &topic.name) {
            *topic = CreatableTopicResult {
                name: std::mem::take(&mut topic.name),
                topic_id: topic.topic_id,
                error_message: None,
                topic_config_error_code: ErrorCode::TopicAuthorizationFailed.code(),
                num_partitions: -1,
                replication_factor: -1,
                configs: Some(Vec::new()),
                ..Default::default()
            };
        }
    }
    response.topics.extend(denied);
    response
}

/// Removes the topics that the client may not create. Requests that are invalid for every client
/// are left to the controller.
fn take_denied(
    broker: &Broker,
    context: &RequestContext,
    request: &mut CreateTopicsRequest,
) -> Vec<CreatableTopicResult> {
    let asked_twice = repeated(request.topics.iter().map(|topic| topic.name.clone()));
    let mut denied = Vec::new();
    request.topics.retain(|topic| {
        let is_refused_anyway = asked_twice.contains(&topic.name) || &*topic.name == METADATA_TOPIC;
        let is_kept =
            is_refused_anyway || broker.may_do_to_topic(context, Operation::Create, &topic.name);
        if !is_kept {
            denied.push(CreatableTopicResult {
                name: topic.name.clone(),
                error_code: ErrorCode::TopicAuthorizationFailed.code(),
                error_message: Some("Authorization failed.".into()),
                ..Default::default()
            });
        }
        is_kept
    });
    denied
}

async fn decide(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    if request.topics.is_empty() {
        return CreateTopicsResponse::default();
    }
    let names: Vec<_> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let refused = |error: ErrorCode, error_message: Option<ByteString>| CreateTopicsResponse {
        topics: names
            .into_iter()
            .map(|name| CreatableTopicResult {
                name,
                error_code: error.code(),
                error_message: error_message.clone(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    // Without the internal topics, nothing would work.
    let is_internal = |topic: &CreatableTopic| is_internal_topic(&topic.name);
    // Brokers ask for few others, such as dead-letter queues, and give up those that are refused.
    let is_of_broker = context.listener().is_controller && !context.is_forwarded;
    let is_bounded = !is_of_broker && !request.topics.iter().all(is_internal);
    let grows = is_bounded && !request.validate_only;
    broker
        .forward_growing(context, request, grows, refused)
        .await
}
