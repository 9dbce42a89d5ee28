//! `AlterPartition`: a leader changes the ISR (KIP-497).
//!
//! In Kafka: `ReplicationControlManager.alterPartition`.

use ottla_metadata::{LeaderRecoveryState, PartitionRegistration, TopicImage};
use ottla_protocol::ErrorResponse;
use ottla_protocol::messages::alter_partition_request::{
    BrokerState, PartitionData as RequestedPartition,
};
use ottla_protocol::messages::alter_partition_response::{PartitionData, TopicData};
use ottla_protocol::messages::{AlterPartitionRequest, AlterPartitionResponse};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionEpoch, PartitionIndex};

use crate::brokers::check_broker_epoch;
use crate::decision::{ControllerContext, Decision};
use crate::partition_change::{Election, PartitionChange, is_unclean_election_enabled};
use crate::planted::{self, Bug};

pub fn alter_partition(
    context: &ControllerContext<'_>,
    request: &AlterPartitionRequest,
) -> Decision<AlterPartitionResponse> {
    let leader = BrokerId(request.broker_id);
    if let Err(error) = check_broker_epoch(context, leader, BrokerEpoch(request.broker_epoch)) {
        return Decision::unchanged(AlterPartitionResponse::of_error(error.code));
    }
    let mut records = Vec::new();
    let mut topics = Vec::new();
    for requested in &request.topics {
        let topic = context.image.topics.by_id(requested.topic_id);
        let partitions = requested
            .partitions
            .iter()
            .map(|partition| {
                let failed = |code: ErrorCode| PartitionData {
                    partition_index: partition.partition_index,
                    error_code: code.code(),
                    ..Default::default()
                };
                let Some(topic) = topic else {
                    return failed(ErrorCode::UnknownTopicId);
                };
                match altered(context, topic, leader, partition, &mut records) {
                    Ok(data) => data,
                    Err(code) => failed(code),
                }
            })
            .collect();
        topics.push(TopicData {
            topic_id: requested.topic_id,
            partitions,
            ..Default::default()
        });
    }
    let response = AlterPartitionResponse {
        topics,
        ..Default::default()
    };
    Decision::new(records, response)
}

/// Older versions have no broker epochs in the ISR. An epoch of -1 is not checked.
fn requested_isr(partition: &RequestedPartition) -> Vec<BrokerState> {
    if partition.new_isr_with_epochs.is_empty() {
        let without_epoch = |&broker_id: &i32| BrokerState {
            broker_id,
            broker_epoch: BrokerEpoch::UNKNOWN.value(),
            ..Default::default()
        };
        partition.new_isr.iter().map(without_epoch).collect()
    } else {
        partition.new_isr_with_epochs.clone()
    }
}

fn altered(
    context: &ControllerContext<'_>,
    topic: &TopicImage,
    leader: BrokerId,
    request: &RequestedPartition,
    records: &mut Vec<MetadataRecord>,
) -> Result<PartitionData, ErrorCode> {
    let index = PartitionIndex(request.partition_index);
    let partition = topic
        .partition(index)
        .ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let isr = requested_isr(request);
    let recovery_state = validate(context, partition, leader, request, &isr)?;

    let is_active = |broker: BrokerId| context.image.cluster.is_broker_active(broker);
    let mut change = PartitionChange::new(context, topic, index, partition, &is_active);
    if is_unclean_election_enabled(context, topic) {
        change.election = Election::Unclean;
    }
    change.target_isr = isr.iter().map(|state| BrokerId(state.broker_id)).collect();
    change.target_leader_recovery_state = recovery_state;
    let mut partition = partition.clone();
    if let Some(record) = change.build() {
        partition = partition
            .merge(&record)
            .map_err(|_| ErrorCode::UnknownServerError)?;
        let elects_another =
            record.leader != ottla_metadata::NO_LEADER_CHANGE && record.leader != leader.value();
        records.push(MetadataRecord::PartitionChange(record));
        if elects_another {
            // The change completed a reassignment, and the leader is not among the target replicas.
            return Err(ErrorCode::NewLeaderElected);
        }
    }
    Ok(PartitionData {
        partition_index: index.value(),
        leader_id: partition.leader.value(),
        leader_epoch: partition.leader_epoch.value(),
        isr: partition.isr.iter().map(|id| id.value()).collect(),
        leader_recovery_state: partition.leader_recovery_state.code(),
        partition_epoch: partition.partition_epoch.value(),
        ..Default::default()
    })
}

fn validate(
    context: &ControllerContext<'_>,
    partition: &PartitionRegistration,
    leader: BrokerId,
    request: &RequestedPartition,
    isr: &[BrokerState],
) -> Result<LeaderRecoveryState, ErrorCode> {
    let leader_epoch = LeaderEpoch(request.leader_epoch);
    let partition_epoch = PartitionEpoch(request.partition_epoch);
    if leader_epoch > partition.leader_epoch || partition_epoch > partition.partition_epoch {
        // The leader has a newer epoch than this controller, so this controller is no longer the
        // active one.
        return Err(ErrorCode::NotController);
    }
    if leader_epoch < partition.leader_epoch && !planted::has(Bug::TakeIsrOfAnyEpoch) {
        return Err(ErrorCode::FencedLeaderEpoch);
    }
    if leader != partition.leader && !planted::has(Bug::TakeIsrOfAnyEpoch) {
        return Err(ErrorCode::InvalidRequest);
    }
    if partition_epoch < partition.partition_epoch && !planted::has(Bug::TakeIsrOfAnyEpoch) {
        return Err(ErrorCode::InvalidUpdateVersion);
    }
    let ids: Vec<BrokerId> = isr.iter().map(|state| BrokerId(state.broker_id)).collect();
    let is_valid_isr = !ids.is_empty()
        && ids.iter().all(|id| partition.is_replica(*id))
        && ids
            .iter()
            .enumerate()
            .all(|(at, id)| !ids[..at].contains(id))
        && ids.contains(&leader);
    if !is_valid_isr {
        return Err(ErrorCode::InvalidRequest);
    }
    let recovery_state = LeaderRecoveryState::from_code(request.leader_recovery_state)
        .ok_or(ErrorCode::InvalidRequest)?;
    if recovery_state == LeaderRecoveryState::Recovering
        && (ids.len() > 1 || partition.leader_recovery_state == LeaderRecoveryState::Recovered)
    {
        return Err(ErrorCode::InvalidRequest);
    }
    let is_eligible = |state: &BrokerState| {
        let id = BrokerId(state.broker_id);
        context.image.cluster.is_broker_active(id)
            && (state.broker_epoch == BrokerEpoch::UNKNOWN.value()
                || state.broker_epoch == context.image.cluster.broker_epoch(id).value())
    };
    if !isr.iter().all(is_eligible) {
        return Err(ErrorCode::IneligibleReplica);
    }
    Ok(recovery_state)
}

#[cfg(test)]
mod tests;
