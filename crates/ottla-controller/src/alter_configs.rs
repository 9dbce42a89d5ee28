//! `AlterConfigs` and `IncrementalAlterConfigs`.
//!
//! Requests for broker loggers are not handled here: log levels are not part of the metadata.
//!
//! In Kafka: `ConfigAdminManager.preprocess`, `ControllerApis.handleIncrementalAlterConfigs`,
//! `ConfigurationControlManager`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_config::{ConfigDef, ConfigType};
use ottla_metadata::{ConfigResource, ConfigResourceType, MetadataVersion, TopicImage};
use ottla_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use ottla_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResourceResponse;
use ottla_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};
use ottla_protocol::metadata_records::{
    ClearElrRecord, ConfigRecord, MetadataRecord, PartitionChangeRecord,
};
use ottla_types::{BrokerId, ErrorCode};

use crate::auto_create_topics::broker_setting;
use crate::config_validation::{Settings, check_existence, validate_configs};
use crate::decision::{ApiError, ControllerContext, Decision};

const MIN_INSYNC_REPLICAS: &str = "min.insync.replicas";
const CORDONED_LOG_DIRS: &str = "cordoned.log.dirs";

/// The change of one setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ConfigChange {
    Set(ByteString),
    Delete,
    Append(ByteString),
    Subtract(ByteString),
}

impl ConfigChange {
    fn name(&self) -> &'static str {
        match self {
            ConfigChange::Set(_) => "SET",
            ConfigChange::Delete => "DELETE",
            ConfigChange::Append(_) => "APPEND",
            ConfigChange::Subtract(_) => "SUBTRACT",
        }
    }
}

/// Which node validates the settings of a broker. Only the broker itself knows whether it can apply
/// a setting at runtime, and validates the request before it forwards it. The controller trusts a
/// request that a broker has forwarded, and does not validate it again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValidatedBy {
    Broker,
    Controller,
}

/// `IncrementalAlterConfigs`: each setting has an operation.
pub fn incremental_alter_configs(
    context: &ControllerContext<'_>,
    request: &IncrementalAlterConfigsRequest,
) -> Decision<IncrementalAlterConfigsResponse> {
    change_configs(context, request, ValidatedBy::Controller)
}

/// Validates the request on the broker that receives it, before it goes to the controller.
pub fn judge_incremental_alter_configs(
    context: &ControllerContext<'_>,
    request: &IncrementalAlterConfigsRequest,
) -> Decision<IncrementalAlterConfigsResponse> {
    change_configs(context, request, ValidatedBy::Broker)
}

fn change_configs(
    context: &ControllerContext<'_>,
    request: &IncrementalAlterConfigsRequest,
    validated_by: ValidatedBy,
) -> Decision<IncrementalAlterConfigsResponse> {
    let resources = request.resources.iter().map(|resource| {
        let configs = resource.configs.iter();
        let configs = configs.map(|it| (it.name.clone(), it.config_operation, it.value.clone()));
        let name = resource.resource_name.clone();
        (resource.resource_type, name, configs.collect())
    });
    let changed = changed_resources(context, resources.collect(), validated_by, Others::Kept);
    let responses = changed.outcomes.into_iter();
    let responses = responses.map(|(kind, name, error)| IncrementalResourceResponse {
        error_code: error.code.code(),
        error_message: error.wire_message(),
        resource_type: kind,
        resource_name: name,
        ..Default::default()
    });
    let response = IncrementalAlterConfigsResponse {
        responses: responses.collect(),
        ..Default::default()
    };
    let records = finished_records(context, changed.records, request.validate_only);
    Decision::new(records, response)
}

/// `AlterConfigs`: the given settings replace all settings of the resource.
pub fn alter_configs(
    context: &ControllerContext<'_>,
    request: &AlterConfigsRequest,
) -> Decision<AlterConfigsResponse> {
    replace_configs(context, request, ValidatedBy::Controller)
}

/// Validates the request on the broker that receives it, before it goes to the controller.
pub fn judge_alter_configs(
    context: &ControllerContext<'_>,
    request: &AlterConfigsRequest,
) -> Decision<AlterConfigsResponse> {
    replace_configs(context, request, ValidatedBy::Broker)
}

