//! ListOffsets: finds an offset by timestamp, or for one of the special timestamps.
//!
//! Kafka does the same in `KafkaApis.handleListOffsetRequest`, `ReplicaManager.fetchOffset` and
//! `Partition.fetchOffsetForTimestamp`.

use std::sync::Arc;
use std::time::Duration;

use ottla_log::{LogReader, TimestampLookup, TimestampTarget};
use ottla_protocol::messages::list_offsets_request::ListOffsetsPartition;
use ottla_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use ottla_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};
use ottla_sync::collections::HashSet;
use ottla_types::{ErrorCode, Offset, Timestamp};

use ottla_net::RequestContext;
use ottla_net::{Operation, ResourceType};
use ottla_partition::partition::Partition;

use crate::Broker;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// The replica ID of clients.
const CONSUMER_REPLICA_ID: i32 = -1;
/// Requests an answer from any replica.
const DEBUGGING_REPLICA_ID: i32 = -2;

/// The first version whose clients know `OFFSET_NOT_AVAILABLE`.
const OFFSET_NOT_AVAILABLE_VERSION: i16 = 5;

/// The end offset that is visible to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visibility {
    HighWatermark,
    LastStableOffset,
    /// Other brokers and debugging tools see the whole log.
    LogEndOffset,
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let visibility = match (request.replica_id, request.isolation_level) {
        (CONSUMER_REPLICA_ID, 0) => Visibility::HighWatermark,
        (CONSUMER_REPLICA_ID, 1) => Visibility::LastStableOffset,
        (_, 0 | 1) => Visibility::LogEndOffset,
        // Kafka checks the isolation level only if there is something to look up, and then rejects
        // the whole request.
        _ if is_any_allowed(broker, context, &request) => return unknown_isolation(&request),
        _ => Visibility::HighWatermark,
    };
    let duplicates = duplicates(&request);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let is_allowed = broker.authorizer.is_allowed(
            context,
            Operation::Describe,
            ResourceType::Topic,
            &topic.name,
        );
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let found = if !is_allowed {
                Err(ErrorCode::TopicAuthorizationFailed)
            } else if duplicates.contains(&(&*topic.name, asked.partition_index)) {
                Err(ErrorCode::InvalidRequest)
            } else if !is_supported(asked.timestamp, context.api_version) {
                Err(ErrorCode::UnsupportedVersion)
            } else {
                let partition = broker.local_partition(&topic.name, asked.partition_index);
                match partition {
                    Ok(partition) => {
                        let only_from_leader = request.replica_id != DEBUGGING_REPLICA_ID;
                        find(broker, &partition, asked, visibility, only_from_leader).await
                    }
                    Err(code) => Err(code),
                }
            };
            partitions.push(answer(asked, found, context.api_version));
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions,
            ..Default::default()
        });
    }
    ListOffsetsResponse {
        topics,
        ..Default::default()
    }
}

fn is_any_allowed(broker: &Broker, context: &RequestContext, request: &ListOffsetsRequest) -> bool {
    request.topics.iter().any(|topic| {
        let (operation, resource) = (Operation::Describe, ResourceType::Topic);
        let authorizer = &broker.authorizer;
        authorizer.is_allowed(context, operation, resource, &topic.name)
    })
}

fn unknown_isolation(request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let refused = |asked| answer(asked, Err(ErrorCode::UnknownServerError), 0);
    let topics = request.topics.iter().map(|topic| ListOffsetsTopicResponse {
        name: topic.name.clone(),
        partitions: topic.partitions.iter().map(refused).collect(),
        ..Default::default()
    });
    ListOffsetsResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}

/// Partitions that the request names more than once. Kafka rejects them.
fn duplicates(request: &ListOffsetsRequest) -> HashSet<(&str, i32)> {
    let mut seen: HashSet<(&str, i32)> = HashSet::default();
    let mut duplicates = HashSet::default();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let key = (&*topic.name, partition.partition_index);
            if !seen.insert(key) {
                duplicates.insert(key);
            }
        }
    }
    duplicates
}

