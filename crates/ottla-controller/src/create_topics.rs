//! `CreateTopics`.
//!
//! In Kafka: `ControllerApis.createTopics`, `ReplicationControlManager.createTopics`.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_metadata::{ConfigResource, PartitionRegistration};
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse,
};
use ottla_protocol::metadata_records::{ConfigRecord, MetadataRecord, TopicRecord};
use ottla_types::{
    BrokerId, DirectoryId, ErrorCode, LeaderEpoch, PartitionEpoch, PartitionIndex, Uuid,
};

use crate::alter_configs::{ConfigChange, changed_config_records};
use crate::decision::{ApiError, ControllerContext, Decision, MAX_RECORDS_PER_USER_OPERATION};
use crate::replica_placement::place_replicas;
use crate::topic_names::{
    CLUSTER_METADATA_TOPIC, has_collision_chars, unify_collision_chars, validate_topic_name,
};

/// The maximum number of partitions that one request can create.
const MAX_PARTITIONS_PER_BATCH: usize = 10_000;

pub fn create_topics(
    context: &mut ControllerContext<'_>,
    request: &CreateTopicsRequest,
) -> Decision<CreateTopicsResponse> {
    if partition_total(context, request) > MAX_PARTITIONS_PER_BATCH {
        let error = ApiError::new(
            ErrorCode::PolicyViolation,
            "Excessively large number of partitions per request.",
        );
        return Decision::unchanged(all_failed(request, &error));
    }
    let duplicates = duplicate_names(request);
    let mut records = Vec::new();
    let mut topics = Vec::new();
    let mut creation = TopicCreation {
        created: BTreeSet::new(),
    };
    for topic in &request.topics {
        if duplicates.contains(&topic.name) || &*topic.name == CLUSTER_METADATA_TOPIC {
            continue;
        }
        topics.push(match creation.create(context, topic) {
            Ok((mut topic_records, result)) => {
                records.append(&mut topic_records);
                result
            }
            Err(error) => failed(&topic.name, &error),
        });
    }
    if records.len() > MAX_RECORDS_PER_USER_OPERATION {
        let error = ApiError::new(
            ErrorCode::PolicyViolation,
            "Unable to perform excessively large batch operation.",
        );
        return Decision::unchanged(all_failed(request, &error));
    }
    for name in &duplicates {
        let error = ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name.");
        topics.push(failed(name, &error));
    }
    let asks_for_metadata_topic = request
        .topics
        .iter()
        .any(|topic| &*topic.name == CLUSTER_METADATA_TOPIC);
    if asks_for_metadata_topic && !duplicates.contains(CLUSTER_METADATA_TOPIC) {
        let error = ApiError::new(
            ErrorCode::InvalidRequest,
            "Creation of internal topic __cluster_metadata is prohibited.",
        );
        topics.push(failed(
            &ByteString::from_static(CLUSTER_METADATA_TOPIC),
            &error,
        ));
    }
    if request.validate_only {
        records.clear();
    }
    let response = CreateTopicsResponse {
        topics,
        ..Default::default()
    };
    Decision::new(records, response)
}

fn partition_total(context: &ControllerContext<'_>, request: &CreateTopicsRequest) -> usize {
    request
        .topics
        .iter()
        .map(
            |topic| match (topic.assignments.len(), topic.num_partitions) {
                (0, -1) => context.config.num_partitions.max(0) as usize,
                (0, count) => count.max(0) as usize,
                (count, _) => count,
            },
        )
        .sum()
}

fn duplicate_names(request: &CreateTopicsRequest) -> BTreeSet<ByteString> {
    let mut seen = BTreeSet::new();
    request
        .topics
        .iter()
        .filter(|topic| !seen.insert(topic.name.clone()))
        .map(|topic| topic.name.clone())
        .collect()
}

fn failed(name: &ByteString, error: &ApiError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: name.clone(),
        error_code: error.code.code(),
        error_message: error.wire_message(),
        ..Default::default()
    }
}

fn all_failed(request: &CreateTopicsRequest, error: &ApiError) -> CreateTopicsResponse {
    CreateTopicsResponse {
        topics: request
            .topics
            .iter()
            .map(|topic| failed(&topic.name, error))
            .collect(),
        ..Default::default()
    }
}

/// The topics of one request, in order.
struct TopicCreation {
    /// The names that this request creates, with `.` and `_` unified, because two topics of one
    /// request must not collide either.
    created: BTreeSet<String>,
}

