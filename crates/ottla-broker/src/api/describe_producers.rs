//! DescribeProducers: the producers that have recently written to a partition (KIP-664).
//!
//! Kafka does the same in `KafkaApis.handleDescribeProducersRequest` and `UnifiedLog.activeProducers`.

use std::sync::Arc;

use ottla_controller::validate_topic_name;
use ottla_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use ottla_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};
use ottla_types::{ErrorCode, TopicName};

use ottla_net::RequestContext;
use ottla_net::{Operation, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let topic_error = topic_error(broker, context, &topic.name);
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for partition_index in topic.partition_indexes {
            let described = match &topic_error {
                Ok(()) => describe(broker, &topic.name, partition_index)
                    .await
                    .map_err(|code| (code, None)),
                Err((code, message)) => Err((*code, Some(message.clone().into()))),
            };
            let (active_producers, (error, error_message)) = match described {
                Ok(producers) => (producers, (ErrorCode::None, None)),
                Err(error) => (Vec::new(), error),
            };
            partitions.push(PartitionResponse {
                partition_index,
                error_code: error.code(),
                error_message,
                active_producers,
                ..Default::default()
            });
        }
        topics.push(TopicResponse {
            name: topic.name,
            partitions,
            ..Default::default()
        });
    }
    DescribeProducersResponse {
        topics,
        ..Default::default()
    }
}

/// The error for all partitions of a topic, with Kafka's message.
fn topic_error(
    broker: &Broker,
    context: &RequestContext,
    topic: &TopicName,
) -> Result<(), (ErrorCode, String)> {
    let error = |code: ErrorCode| Err((code, code.message().to_owned()));
    validate_topic_name(topic).map_err(|why| (ErrorCode::InvalidTopicException, why))?;
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(context, Operation::Read, ResourceType::Topic, topic) {
        return error(ErrorCode::TopicAuthorizationFailed);
    }
    match broker.metadata().topics.by_name(topic) {
        Some(_) => Ok(()),
        None => error(ErrorCode::UnknownTopicOrPartition),
    }
}

async fn describe(
    broker: &Arc<Broker>,
    topic: &str,
    index: i32,
) -> Result<Vec<ProducerState>, ErrorCode> {
    let partition = broker.local_partition(topic, index)?;
    let described = partition.with_log(&broker.host, |log| {
        let producers = log.producers().producers().map(|producer| ProducerState {
            producer_id: producer.producer_id.0,
            producer_epoch: producer.producer_epoch.0.into(),
            last_sequence: producer.last_sequence().0,
            last_timestamp: producer.last_timestamp.0,
            coordinator_epoch: producer.coordinator_epoch,
            current_txn_start_offset: producer.current_txn_first_offset.map_or(-1, |o| o.0),
            ..Default::default()
        });
        producers.collect()
    });
    described.await.ok_or(ErrorCode::NotLeaderOrFollower)
}
