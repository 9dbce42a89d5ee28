//! The topic under load: created if missing, and used once its leaders serve it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_protocol::messages::create_topics_request::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use ottla_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use ottla_types::ErrorCode;

use super::access::Access;
use super::fetch::FetchRequests;
use super::topic::{Partition, Topic};
use super::wire::{Connection, check};

/// Timeout for the leaders of a new topic.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);
const CREATE_TIMEOUT_MS: i32 = 30_000;

/// Creates the topic with this many partitions unless it exists, and waits until its leaders serve
/// it.
pub fn create_topic(
    access: &Access,
    name: &str,
    partitions: i32,
    configs: &[(String, String)],
) -> Result<Topic> {
    let bootstrap = access.bootstrap();
    let mut connection = access.open_bootstrap()?;
    let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
        name: name.clone().into(),
        value: Some(value.clone().into()),
        ..Default::default()
    });
    let answer = connection.request(&CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.to_owned().into(),
            num_partitions: partitions,
            replication_factor: -1,
            configs: configs.collect(),
            ..Default::default()
        }],
        timeout_ms: CREATE_TIMEOUT_MS,
        ..Default::default()
    })?;
    let result = answer
        .topics
        .first()
        .context("the broker did not answer about the topic")?;
    if result.error_code != ErrorCode::TopicAlreadyExists.code() {
        let reason = result.error_message.as_deref().unwrap_or_default();
        check(
            result.error_code,
            format_args!("creating topic {name}: {reason}"),
            bootstrap,
        )?;
    }
    let topic = find_topic(access, name)?;
    ensure!(
        topic.partitions.len() == partitions as usize,
        "topic {name} has {} partitions and not {partitions}; give another --topic or --partitions {}",
        topic.partitions.len(),
        topic.partitions.len()
    );
    Ok(topic)
}

/// Looks up the topic, and waits until all its partitions have leaders that serve it.
pub fn find_topic(access: &Access, name: &str) -> Result<Topic> {
    let mut connection = access.open_bootstrap()?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let attempt = ask_for_topic(access, &mut connection, name).and_then(|topic| {
            probe(&topic)?;
            Ok(topic)
        });
        match attempt {
            Err(error) if Instant::now() >= deadline => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
            Ok(topic) => return Ok(topic),
        }
    }
}

fn ask_for_topic(access: &Access, connection: &mut Connection, name: &str) -> Result<Topic> {
    let address = connection.address().to_owned();
    let answer = connection.request(&MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name.to_owned().into()),
            ..Default::default()
        }]),
        allow_auto_topic_creation: false,
        ..Default::default()
    })?;
    let topic = answer
        .topics
        .first()
        .context("the broker did not answer about the topic")?;
    check(
        topic.error_code,
        format_args!("looking for topic {name}"),
        &address,
    )?;
    let mut partitions = Vec::new();
    for partition in &topic.partitions {
        let doing = format_args!(
            "looking for the leader of {name}-{}",
            partition.partition_index
        );
        check(partition.error_code, doing, &address)?;
        let leader = answer
            .brokers
            .iter()
            .find(|broker| broker.node_id == partition.leader_id);
        let leader = leader.with_context(|| format!("{address}: {name} has no leader"))?;
        partitions.push(Partition {
            index: partition.partition_index,
            leader: format!("{}:{}", leader.host, leader.port),
        });
    }
    partitions.sort_by_key(|partition| partition.index);
    Ok(Topic {
        access: access.clone(),
        name: name.to_owned(),
        id: topic.topic_id,
        partitions,
    })
}

/// Checks that the leaders answer for the partitions, because metadata may be available earlier.
fn probe(topic: &Topic) -> Result<()> {
    for (leader, partitions) in topic.by_leader() {
        let mut connection = topic.access.open(&leader)?;
        let mut requests = FetchRequests::new(&connection, topic)?.max_wait(Duration::ZERO);
        for partition in partitions {
            requests.fetch(&mut connection, partition, 0)?;
        }
    }
    Ok(())
}

/// Deletes the topic.
pub fn delete_topic(access: &Access, name: &str) -> Result<()> {
    let mut connection = access.open_bootstrap()?;
    let answer = connection.request(&DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(name.to_owned().into()),
            ..Default::default()
        }],
        timeout_ms: CREATE_TIMEOUT_MS,
        ..Default::default()
    })?;
    let result = answer
        .responses
        .first()
        .context("the broker did not answer about the topic")?;
    check(
        result.error_code,
        format_args!("deleting topic {name}"),
        access.bootstrap(),
    )
}
