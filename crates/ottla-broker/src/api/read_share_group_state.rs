//! ReadShareGroupState: the leader of a partition takes up what share groups have persisted of it.
//! Kafka: `KafkaApis.handleReadShareGroupStateRequest`, `ShareCoordinatorService.readState`.

use std::sync::Arc;

use ottla_coordinator::share_state::{ReadState, SharePartitionKey, StateRead};
use ottla_protocol::messages::read_share_group_state_response::{
    PartitionResult, ReadStateResult, StateBatch,
};
use ottla_protocol::messages::{ReadShareGroupStateRequest, ReadShareGroupStateResponse};
use ottla_types::LeaderEpoch;

use crate::share_groups::{StateFailure, may_ask_coordinators};
use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ReadShareGroupStateRequest,
) -> ReadShareGroupStateResponse {
    let is_allowed = may_ask_coordinators(broker, context);
    let mut asked = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let key = SharePartitionKey {
                group_id: request.group_id.clone(),
                topic_id: topic.topic_id,
                partition: partition.partition,
            };
            let index = partition.partition;
            let request = ReadState {
                key,
                leader_epoch: LeaderEpoch(partition.leader_epoch),
            };
            let (broker, is_allowed) = (Arc::clone(broker), is_allowed.clone());
            // Each share partition has a coordinator of its own.
            let answered = tokio::spawn(async move {
                is_allowed?;
                broker.share_groups.read_state(&broker, request).await
            });
            partitions.push((index, answered));
        }
        asked.push((topic.topic_id, partitions));
    }
    let mut results = Vec::with_capacity(asked.len());
    for (topic_id, asked) in asked {
        let mut partitions = Vec::with_capacity(asked.len());
        for (index, answered) in asked {
            let answered = answered
                .await
                .unwrap_or_else(|_| Err(StateFailure::panicked()));
            partitions.push(result(index, answered));
        }
        results.push(ReadStateResult {
            topic_id,
            partitions,
            ..Default::default()
        });
    }
    ReadShareGroupStateResponse {
        results,
        ..Default::default()
    }
}

fn result(partition: i32, answered: Result<StateRead, StateFailure>) -> PartitionResult {
    match answered {
        Ok(read) => PartitionResult {
            partition,
            state_epoch: read.state_epoch,
            start_offset: read.start_offset.0,
            state_batches: read
                .batches
                .iter()
                .map(|batch| StateBatch {
                    first_offset: batch.first_offset.0,
                    last_offset: batch.last_offset.0,
                    delivery_state: batch.delivery_state,
                    delivery_count: batch.delivery_count,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        },
        Err(failure) => PartitionResult {
            partition,
            error_code: failure.code.code(),
            error_message: Some(failure.message),
            ..Default::default()
        },
    }
}
