//! DeleteRecords: advances the start offset of logs. The leader deletes at once; its followers
//! learn the new start offset with their next fetch, and the response waits for the followers that
//! are alive.
//!
//! Kafka does the same in `KafkaApis.handleDeleteRecordsRequest`, `Partition.deleteRecordsOnLeader` and
//! `DelayedDeleteRecords`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use ottla_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use ottla_types::{ErrorCode, Offset};
use std::time::Instant;

use crate::{Broker, RequestContext, is_internal_topic};
use ottla_net::{Operation, ResourceType};
use ottla_partition::partition::Partition;

/// Deletes everything below the high watermark.
const HIGH_WATERMARK: i64 = -1;
/// In the response for a partition with an error.
const INVALID_LOW_WATERMARK: Offset = Offset(-1);

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let timeout = Duration::from_millis(request.timeout_ms.max(0) as u64);
    let deadline = ottla_sync::time::now() + timeout;
    // All logs first, so that all replicas advance at the same time.
    let mut begun = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let is_allowed = broker.authorizer.is_allowed(
            context,
            Operation::Delete,
            ResourceType::Topic,
            &topic.name,
        );
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let deleted = match is_allowed {
                true => delete(broker, &topic.name, asked.partition_index, asked.offset).await,
                false => Err(ErrorCode::TopicAuthorizationFailed),
            };
            partitions.push((asked.partition_index, deleted));
        }
        begun.push((topic.name, partitions));
    }
    let mut topics = Vec::with_capacity(begun.len());
    for (name, begun) in begun {
        let mut partitions = Vec::with_capacity(begun.len());
        for (partition_index, deleted) in begun {
            let (low_watermark, error) = match deleted {
                Ok(deleted) => {
                    let _waiting = context.waited.begin();
                    deleted.by_all_replicas(broker, deadline).await
                }
                Err(error) => (INVALID_LOW_WATERMARK, error),
            };
            partitions.push(DeleteRecordsPartitionResult {
                partition_index,
                low_watermark: low_watermark.0,
                error_code: error.code(),
                ..Default::default()
            });
        }
        topics.push(DeleteRecordsTopicResult {
            name,
            partitions,
            ..Default::default()
        });
    }
    DeleteRecordsResponse {
        topics,
        ..Default::default()
    }
}

/// Records that the leader has deleted.
struct Deleted {
    partition: Arc<Partition>,
    /// The requested offset.
    up_to: Offset,
    /// The lowest start offset of all live replicas, after the leader had deleted its own records.
    low_watermark: Offset,
}

/// Deletes the records in the local log.
async fn delete(
    broker: &Arc<Broker>,
    topic: &str,
    index: i32,
    offset: i64,
) -> Result<Deleted, ErrorCode> {
    if is_internal_topic(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = broker.local_partition(topic, index)?;
    if !partition.is_leader() {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    let deleted = partition.with_log(&broker.host, move |log| {
        let cleanup_policy = log.config().cleanup_policy;
        if cleanup_policy.compact && !cleanup_policy.delete {
            return Err(ErrorCode::PolicyViolation);
        }
        let offset = match offset {
            HIGH_WATERMARK => log.high_watermark(),
            0.. => Offset(offset),
            _ => return Err(ErrorCode::OffsetOutOfRange),
        };
        let moved = log.increment_log_start_offset(offset);
        moved.map_err(|_| ErrorCode::OffsetOutOfRange)?;
        Ok(offset)
    });
    let up_to = deleted
        .await
        .unwrap_or(Err(ErrorCode::NotLeaderOrFollower))?;
    let low_watermark = low_watermark(broker, &partition).await?;
    Ok(Deleted {
        partition,
        up_to,
        low_watermark,
    })
}

impl Deleted {
    /// Waits until all live replicas have deleted the records. Returns their lowest start offset,
    /// and the error code.
    async fn by_all_replicas(self, broker: &Arc<Broker>, deadline: Instant) -> (Offset, ErrorCode) {
        let mut reached = self.low_watermark;
        while reached < self.up_to {
            let mut moved = pin!(self.partition.changes.to_wait().notified());
            // Registers before the check, so that no change in between is missed.
            moved.as_mut().enable();
            reached = match low_watermark(broker, &self.partition).await {
                Ok(low_watermark) => low_watermark,
                Err(error) => return (INVALID_LOW_WATERMARK, error),
            };
            if reached >= self.up_to {
                break;
            }
            if ottla_sync::time::timeout_at(deadline, moved).await.is_err()
                || broker.context.is_stopping()
            {
                return (self.low_watermark, ErrorCode::RequestTimedOut);
            }
        }
        (reached, ErrorCode::None)
    }
}

async fn low_watermark(
    broker: &Arc<Broker>,
    partition: &Arc<Partition>,
) -> Result<Offset, ErrorCode> {
    let found = partition.look(&broker.host, |replica, log| {
        replica.low_watermark(log.log_start_offset())
    });
    match found.await.flatten() {
        Some(low_watermark) => Ok(low_watermark),
        None if partition.is_lost() => Err(ErrorCode::KafkaStorageError),
        None => Err(ErrorCode::NotLeaderOrFollower),
    }
}
