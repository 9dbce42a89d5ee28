//! DescribeConfigs: settings with their values, the sources of the values, and their synonyms.
//!
//! Kafka: `ConfigHelper.handleDescribeConfigsRequest`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_config::DescribedConfig;
use ottla_controller::validate_topic_name;
use ottla_metadata::{ConfigResource, ConfigResourceType, MetadataImage};
use ottla_protocol::messages::describe_configs_request::DescribeConfigsResource;
use ottla_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use ottla_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use ottla_types::ErrorCode;

use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let image = broker.metadata().clone();
    let results = request
        .resources
        .iter()
        .map(|resource| {
            let described = check_allowed(broker, context, resource)
                .and_then(|()| describe(broker, &image, resource));
            let mut result = DescribeConfigsResult {
                resource_type: resource.resource_type,
                resource_name: resource.resource_name.clone(),
                ..Default::default()
            };
            match described {
                Ok(configs) => {
                    let wanted = resource
                        .configuration_keys
                        .as_ref()
                        .filter(|keys| !keys.is_empty())
                        .map(|keys| keys.iter().map(|key| &**key).collect::<HashSet<&str>>());
                    result.configs = configs
                        .into_iter()
                        .filter(|config| {
                            wanted
                                .as_ref()
                                .is_none_or(|keys| keys.contains(&*config.name))
                        })
                        .map(|config| {
                            resource_result(
                                config,
                                request.include_synonyms,
                                request.include_documentation,
                            )
                        })
                        .collect();
                }
                Err((error, message)) => {
                    result.error_code = error.code();
                    result.error_message = message.map(ByteString::from);
                }
            }
            result
        })
        .collect();
    DescribeConfigsResponse {
        results,
        ..Default::default()
    }
}

type Refusal = (ErrorCode, Option<String>);

fn invalid(message: String) -> Refusal {
    (ErrorCode::InvalidRequest, Some(message))
}

fn check_allowed(
    broker: &Broker,
    context: &RequestContext,
    resource: &DescribeConfigsResource,
) -> Result<(), Refusal> {
    let (kind, name, error) = match ConfigResourceType::from_code(resource.resource_type) {
        Some(ConfigResourceType::Topic) => (
            ResourceType::Topic,
            &*resource.resource_name,
            ErrorCode::TopicAuthorizationFailed,
        ),
        Some(ConfigResourceType::Group) => (
            ResourceType::Group,
            &*resource.resource_name,
            ErrorCode::GroupAuthorizationFailed,
        ),
        _ => (
            ResourceType::Cluster,
            "kafka-cluster",
            ErrorCode::ClusterAuthorizationFailed,
        ),
    };
    match broker
        .authorizer
        .is_allowed(context, Operation::DescribeConfigs, kind, name)
    {
        true => Ok(()),
        false => Err((error, Some(error.message().to_owned()))),
    }
}

fn describe(
    broker: &Broker,
    image: &MetadataImage,
    resource: &DescribeConfigsResource,
) -> Result<Vec<DescribedConfig>, Refusal> {
    let config = broker.config();
    let name = &resource.resource_name;
    let overrides = |kind: ConfigResourceType| -> BTreeMap<String, String> {
        image
            .configs
            .entries(&ConfigResource::new(kind, name.clone()))
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    };
    let kind = ConfigResourceType::from_code(resource.resource_type)
        .ok_or_else(|| invalid("Unsupported resource type: UNKNOWN".to_owned()))?;
    match kind {
        ConfigResourceType::Topic => {
            validate_topic_name(name)
                .map_err(|message| (ErrorCode::InvalidTopicException, Some(message)))?;
            if image.topics.by_name(name).is_none() {
                return Err((ErrorCode::UnknownTopicOrPartition, Some(String::new())));
            }
            Ok(ottla_config::describe_topic(&config, &overrides(kind)))
        }
        ConfigResourceType::Broker if name.is_empty() => {
            Ok(ottla_config::describe_cluster_default(&config))
        }
        ConfigResourceType::Broker => {
            if broker_id(name)? != config.node_id {
                return Err(invalid(format!(
                    "Unexpected broker id, expected {} or empty string, but received {name}",
                    config.node_id
                )));
            }
            Ok(ottla_config::describe_broker(&config))
        }
        ConfigResourceType::BrokerLogger => {
            if name.is_empty() {
                return Err(invalid("Broker id must not be empty".to_owned()));
            }
            if broker_id(name)? != config.node_id {
                return Err(invalid(format!(
                    "Unexpected broker id, expected {} but received {name}",
                    config.node_id
                )));
            }
            // Log levels cannot be changed through the protocol, so there are no loggers to list.
            Ok(Vec::new())
        }
        ConfigResourceType::ClientMetrics => {
            if name.is_empty() {
                return Err(invalid(
                    "Client metrics subscription name must not be empty".to_owned(),
                ));
            }
            Ok(ottla_config::describe_client_metrics(&overrides(kind)))
        }
        ConfigResourceType::Group => {
            if name.is_empty() {
                return Err(invalid("Group name must not be empty".to_owned()));
            }
            Ok(ottla_config::describe_group(&config, &overrides(kind)))
        }
    }
}

fn broker_id(name: &str) -> Result<i32, Refusal> {
    name.parse()
        .map_err(|_| invalid(format!("Broker id must be an integer, but it is: {name}")))
}

fn resource_result(
    config: DescribedConfig,
    include_synonyms: bool,
    include_documentation: bool,
) -> DescribeConfigsResourceResult {
    let synonyms = config
        .synonyms
        .iter()
        .map(|synonym| DescribeConfigsSynonym {
            name: ByteString::from(synonym.name.clone()),
            value: synonym.value.clone().map(ByteString::from),
            source: synonym.source.code(),
            ..Default::default()
        });
    DescribeConfigsResourceResult {
        config_type: config.type_code(),
        synonyms: if include_synonyms {
            synonyms.collect()
        } else {
            Vec::new()
        },
        documentation: config
            .documentation
            .filter(|_| include_documentation)
            .map(|text| ByteString::from(text.into_owned())),
        name: ByteString::from(config.name),
        value: config.value.map(ByteString::from),
        read_only: config.is_read_only,
        config_source: config.source.code(),
        is_sensitive: config.is_sensitive,
        ..Default::default()
    }
}
