//! Metadata: topics, partitions and brokers, with the addresses for the listener of the client.
//!
//! Kafka: `KafkaApis.handleTopicMetadataRequest`, `KRaftMetadataCache.getTopicMetadata`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_controller::is_valid_topic_name;
use ottla_metadata::{MetadataImage, PartitionRegistration, TopicImage};
use ottla_protocol::messages::metadata_request::MetadataRequestTopic;
use ottla_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::messages::{MetadataRequest, MetadataResponse};
use ottla_types::{BrokerId, ErrorCode, PartitionIndex, TopicId, Uuid};

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::{Broker, is_internal_topic};

/// How the client identifies a topic.
enum Wanted {
    Name(ByteString),
    Id(TopicId),
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: MetadataRequest,
) -> MetadataResponse {
    let version = context.api_version;
    let mut image = broker.metadata().clone();
    let authorizer = &broker.authorizer;
    let mut topics = Vec::new();
    // Version 0 has no null; an empty list means all topics.
    let asked = request
        .topics
        .filter(|topics| version > 0 || !topics.is_empty());
    // These versions have topic IDs and null names in their schema, but do not support them.
    let has_later_names = |topic: &MetadataRequestTopic| {
        version < 12 && (topic.name.is_none() || !topic.topic_id.is_zero())
    };
    if let Some(asked) = &asked
        && asked.iter().any(has_later_names)
    {
        return refused_as_a_whole(asked, ErrorCode::InvalidRequest);
    }
    // A client that asks right after the creation of a topic would ask again only after its
    // `retry.backoff.ms`.
    if let Some(asked) = &asked
        && asked.iter().any(|topic| !is_known(&image, topic))
        && let Some(applied) = broker.node.metadata_applied()
    {
        let _waiting = context.waited.begin();
        applied.await;
        image = broker.metadata().clone();
    }
    match asked {
        None => {
            for topic in image.topics.iter() {
                if authorizer.is_allowed_quietly(
                    context,
                    Operation::Describe,
                    ResourceType::Topic,
                    &topic.name,
                ) {
                    topics.push(known_topic(&image, context, topic));
                }
            }
        }
        Some(asked) => {
            let uses_ids = asked.iter().any(|topic| !topic.topic_id.is_zero());
            let wanted = asked
                .into_iter()
                .filter_map(|topic| match (topic.name, topic.topic_id) {
                    (_, id) if uses_ids => (!id.is_zero()).then_some(Wanted::Id(id)),
                    (name, _) => name.map(Wanted::Name),
                });
            let mut seen = std::collections::HashSet::new();
            let may_create =
                request.allow_auto_topic_creation && broker.config().auto_create_topics_enable;
            let mut missing = Vec::new();
            for wanted in wanted {
                match wanted {
                    Wanted::Id(id) => {
                        let known = image.topics.by_id(id);
                        let name = known.map(|topic| topic.name.clone());
                        topics.push(match known {
                            Some(topic) if !seen.insert(topic.name.clone()) => continue,
                            Some(topic) if is_allowed(broker, context, &topic.name) => {
                                known_topic(&image, context, topic)
                            }
                            Some(_) => refused(None, id, ErrorCode::TopicAuthorizationFailed),
                            None => refused(name, id, ErrorCode::UnknownTopicId),
                        });
                    }
                    Wanted::Name(name) => {
                        if !seen.insert(name.clone()) {
                            continue;
                        }
                        if !is_allowed(broker, context, &name) {
                            topics.push(refused(
                                Some(name),
                                Uuid::ZERO,
                                ErrorCode::TopicAuthorizationFailed,
                            ));
                        } else if let Some(topic) = image.topics.by_name(&name) {
                            topics.push(known_topic(&image, context, topic));
                        } else if may_create
                            && !broker.may_do_to_topic(context, Operation::Create, &name)
                        {
                            topics.push(refused(
                                Some(name),
                                Uuid::ZERO,
                                ErrorCode::TopicAuthorizationFailed,
                            ));
                        } else if !is_valid_topic_name(&name) {
                            topics.push(refused(
                                Some(name),
                                Uuid::ZERO,
                                ErrorCode::InvalidTopicException,
                            ));
                        } else {
                            missing.push(name.clone());
                            topics.push(refused(
                                Some(name),
                                Uuid::ZERO,
                                ErrorCode::UnknownTopicOrPartition,
                            ));
                        }
                    }
                }
            }
            if may_create && !missing.is_empty() {
                // As in Kafka, the client retries and finds the topic then.
                let counting = broker.count_mutations(context, true);
                broker
                    .auto_topic_creation
                    .create_topics_in_background(Some(&counting), missing);
            }
        }
    }
    if version >= 8 && request.include_topic_authorized_operations {
        let denied = ErrorCode::TopicAuthorizationFailed.code();
        for topic in &mut topics {
            if topic.error_code != denied
                && let Some(name) = &topic.name
            {
                topic.topic_authorized_operations =
                    authorizer.authorized_operations(context, ResourceType::Topic, name);
            }
        }
    }
    let brokers: Vec<MetadataResponseBroker> = image
        .cluster
        .unfenced_brokers()
        .filter_map(|node| {
            let endpoint = node.listener(&context.listener().name)?;
            Some(MetadataResponseBroker {
                node_id: node.id.value(),
                host: endpoint.host.clone(),
                port: i32::from(endpoint.port),
                rack: node.rack.clone(),
                ..Default::default()
            })
        })
        .collect();
    let mut response = MetadataResponse {
        // Every broker accepts requests for the controller and forwards them.
        controller_id: brokers.first().map_or(-1, |node| node.node_id),
        brokers,
        cluster_id: Some(broker.cluster_id()),
        topics,
        ..Default::default()
    };
    if (8..=10).contains(&version) && request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = broker.cluster_authorized_operations(context);
    }
    response
}

