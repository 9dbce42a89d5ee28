//! ListConfigResources (KIP-1142): the resources that have, or can have, settings of their own.
//!
//! Kafka: `KafkaApis.handleListConfigResources`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::ConfigResourceType;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::list_config_resources_response::ConfigResource;
use ottla_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let refused = ListConfigResourcesResponse::of_error;
    let authorizer = &broker.authorizer;
    if !authorizer.is_allowed(
        context,
        Operation::DescribeConfigs,
        ResourceType::Cluster,
        "kafka-cluster",
    ) {
        return refused(ErrorCode::ClusterAuthorizationFailed);
    }
    // Version 0 is ListClientMetricsResources, its former name.
    let supported = match context.api_version {
        0 => vec![ConfigResourceType::ClientMetrics],
        _ => ConfigResourceType::ALL.to_vec(),
    };
    let mut kinds = Vec::new();
    for code in &request.resource_types {
        match ConfigResourceType::from_code(*code).filter(|kind| supported.contains(kind)) {
            Some(kind) => kinds.push(kind),
            None => return refused(ErrorCode::UnsupportedVersion),
        }
    }
    if kinds.is_empty() {
        kinds = supported;
    }
    let image = broker.metadata();
    let mut config_resources = Vec::new();
    let mut push = |kind: ConfigResourceType, name: ByteString| {
        config_resources.push(ConfigResource {
            resource_name: name,
            resource_type: kind.code(),
            ..Default::default()
        });
    };
    for kind in [ConfigResourceType::Group, ConfigResourceType::ClientMetrics] {
        if kinds.contains(&kind) {
            let configured = image.configs.resources();
            for (resource, _) in configured.filter(|(resource, _)| resource.kind == kind) {
                push(kind, resource.name.clone());
            }
        }
    }
    for kind in [ConfigResourceType::BrokerLogger, ConfigResourceType::Broker] {
        if kinds.contains(&kind) {
            for node in image.cluster.brokers() {
                push(kind, ByteString::from(node.id.to_string()));
            }
        }
    }
    if kinds.contains(&ConfigResourceType::Topic) {
        for topic in image.topics.iter() {
            push(ConfigResourceType::Topic, topic.name.clone());
        }
    }
    ListConfigResourcesResponse {
        config_resources,
        ..Default::default()
    }
}