fn replace_configs(
    context: &ControllerContext<'_>,
    request: &AlterConfigsRequest,
    validated_by: ValidatedBy,
) -> Decision<AlterConfigsResponse> {
    let resources = request.resources.iter().map(|resource| {
        let configs = resource.configs.iter();
        let configs = configs.map(|it| (it.name.clone(), SET, it.value.clone()));
        let name = resource.resource_name.clone();
        (resource.resource_type, name, configs.collect())
    });
    let changed = changed_resources(context, resources.collect(), validated_by, Others::Removed);
    let responses = changed.outcomes.into_iter();
    let responses = responses.map(|(kind, name, error)| AlterConfigsResourceResponse {
        error_code: error.code.code(),
        error_message: error.wire_message(),
        resource_type: kind,
        resource_name: name,
        ..Default::default()
    });
    let response = AlterConfigsResponse {
        responses: responses.collect(),
        ..Default::default()
    };
    let records = finished_records(context, changed.records, request.validate_only);
    Decision::new(records, response)
}

/// Name, operation and value.
type RequestedChange = (ByteString, i8, Option<ByteString>);

/// The result of a request: the records of the accepted resources, and the error code of each
/// resource.
struct ChangedResources {
    records: Vec<ConfigRecord>,
    outcomes: Vec<(i8, ByteString, ApiError)>,
}

fn changed_resources(
    context: &ControllerContext<'_>,
    resources: Vec<(i8, ByteString, Vec<RequestedChange>)>,
    validated_by: ValidatedBy,
    others: Others,
) -> ChangedResources {
    let names = resources.iter();
    let names: Vec<_> = names.map(|(kind, name, _)| (*kind, name.clone())).collect();
    let repeated = repeated(&names);
    let (mut records, mut outcomes) = (Vec::new(), Vec::new());
    for (kind, name, configs) in resources {
        let changed = if repeated.contains(&(kind, name.clone())) {
            Err(each_once())
        } else {
            incremental_changes(&configs).and_then(|changes| {
                let resource = config_resource(kind, &name)?;
                if validated_by == ValidatedBy::Broker {
                    check_dynamic_broker_configs(context, &resource, &changes, others)?;
                }
                match others {
                    Others::Kept => changed_config_records(context, &resource, &changes, false),
                    Others::Removed => replaced_config_records(context, &resource, changes),
                }
            })
        };
        let error = match changed {
            Ok(changed) => {
                records.extend(changed);
                ApiError::NONE
            }
            Err(error) => error,
        };
        outcomes.push((kind, name, error));
    }
    ChangedResources { records, outcomes }
}

fn repeated(names: &[(i8, ByteString)]) -> BTreeSet<(i8, ByteString)> {
    let mut seen = BTreeSet::new();
    names
        .iter()
        .filter(|name| !seen.insert(*name))
        .cloned()
        .collect()
}

fn each_once() -> ApiError {
    ApiError::new(
        ErrorCode::InvalidRequest,
        "Each resource must appear at most once.",
    )
}

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn incremental_changes(
    configs: &[RequestedChange],
) -> Result<BTreeMap<ByteString, ConfigChange>, ApiError> {
    let invalid = |message: String| ApiError::new(ErrorCode::InvalidRequest, message);
    let names: BTreeSet<_> = configs.iter().map(|(name, _, _)| name).collect();
    if names.len() < configs.len() {
        return Err(invalid("Error due to duplicate config keys".to_owned()));
    }
    let nulls: Vec<&str> = configs
        .iter()
        .filter(|(_, operation, value)| *operation != DELETE && value.is_none())
        .map(|(name, _, _)| &**name)
        .collect();
    if !nulls.is_empty() {
        return Err(invalid(format!(
            "Null value not supported for : {}",
            nulls.join(", ")
        )));
    }
    configs
        .iter()
        .map(|(name, operation, value)| {
            let value = value.clone().unwrap_or_default();
            let change = match *operation {
                SET => ConfigChange::Set(value),
                DELETE => ConfigChange::Delete,
                APPEND => ConfigChange::Append(value),
                SUBTRACT => ConfigChange::Subtract(value),
                other => return Err(invalid(format!("Unknown operations type {other}"))),
            };
            Ok((name.clone(), change))
        })
        .collect()
}

