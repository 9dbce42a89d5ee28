//! The dead-letter queue of a group: its topic, which is created if it may be, and the leader of
//! the partition that gets the records. Kafka: `ShareGroupDLQStateManager`,
//! `ShareCoordinatorMetadataCacheHelperImpl`.

use ottla_config::TopicConfig;
use ottla_coordinator::dead_letter_queue::{LetterSource, QueueTopic, queue_partition};
use ottla_metadata::{ConfigResource, MetadataImage, TopicImage};
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_types::{BrokerId, ErrorCode, PartitionIndex, TopicId, TopicName};

use crate::surroundings::Surroundings;

/// The partition of a queue that gets the records of a partition.
pub(super) struct Queue {
    pub(super) topic: TopicName,
    pub(super) topic_id: TopicId,
    pub(super) partition: PartitionIndex,
    pub(super) leader: BrokerId,
    /// `max.message.bytes` of the topic.
    pub(super) max_message_bytes: usize,
    /// `errors.deadletterqueue.copy.record.enable` of the group.
    pub(super) copies_records: bool,
}

/// Why there is no queue to write to.
pub(super) struct QueueFailure {
    pub(super) reason: String,
    pub(super) is_temporary: bool,
}

impl QueueFailure {
    fn temporary(reason: String) -> Self {
        QueueFailure {
            reason,
            is_temporary: true,
        }
    }
}

enum Found {
    Queue(Queue),
    /// The topic must be created.
    Missing(TopicName),
}

/// The queue by the metadata of this broker.
pub(super) async fn find(
    surroundings: &Surroundings,
    source: LetterSource<'_>,
) -> Result<Queue, QueueFailure> {
    let topic = match look_up(surroundings, source)? {
        Found::Queue(queue) => return Ok(queue),
        Found::Missing(topic) => topic,
    };
    create(surroundings, topic.clone()).await?;
    match look_up(surroundings, source)? {
        Found::Queue(queue) => Ok(queue),
        Found::Missing(_) => Err(QueueFailure::temporary(format!(
            "topic {topic} was created, and this broker does not know it yet"
        ))),
    }
}

fn look_up(surroundings: &Surroundings, source: LetterSource<'_>) -> Result<Found, QueueFailure> {
    let context = &surroundings.context;
    let (config, image) = (context.config().clone(), context.metadata().clone());
    let group = ConfigResource::group(source.group_id.to_owned());
    let name = image
        .configs
        .value(&group, "errors.deadletterqueue.topic.name");
    let name = name.map_or("", |name| name.trim());
    let resource = ConfigResource::topic(name.to_owned());
    let topic = image.topics.by_name(name);
    let overrides = image.configs.entries(&resource);
    let overrides = overrides.map(|(key, value)| (&**key, &**value));
    let (topic_config, _) = TopicConfig::resolve_leniently(&config.topic_defaults, overrides);
    let checked = QueueTopic {
        name,
        source: source.topic,
        prefix: &config.errors_deadletterqueue_topic_name_prefix,
        exists: topic.is_some(),
        is_enabled: topic_config.errors_deadletterqueue_group_enable,
        may_be_created: config.errors_deadletterqueue_auto_create_topics_enable,
    };
    checked.check().map_err(|refusal| QueueFailure {
        reason: refusal.to_string(),
        is_temporary: false,
    })?;
    let Some(topic) = topic else {
        return Ok(Found::Missing(name.to_owned().into()));
    };
    let partition = queue_partition(source.partition, topic.partition_count());
    Ok(Found::Queue(Queue {
        topic: topic.name.clone(),
        topic_id: topic.id,
        partition,
        leader: leader_of(&image, topic, partition)?,
        max_message_bytes: topic_config.max_message_bytes.max(0) as usize,
        copies_records: is_true(&image, &group, "errors.deadletterqueue.copy.record.enable"),
    }))
}

fn is_true(image: &MetadataImage, resource: &ConfigResource, key: &str) -> bool {
    let value = image.configs.value(resource, key);
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

fn leader_of(
    image: &MetadataImage,
    topic: &TopicImage,
    partition: PartitionIndex,
) -> Result<BrokerId, QueueFailure> {
    let registration = topic.partition(partition);
    let leader = registration.map(|registration| registration.leader);
    let is_up = |id: &BrokerId| image.cluster.broker(*id).is_some_and(|it| !it.fenced);
    leader.filter(is_up).ok_or_else(|| {
        QueueFailure::temporary(format!("{}-{} has no leader", topic.name, partition.0))
    })
}

async fn create(surroundings: &Surroundings, name: TopicName) -> Result<(), QueueFailure> {
    let configs = [
        ("errors.deadletterqueue.group.enable", "true"),
        ("message.timestamp.type", "CreateTime"),
    ];
    let configs = configs.map(|(name, value)| CreatableTopicConfig {
        name: name.into(),
        value: Some(value.into()),
        ..Default::default()
    });
    let topic = CreatableTopic {
        name: name.clone(),
        num_partitions: -1,
        replication_factor: -1,
        configs: configs.into(),
        ..Default::default()
    };
    let created = surroundings.auto_topic_creation.create_topic(topic).await;
    created.map_err(|error| QueueFailure {
        reason: format!("topic {name} cannot be created: {}", error.message),
        is_temporary: matches!(
            error.code,
            ErrorCode::TopicAlreadyExists
                | ErrorCode::ThrottlingQuotaExceeded
                | ErrorCode::NotController
                | ErrorCode::NetworkException
                | ErrorCode::RequestTimedOut
        ),
    })
}