impl TopicCreation {
    fn create(
        &mut self,
        context: &mut ControllerContext<'_>,
        topic: &CreatableTopic,
    ) -> Result<(Vec<MetadataRecord>, CreatableTopicResult), ApiError> {
        self.check_name(context, &topic.name)?;
        let config_records = config_records(context, topic)?;
        let partitions = if topic.assignments.is_empty() {
            place_partitions(context, topic)?
        } else {
            assigned_partitions(context, topic)?
        };
        context.count_mutations(partitions.len())?;
        let topic_id = context.random_uuid();
        let replication_factor = partitions
            .first()
            .map_or(0, |partition| partition.replicas.len());
        let mut result = CreatableTopicResult {
            name: topic.name.clone(),
            topic_id,
            error_message: None,
            num_partitions: partitions.len() as i32,
            replication_factor: replication_factor as i16,
            ..Default::default()
        };
        result.configs = Some(created_configs(context, topic));

        let mut records = vec![MetadataRecord::Topic(TopicRecord {
            name: topic.name.clone(),
            topic_id,
            ..Default::default()
        })];
        // The settings are written between the topic and its partitions, so that a partition is
        // never created without them.
        records.extend(config_records);
        let metadata_version = context.metadata_version();
        let is_elr_enabled = context.image.features.is_elr_enabled();
        records.extend(partitions.iter().enumerate().map(|(index, partition)| {
            MetadataRecord::Partition(partition.to_record(
                topic_id,
                PartitionIndex(index as i32),
                metadata_version,
                is_elr_enabled,
            ))
        }));
        self.created.insert(unify_collision_chars(&topic.name));
        Ok((records, result))
    }

