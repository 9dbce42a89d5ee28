//! OffsetForLeaderEpoch: the end offset of a leader epoch, for clients that check whether records
//! that they have read were truncated (KIP-320).
//!
//! Kafka does the same in `KafkaApis.handleOffsetForLeaderEpochRequest`.

use std::sync::Arc;

use ottla_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use ottla_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use ottla_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use ottla_net::RequestContext;
use ottla_net::{Operation, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let authorizer = &broker.authorizer;
    let (act, of_cluster) = (Operation::ClusterAction, ResourceType::Cluster);
    let is_follower = authorizer.is_allowed_quietly(context, act, of_cluster, "kafka-cluster");
    let topics = request.topics.into_iter().map(|topic| {
        let (describe, of_topic) = (Operation::Describe, ResourceType::Topic);
        let is_allowed =
            is_follower || authorizer.is_allowed(context, describe, of_topic, &topic.topic);
        let partitions = topic.partitions.iter().map(|asked| {
            let found = match is_allowed {
                true => end_of_epoch(broker, &topic.topic, asked),
                false => Err(ErrorCode::TopicAuthorizationFailed),
            };
            let nothing = EpochEndOffset {
                partition: asked.partition,
                ..Default::default()
            };
            match found {
                Ok(Some((epoch, end_offset))) => EpochEndOffset {
                    leader_epoch: epoch.0,
                    end_offset: end_offset.0,
                    ..nothing
                },
                Ok(None) => nothing,
                Err(code) => EpochEndOffset {
                    error_code: code.code(),
                    ..nothing
                },
            }
        });
        OffsetForLeaderTopicResult {
            partitions: partitions.collect(),
            topic: topic.topic,
            ..Default::default()
        }
    });
    OffsetForLeaderEpochResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}

fn end_of_epoch(
    broker: &Broker,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, Offset)>, ErrorCode> {
    let partition = broker.local_partition(topic, asked.partition)?;
    partition.check_leader(asked.current_leader_epoch)?;
    Ok(partition
        .reader()
        .end_offset_for_epoch(LeaderEpoch(asked.leader_epoch)))
}
