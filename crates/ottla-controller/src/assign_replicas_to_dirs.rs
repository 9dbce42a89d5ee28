//! `AssignReplicasToDirs`: a broker reports the log directories of its replicas (KIP-858).
//!
//! In Kafka: `ReplicationControlManager.handleAssignReplicasToDirs`.

use std::collections::BTreeSet;

use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::assign_replicas_to_dirs_response::{
    DirectoryData, PartitionData, TopicData,
};
use ottla_protocol::messages::{AssignReplicasToDirsRequest, AssignReplicasToDirsResponse};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_types::{BrokerEpoch, BrokerId, DirectoryId, ErrorCode, PartitionIndex, TopicId};

use crate::brokers::check_broker_epoch;
use crate::decision::{ControllerContext, Decision};
use crate::partition_change::{PartitionChange, directory_failure_updates};

pub fn assign_replicas_to_dirs(
    context: &ControllerContext<'_>,
    request: &AssignReplicasToDirsRequest,
) -> Decision<AssignReplicasToDirsResponse> {
    let refused =
        |code: ErrorCode| Decision::unchanged(AssignReplicasToDirsResponse::of_error(code));
    if !context
        .metadata_version()
        .is_directory_assignment_supported()
    {
        return refused(ErrorCode::UnsupportedVersion);
    }
    let broker_id = BrokerId(request.broker_id);
    let broker = match check_broker_epoch(context, broker_id, BrokerEpoch(request.broker_epoch)) {
        Ok(broker) => broker,
        Err(error) => return refused(error.code),
    };
    let mut records = Vec::new();
    // The directory has failed in the meantime. The broker must not lead partitions in it.
    let mut offline = BTreeSet::new();
    let mut response = AssignReplicasToDirsResponse::default();
    for directory in &request.directories {
        let is_offline = !broker.has_online_directory(directory.id);
        let mut topics = Vec::new();
        for topic in &directory.topics {
            let mut partitions = Vec::new();
            for partition in &topic.partitions {
                let index = PartitionIndex(partition.partition_index);
                let assigned = assign(context, broker_id, topic.topic_id, index, directory.id);
                let error_code = match assigned {
                    Ok(change) => {
                        records.extend(change.map(MetadataRecord::PartitionChange));
                        if is_offline {
                            offline.insert((topic.topic_id, index));
                        }
                        ErrorCode::None
                    }
                    Err(code) => code,
                };
                partitions.push(PartitionData {
                    partition_index: partition.partition_index,
                    error_code: error_code.code(),
                    ..Default::default()
                });
            }
            topics.push(TopicData {
                topic_id: topic.topic_id,
                partitions,
                ..Default::default()
            });
        }
        response.directories.push(DirectoryData {
            id: directory.id,
            topics,
            ..Default::default()
        });
    }
    if !offline.is_empty() {
        records.extend(directory_failure_updates(
            context,
            broker_id,
            |topic, index, _| offline.contains(&(topic.id, index)),
        ));
    }
    Decision::new(records, response)
}

/// The record that assigns the replica to the directory; `None` if the replica already has this
/// directory.
fn assign(
    context: &ControllerContext<'_>,
    broker: BrokerId,
    topic_id: TopicId,
    index: PartitionIndex,
    directory: DirectoryId,
) -> Result<Option<PartitionChangeRecord>, ErrorCode> {
    let topic = context
        .image
        .topics
        .by_id(topic_id)
        .ok_or(ErrorCode::UnknownTopicId)?;
    let partition = topic
        .partition(index)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if !partition.is_replica(broker) {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    let is_active = |replica| context.image.cluster.is_broker_active(replica);
    let mut change = PartitionChange::new(context, topic, index, partition, &is_active);
    change.target_directory = Some((broker, directory));
    Ok(change.build())
}

#[cfg(test)]
mod tests;
