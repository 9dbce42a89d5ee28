//! DeleteShareGroupState: a share group does not read partitions any more.
//! Kafka: `KafkaApis.handleDeleteShareGroupStateRequest`, `ShareCoordinatorService.deleteState`.

use std::sync::Arc;

use ottla_coordinator::persister::StateFailure;
use ottla_protocol::messages::delete_share_group_state_response::{
    DeleteStateResult, PartitionResult,
};
use ottla_protocol::messages::{DeleteShareGroupStateRequest, DeleteShareGroupStateResponse};

use ottla_coordination::share_groups::ask_for_each;
use ottla_net::RequestContext;

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DeleteShareGroupStateRequest,
) -> DeleteShareGroupStateResponse {
    let topics = request.topics.into_iter();
    let topics = topics.map(|topic| (topic.topic_id, topic.partitions));
    let answers = ask_for_each(
        &broker.share_groups.coordinators,
        context,
        &request.group_id,
        topics,
        |partition| partition.partition,
        |coordinators, key, _| async move { coordinators.delete_state(key).await },
    );
    let results = answers.await.into_iter().map(|(topic_id, partitions)| {
        let partitions = partitions.into_iter();
        DeleteStateResult {
            topic_id,
            partitions: partitions.map(|(number, it)| result(number, it)).collect(),
            ..Default::default()
        }
    });
    DeleteShareGroupStateResponse {
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
