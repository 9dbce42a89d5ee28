//! DescribeTopicPartitions (KIP-966): partitions with their eligible leader replicas, in pages.
//!
//! Kafka: `DescribeTopicPartitionsRequestHandler`, `KRaftMetadataCache.describeTopicResponse`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_controller::is_valid_topic_name;
use ottla_metadata::{MetadataImage, PartitionRegistration};
use ottla_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use ottla_protocol::messages::{DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse};
use ottla_types::{BrokerId, ErrorCode, PartitionIndex};

use super::metadata::offline_replicas;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::{Broker, is_internal_topic};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let image = broker.metadata().clone();
    let asks_all = request.topics.is_empty();
    let (cursor_topic, cursor_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.clone(), cursor.partition_index),
        None => (ByteString::new(), 0),
    };
    let names: BTreeSet<ByteString> = if asks_all {
        image
            .topics
            .iter_from(&cursor_topic)
            .map(|topic| topic.name.clone())
            .collect()
    } else {
        let asked = request.topics.iter().map(|topic| topic.name.clone());
        asked.filter(|name| *name >= cursor_topic).collect()
    };
    let is_cursor_missing = request.cursor.is_some() && !asks_all && !names.contains(&cursor_topic);
    if is_cursor_missing || cursor_partition < 0 {
        // The response can only contain errors of topics.
        return DescribeTopicPartitionsResponse {
            topics: request
                .topics
                .iter()
                .map(|topic| refused(topic.name.clone(), ErrorCode::InvalidRequest))
                .collect(),
            ..Default::default()
        };
    }
    let limit = request
        .response_partition_limit
        .min(broker.config().max_request_partition_size_limit)
        .max(1) as usize;
    let mut room = limit;
    let mut topics = Vec::new();
    let mut unauthorized = Vec::new();
    let mut next_cursor = None;
    for name in names {
        let authorizer = &broker.authorizer;
        if !authorizer.is_allowed(context, Operation::Describe, ResourceType::Topic, &name) {
            if !asks_all {
                unauthorized.push(refused(name, ErrorCode::TopicAuthorizationFailed));
            }
            continue;
        }
        let cursor_at = |partition_index| Cursor {
            topic_name: name.clone(),
            partition_index,
            ..Default::default()
        };
        if room == 0 {
            next_cursor = Some(cursor_at(0));
            break;
        }
        let Some(topic) = image.topics.by_name(&name) else {
            if !asks_all {
                let error = match is_valid_topic_name(&name) {
                    true => ErrorCode::UnknownTopicOrPartition,
                    false => ErrorCode::InvalidTopicException,
                };
                topics.push(refused(name, error));
            }
            continue;
        };
        let first = if name == cursor_topic {
            cursor_partition
        } else {
            0
        };
        let partitions: Vec<_> = topic
            .partitions()
            .skip_while(|(index, _)| index.value() < first)
            .take(room)
            .map(|(index, partition)| described(&image, context, index, partition))
            .collect();
        let next = first.saturating_add(partitions.len() as i32);
        let is_cut = (next as usize) < topic.partition_count();
        room -= partitions.len();
        topics.push(DescribeTopicPartitionsResponseTopic {
            error_code: ErrorCode::None.code(),
            topic_authorized_operations: authorizer.authorized_operations(
                context,
                ResourceType::Topic,
                &name,
            ),
            topic_id: topic.id,
            is_internal: is_internal_topic(&name),
            partitions,
            name: Some(name.clone()),
            ..Default::default()
        });
        if is_cut {
            next_cursor = Some(cursor_at(next));
            break;
        }
    }
    topics.append(&mut unauthorized);
    DescribeTopicPartitionsResponse {
        topics,
        next_cursor,
        ..Default::default()
    }
}

fn refused(name: ByteString, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: error.code(),
        is_internal: is_internal_topic(&name),
        name: Some(name),
        ..Default::default()
    }
}

fn described(
    image: &MetadataImage,
    context: &RequestContext,
    index: PartitionIndex,
    partition: &PartitionRegistration,
) -> DescribeTopicPartitionsResponsePartition {
    let listener = &context.listener().name;
    let numbers = |ids: &[BrokerId]| -> Vec<i32> { ids.iter().map(|id| id.value()).collect() };
    let leader = image
        .cluster
        .broker(partition.leader)
        .filter(|node| !node.fenced && node.listener(listener).is_some());
    DescribeTopicPartitionsResponsePartition {
        partition_index: index.value(),
        leader_id: leader.map_or(-1, |node| node.id.value()),
        leader_epoch: partition.leader_epoch.value(),
        replica_nodes: numbers(&partition.replicas),
        isr_nodes: numbers(&partition.isr),
        offline_replicas: offline_replicas(image, partition, listener),
        eligible_leader_replicas: Some(numbers(partition.elr())),
        last_known_elr: Some(numbers(partition.last_known_elr())),
        ..Default::default()
    }
}
