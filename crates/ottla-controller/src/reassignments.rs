//! `AlterPartitionReassignments` and `ListPartitionReassignments` (KIP-455).
//!
//! In Kafka: `ReplicationControlManager.alterPartitionReassignments`, `PartitionReassignmentReplicas`,
//! `PartitionReassignmentRevert`.

use std::collections::BTreeSet;

use ottla_metadata::{MetadataImage, PartitionRegistration, TopicImage};
use ottla_protocol::messages::alter_partition_reassignments_request::ReassignablePartition;
use ottla_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use ottla_protocol::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use ottla_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_types::{BrokerId, ErrorCode, PartitionIndex};

use crate::create_topics::validate_manual_assignment;
use crate::decision::{ApiError, ControllerContext, Decision, MAX_RECORDS_PER_USER_OPERATION};
use crate::partition_change::{Election, PartitionChange, is_unclean_election_enabled};

pub fn alter_partition_reassignments(
    context: &ControllerContext<'_>,
    request: &AlterPartitionReassignmentsRequest,
) -> Decision<AlterPartitionReassignmentsResponse> {
    if request.topics.is_empty() {
        return Decision::unchanged(AlterPartitionReassignmentsResponse {
            error_message: Some("".into()),
            ..Default::default()
        });
    }
    let may_resize = request.allow_replication_factor_change;
    let mut records = Vec::new();
    let mut responses = Vec::new();
    for topic in &request.topics {
        let mut partitions = Vec::new();
        for target in &topic.partitions {
            let outcome = if records.len() >= MAX_RECORDS_PER_USER_OPERATION {
                Err(ApiError::new(
                    ErrorCode::PolicyViolation,
                    "Unable to perform excessively large batch operation.",
                ))
            } else {
                reassign(context, &topic.name, target, may_resize)
            };
            let error = match outcome {
                Ok(record) => {
                    records.extend(record.map(MetadataRecord::PartitionChange));
                    ApiError::NONE
                }
                Err(error) => error,
            };
            partitions.push(ReassignablePartitionResponse {
                partition_index: target.partition_index,
                error_code: error.code.code(),
                error_message: error.wire_message(),
                ..Default::default()
            });
        }
        responses.push(ReassignableTopicResponse {
            name: topic.name.clone(),
            partitions,
            ..Default::default()
        });
    }
    let response = AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: may_resize,
        error_message: None,
        responses,
        ..Default::default()
    };
    Decision::new(records, response)
}

fn reassign(
    context: &ControllerContext<'_>,
    name: &str,
    target: &ReassignablePartition,
    may_resize: bool,
) -> Result<Option<PartitionChangeRecord>, ApiError> {
    let unknown = |message| ApiError::new(ErrorCode::UnknownTopicOrPartition, message);
    let Some(topic) = context.image.topics.by_name(name) else {
        return Err(unknown(format!("Unable to find a topic named {name}.")));
    };
    let index = PartitionIndex(target.partition_index);
    let Some(partition) = topic.partition(index) else {
        return Err(unknown(format!("Unable to find partition {name}:{index}.")));
    };
    match &target.replicas {
        None => cancel(context, topic, index, partition),
        Some(replicas) => {
            let replicas: Vec<BrokerId> = replicas.iter().copied().map(BrokerId).collect();
            validate_manual_assignment(context, &replicas, None)?;
            if !may_resize {
                validate_size(partition, replicas.len())?;
            }
            let is_active = |broker: BrokerId| context.image.cluster.is_broker_active(broker);
            let mut change = PartitionChange::new(context, topic, index, partition, &is_active);
            // Replaces the reassignment that is in progress. Where the new one adds or removes
            // nothing, Kafka keeps the old lists, and then waits forever for a replica that is both
            // added and removed.
            let is_added = |replica: &BrokerId| partition.adding_replicas().contains(replica);
            let without_unneeded = |all: &[BrokerId]| -> Vec<BrokerId> {
                let kept = all.iter().copied();
                kept.filter(|replica| !is_added(replica) || replicas.contains(replica))
                    .collect()
            };
            let isr = without_unneeded(&partition.isr);
            let current = if isr.is_empty() {
                partition.replicas.to_vec()
            } else {
                change.target_isr = isr;
                without_unneeded(&partition.replicas)
            };
            let removing = difference(&current, &replicas);
            let original: Vec<_> = current.into_iter().filter(|it| !is_added(it)).collect();
            change.target_adding = difference(&replicas, &original);
            // Removed replicas stay at the end of the list until the added ones are in sync.
            let mut all = replicas;
            all.extend(&removing);
            change.target_replicas = all;
            change.target_removing = removing;
            Ok(change.build())
        }
    }
}

