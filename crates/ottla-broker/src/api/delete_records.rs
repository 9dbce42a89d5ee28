//! DeleteRecords: moves the start of logs.
//!
//! Kafka does the same in `KafkaApis.handleDeleteRecordsRequest` and `Partition.deleteRecordsOnLeader`.

use std::sync::Arc;

use ottla_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use ottla_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use ottla_types::{ErrorCode, Offset};

use crate::authorizer::{Operation, ResourceType};
use crate::{Broker, RequestContext, is_internal_topic};

/// Asks for everything below the high watermark to go.
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
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
            partitions.push(DeleteRecordsPartitionResult {
                partition_index: asked.partition_index,
                low_watermark: deleted.map_or(-1, |low_watermark| low_watermark.0),
                error_code: deleted.err().unwrap_or(ErrorCode::None).code(),
                ..Default::default()
            });
        }
        topics.push(DeleteRecordsTopicResult {
            name: topic.name,
            partitions,
            ..Default::default()
        });
    }
    DeleteRecordsResponse {
        topics,
        ..Default::default()
    }
}

/// Returns where the log starts then.
async fn delete(
    broker: &Arc<Broker>,
    topic: &str,
    index: i32,
    offset: i64,
) -> Result<Offset, ErrorCode> {
    if is_internal_topic(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = broker.local_partition(topic, index)?;
    if !partition.is_leader() {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    let deleted = partition.with_log(broker, move |log| {
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
        Ok(log.log_start_offset())
    });
    deleted.await.unwrap_or(Err(ErrorCode::NotLeaderOrFollower))
}
