//! `CreatePartitions`.
//!
//! In Kafka: `ControllerApis.createPartitions`, `ReplicationControlManager.createPartitions`.

use std::collections::BTreeSet;

use ottla_protocol::messages::create_partitions_request::{
    CreatePartitionsRequest, CreatePartitionsTopic,
};
use ottla_protocol::messages::create_partitions_response::{
    CreatePartitionsResponse, CreatePartitionsTopicResult,
};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_types::{BrokerId, ErrorCode, PartitionIndex};

use crate::create_topics::{new_partition, validate_manual_assignment};
use crate::decision::{ApiError, ControllerContext, Decision, MAX_RECORDS_PER_USER_OPERATION};
use crate::replica_placement::place_replicas;

pub fn create_partitions(
    context: &mut ControllerContext<'_>,
    request: &CreatePartitionsRequest,
) -> Decision<CreatePartitionsResponse> {
    let mut seen = BTreeSet::new();
    let duplicates: BTreeSet<_> = request
        .topics
        .iter()
        .filter(|topic| !seen.insert(topic.name.clone()))
        .map(|topic| topic.name.clone())
        .collect();
    let mut records = Vec::new();
    let mut results = Vec::new();
    for name in &duplicates {
        let error = ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name.");
        results.push(result(name.clone(), &error));
    }
    for topic in &request.topics {
        if duplicates.contains(&topic.name) {
            continue;
        }
        let room = MAX_RECORDS_PER_USER_OPERATION - records.len();
        let error = match added_partitions(context, topic, room) {
            Ok(mut added) => {
                records.append(&mut added);
                ApiError::NONE
            }
            Err(error) => error,
        };
        results.push(result(topic.name.clone(), &error));
    }
    if request.validate_only {
        records.clear();
    }
    let response = CreatePartitionsResponse {
        results,
        ..Default::default()
    };
    Decision::new(records, response)
}

fn result(name: bytestring::ByteString, error: &ApiError) -> CreatePartitionsTopicResult {
    CreatePartitionsTopicResult {
        name,
        error_code: error.code.code(),
        error_message: error.wire_message(),
        ..Default::default()
    }
}

fn added_partitions(
    context: &mut ControllerContext<'_>,
    request: &CreatePartitionsTopic,
    room: usize,
) -> Result<Vec<MetadataRecord>, ApiError> {
    let image = context.image;
    let topic = image
        .topics
        .by_name(&request.name)
        .ok_or(ApiError::bare(ErrorCode::UnknownTopicOrPartition))?;
    let current = topic.partition_count();
    let invalid = |message: String| Err(ApiError::new(ErrorCode::InvalidPartitions, message));
    if i64::from(request.count) == current as i64 {
        return invalid(format!("Topic already has {current} partition(s)."));
    }
    if i64::from(request.count) < current as i64 {
        return invalid(format!(
            "The topic {} currently has {current} partition(s); {} would not be an increase.",
            request.name, request.count
        ));
    }
    let additional = request.count as usize - current;
    if let Some(assignments) = &request.assignments
        && assignments.len() != additional
    {
        return Err(ApiError::new(
            ErrorCode::InvalidReplicaAssignment,
            format!(
                "Attempted to add {additional} additional partition(s), but only {} assignment(s) were specified.",
                assignments.len()
            ),
        ));
    }
    context.count_mutations(additional)?;
    if additional > room {
        return Err(ApiError::new(
            ErrorCode::PolicyViolation,
            "Unable to perform excessively large batch operation.",
        ));
    }
    let Some((_, first)) = topic.partitions().next() else {
        return Err(ApiError::bare(ErrorCode::UnknownServerError));
    };
    let replication_factor = first.replicas.len();
    let mut partitions = Vec::with_capacity(additional);
    match &request.assignments {
        Some(assignments) => {
            for (added, assignment) in assignments.iter().enumerate() {
                let replicas: Vec<BrokerId> = assignment
                    .broker_ids
                    .iter()
                    .copied()
                    .map(BrokerId)
                    .collect();
                validate_manual_assignment(context, &replicas, Some(replication_factor))?;
                partitions.push(new_partition(context, replicas).ok_or_else(|| {
                    ApiError::new(
                        ErrorCode::InvalidReplicaAssignment,
                        format!(
                            "All brokers specified in the manual partition assignment for partition {} \
                             are fenced or in controlled shutdown.",
                            current + added
                        ),
                    )
                })?);
            }
        }
        None => {
            let invalid =
                |message: String| ApiError::new(ErrorCode::InvalidReplicationFactor, message);
            for replicas in
                place_replicas(context, additional, replication_factor as i32).map_err(invalid)?
            {
                partitions.push(new_partition(context, replicas).ok_or_else(|| {
                    invalid(format!(
                        "Unable to replicate the partition {replication_factor} time(s): \
                         All brokers are currently fenced or in controlled shutdown."
                    ))
                })?);
            }
        }
    }
    let metadata_version = context.metadata_version();
    let is_elr_enabled = image.features.is_elr_enabled();
    Ok(partitions
        .iter()
        .enumerate()
        .map(|(added, partition)| {
            MetadataRecord::Partition(partition.to_record(
                topic.id,
                PartitionIndex((current + added) as i32),
                metadata_version,
                is_elr_enabled,
            ))
        })
        .collect())
}

#[cfg(test)]
mod tests;
