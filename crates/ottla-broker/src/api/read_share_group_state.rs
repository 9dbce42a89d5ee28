//! ReadShareGroupState: the leader of a partition takes up what share groups have persisted of it.
//! Kafka: `KafkaApis.handleReadShareGroupStateRequest`, `ShareCoordinatorService.readState`.

use std::sync::Arc;

use ottla_coordinator::persister::{ReadState, StateFailure, StateRead};
use ottla_protocol::messages::read_share_group_state_response::{PartitionResult, ReadStateResult};
use ottla_protocol::messages::{ReadShareGroupStateRequest, ReadShareGroupStateResponse};
use ottla_types::LeaderEpoch;

use ottla_coordination::share_groups::ask_for_each;
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ReadShareGroupStateRequest,
) -> ReadShareGroupStateResponse {
    let topics = request.topics.into_iter();
    let topics = topics.map(|topic| (topic.topic_id, topic.partitions));
    let answers = ask_for_each(
        &broker.share_groups.coordinators,
        context,
        &request.group_id,
        topics,
        |partition| partition.partition,
        |coordinators, key, partition| {
            let request = ReadState {
                key,
                leader_epoch: LeaderEpoch(partition.leader_epoch),
            };
            async move { coordinators.read_state(request).await }
        },
    );
    let results = answers.await.into_iter().map(|(topic_id, partitions)| {
        let partitions = partitions.into_iter();
        ReadStateResult {
            topic_id,
            partitions: partitions.map(|(number, it)| result(number, it)).collect(),
            ..Default::default()
        }
    });
    ReadShareGroupStateResponse {
        results: results.collect(),
        ..Default::default()
    }
}

fn result(partition: i32, answered: Result<StateRead, StateFailure>) -> PartitionResult {
    match answered {
        Ok(read) => PartitionResult {
            partition,
            state_epoch: read.state_epoch,
            start_offset: read.start_offset.0,
            state_batches: read.batches.iter().map(Into::into).collect(),
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
