//! WriteShareGroupState: the leader of a partition has persisted what became of records.
//! Kafka: `KafkaApis.handleWriteShareGroupStateRequest`, `ShareCoordinatorService.writeState`.

use std::sync::Arc;

use ottla_coordinator::persister::{StateBatch, StateFailure, WriteState};
use ottla_protocol::messages::write_share_group_state_response::{
    PartitionResult, WriteStateResult,
};
use ottla_protocol::messages::{WriteShareGroupStateRequest, WriteShareGroupStateResponse};
use ottla_types::{LeaderEpoch, Offset};

use ottla_coordination::share_groups::ask_for_each;
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: WriteShareGroupStateRequest,
) -> WriteShareGroupStateResponse {
    let topics = request.topics.into_iter();
    let topics = topics.map(|topic| (topic.topic_id, topic.partitions));
    let answers = ask_for_each(
        &broker.share_groups.coordinators,
        context,
        &request.group_id,
        topics,
        |partition| partition.partition,
        |coordinators, key, partition| {
            let request = WriteState {
                key,
                state_epoch: partition.state_epoch,
                leader_epoch: LeaderEpoch(partition.leader_epoch),
                start_offset: Offset(partition.start_offset),
                delivery_complete_count: partition.delivery_complete_count,
                batches: partition
                    .state_batches
                    .iter()
                    .map(StateBatch::from)
                    .collect(),
            };
            async move { coordinators.write_state(request).await }
        },
    );
    let results = answers.await.into_iter().map(|(topic_id, partitions)| {
        let partitions = partitions.into_iter();
        WriteStateResult {
            topic_id,
            partitions: partitions.map(|(number, it)| result(number, it)).collect(),
            ..Default::default()
        }
    });
    WriteShareGroupStateResponse {
        results: results.collect(),
        ..Default::default()
    }
}

fn result(partition: i32, answered: Result<(), StateFailure>) -> PartitionResult {
    let failure = answered.err();
    PartitionResult {
        partition,
        error_code: failure.as_ref().map_or(0, |it| it.code.code()),
        error_message: failure.map(|it| it.message),
        ..Default::default()
    }
}
