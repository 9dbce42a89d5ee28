//! Validates the settings of a resource as a whole, as they would be after a change.
//!
//! In Kafka: `ControllerConfigurationValidator`, `ConfigResourceExistenceChecker`, `GroupConfig.validate`,
//! `ClientMetricsConfigs.validate`.

use std::collections::BTreeMap;

use ottla_config::{BrokerConfig, ConfigDef, ConfigValue, TopicConfig, check_remote_storage};
use ottla_metadata::{ConfigResource, ConfigResourceType};
use ottla_types::{BrokerId, ErrorCode};
use regex::Regex;

use crate::auto_create_topics::broker_setting;
use crate::decision::{ApiError, ControllerContext};
use crate::topic_names::validate_topic_name;

/// The settings of a resource by key.
pub(crate) type Settings = BTreeMap<String, String>;

pub(crate) fn validate_configs(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
    settings: &Settings,
) -> Result<(), ApiError> {
    let invalid_request = |message: String| ApiError::new(ErrorCode::InvalidRequest, message);
    match resource.kind {
        ConfigResourceType::Topic => {
            if resource.name.is_empty() {
                return Err(invalid_request(
                    "Default topic resources are not allowed.".to_owned(),
                ));
            }
            validate_topic_name(&resource.name)
                .map_err(|message| ApiError::new(ErrorCode::InvalidTopicException, message))?;
            let pairs = settings
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()));
            let invalid = |error: String| ApiError::new(ErrorCode::InvalidConfig, error);
            let config = TopicConfig::resolve(&context.config.topic_defaults, pairs)
                .map_err(|error| invalid(error.to_string()))?;
            let before = context
                .image
                .configs
                .value(resource, "remote.storage.enable");
            let was_tiered = before.is_some_and(|value| value.eq_ignore_ascii_case("true"));
            let is_system_enabled = context.config.remote_log_storage_system_enable;
            check_remote_storage(&config, was_tiered, is_system_enabled)
                .map_err(|error| invalid(error.to_string()))
        }
        ConfigResourceType::Broker => match resource.name.parse::<i32>() {
            _ if resource.name.is_empty() => Ok(()),
            Err(_) => Err(invalid_request(
                "Unable to parse broker name as a base 10 number.".to_owned(),
            )),
            Ok(id) if id < 0 => Err(invalid_request("Invalid negative broker ID.".to_owned())),
            Ok(_) => Ok(()),
        },
        ConfigResourceType::ClientMetrics => validate_client_metrics(resource, settings),
        ConfigResourceType::Group => {
            if resource.name.is_empty() {
                return Err(invalid_request(
                    "Default group resources are not allowed.".to_owned(),
                ));
            }
            validate_group(context.config, settings)
        }
        // Log levels are not metadata: the broker changes its own.
        ConfigResourceType::BrokerLogger => Err(invalid_request(
            "Unknown resource type BROKER_LOGGER".to_owned(),
        )),
    }
}

pub(crate) fn check_existence(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
) -> Result<(), ApiError> {
    let image = context.image;
    match resource.kind {
        ConfigResourceType::Topic if image.topics.by_name(&resource.name).is_none() => {
            Err(ApiError::new(
                ErrorCode::UnknownTopicOrPartition,
                format!("The topic '{}' does not exist.", resource.name),
            ))
        }
        ConfigResourceType::Broker if !resource.name.is_empty() => {
            let id = resource.name.parse().map(BrokerId).map_err(|_| {
                ApiError::new(
                    ErrorCode::InvalidRequest,
                    format!("Invalid broker name {}", resource.name),
                )
            })?;
            let is_known = image.cluster.broker(id).is_some()
                || image.cluster.controller(id).is_some()
                || id.value() == context.config.node_id;
            if is_known {
                return Ok(());
            }
            Err(ApiError::new(
                ErrorCode::BrokerIdNotRegistered,
                format!("No node with id {id} found."),
            ))
        }
        _ => Ok(()),
    }
}

/// The values of all settings of a table, with defaults for those that are not set.
fn parse_all(
    table: &'static [ConfigDef],
    settings: &Settings,
    default: impl Fn(&ConfigDef) -> Option<String>,
) -> Result<BTreeMap<&'static str, ConfigValue>, ApiError> {
    let mut values = BTreeMap::new();
    for def in table {
        let text = settings.get(def.name).cloned().or_else(|| default(def));
        if let Some(text) = text {
            let value = def
                .parse(&text)
                .map_err(|error| ApiError::new(ErrorCode::InvalidConfig, error.kafka_message()))?;
            values.insert(def.name, value);
        }
    }
    Ok(values)
}

fn integer(values: &BTreeMap<&'static str, ConfigValue>, key: &str) -> Option<i64> {
    match values.get(key) {
        Some(ConfigValue::Integer(value)) => Some(*value),
        _ => None,
    }
}

