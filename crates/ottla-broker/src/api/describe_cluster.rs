//! DescribeCluster: the cluster's id and its brokers.
//!
//! Kafka: `KafkaApis.handleDescribeCluster`, `AuthHelper.computeDescribeClusterResponse`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use ottla_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};
use ottla_types::ErrorCode;

use crate::{Broker, RequestContext, ResourceType};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    match request.endpoint_type {
        BROKERS => {}
        CONTROLLERS => {
            return refused(
                ErrorCode::MismatchedEndpointType,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
                    .to_owned(),
            );
        }
        other => {
            return refused(
                ErrorCode::UnsupportedEndpointType,
                format!("Unsupported endpoint type {other}"),
            );
        }
    }
    let image = broker.metadata();
    let brokers: Vec<DescribeClusterBroker> = image
        .cluster
        .brokers()
        .filter(|node| !node.fenced || request.include_fenced_brokers)
        .filter_map(|node| {
            let endpoint = node.listener(&context.listener().name)?;
            Some(DescribeClusterBroker {
                broker_id: node.id.value(),
                host: endpoint.host.clone(),
                port: i32::from(endpoint.port),
                rack: node.rack.clone(),
                is_fenced: node.fenced,
                ..Default::default()
            })
        })
        .collect();
    let mut response = DescribeClusterResponse {
        error_code: ErrorCode::None.code(),
        endpoint_type: BROKERS,
        cluster_id: broker.cluster_id(),
        controller_id: image
            .cluster
            .unfenced_brokers()
            .next()
            .map_or(-1, |node| node.id.value()),
        brokers,
        ..Default::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = broker.authorizer.authorized_operations(
            context,
            ResourceType::Cluster,
            "kafka-cluster",
        );
    }
    response
}

fn refused(error: ErrorCode, message: String) -> DescribeClusterResponse {
    DescribeClusterResponse {
        error_code: error.code(),
        error_message: Some(ByteString::from(message)),
        ..Default::default()
    }
}