    fn check_name(
        &self,
        context: &ControllerContext<'_>,
        name: &ByteString,
    ) -> Result<(), ApiError> {
        validate_topic_name(name)
            .map_err(|message| ApiError::new(ErrorCode::InvalidTopicException, message))?;
        if context.image.topics.by_name(name).is_some() {
            return Err(ApiError::new(
                ErrorCode::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        if !has_collision_chars(name) {
            return Ok(());
        }
        let unified = unify_collision_chars(name);
        let existing = context
            .image
            .topics
            .iter()
            .find(|topic| {
                has_collision_chars(&topic.name) && unify_collision_chars(&topic.name) == unified
            })
            .map(|topic| topic.name.to_string())
            .or_else(|| self.created.contains(&unified).then(|| unified.clone()));
        match existing {
            Some(existing) => Err(ApiError::new(
                ErrorCode::InvalidTopicException,
                format!("Topic '{name}' collides with existing topic: {existing}"),
            )),
            None => Ok(()),
        }
    }
}

fn config_records(
    context: &ControllerContext<'_>,
    topic: &CreatableTopic,
) -> Result<Vec<MetadataRecord>, ApiError> {
    let nulls: Vec<&str> = topic
        .configs
        .iter()
        .filter(|config| config.value.is_none())
        .map(|config| &*config.name)
        .collect();
    if !nulls.is_empty() {
        return Err(ApiError::new(
            ErrorCode::InvalidConfig,
            format!(
                "Null value not supported for topic configs: {}",
                nulls.join(",")
            ),
        ));
    }
    let changes: BTreeMap<ByteString, ConfigChange> = topic
        .configs
        .iter()
        .filter_map(|config| {
            Some((
                config.name.clone(),
                ConfigChange::Set(config.value.clone()?),
            ))
        })
        .collect();
    let resource = ConfigResource::topic(topic.name.clone());
    let records: Vec<ConfigRecord> = changed_config_records(context, &resource, &changes, true)?;
    Ok(records.into_iter().map(MetadataRecord::Config).collect())
}

/// Partitions with the replicas that the request names.
fn assigned_partitions(
    context: &ControllerContext<'_>,
    topic: &CreatableTopic,
) -> Result<Vec<PartitionRegistration>, ApiError> {
    for (given, what) in [
        (topic.replication_factor != -1, "replication factor"),
        (topic.num_partitions != -1, "numPartitions"),
    ] {
        if given {
            return Err(ApiError::new(
                ErrorCode::InvalidRequest,
                format!(
                    "A manual partition assignment was specified, but {what} was not set to -1."
                ),
            ));
        }
    }
    let invalid = |message: String| ApiError::new(ErrorCode::InvalidReplicaAssignment, message);
    let mut partitions = BTreeMap::new();
    let mut replication_factor = None;
    for assignment in &topic.assignments {
        let index = assignment.partition_index;
        if partitions.contains_key(&index) {
            return Err(invalid(format!(
                "Found multiple manual partition assignments for partition {index}"
            )));
        }
        let replicas: Vec<BrokerId> = assignment
            .broker_ids
            .iter()
            .copied()
            .map(BrokerId)
            .collect();
        validate_manual_assignment(context, &replicas, replication_factor)?;
        replication_factor = Some(replicas.len());
        let partition = new_partition(context, replicas).ok_or_else(|| {
            invalid(format!(
                "All brokers specified in the manual partition assignment for partition {index} are \
                 fenced or in controlled shutdown."
            ))
        })?;
        partitions.insert(index, partition);
    }
    if partitions.keys().copied().ne(0..partitions.len() as i32) {
        return Err(invalid(
            "partitions should be a consecutive 0-based integer sequence".to_owned(),
        ));
    }
    Ok(partitions.into_values().collect())
}

/// Partitions with replicas that the controller chooses.
fn place_partitions(
    context: &mut ControllerContext<'_>,
    topic: &CreatableTopic,
) -> Result<Vec<PartitionRegistration>, ApiError> {
    if topic.replication_factor < -1 || topic.replication_factor == 0 {
        return Err(ApiError::new(
            ErrorCode::InvalidReplicationFactor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ));
    }
    if topic.num_partitions < -1 || topic.num_partitions == 0 {
        return Err(ApiError::new(
            ErrorCode::InvalidPartitions,
            "Number of partitions was set to an invalid non-positive value.",
        ));
    }
    let partition_count = match topic.num_partitions {
        -1 => context.config.num_partitions,
        count => count,
    };
    let replication_factor = match topic.replication_factor {
        -1 => context.config.default_replication_factor,
        factor => i32::from(factor),
    };
    let invalid = |reason: &str| {
        ApiError::new(
            ErrorCode::InvalidReplicationFactor,
            format!("Unable to replicate the partition {replication_factor} time(s): {reason}"),
        )
    };
    place_replicas(context, partition_count.max(0) as usize, replication_factor)
        .map_err(|reason| invalid(&reason))?
        .into_iter()
        .map(|replicas| {
            new_partition(context, replicas).ok_or_else(|| {
                invalid("All brokers are currently fenced or in controlled shutdown.")
            })
        })
        .collect()
}

/// A new partition: its ISR is the active replicas, and the first of them is the leader. `None` if
/// no replica is active.
pub(crate) fn new_partition(
    context: &ControllerContext<'_>,
    replicas: Vec<BrokerId>,
) -> Option<PartitionRegistration> {
    let isr: Vec<BrokerId> = replicas
        .iter()
        .copied()
        .filter(|&replica| context.image.cluster.is_broker_active(replica))
        .collect();
    Some(PartitionRegistration {
        directories: replicas
            .iter()
            .map(|&replica| default_directory(context, replica))
            .collect(),
        leader: *isr.first()?,
        isr: isr.into(),
        replicas: replicas.into(),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
        ..Default::default()
    })
}

/// The initial directory of a new replica: the broker's directory if it has only one. Any other
/// broker chooses a directory itself and reports it with `AssignReplicasToDirs` (KIP-858).
pub(crate) fn default_directory(context: &ControllerContext<'_>, broker: BrokerId) -> DirectoryId {
    match context
        .image
        .cluster
        .broker(broker)
        .map(|broker| &broker.directories[..])
    {
        None => Uuid::DIRECTORY_UNASSIGNED,
        Some([]) => Uuid::DIRECTORY_MIGRATING,
        Some([directory]) => *directory,
        Some(_) => Uuid::DIRECTORY_UNASSIGNED,
    }
}

pub(crate) fn validate_manual_assignment(
    context: &ControllerContext<'_>,
    replicas: &[BrokerId],
    replication_factor: Option<usize>,
) -> Result<(), ApiError> {
    let invalid =
        |message: String| Err(ApiError::new(ErrorCode::InvalidReplicaAssignment, message));
    if replicas.is_empty() {
        return invalid(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        );
    }
    let mut sorted = replicas.to_vec();
    sorted.sort();
    let mut previous = None;
    for broker in sorted {
        if context.image.cluster.broker(broker).is_none() {
            return invalid(format!(
                "The manual partition assignment includes broker {broker}, but no such broker is registered."
            ));
        }
        if previous == Some(broker) {
            return invalid(format!(
                "The manual partition assignment includes the broker {broker} more than once."
            ));
        }
        previous = Some(broker);
    }
    match replication_factor {
        Some(expected) if expected != replicas.len() => invalid(format!(
            "The manual partition assignment includes a partition with {} replica(s), but this is not \
             consistent with previous partitions, which have {expected} replica(s).",
            replicas.len()
        )),
        _ => Ok(()),
    }
}

/// The settings of the new topic for the response (KIP-525).
fn created_configs(
    context: &ControllerContext<'_>,
    topic: &CreatableTopic,
) -> Vec<CreatableTopicConfigs> {
    let overrides: BTreeMap<String, String> = topic
        .configs
        .iter()
        .filter_map(|config| Some((config.name.to_string(), config.value.as_ref()?.to_string())))
        .collect();
    let mut configs: Vec<_> = ottla_config::describe_topic(context.config, &overrides)
        .into_iter()
        .map(|config| CreatableTopicConfigs {
            config_source: ottla_config::created_topic_config_source(
                context.config,
                &overrides,
                &config.name,
            )
            .code(),
            name: ByteString::from(config.name),
            value: config.value.map(ByteString::from),
            read_only: config.is_read_only,
            is_sensitive: config.is_sensitive,
            ..Default::default()
        })
        .collect();
    configs.sort_by(|left, right| left.name.cmp(&right.name));
    configs
}

#[cfg(test)]
mod tests;