/// A setting of a group, the keys of the broker settings that bound it (minimum, maximum), and
/// whether the bounds apply only to an explicitly set value (KAFKA-20337).
#[rustfmt::skip]
const GROUP_BOUNDS: &[(&str, Option<&str>, Option<&str>, bool)] = &[
    ("consumer.heartbeat.interval.ms", Some("group.consumer.min.heartbeat.interval.ms"), Some("group.consumer.max.heartbeat.interval.ms"), false),
    ("consumer.session.timeout.ms", Some("group.consumer.min.session.timeout.ms"), Some("group.consumer.max.session.timeout.ms"), false),
    ("consumer.assignment.interval.ms", Some("group.consumer.min.assignment.interval.ms"), Some("group.consumer.max.assignment.interval.ms"), true),
    ("share.heartbeat.interval.ms", Some("group.share.min.heartbeat.interval.ms"), Some("group.share.max.heartbeat.interval.ms"), false),
    ("share.session.timeout.ms", Some("group.share.min.session.timeout.ms"), Some("group.share.max.session.timeout.ms"), false),
    ("share.record.lock.duration.ms", Some("group.share.min.record.lock.duration.ms"), Some("group.share.max.record.lock.duration.ms"), false),
    ("share.delivery.count.limit", Some("group.share.min.delivery.count.limit"), Some("group.share.max.delivery.count.limit"), false),
    ("share.partition.max.record.locks", Some("group.share.min.partition.max.record.locks"), Some("group.share.max.partition.max.record.locks"), false),
    ("share.assignment.interval.ms", Some("group.share.min.assignment.interval.ms"), Some("group.share.max.assignment.interval.ms"), true),
    ("streams.heartbeat.interval.ms", Some("group.streams.min.heartbeat.interval.ms"), Some("group.streams.max.heartbeat.interval.ms"), false),
    ("streams.session.timeout.ms", Some("group.streams.min.session.timeout.ms"), Some("group.streams.max.session.timeout.ms"), false),
    ("streams.num.standby.replicas", None, Some("group.streams.max.standby.replicas"), false),
    ("streams.num.warmup.replicas", None, Some("group.streams.max.warmup.replicas"), true),
    ("streams.task.offset.interval.ms", Some("group.streams.min.task.offset.interval.ms"), None, true),
    ("streams.assignment.interval.ms", Some("group.streams.min.assignment.interval.ms"), Some("group.streams.max.assignment.interval.ms"), true),
];

fn validate_group(config: &BrokerConfig, settings: &Settings) -> Result<(), ApiError> {
    let invalid = |message: String| Err(ApiError::new(ErrorCode::InvalidConfig, message));
    for (name, value) in settings {
        let Some(def) = ottla_config::group_config(name) else {
            return invalid(format!("Unknown group config name: {name}"));
        };
        if let Some(reason) = def.refusal(value) {
            return invalid(format!("{name} is refused: {reason}"));
        }
    }
    let values = parse_all(ottla_config::GROUP_CONFIGS, settings, |def| {
        let broker_key = format!("group.{}", def.name);
        match ottla_config::broker_config(&broker_key) {
            Some(_) => Some(broker_setting(config, &broker_key)),
            None => def.default_text().map(str::to_owned),
        }
    })?;
    for (key, min, max, only_when_given) in GROUP_BOUNDS {
        let Some(value) = integer(&values, key) else {
            continue;
        };
        if *only_when_given && !settings.contains_key(*key) {
            continue;
        }
        let bound = |key: &&str| broker_setting(config, key).parse::<i64>().ok();
        if let Some(min) = min
            && bound(min).is_some_and(|bound| value < bound)
        {
            return invalid(format!("{key} must be greater than or equal to {min}"));
        }
        if let Some(max) = max
            && bound(max).is_some_and(|bound| value > bound)
        {
            return invalid(format!("{key} must be less than or equal to {max}"));
        }
    }
    for kind in ["consumer", "share", "streams"] {
        let session = format!("{kind}.session.timeout.ms");
        let heartbeat = format!("{kind}.heartbeat.interval.ms");
        if let (Some(session_ms), Some(heartbeat_ms)) =
            (integer(&values, &session), integer(&values, &heartbeat))
            && session_ms <= heartbeat_ms
        {
            return invalid(format!("{session} must be greater than {heartbeat}"));
        }
    }
    let dead_letters = settings.get("errors.deadletterqueue.topic.name");
    if dead_letters.is_some_and(|topic| topic.trim().starts_with("__")) {
        let message = "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'";
        return invalid(message.to_owned());
    }
    Ok(())
}

/// The client parameters that a client metrics subscription can match.
const CLIENT_MATCH_PARAMETERS: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

fn validate_client_metrics(resource: &ConfigResource, settings: &Settings) -> Result<(), ApiError> {
    let invalid_request = |message: String| Err(ApiError::new(ErrorCode::InvalidRequest, message));
    if resource.name.is_empty() {
        return invalid_request("Subscription name can't be empty".to_owned());
    }
    for name in settings.keys() {
        if ottla_config::client_metrics_config(name).is_none() {
            return invalid_request(format!("Unknown client metrics configuration: {name}"));
        }
    }
    let values = parse_all(ottla_config::CLIENT_METRICS_CONFIGS, settings, |_| None)?;
    if let Some(interval) = integer(&values, "interval.ms")
        && !(100..=3_600_000).contains(&interval)
    {
        return invalid_request(format!(
            "Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
        ));
    }
    if let Some(ConfigValue::List(patterns)) = values.get("match") {
        for pattern in patterns {
            let mut parts = pattern.split('=');
            let is_valid = match (parts.next(), parts.next(), parts.next()) {
                (Some(parameter), Some(value), None) => {
                    !value.is_empty()
                        && CLIENT_MATCH_PARAMETERS.contains(&parameter.trim())
                        && Regex::new(value.trim()).is_ok()
                }
                _ => false,
            };
            if !is_valid {
                return Err(ApiError::new(
                    ErrorCode::InvalidConfig,
                    format!("Illegal client matching pattern: {pattern}"),
                ));
            }
        }
    }
    Ok(())
}
