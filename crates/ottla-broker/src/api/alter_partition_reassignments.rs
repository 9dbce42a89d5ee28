//! AlterPartitionReassignments (KIP-455): forwarded to the controller. Kafka:
//! `ControllerApis.handleAlterPartitionReassignments`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use ottla_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
};

use ottla_net::RequestContext;
use ottla_types::ErrorCode;

use crate::Broker;
use crate::authorization::denial_message;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let asked: Vec<(ByteString, Vec<i32>)> = request
        .topics
        .iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|it| it.partition_index);
            (topic.name.clone(), partitions.collect())
        })
        .collect();
    match broker.forward(context, request).await {
        Ok(response) => response,
        Err(error) => refused(asked, error, denial_message(context, error)),
    }
}

/// The error for the whole request and, because Java's client expects it, for each partition.
fn refused(
    asked: Vec<(ByteString, Vec<i32>)>,
    error: ErrorCode,
    message: Option<ByteString>,
) -> AlterPartitionReassignmentsResponse {
    let of_partition = |partition_index| ReassignablePartitionResponse {
        partition_index,
        error_code: error.code(),
        error_message: message.clone(),
        ..Default::default()
    };
    let of_topic = |(name, partitions): (ByteString, Vec<i32>)| ReassignableTopicResponse {
        name,
        partitions: partitions.into_iter().map(of_partition).collect(),
        ..Default::default()
    };
    AlterPartitionReassignmentsResponse {
        error_code: error.code(),
        error_message: message.clone(),
        responses: asked.into_iter().map(of_topic).collect(),
        ..Default::default()
    }
}