fn config_resource(kind: i8, name: &ByteString) -> Result<ConfigResource, ApiError> {
    match ConfigResourceType::from_code(kind) {
        None | Some(ConfigResourceType::BrokerLogger) => Err(ApiError::new(
            ErrorCode::InvalidRequest,
            format!("Unknown resource type {kind}"),
        )),
        Some(kind) => Ok(ConfigResource::new(kind, name.clone())),
    }
}

/// Validates broker settings on the broker that receives the request, as dynamic settings: they
/// must be changeable at runtime, and the resource must be this broker or the cluster default.
fn check_dynamic_broker_configs(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
    changes: &BTreeMap<ByteString, ConfigChange>,
    others: Others,
) -> Result<(), ApiError> {
    if resource.kind != ConfigResourceType::Broker {
        return Ok(());
    }
    let invalid = |message: String| ApiError::new(ErrorCode::InvalidRequest, message);
    let is_cluster_wide = resource.name.is_empty();
    if !is_cluster_wide {
        let node_id = context.config.node_id;
        match resource.name.parse::<i32>() {
            Err(_) => {
                return Err(invalid(format!(
                    "Node id must be an integer, but it is: {}",
                    resource.name
                )));
            }
            Ok(id) if id != node_id => {
                return Err(invalid(format!(
                    "Unexpected broker id, expected {node_id}, but received {}",
                    resource.name
                )));
            }
            Ok(_) => {}
        }
    }
    let kept = context.image.configs.entries(resource);
    let mut settings: BTreeMap<String, String> = kept
        .filter(|_| others == Others::Kept)
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    for (key, change) in changes {
        if let ConfigChange::Append(_) | ConfigChange::Subtract(_) = change {
            match ottla_config::broker_config(key) {
                None => {
                    return Err(ApiError::new(
                        ErrorCode::InvalidConfig,
                        format!("Unknown config name: {key}"),
                    ));
                }
                Some(def) if def.config_type != ConfigType::List => {
                    return Err(ApiError::new(
                        ErrorCode::InvalidConfig,
                        format!(
                            "Config value {} is not allowed for config key: {key}",
                            change.name().to_ascii_lowercase()
                        ),
                    ));
                }
                Some(_) => {}
            }
        }
        match new_value(context, resource, key, change)? {
            Some(value) => {
                let checked = context.config.check_dynamic(key, &value, is_cluster_wide);
                checked.map_err(invalid)?;
                settings.insert(key.to_string(), value.to_string());
            }
            None => {
                settings.remove(&**key);
            }
        }
    }
    context
        .config
        .check_dynamic_change(is_cluster_wide, &settings)
        .map_err(invalid)
}

/// The effect on settings that the request does not name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    Kept,
    Removed,
}

/// The definition of the resource's setting, if it is known.
fn setting(resource: &ConfigResource, key: &str) -> Option<&'static ConfigDef> {
    match resource.kind {
        ConfigResourceType::Topic => ottla_config::topic_config(key),
        ConfigResourceType::Broker => ottla_config::broker_config(key),
        ConfigResourceType::Group => ottla_config::group_config(key),
        ConfigResourceType::ClientMetrics => ottla_config::client_metrics_config(key),
        ConfigResourceType::BrokerLogger => None,
    }
}

/// The value of the key after the change; `None` if it is unset.
fn new_value(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
    key: &str,
    change: &ConfigChange,
) -> Result<Option<ByteString>, ApiError> {
    let operand = match change {
        ConfigChange::Set(value) => return Ok(Some(value.clone())),
        ConfigChange::Delete => return Ok(None),
        ConfigChange::Append(value) | ConfigChange::Subtract(value) => value,
    };
    let def = setting(resource, key);
    if def.is_none_or(|def| def.config_type != ConfigType::List) {
        return Err(ApiError::new(
            ErrorCode::InvalidConfig,
            format!(
                "Can't {} to key {key} because its type is not LIST.",
                change.name()
            ),
        ));
    }
    let current = context
        .image
        .configs
        .value(resource, key)
        .map(|value| &**value);
    let current = current.or_else(|| def?.default_text());
    let current = current.unwrap_or_default();
    let changed = match change {
        ConfigChange::Subtract(_) => subtract_from_list(current, operand),
        _ => append_to_list(current, operand),
    };
    Ok(Some(ByteString::from(changed)))
}