/// Whether this version supports the timestamp.
fn is_supported(timestamp: i64, version: i16) -> bool {
    let since = match timestamp {
        0.. => 1,
        LATEST | EARLIEST => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        EARLIEST_PENDING_UPLOAD => 11,
        _ => return false,
    };
    version >= since
}

async fn find(
    broker: &Broker,
    partition: &Arc<Partition>,
    asked: &ListOffsetsPartition,
    visibility: Visibility,
    only_from_leader: bool,
) -> Result<Option<TimestampLookup>, ErrorCode> {
    match only_from_leader {
        true => partition.check_leader(asked.current_leader_epoch)?,
        false => partition.check_replica(asked.current_leader_epoch)?,
    }
    // A new leader does not know its predecessor's high watermark yet, so its end offset is
    // unknown.
    let is_behind = visibility != Visibility::LogEndOffset && partition.is_high_watermark_behind();
    let last_fetchable = last_fetchable_offset(&partition.reader(), visibility);
    let target = match asked.timestamp {
        LATEST if is_behind => return Err(ErrorCode::OffsetNotAvailable),
        LATEST => {
            return Ok(Some(TimestampLookup {
                offset: last_fetchable,
                timestamp: Timestamp::NONE,
                leader_epoch: Some(partition.leader_epoch()),
            }));
        }
        EARLIEST_LOCAL if partition.reader().config().remote_storage_enable => {
            let local = partition.reader().local_log_start_offset();
            return Ok(Some(at(&partition.reader(), local)));
        }
        // The local log is complete, unless it is tiered.
        EARLIEST | EARLIEST_LOCAL => {
            let earliest = partition
                .reader()
                .offset_for_timestamp(TimestampTarget::Earliest);
            return earliest.map_err(|error| error.error_code());
        }
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => {
            return Ok(Some(tiered_offset(&partition.reader(), asked.timestamp)));
        }
        MAX_TIMESTAMP => TimestampTarget::MaxTimestamp,
        timestamp => TimestampTarget::At(Timestamp(timestamp)),
    };
    let local_start = partition.reader().local_log_start_offset();
    if let TimestampTarget::At(timestamp) = target
        && let Some(found) = find_remotely(broker, partition, timestamp).await?
        && found.offset < last_fetchable
    {
        return Ok(Some(found));
    }
    let reader = partition.reader().clone();
    // The search reads index and log files.
    let threads = partition.log_location().threads.reads.clone();
    let search = threads.run(move || reader.offset_for_timestamp(target));
    let found = search.await.map_err(|_| ErrorCode::UnknownServerError)?;
    let found = found.map_err(|error| {
        let partition = &partition.topic_partition;
        broker.context.failed_reads.say(partition, || {
            tracing::error!(%partition, "search by time failed: {error}");
        });
        error.error_code()
    })?;
    let reader = partition.reader();
    let has_moved = reader.local_log_start_offset() != local_start;
    if has_moved && reader.config().remote_storage_enable {
        // The record may have been in a segment that was deleted after remote storage was searched.
        return Err(ErrorCode::OffsetNotAvailable);
    }
    match found {
        Some(found) if found.offset < last_fetchable => Ok(Some(found)),
        Some(_) | None if is_behind => Err(ErrorCode::OffsetNotAvailable),
        Some(_) | None => Ok(None),
    }
}

/// An offset of the log with its leader epoch.
fn at(reader: &LogReader, offset: Offset) -> TimestampLookup {
    TimestampLookup {
        offset,
        timestamp: Timestamp::NONE,
        leader_epoch: reader.leader_epochs().epoch_for(offset),
    }
}

