//! OffsetCommit: stores the offsets that a group has processed.

use std::sync::Arc;

use ottla_coordinator::group::GroupCoordinator;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use ottla_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use ottla_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};
use ottla_types::{ErrorCode, PartitionIndex};

use ottla_net::{Operation, RequestContext, ResourceType};

use super::merged::merge_by;
use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let uses_topic_ids = context.api_version >= 10;
    let reports_not_found = context.api_version >= 9;
    let group_id = request.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Group, &group_id) {
        return all_failed(&request.topics, ErrorCode::GroupAuthorizationFailed);
    }
    let topics = std::mem::take(&mut request.topics);
    let (topics, refused) = split(broker, context, topics, uses_topic_ids);
    if topics.is_empty() {
        return merged(refused, OffsetCommitResponse::default());
    }
    request.topics = topics.clone();
    let committed = broker
        .groups
        .request(&broker.groups, &group_id, |coordinator, to, now| {
            if let Err(error) = check_growth(broker, coordinator, &request) {
                return coordinator.refuse_offset_commit(to, &request, error);
            }
            coordinator.handle_offset_commit(to, request, reports_not_found, now)
        });
    let response = match committed.await {
        Ok(response) => response,
        Err(error) => all_failed(&topics, error),
    };
    merged(refused, response)
}

/// The topics with the partitions that exist and may be committed, with names and IDs, and the
/// errors of the others.
pub(super) fn split(
    broker: &Broker,
    context: &RequestContext,
    topics: Vec<OffsetCommitRequestTopic>,
    uses_topic_ids: bool,
) -> (
    Vec<OffsetCommitRequestTopic>,
    Vec<OffsetCommitResponseTopic>,
) {
    let mut refused = Vec::new();
    let mut existing = Vec::with_capacity(topics.len());
    let image = broker.metadata().clone();
    for topic in topics {
        match resolve(broker, context, &image, topic, uses_topic_ids) {
            Ok(topic) => existing.extend(existing_partitions(&image, topic, &mut refused)),
            Err(response) => refused.push(response),
        }
    }
    (existing, refused)
}

/// An error if the heap is full and the commit would make the group's offsets larger.
pub(super) fn check_growth(
    broker: &Broker,
    coordinator: &GroupCoordinator,
    request: &OffsetCommitRequest,
) -> Result<(), ErrorCode> {
    match broker.context.is_heap_full() && coordinator.grows_with(request) {
        true => broker.context.check_heap(),
        false => Ok(()),
    }
}

/// Completes the topic's name and ID, or returns its error.
fn resolve(
    broker: &Broker,
    context: &RequestContext,
    image: &MetadataImage,
    mut topic: OffsetCommitRequestTopic,
    uses_topic_ids: bool,
) -> Result<OffsetCommitRequestTopic, OffsetCommitResponseTopic> {
    if uses_topic_ids {
        match image.topics.by_id(topic.topic_id) {
            Some(known) => topic.name = known.name.clone(),
            None => return Err(failed(&topic, ErrorCode::UnknownTopicId)),
        }
    }
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Topic, &topic.name) {
        return Err(failed(&topic, ErrorCode::TopicAuthorizationFailed));
    }
    if !uses_topic_ids {
        match image.topics.by_name(&topic.name) {
            Some(known) => topic.topic_id = known.id,
            None => return Err(failed(&topic, ErrorCode::UnknownTopicOrPartition)),
        }
    }
    Ok(topic)
}

/// Moves partitions that do not exist from the topic to `refused`.
fn existing_partitions(
    image: &MetadataImage,
    mut topic: OffsetCommitRequestTopic,
    refused: &mut Vec<OffsetCommitResponseTopic>,
) -> Option<OffsetCommitRequestTopic> {
    let unknown = take_unknown(image, &topic.name, &mut topic.partitions, |it| {
        it.partition_index
    });
    if !unknown.is_empty() {
        let unknown = OffsetCommitRequestTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: unknown,
            ..Default::default()
        };
        refused.push(failed(&unknown, ErrorCode::UnknownTopicOrPartition));
    }
    (!topic.partitions.is_empty()).then_some(topic)
}

/// Removes partitions that do not exist, and returns them.
pub(super) fn take_unknown<P>(
    image: &MetadataImage,
    topic: &str,
    partitions: &mut Vec<P>,
    index: impl Fn(&P) -> i32,
) -> Vec<P> {
    let is_unknown = |it: &mut P| {
        image
            .topics
            .partition(topic, PartitionIndex(index(it)))
            .is_none()
    };
    partitions.extract_if(.., is_unknown).collect()
}

fn failed(topic: &OffsetCommitRequestTopic, error: ErrorCode) -> OffsetCommitResponseTopic {
    let partitions = topic
        .partitions
        .iter()
        .map(|partition| OffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: error.code(),
            ..Default::default()
        });
    OffsetCommitResponseTopic {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: partitions.collect(),
        ..Default::default()
    }
}

pub(super) fn all_failed(
    topics: &[OffsetCommitRequestTopic],
    error: ErrorCode,
) -> OffsetCommitResponse {
    OffsetCommitResponse {
        topics: topics.iter().map(|topic| failed(topic, error)).collect(),
        ..Default::default()
    }
}

/// Merges the partitions of each topic: first the partitions rejected here, then the partitions of
/// the coordinator's response.
pub(super) fn merged(
    mut topics: Vec<OffsetCommitResponseTopic>,
    response: OffsetCommitResponse,
) -> OffsetCommitResponse {
    let key = |topic: &OffsetCommitResponseTopic| (topic.name.clone(), topic.topic_id);
    merge_by(&mut topics, response.topics, key, |known, topic| {
        known.partitions.extend(topic.partitions);
    });
    OffsetCommitResponse { topics, ..response }
}
