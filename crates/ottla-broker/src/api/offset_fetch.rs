//! OffsetFetch: the committed offsets of groups.

use std::sync::Arc;

use ottla_metadata::MetadataImage;
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use ottla_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let version = context.api_version;
    if version >= 8 {
        let mut groups = Vec::with_capacity(request.groups.len());
        for group in request.groups {
            groups.push(fetch(broker, context, group, request.require_stable).await);
        }
        return OffsetFetchResponse {
            groups,
            ..Default::default()
        };
    }
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
            ..Default::default()
        });
        topics.collect::<Vec<_>>()
    });
    let group = OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics: topics.clone(),
        ..Default::default()
    };
    let fetched = fetch(broker, context, group, request.require_stable).await;
    of_one_group(fetched, topics.unwrap_or_default(), version)
}

async fn fetch(
    broker: &Arc<Broker>,
    context: &RequestContext,
    mut group: OffsetFetchRequestGroup,
    require_stable: bool,
) -> OffsetFetchResponseGroup {
    let uses_topic_ids = context.api_version >= 10;
    let group_id = group.group_id.clone();
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Describe, ResourceType::Group, &group_id) {
        return group_failed(&group, ErrorCode::GroupAuthorizationFailed);
    }
    let image = broker.metadata().clone();
    let mut refused = Vec::new();
    if let Some(topics) = &mut group.topics {
        for topic in topics.iter_mut().filter(|_| uses_topic_ids) {
            let known = image.topics.by_id(topic.topic_id);
            topic.name = known.map(|known| known.name.clone()).unwrap_or_default();
        }
        topics.retain(|topic| {
            let (describe, of_topic) = (Operation::Describe, ResourceType::Topic);
            let error = if uses_topic_ids && topic.name.is_empty() {
                ErrorCode::UnknownTopicId
            } else if !authorizer.is_allowed(context, describe, of_topic, &topic.name) {
                ErrorCode::TopicAuthorizationFailed
            } else {
                return true;
            };
            refused.push(topic_failed(topic, error));
            false
        });
    }

    let wants_all = group.topics.is_none();
    let groups = &broker.groups;
    let fetched = groups.request(groups, &group_id, |coordinator, to, _| {
        coordinator.handle_offset_fetch(to, &group, require_stable)
    });
    let mut response: OffsetFetchResponseGroup = match fetched.await {
        Ok(response) => response,
        Err(error) => return group_failed(&group, error),
    };
    if wants_all && response.error_code == 0 {
        response.topics.retain(|topic| {
            let (describe, of_topic) = (Operation::Describe, ResourceType::Topic);
            authorizer.is_allowed(context, describe, of_topic, &topic.name)
        });
        if uses_topic_ids {
            name_by_id(&image, &mut response.topics);
        }
    }
    response.topics.extend(refused);
    response
}

/// A deleted topic has no ID, so its offsets are omitted.
fn name_by_id(image: &MetadataImage, topics: &mut Vec<OffsetFetchResponseTopics>) {
    for topic in topics.iter_mut().filter(|topic| topic.topic_id.is_zero()) {
        if let Some(known) = image.topics.by_name(&topic.name) {
            topic.topic_id = known.id;
        }
    }
    topics.retain(|topic| !topic.topic_id.is_zero());
}

fn group_failed(group: &OffsetFetchRequestGroup, error: ErrorCode) -> OffsetFetchResponseGroup {
    OffsetFetchResponseGroup {
        group_id: group.group_id.clone(),
        error_code: error.code(),
        ..Default::default()
    }
}

fn topic_failed(topic: &OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics {
    let partitions = topic.partition_indexes.iter();
    let partitions = partitions.map(|index| OffsetFetchResponsePartitions {
        partition_index: *index,
        committed_offset: -1,
        metadata: Some(Default::default()),
        error_code: error.code(),
        ..Default::default()
    });
    OffsetFetchResponseTopics {
        name: topic.name.clone(),
        topic_id: topic.topic_id,
        partitions: partitions.collect(),
        ..Default::default()
    }
}

/// The response before version 8, for one group. Version 1 can only report an error of the group in
/// each partition.
fn of_one_group(
    group: OffsetFetchResponseGroup,
    asked: Vec<OffsetFetchRequestTopics>,
    version: i16,
) -> OffsetFetchResponse {
    let error = ErrorCode::from_code(group.error_code);
    let topics = if version < 2 && error != ErrorCode::None {
        asked
            .iter()
            .map(|topic| topic_failed(topic, error))
            .collect()
    } else {
        group.topics
    };
    let topics = topics.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic
            .partitions
            .into_iter()
            .map(|partition| OffsetFetchResponsePartition {
                partition_index: partition.partition_index,
                committed_offset: partition.committed_offset,
                committed_leader_epoch: if version >= 5 {
                    partition.committed_leader_epoch
                } else {
                    -1
                },
                metadata: partition.metadata,
                error_code: partition.error_code,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        error_code: group.error_code,
        ..Default::default()
    }
}