/// The value of a list after an `APPEND` operation. Elements that the list already contains are not
/// added again.
pub fn append_to_list(list: &str, operand: &str) -> String {
    let mut parts = parts_of(list);
    for part in operand.split(',') {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts.join(",")
}

/// The value of a list after a `SUBTRACT` operation.
pub fn subtract_from_list(list: &str, operand: &str) -> String {
    let mut parts = parts_of(list);
    for part in operand.split(',') {
        if let Some(position) = parts.iter().position(|other| *other == part) {
            parts.remove(position);
        }
    }
    parts.join(",")
}

fn parts_of(list: &str) -> Vec<&str> {
    list.split(',').filter(|part| !part.is_empty()).collect()
}

/// The records that change one resource. The error says why the change is not valid.
pub(crate) fn changed_config_records(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
    changes: &BTreeMap<ByteString, ConfigChange>,
    is_new_resource: bool,
) -> Result<Vec<ConfigRecord>, ApiError> {
    let mut records = Vec::new();
    for (key, change) in changes {
        let value = new_value(context, resource, key, change)?;
        records.extend(config_record(context, resource, key, value));
    }
    validate_change(context, resource, &records, is_new_resource)?;
    Ok(records)
}

/// The records that replace all settings of the resource.
fn replaced_config_records(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
    mut changes: BTreeMap<ByteString, ConfigChange>,
) -> Result<Vec<ConfigRecord>, ApiError> {
    let removed: Vec<ByteString> = context
        .image
        .configs
        .entries(resource)
        .map(|(key, _)| key)
        .filter(|key| !changes.contains_key(*key))
        .cloned()
        .collect();
    changes.extend(removed.into_iter().map(|key| (key, ConfigChange::Delete)));
    changed_config_records(context, resource, &changes, false)
}

/// The record that sets the value; `None` if nothing changes. A broker setting is written even if
/// its value is the same, because the broker then reloads the files that the value names
/// (KAFKA-14136).
fn config_record(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
    key: &ByteString,
    value: Option<ByteString>,
) -> Option<ConfigRecord> {
    let current = context.image.configs.value(resource, key);
    if current == value.as_ref() && resource.kind != ConfigResourceType::Broker {
        return None;
    }
    Some(ConfigRecord {
        resource_type: resource.kind.code(),
        resource_name: resource.name.clone(),
        name: key.clone(),
        value,
        ..Default::default()
    })
}

fn validate_change(
    context: &ControllerContext<'_>,
    resource: &ConfigResource,
    records: &[ConfigRecord],
    is_new_resource: bool,
) -> Result<(), ApiError> {
    let invalid = |message: &'static str| Err(ApiError::new(ErrorCode::InvalidConfig, message));
    let is_elr_enabled = context.image.features.is_elr_enabled();
    let is_broker = resource.kind == ConfigResourceType::Broker;
    let mut settings: Settings = context
        .image
        .configs
        .entries(resource)
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    for record in records {
        if is_broker && is_elr_enabled && &*record.name == MIN_INSYNC_REPLICAS {
            if !resource.name.is_empty() {
                return invalid(
                    "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
                );
            }
            if record.value.is_none() {
                return invalid(
                    "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
                );
            }
        }
        if is_broker
            && &*record.name == CORDONED_LOG_DIRS
            && !context.metadata_version().is_cordoned_log_dirs_supported()
        {
            return Err(ApiError::new(
                ErrorCode::InvalidConfig,
                format!(
                    "The cordoned.log.dirs configuration value cannot be set because it requires \
                     metadata.version >= {}",
                    MetadataVersion::IBP_4_3_IV0
                ),
            ));
        }
        match &record.value {
            None => {
                settings.remove(&*record.name);
            }
            Some(value) if value.encode_utf16().count() > i16::MAX as usize => {
                return invalid(
                    "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
                );
            }
            Some(value) => {
                settings.insert(record.name.to_string(), value.to_string());
            }
        }
    }
    validate_configs(context, resource, &settings)?;
    if is_new_resource {
        return Ok(());
    }
    check_existence(context, resource)
}

/// All records of a request. With eligible leader replicas, a change of `min.insync.replicas` also
/// clears the ELRs that depend on it. Partitions without an ISR keep their ELR: nothing is
/// committed without an ISR, so the eligible replicas still have all records. Kafka 4.3 clears it,
/// and such a partition then needs an unclean election.
fn finished_records(
    context: &ControllerContext<'_>,
    configs: Vec<ConfigRecord>,
    validate_only: bool,
) -> Vec<MetadataRecord> {
    if validate_only {
        return Vec::new();
    }
    let (mut cleared, mut kept) = (Vec::new(), Vec::new());
    if context.image.features.is_elr_enabled() {
        for record in configs
            .iter()
            .filter(|record| &*record.name == MIN_INSYNC_REPLICAS)
        {
            let is_topic = record.resource_type == ConfigResourceType::Topic.code();
            let topic_name = if is_topic {
                record.resource_name.clone()
            } else {
                ByteString::new()
            };
            for topic in context.image.topics.iter() {
                if topic_name.is_empty() || *topic.name == *topic_name {
                    kept.extend(kept_candidates(topic));
                }
            }
            cleared.push(MetadataRecord::ClearElr(ClearElrRecord {
                topic_name,
                ..Default::default()
            }));
        }
    }
    configs
        .into_iter()
        .map(MetadataRecord::Config)
        .chain(cleared)
        .chain(kept)
        .collect()
}

/// Makes the eligible replicas of partitions without an ISR their ISR, and keeps their last known
/// leaders, after a `ClearElrRecord`.
fn kept_candidates(topic: &TopicImage) -> impl Iterator<Item = MetadataRecord> {
    let leaderless =
        (topic.partitions()).filter(|(_, partition)| partition.leader == BrokerId::NONE);
    leaderless.filter_map(move |(index, partition)| {
        let mut change = PartitionChangeRecord {
            topic_id: topic.id,
            partition_id: index.value(),
            ..Default::default()
        };
        let some =
            |ids: &[BrokerId]| (!ids.is_empty()).then(|| ids.iter().map(|id| id.value()).collect());
        if partition.isr.is_empty() {
            change.isr = some(partition.elr());
        }
        change.last_known_elr = some(partition.last_known_elr());
        let is_changed = change.isr.is_some() || change.last_known_elr.is_some();
        is_changed.then_some(MetadataRecord::PartitionChange(change))
    })
}

/// With eligible leader replicas, the cluster has an explicit `min.insync.replicas`, and brokers
/// have none of their own.
pub(crate) fn elr_safety_records(context: &ControllerContext<'_>) -> Vec<MetadataRecord> {
    let mut records = Vec::new();
    let mut push = |resource: &ConfigResource, value: Option<String>| {
        records.push(MetadataRecord::Config(ConfigRecord {
            resource_type: resource.kind.code(),
            resource_name: resource.name.clone(),
            name: ByteString::from_static(MIN_INSYNC_REPLICAS),
            value: value.map(ByteString::from),
            ..Default::default()
        }));
    };
    let cluster = ConfigResource::default_broker();
    if context
        .image
        .configs
        .value(&cluster, MIN_INSYNC_REPLICAS)
        .is_none()
    {
        push(&cluster, Some(static_min_insync_replicas(context)));
    }
    for (resource, entries) in context.image.configs.resources() {
        let is_broker = resource.kind == ConfigResourceType::Broker && !resource.name.is_empty();
        if is_broker && entries.contains_key(MIN_INSYNC_REPLICAS) {
            push(resource, None);
        }
    }
    records
}

pub(crate) fn static_min_insync_replicas(context: &ControllerContext<'_>) -> String {
    match context.config.static_settings().get(MIN_INSYNC_REPLICAS) {
        Some(value) => value.trim().to_owned(),
        None => ottla_config::broker_config(MIN_INSYNC_REPLICAS)
            .and_then(|def| def.default_text())
            .map_or_else(
                || broker_setting(context.config, MIN_INSYNC_REPLICAS),
                str::to_owned,
            ),
    }
}

#[cfg(test)]
mod tests;
