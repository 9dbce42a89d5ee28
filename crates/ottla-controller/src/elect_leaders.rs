//! `ElectLeaders`, and the unclean elections that the configuration allows.
//!
//! In Kafka: `ReplicationControlManager.electLeaders`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_metadata::TopicImage;
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use ottla_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_types::{BrokerId, ErrorCode, PartitionIndex, Uuid};

use crate::decision::{ApiError, ControllerContext, Decision};
use crate::partition_change::{Election, PartitionChange, is_unclean_election_enabled};

pub fn elect_leaders(
    context: &ControllerContext<'_>,
    request: &ElectLeadersRequest,
) -> Decision<ElectLeadersResponse> {
    // Checked before anything else, as in Kafka.
    if request.topic_partitions.as_deref() == Some(&[]) {
        return Decision::unchanged(ElectLeadersResponse::default());
    }
    let election = match request.election_type {
        0 => Election::Preferred,
        1 => Election::Unclean,
        _ => {
            return Decision::unchanged(ElectLeadersResponse::of_error(ErrorCode::InvalidRequest));
        }
    };
    let mut records = Vec::new();
    let mut results = Vec::new();
    let mut result = |topic: &ByteString, partitions: Vec<(i32, ApiError)>| {
        results.push(ReplicaElectionResult {
            topic: topic.clone(),
            partition_result: partitions
                .into_iter()
                .map(|(partition_id, error)| PartitionResult {
                    partition_id,
                    error_code: error.code.code(),
                    error_message: error.wire_message(),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        });
    };
    match &request.topic_partitions {
        // All partitions. The response omits partitions that need no election.
        None => {
            for topic in context.image.topics.iter() {
                let mut partitions = Vec::new();
                for (index, _) in topic.partitions() {
                    let error = elect(context, topic, index, election, &mut records);
                    if error.code != ErrorCode::ElectionNotNeeded {
                        partitions.push((index.value(), error));
                    }
                }
                result(&topic.name, partitions);
            }
        }
        Some(topics) => {
            // A partition that is given twice is elected once.
            let mut elected: BTreeMap<(ByteString, i32), ApiError> = BTreeMap::new();
            for topic in topics {
                let partitions = topic.partitions.iter().map(|&index| {
                    let error = elected
                        .entry((topic.topic.clone(), index))
                        .or_insert_with(|| match context.image.topics.by_name(&topic.topic) {
                            None => ApiError::new(
                                ErrorCode::UnknownTopicOrPartition,
                                format!("No such topic as {}", topic.topic),
                            ),
                            Some(image) => elect(
                                context,
                                image,
                                PartitionIndex(index),
                                election,
                                &mut records,
                            ),
                        });
                    (index, error.clone())
                });
                result(&topic.topic, partitions.collect());
            }
        }
    }
    let response = ElectLeadersResponse {
        replica_election_results: results,
        ..Default::default()
    };
    Decision::new(records, response)
}

fn elect(
    context: &ControllerContext<'_>,
    topic: &TopicImage,
    index: PartitionIndex,
    election: Election,
    records: &mut Vec<MetadataRecord>,
) -> ApiError {
    let Some(partition) = topic.partition(index) else {
        return ApiError::new(
            ErrorCode::UnknownTopicOrPartition,
            format!("No such partition as {}-{index}", topic.name),
        );
    };
    let is_not_needed = match election {
        Election::Unclean => partition.has_leader(),
        _ => partition.leader == partition.preferred_replica(),
    };
    if is_not_needed {
        return ApiError::new(
            ErrorCode::ElectionNotNeeded,
            "Leader election not needed for topic partition.",
        );
    }
    let is_active = |broker: BrokerId| context.image.cluster.is_broker_active(broker);
    let mut change = PartitionChange::new(context, topic, index, partition, &is_active);
    change.election = election;
    match change.build() {
        Some(record) => {
            records.push(MetadataRecord::PartitionChange(record));
            ApiError::NONE
        }
        None if election == Election::Preferred => ApiError::new(
            ErrorCode::PreferredLeaderNotAvailable,
            "The preferred leader was not available.",
        ),
        None => ApiError::new(
            ErrorCode::EligibleLeadersNotAvailable,
            "Eligible topic partition leaders are not available.",
        ),
    }
}

/// Elects the preferred replica of one partition. No records if that changes nothing.
pub(crate) fn elect_preferred(
    context: &ControllerContext<'_>,
    topic: Uuid,
    index: PartitionIndex,
) -> Option<MetadataRecord> {
    let topic = context.image.topics.by_id(topic)?;
    let mut records = Vec::new();
    elect(context, topic, index, Election::Preferred, &mut records);
    records.pop()
}

/// Unclean elections for partitions without a leader whose topic allows them. Called periodically
/// and when such a setting changes.
pub fn elect_unclean_leaders(context: &ControllerContext<'_>) -> Vec<MetadataRecord> {
    let mut records = Vec::new();
    for topic in context.image.topics.iter() {
        let mut leaderless = topic
            .partitions()
            .filter(|(_, partition)| !partition.has_leader())
            .peekable();
        if leaderless.peek().is_none() || !is_unclean_election_enabled(context, topic) {
            continue;
        }
        for (index, _) in leaderless {
            elect(context, topic, index, Election::Unclean, &mut records);
        }
    }
    records
}

#[cfg(test)]
mod tests;
