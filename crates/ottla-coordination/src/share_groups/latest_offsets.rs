//! Requests offsets of partitions from their leaders: high watermarks, from which the lag of a
//! share group is computed, and the offset of a time in a log that is partly in remote storage.
//!
//! Kafka: `NetworkPartitionMetadataClient`, `ShareFetchUtils.offsetForTimestamp`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::persister::StateFailure;
use ottla_protocol::messages::ListOffsetsRequest;
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_types::{BrokerId, ErrorCode, Offset, Timestamp};

use super::coordinators::ShareCoordinators;
use super::persister::ask_peer;
use crate::at_once::each_at_once;

/// The replica ID of clients, and the timestamp that means the end.
const CONSUMER_REPLICA_ID: i32 = -1;
const LATEST_TIMESTAMP: i64 = -1;

/// Number of leaders asked concurrently by one request.
const LEADERS_AT_ONCE: usize = 16;

pub type LatestOffsets = BTreeMap<(ByteString, i32), Result<Offset, ErrorCode>>;

/// Sends one request to each remote leader. A partition is missing from the result if asking about
/// it panicked.
pub async fn latest_offsets(
    coordinators: &Arc<ShareCoordinators>,
    partitions: Vec<(ByteString, i32)>,
) -> LatestOffsets {
    let mut found = LatestOffsets::new();
    let mut elsewhere: BTreeMap<BrokerId, Vec<(ByteString, i32)>> = BTreeMap::new();
    let image = Arc::clone(&coordinators.surroundings.context.metadata());
    for (topic, partition) in partitions {
        let registered = image.topics.by_name(&topic);
        let leader = registered
            .and_then(|topic| topic.partition(partition.into()))
            .map(|partition| partition.leader);
        match leader {
            Some(leader) if leader == coordinators.surroundings.context.broker_id() => {
                let latest = latest_here(coordinators, &topic, partition);
                found.insert((topic, partition), latest);
            }
            Some(leader) if image.cluster.broker(leader).is_some_and(|it| !it.fenced) => {
                let led_there = elsewhere.entry(leader).or_default();
                led_there.push((topic, partition));
            }
            _ => {
                found.insert((topic, partition), Err(ErrorCode::LeaderNotAvailable));
            }
        }
    }
    let answers = each_at_once(LEADERS_AT_ONCE, elsewhere, |(leader, partitions)| {
        let coordinators = Arc::clone(coordinators);
        async move { latest_at(&coordinators, leader, partitions).await }
    });
    found.extend(answers.await.into_iter().flatten().flatten());
    found
}

fn latest_here(
    coordinators: &ShareCoordinators,
    topic: &str,
    partition: i32,
) -> Result<Offset, ErrorCode> {
    let partition = coordinators
        .surroundings
        .local_partition(topic, partition)?;
    partition.check_leader(-1)?;
    if partition.is_high_watermark_behind() {
        Err(ErrorCode::OffsetNotAvailable)
    } else {
        Ok(partition.reader().high_watermark())
    }
}

async fn latest_at(
    coordinators: &Arc<ShareCoordinators>,
    leader: BrokerId,
    partitions: Vec<(ByteString, i32)>,
) -> LatestOffsets {
    let asked = partitions
        .iter()
        .map(|(topic, partition)| ListOffsetsTopic {
            name: topic.clone(),
            partitions: vec![ListOffsetsPartition {
                partition_index: *partition,
                timestamp: LATEST_TIMESTAMP,
                current_leader_epoch: -1,
                ..Default::default()
            }],
            ..Default::default()
        });
    let request = ListOffsetsRequest {
        replica_id: CONSUMER_REPLICA_ID,
        topics: asked.collect(),
        ..Default::default()
    };
    let missing = match ask_peer(coordinators, leader, &request).await {
        Ok(response) => {
            let answered = response.topics.into_iter().flat_map(|topic| {
                let name = topic.name;
                topic.partitions.into_iter().map(move |answer| {
                    let error = ErrorCode::from_code(answer.error_code).into_result();
                    let latest = error.map(|()| Offset(answer.offset));
                    ((name.clone(), answer.partition_index), latest)
                })
            });
            let mut answered: LatestOffsets = answered.collect();
            for partition in partitions {
                let unknown = Err(ErrorCode::UnknownTopicOrPartition);
                answered.entry(partition).or_insert(unknown);
            }
            return answered;
        }
        Err(failure) => failure.code,
    };
    let partitions = partitions.into_iter();
    partitions
        .map(|partition| (partition, Err(missing)))
        .collect()
}

/// The offset of the first record with at least this timestamp, in a partition that this broker
/// leads. By a request to itself, because remote storage is not reached from here.
pub(super) async fn offset_by_time(
    coordinators: &Arc<ShareCoordinators>,
    topic: &str,
    partition: i32,
    timestamp: Timestamp,
) -> Result<Option<Offset>, StateFailure> {
    let request = ListOffsetsRequest {
        replica_id: CONSUMER_REPLICA_ID,
        topics: vec![ListOffsetsTopic {
            name: topic.to_owned().into(),
            partitions: vec![ListOffsetsPartition {
                partition_index: partition,
                timestamp: timestamp.0,
                current_leader_epoch: -1,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let this_broker = coordinators.surroundings.context.broker_id();
    let response = ask_peer(coordinators, this_broker, &request).await?;
    let mut answers = response.topics.iter().flat_map(|topic| &topic.partitions);
    let answer = answers.next().ok_or(ErrorCode::UnknownServerError)?;
    ErrorCode::from_code(answer.error_code).into_result()?;
    Ok(Some(Offset(answer.offset)).filter(|offset| *offset != Offset::UNKNOWN))
}
