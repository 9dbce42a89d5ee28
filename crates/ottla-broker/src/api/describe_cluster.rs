//! DescribeCluster: the cluster ID and the brokers, or the controllers if the request was sent to a
//! controller (KIP-919).
//!
//! Kafka: `KafkaApis.handleDescribeCluster`, `AuthHelper.computeDescribeClusterResponse`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use ottla_protocol::messages::{DescribeClusterRequest, DescribeClusterResponse};
use ottla_types::ErrorCode;

use crate::authorization::denial_message;
use crate::endpoint::Endpoint;
use crate::{Broker, RequestContext};

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    if let Err(error) = broker.authorize(context) {
        return DescribeClusterResponse {
            error_code: error.code(),
            error_message: denial_message(context, error),
            endpoint_type: request.endpoint_type,
            ..Default::default()
        };
    }
    let endpoint = Endpoint::of(context.listener());
    let (asked, here) = (request.endpoint_type, type_of(endpoint));
    if asked != here {
        let code = match (context.api_version, asked) {
            // In version 0, a client cannot specify the type.
            (0, _) => ErrorCode::InvalidRequest,
            (_, BROKERS | CONTROLLERS) => ErrorCode::MismatchedEndpointType,
            _ => ErrorCode::UnsupportedEndpointType,
        };
        let message = match asked {
            BROKERS | CONTROLLERS => format!(
                "The request was sent to an endpoint of type {}, but we wanted an endpoint of type {}",
                name_of(here),
                name_of(asked)
            ),
            other => format!("Unsupported endpoint type {other}"),
        };
        return refused(code, message);
    }
    let image = broker.metadata();
    let (brokers, controller_id) = match endpoint {
        Endpoint::Broker => (
            brokers(&image, context, request.include_fenced_brokers),
            image.cluster.unfenced_brokers().next().map(|node| node.id),
        ),
        Endpoint::Controller => (
            controllers(&image, context),
            broker
                .controller()
                .and_then(|controller| controller.status().leader),
        ),
    };
    // A node that has no endpoint for this listener is not named.
    let controller_id = controller_id
        .map(|id| id.value())
        .filter(|id| brokers.iter().any(|node| node.broker_id == *id));
    let mut response = DescribeClusterResponse {
        error_code: ErrorCode::None.code(),
        endpoint_type: here,
        cluster_id: broker.cluster_id(),
        controller_id: controller_id.unwrap_or(-1),
        brokers,
        ..Default::default()
    };
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = broker.cluster_authorized_operations(context);
    }
    response
}

fn type_of(endpoint: Endpoint) -> i8 {
    match endpoint {
        Endpoint::Broker => BROKERS,
        Endpoint::Controller => CONTROLLERS,
    }
}

fn name_of(endpoint_type: i8) -> &'static str {
    match endpoint_type {
        CONTROLLERS => "CONTROLLER",
        _ => "BROKER",
    }
}

fn brokers(
    image: &MetadataImage,
    context: &RequestContext,
    include_fenced: bool,
) -> Vec<DescribeClusterBroker> {
    let nodes = image.cluster.brokers();
    nodes
        .filter(|node| !node.fenced || include_fenced)
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
        .collect()
}

/// Kafka: `ControllerRegistrationsPublisher.describeClusterControllers`.
fn controllers(image: &MetadataImage, context: &RequestContext) -> Vec<DescribeClusterBroker> {
    let nodes = image.cluster.controllers();
    nodes
        .filter_map(|node| {
            let endpoint = node.listener(&context.listener().name)?;
            Some(DescribeClusterBroker {
                broker_id: node.id.value(),
                host: endpoint.host.clone(),
                port: i32::from(endpoint.port),
                ..Default::default()
            })
        })
        .collect()
}

pub(super) fn refused(error: ErrorCode, message: String) -> DescribeClusterResponse {
    DescribeClusterResponse {
        error_code: error.code(),
        error_message: Some(ByteString::from(message)),
        ..Default::default()
    }
}
