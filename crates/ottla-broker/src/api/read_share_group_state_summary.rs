//! ReadShareGroupStateSummary: somebody wants to know how far share groups are.
//! Kafka: `KafkaApis.handleReadShareGroupStateSummaryRequest`, `ShareCoordinatorService.readStateSummary`.

use std::sync::Arc;

use ottla_coordinator::share_state::{SharePartitionKey, StateSummary};
use ottla_protocol::messages::read_share_group_state_summary_response::{
    PartitionResult, ReadStateSummaryResult,
};
use ottla_protocol::messages::{
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse,
};

use crate::share_groups::{StateFailure, may_ask_coordinators};
use crate::{Broker, RequestContext};

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ReadShareGroupStateSummaryRequest,
) -> ReadShareGroupStateSummaryResponse {
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
            let (broker, is_allowed) = (Arc::clone(broker), is_allowed.clone());
            // Each share partition has a coordinator of its own.
            let answered = tokio::spawn(async move {
                is_allowed?;
                broker.share_groups.read_state_summary(&broker, key).await
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
        results.push(ReadStateSummaryResult {
            topic_id,
            partitions,
            ..Default::default()
        });
    }
    ReadShareGroupStateSummaryResponse {
        results,
        ..Default::default()
    }
}

fn result(partition: i32, answered: Result<StateSummary, StateFailure>) -> PartitionResult {
    match answered {
        Ok(summary) => PartitionResult {
            partition,
            state_epoch: summary.state_epoch,
            leader_epoch: summary.leader_epoch.0,
            start_offset: summary.start_offset.0,
            delivery_complete_count: summary.delivery_complete_count,
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
