//! WriteShareGroupState: the leader of a partition has persisted what became of records.
//! Kafka: `KafkaApis.handleWriteShareGroupStateRequest`, `ShareCoordinatorService.writeState`.

use std::sync::Arc;

use ottla_coordinator::share_state::{SharePartitionKey, StateBatch, WriteState};
use ottla_protocol::messages::write_share_group_state_response::{
    PartitionResult, WriteStateResult,
};
use ottla_protocol::messages::{WriteShareGroupStateRequest, WriteShareGroupStateResponse};
use ottla_types::{LeaderEpoch, Offset};

use crate::share_groups::{StateFailure, may_ask_coordinators};
use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: WriteShareGroupStateRequest,
) -> WriteShareGroupStateResponse {
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
            let batches = partition.state_batches.iter().map(|batch| StateBatch {
                first_offset: Offset(batch.first_offset),
                last_offset: Offset(batch.last_offset),
                delivery_state: batch.delivery_state,
                delivery_count: batch.delivery_count,
            });
            let request = WriteState {
                key,
                state_epoch: partition.state_epoch,
                leader_epoch: LeaderEpoch(partition.leader_epoch),
                start_offset: Offset(partition.start_offset),
                delivery_complete_count: partition.delivery_complete_count,
                batches: batches.collect(),
            };
            let (broker, is_allowed) = (Arc::clone(broker), is_allowed.clone());
            // Each share partition has a coordinator of its own.
            let answered = tokio::spawn(async move {
                is_allowed?;
                broker.share_groups.write_state(&broker, request).await
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
        results.push(WriteStateResult {
            topic_id,
            partitions,
            ..Default::default()
        });
    }
    WriteShareGroupStateResponse {
        results,
        ..Default::default()
    }
}

fn result(partition: i32, answered: Result<(), StateFailure>) -> PartitionResult {
    match answered {
        Ok(()) => PartitionResult {
            partition,
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
