//! InitializeShareGroupState: a share group begins to read partitions, or is sent to other offsets.
//! Kafka: `KafkaApis.handleInitializeShareGroupStateRequest`, `ShareCoordinatorService.initializeState`.

use std::sync::Arc;

use ottla_coordinator::persister::{InitializeState, StateFailure};
use ottla_protocol::messages::initialize_share_group_state_response::{
    InitializeStateResult, PartitionResult,
};
use ottla_protocol::messages::{
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse,
};
use ottla_types::Offset;

use ottla_coordination::share_groups::ask_for_each;
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: InitializeShareGroupStateRequest,
) -> InitializeShareGroupStateResponse {
    let topics = request.topics.into_iter();
    let topics = topics.map(|topic| (topic.topic_id, topic.partitions));
    let answers = ask_for_each(
        &broker.share_groups.coordinators,
        context,
        &request.group_id,
        topics,
        |partition| partition.partition,
        |coordinators, key, partition| {
            let request = InitializeState {
                key,
                state_epoch: partition.state_epoch,
                start_offset: Offset(partition.start_offset),
            };
            async move { coordinators.initialize_state(request).await }
        },
    );
    let results = answers.await.into_iter().map(|(topic_id, partitions)| {
        let partitions = partitions.into_iter();
        InitializeStateResult {
            topic_id,
            partitions: partitions.map(|(number, it)| result(number, it)).collect(),
            ..Default::default()
        }
    });
    InitializeShareGroupStateResponse {
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
