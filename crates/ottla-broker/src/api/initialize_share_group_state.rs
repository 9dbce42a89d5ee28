//! InitializeShareGroupState: a share group begins to read partitions, or is sent to other offsets.
//! Kafka: `KafkaApis.handleInitializeShareGroupStateRequest`, `ShareCoordinatorService.initializeState`.

use std::sync::Arc;

use ottla_coordinator::share_state::{InitializeState, SharePartitionKey};
use ottla_protocol::messages::initialize_share_group_state_response::{
    InitializeStateResult, PartitionResult,
};
use ottla_protocol::messages::{
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse,
};
use ottla_types::Offset;

use crate::share_groups::{StateFailure, may_ask_coordinators};
use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse {
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
            let request = InitializeState {
                key,
                state_epoch: partition.state_epoch,
                start_offset: Offset(partition.start_offset),
            };
            let (broker, is_allowed) = (Arc::clone(broker), is_allowed.clone());
            // Each share partition has a coordinator of its own.
            let answered = tokio::spawn(async move {
                is_allowed?;
                broker.share_groups.initialize_state(&broker, request).await
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
        results.push(InitializeStateResult {
            topic_id,
            partitions,
            ..Default::default()
        });
    }
    InitializeShareGroupStateResponse {
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