/// The last offset of the log in remote storage: -1 if there is none, or if it is not known yet.
fn tiered_offset(reader: &LogReader, asked: i64) -> TimestampLookup {
    let unknown = TimestampLookup {
        offset: Offset::UNKNOWN,
        timestamp: Timestamp::NONE,
        leader_epoch: None,
    };
    if !reader.config().remote_storage_enable {
        return unknown;
    }
    let highest = reader.highest_remote_offset();
    let start = reader.log_start_offset();
    match asked {
        LATEST_TIERED if highest == Offset::UNKNOWN => unknown,
        LATEST_TIERED => at(reader, highest),
        _ if highest != Offset::UNKNOWN => at(reader, Offset(highest.0 + 1).max(start)),
        // Nothing was uploaded, or this broker does not know it yet.
        _ if reader.local_log_start_offset() == start => at(reader, start),
        _ => unknown,
    }
}

/// The first record with at least the timestamp, if it is only in remote storage.
async fn find_remotely(
    broker: &Broker,
    partition: &Arc<Partition>,
    timestamp: Timestamp,
) -> Result<Option<TimestampLookup>, ErrorCode> {
    let start = partition.reader().log_start_offset();
    let Some(remote_logs) = broker.remote_logs() else {
        return Ok(None);
    };
    if !partition.reader().is_only_remote(start) {
        return Ok(None);
    }
    let timeout_ms = broker
        .config()
        .remote_list_offsets_request_timeout_ms
        .max(1) as u64;
    let search = remote_logs.find_by_time(partition, timestamp, start);
    match ottla_sync::time::timeout(Duration::from_millis(timeout_ms), search).await {
        Ok(found) => found.map_err(|error| {
            let partition = &partition.topic_partition;
            broker.context.failed_reads.say(partition, || {
                tracing::warn!(%partition, "search by time in remote storage failed: {error}");
            });
            error.error_code()
        }),
        Err(_) => {
            remote_logs.on_search_expired();
            Err(ErrorCode::RequestTimedOut)
        }
    }
}

fn last_fetchable_offset(reader: &LogReader, visibility: Visibility) -> Offset {
    match visibility {
        Visibility::HighWatermark => reader.high_watermark(),
        Visibility::LastStableOffset => reader.last_stable_offset(),
        Visibility::LogEndOffset => reader.log_end_offset(),
    }
}

fn answer(
    asked: &ListOffsetsPartition,
    found: Result<Option<TimestampLookup>, ErrorCode>,
    version: i16,
) -> ListOffsetsPartitionResponse {
    let nothing = ListOffsetsPartitionResponse {
        partition_index: asked.partition_index,
        ..Default::default()
    };
    match found {
        Ok(Some(found)) => ListOffsetsPartitionResponse {
            timestamp: found.timestamp.0,
            offset: found.offset.0,
            // Version 4 is the first with a leader epoch (KIP-320).
            leader_epoch: match found.leader_epoch {
                Some(epoch) if version >= 4 => epoch.0,
                _ => -1,
            },
            ..nothing
        },
        Ok(None) => nothing,
        Err(ErrorCode::OffsetNotAvailable) if version < OFFSET_NOT_AVAILABLE_VERSION => {
            ListOffsetsPartitionResponse {
                error_code: ErrorCode::LeaderNotAvailable.code(),
                ..nothing
            }
        }
        Err(code) => ListOffsetsPartitionResponse {
            error_code: code.code(),
            ..nothing
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_timestamps_need_their_versions() {
        let first_version = |timestamp| (1..=11).find(|&version| is_supported(timestamp, version));
        assert_eq!(first_version(1_700_000_000_000), Some(1));
        assert_eq!(first_version(LATEST), Some(1));
        assert_eq!(first_version(EARLIEST), Some(1));
        assert_eq!(first_version(MAX_TIMESTAMP), Some(7));
        assert_eq!(first_version(EARLIEST_LOCAL), Some(8));
        assert_eq!(first_version(LATEST_TIERED), Some(9));
        assert_eq!(first_version(EARLIEST_PENDING_UPLOAD), Some(11));
        assert_eq!(first_version(-7), None);
    }
}
