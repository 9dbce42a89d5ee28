//! OffsetDelete: deletes committed offsets.

use std::sync::Arc;

use ottla_coordinator::group::Refused;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::offset_delete_request::OffsetDeleteRequestTopic;
use ottla_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use ottla_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use super::merged::merge_by;
use super::offset_commit::take_unknown;
use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let group_id = request.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Delete, ResourceType::Group, &group_id) {
        return OffsetDeleteResponse::refused(ErrorCode::GroupAuthorizationFailed);
    }
    let image = broker.metadata().clone();
    let mut failed = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in std::mem::take(&mut request.topics) {
        let (read, of_topic) = (Operation::Read, ResourceType::Topic);
        if !authorizer.is_allowed(context, read, of_topic, &topic.name) {
            failed.push(topic_failed(&topic, ErrorCode::TopicAuthorizationFailed));
        } else {
            topics.extend(existing_partitions(&image, topic, &mut failed));
        }
    }
    request.topics = topics;
    let deleted = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            coordinator.handle_offset_delete(to, request, now)
        });
    match deleted.await {
        Ok(response) => merged(failed, response),
        Err(error) => OffsetDeleteResponse::refused(error),
    }
}

/// Moves partitions that do not exist from the topic to `failed`.
fn existing_partitions(
    image: &MetadataImage,
    mut topic: OffsetDeleteRequestTopic,
    failed: &mut Vec<OffsetDeleteResponseTopic>,
) -> Option<OffsetDeleteRequestTopic> {
    let unknown = take_unknown(image, &topic.name, &mut topic.partitions, |it| {
        it.partition_index
    });
    if !unknown.is_empty() {
        let unknown = OffsetDeleteRequestTopic {
            name: topic.name.clone(),
            partitions: unknown,
        };
        failed.push(topic_failed(&unknown, ErrorCode::UnknownTopicOrPartition));
    }
    (!topic.partitions.is_empty()).then_some(topic)
}

fn topic_failed(topic: &OffsetDeleteRequestTopic, error: ErrorCode) -> OffsetDeleteResponseTopic {
    let partitions = topic.partitions.iter();
    let partitions = partitions.map(|partition| OffsetDeleteResponsePartition {
        partition_index: partition.partition_index,
        error_code: error.code(),
    });
    OffsetDeleteResponseTopic {
        name: topic.name.clone(),
        partitions: partitions.collect(),
    }
}

/// If the whole request failed, the response contains only that error. Otherwise merges the
/// partitions of each topic.
fn merged(
    mut topics: Vec<OffsetDeleteResponseTopic>,
    response: OffsetDeleteResponse,
) -> OffsetDeleteResponse {
    if response.error_code != 0 {
        return response;
    }
    let key = |topic: &OffsetDeleteResponseTopic| topic.name.clone();
    merge_by(&mut topics, response.topics, key, |known, topic| {
        known.partitions.extend(topic.partitions);
    });
    OffsetDeleteResponse { topics, ..response }
}
