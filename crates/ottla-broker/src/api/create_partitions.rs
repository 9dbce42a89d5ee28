//! CreatePartitions: forwarded to the controller. Kafka: `ControllerApis.handleCreatePartitions`.

use std::collections::HashMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use ottla_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use ottla_net::{Operation, RequestContext, ResourceType};
use ottla_types::ErrorCode;

use crate::Broker;

/// From this version on, clients know `THROTTLING_QUOTA_EXCEEDED` (KIP-599).
const STRICT_SINCE: i16 = 3;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let mut times: HashMap<ByteString, usize> = HashMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_default() += 1;
    }
    let mut denied = Vec::new();
    let (alter, of_topic) = (Operation::Alter, ResourceType::Topic);
    request.topics.retain(|topic| {
        // The controller rejects a topic that is named twice, for every client.
        let is_kept = times[&topic.name] > 1
            || broker
                .authorizer
                .is_allowed(context, alter, of_topic, &topic.name);
        if !is_kept {
            denied.push(CreatePartitionsTopicResult {
                name: topic.name.clone(),
                error_code: ErrorCode::TopicAuthorizationFailed.code(),
                error_message: None,
                ..Default::default()
            });
        }
        is_kept
    });
    let is_strict = context.api_version >= STRICT_SINCE;
    let counting = broker.count_mutations(context, is_strict);
    let mut response = match request.topics.is_empty() {
        true => CreatePartitionsResponse::default(),
        false => decide(broker, &counting, request).await,
    };
    response.throttle_time_ms = broker.mutation_throttle_ms(&counting, response.throttle_time_ms);
    response.results.extend(denied);
    response
}

async fn decide(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let names: Vec<_> = request
        .topics
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    let refused = |error: ErrorCode, error_message: Option<ByteString>| CreatePartitionsResponse {
        results: names
            .into_iter()
            .map(|name| CreatePartitionsTopicResult {
                name,
                error_code: error.code(),
                error_message: error_message.clone(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let grows = !request.validate_only;
    broker
        .forward_growing(context, request, grows, refused)
        .await
}
