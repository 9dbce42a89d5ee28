//! ReadShareGroupStateSummary: somebody wants to know how far share groups are.
//! Kafka: `KafkaApis.handleReadShareGroupStateSummaryRequest`, `ShareCoordinatorService.readStateSummary`.

use std::sync::Arc;

use ottla_coordinator::persister::{StateFailure, StateSummary};
use ottla_protocol::messages::read_share_group_state_summary_response::{
    PartitionResult, ReadStateSummaryResult,
};
use ottla_protocol::messages::{
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse,
};

use ottla_coordination::share_groups::ask_for_each;
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ReadShareGroupStateSummaryRequest,
) -> ReadShareGroupStateSummaryResponse {
    let topics = request.topics.into_iter();
    let topics = topics.map(|topic| (topic.topic_id, topic.partitions));
    let answers = ask_for_each(
        &broker.share_groups.coordinators,
        context,
        &request.group_id,
        topics,
        |partition| partition.partition,
        |coordinators, key, _| async move { coordinators.read_state_summary(key).await },
    );
    let results = answers.await.into_iter().map(|(topic_id, partitions)| {
        let partitions = partitions.into_iter();
        ReadStateSummaryResult {
            topic_id,
            partitions: partitions.map(|(number, it)| result(number, it)).collect(),
            ..Default::default()
        }
    });
    ReadShareGroupStateSummaryResponse {
        results: results.collect(),
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