fn is_known(image: &MetadataImage, asked: &MetadataRequestTopic) -> bool {
    let topics = &image.topics;
    match &asked.name {
        Some(name) if asked.topic_id.is_zero() => topics.by_name(name).is_some(),
        _ => topics.by_id(asked.topic_id).is_some(),
    }
}

/// Kafka: `MetadataRequest.getErrorResponse`.
pub(super) fn refused_as_a_whole(
    asked: &[MetadataRequestTopic],
    error: ErrorCode,
) -> MetadataResponse {
    let error_code = error.code();
    let topic = |topic: &MetadataRequestTopic| MetadataResponseTopic {
        error_code,
        name: Some(topic.name.clone().unwrap_or_default()),
        topic_id: topic.topic_id,
        ..Default::default()
    };
    MetadataResponse {
        topics: asked.iter().map(topic).collect(),
        error_code,
        ..Default::default()
    }
}

fn is_allowed(broker: &Broker, context: &RequestContext, topic: &str) -> bool {
    broker
        .authorizer
        .is_allowed(context, Operation::Describe, ResourceType::Topic, topic)
}

fn refused(name: Option<ByteString>, topic_id: TopicId, error: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: error.code(),
        is_internal: name.as_ref().is_some_and(|name| is_internal_topic(name)),
        name,
        topic_id,
        ..Default::default()
    }
}

fn known_topic(
    image: &MetadataImage,
    context: &RequestContext,
    topic: &TopicImage,
) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(topic.name.clone()),
        topic_id: topic.id,
        is_internal: is_internal_topic(&topic.name),
        partitions: topic
            .partitions()
            .map(|(index, partition)| known_partition(image, context, index, partition))
            .collect(),
        ..Default::default()
    }
}

fn known_partition(
    image: &MetadataImage,
    context: &RequestContext,
    index: PartitionIndex,
    partition: &PartitionRegistration,
) -> MetadataResponsePartition {
    let listener = &context.listener().name;
    let is_alive = |id: &BrokerId| {
        let node = image.cluster.broker(*id);
        node.is_some_and(|node| !node.fenced && node.listener(listener).is_some())
    };
    // Version 0 omits unavailable replicas, and returns an error.
    let hides_unavailable = context.api_version == 0;
    let shown = |ids: &[BrokerId]| -> Vec<i32> {
        ids.iter()
            .filter(|id| !hides_unavailable || is_alive(id))
            .map(|id| id.value())
            .collect()
    };
    let (replica_nodes, isr_nodes) = (shown(&partition.replicas), shown(&partition.isr));
    let has_leader = is_alive(&partition.leader);
    let error = if has_leader {
        let hidden =
            replica_nodes.len() < partition.replicas.len() || isr_nodes.len() < partition.isr.len();
        if hidden {
            ErrorCode::ReplicaNotAvailable
        } else {
            ErrorCode::None
        }
    } else if image.cluster.broker(partition.leader).is_some() && context.api_version >= 6 {
        ErrorCode::ListenerNotFound
    } else {
        ErrorCode::LeaderNotAvailable
    };
    MetadataResponsePartition {
        error_code: error.code(),
        partition_index: index.value(),
        leader_id: if has_leader {
            partition.leader.value()
        } else {
            -1
        },
        leader_epoch: partition.leader_epoch.value(),
        replica_nodes,
        isr_nodes,
        offline_replicas: offline_replicas(image, partition, listener),
        ..Default::default()
    }
}

/// The replicas whose broker or log directory is offline.
pub(super) fn offline_replicas(
    image: &MetadataImage,
    partition: &PartitionRegistration,
    listener: &str,
) -> Vec<i32> {
    let is_offline = |id: &&BrokerId| match image.cluster.broker(**id) {
        None => true,
        Some(node) => {
            node.fenced
                || node.listener(listener).is_none()
                || partition
                    .directory(**id)
                    .is_some_and(|directory| !node.has_online_directory(directory))
        }
    };
    partition
        .replicas
        .iter()
        .filter(is_offline)
        .map(|id| id.value())
        .collect()
}