/// Goes back to the replicas before the reassignment.
fn cancel(
    context: &ControllerContext<'_>,
    topic: &TopicImage,
    index: PartitionIndex,
    partition: &PartitionRegistration,
) -> Result<Option<PartitionChangeRecord>, ApiError> {
    if !is_in_progress(partition) {
        return Err(ApiError::bare(ErrorCode::NoReassignmentInProgress));
    }
    let without_added = |replicas: &[BrokerId]| -> Vec<BrokerId> {
        let kept = replicas.iter().copied();
        kept.filter(|replica| !partition.adding_replicas().contains(replica))
            .collect()
    };
    let replicas = without_added(&partition.replicas);
    let mut isr = without_added(&partition.isr);
    let may_be_unclean = is_unclean_election_enabled(context, topic);
    // An eligible replica (KIP-966) has all committed records, and is elected instead. Kafka 4.3
    // does not look at the ELR here.
    let has_eligible = !without_added(partition.elr()).is_empty();
    if isr.is_empty() && !has_eligible {
        let Some(&first) = replicas.first() else {
            return Err(ApiError::new(
                ErrorCode::InvalidReplicaAssignment,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            ));
        };
        if !may_be_unclean {
            return Err(ApiError::new(
                ErrorCode::InvalidReplicaAssignment,
                format!(
                    "Unable to revert partition assignment for {}:{index} because it would require an \
                     unclean leader election.",
                    topic.name
                ),
            ));
        }
        isr.push(first);
    }
    let is_active = |broker: BrokerId| context.image.cluster.is_broker_active(broker);
    let mut change = PartitionChange::new(context, topic, index, partition, &is_active);
    if may_be_unclean {
        change.election = Election::Unclean;
    }
    change.target_isr = isr;
    change.target_replicas = replicas;
    change.target_removing.clear();
    change.target_adding.clear();
    Ok(change.build())
}

/// KIP-860: a request can require that the replication factor does not change.
fn validate_size(partition: &PartitionRegistration, target: usize) -> Result<(), ApiError> {
    let current: BTreeSet<_> = partition
        .replicas
        .iter()
        .chain(partition.adding_replicas())
        .filter(|replica| !partition.removing_replicas().contains(replica))
        .collect();
    if current.len() == target {
        Ok(())
    } else {
        Err(ApiError::new(
            ErrorCode::InvalidReplicationFactor,
            format!(
                "The replication factor is changed from {} to {target}",
                current.len()
            ),
        ))
    }
}

/// Sorted, as in Kafka.
fn difference(all: &[BrokerId], without: &[BrokerId]) -> Vec<BrokerId> {
    let rest: BTreeSet<BrokerId> = all
        .iter()
        .copied()
        .filter(|replica| !without.contains(replica))
        .collect();
    rest.into_iter().collect()
}

fn is_in_progress(partition: &PartitionRegistration) -> bool {
    !partition.removing_replicas().is_empty() || !partition.adding_replicas().is_empty()
}

/// The reassignments in progress, of all topics or of the requested partitions.
pub fn list_partition_reassignments(
    image: &MetadataImage,
    request: &ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let ongoing = |topic: &TopicImage, indexes: &mut dyn Iterator<Item = PartitionIndex>| {
        let partitions: Vec<_> = indexes
            .filter_map(|index| Some((index, topic.partition(index)?)))
            .filter(|(_, partition)| is_in_progress(partition))
            .map(|(index, partition)| OngoingPartitionReassignment {
                partition_index: index.value(),
                replicas: numbers(&partition.replicas),
                adding_replicas: numbers(partition.adding_replicas()),
                removing_replicas: numbers(partition.removing_replicas()),
                ..Default::default()
            })
            .collect();
        (!partitions.is_empty()).then(|| OngoingTopicReassignment {
            name: topic.name.clone(),
            partitions,
            ..Default::default()
        })
    };
    let topics = match &request.topics {
        None => image
            .topics
            .iter()
            .filter_map(|topic| ongoing(topic, &mut topic.partitions().map(|(index, _)| index)))
            .collect(),
        Some(topics) => topics
            .iter()
            .filter_map(|asked| {
                let indexes = asked.partition_indexes.iter();
                ongoing(
                    image.topics.by_name(&asked.name)?,
                    &mut indexes.copied().map(PartitionIndex),
                )
            })
            .collect(),
    };
    ListPartitionReassignmentsResponse {
        error_message: None,
        topics,
        ..Default::default()
    }
}

fn numbers(ids: &[BrokerId]) -> Vec<i32> {
    ids.iter().map(|id| id.value()).collect()
}

#[cfg(test)]
mod tests;
