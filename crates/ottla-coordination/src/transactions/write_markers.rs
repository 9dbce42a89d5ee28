//! Writes transaction markers into partitions that this broker leads.
//!
//! Kafka: `KafkaApis.handleWriteTxnMarkersRequest`.

use std::sync::Arc;
use std::time::Duration;

use ottla_coordinator::{TransactionEnd, TransactionalProducer};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_sync::oneshot;
use ottla_sync::task::JoinSet;
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId, TopicPartition};

use crate::groups::{Groups, OFFSETS_TOPIC};
use crate::surroundings::Surroundings;
use ottla_partition::partition::{Ack, OfTransaction, PendingAppend};

/// A transaction whose outcome is decided.
#[derive(Clone, Copy, Debug)]
pub struct EndedTransaction {
    pub producer: TransactionalProducer,
    pub end: TransactionEnd,
}

/// Writes a marker into each partition and returns the results once they are replicated.
pub async fn write_markers(
    groups: &Arc<Groups>,
    ended: EndedTransaction,
    partitions: Vec<TopicPartition>,
) -> Vec<(TopicPartition, ErrorCode)> {
    let mut written = Vec::with_capacity(partitions.len());
    let mut waiting = Vec::new();
    let mut of_groups = JoinSet::new();
    for partition in partitions {
        if *partition.topic == *OFFSETS_TOPIC {
            let groups = Arc::clone(groups);
            of_groups.spawn(async move {
                let error = end_in_group(&groups, ended, &partition).await;
                (partition, error)
            });
            continue;
        }
        match append(groups, ended, &partition) {
            Ok(appended) => waiting.push((partition, appended)),
            Err(error) => written.push((partition, error)),
        }
    }
    for (partition, appended) in waiting {
        let outcome = appended.await.unwrap_or(AckOutcome::NotLeader);
        written.push((partition, outcome.error_code()));
    }
    while let Some(ended) = of_groups.join_next().await {
        // A panic was reported where it happened; a missing result makes the coordinator retry.
        written.extend(ended.ok());
    }
    written
}

fn append(
    groups: &Arc<Groups>,
    ended: EndedTransaction,
    partition: &TopicPartition,
) -> Result<oneshot::Receiver<AckOutcome>, ErrorCode> {
    let EndedTransaction { producer, end } = ended;
    let found = groups
        .surroundings
        .partitions
        .get(&partition.topic, partition.partition.0);
    let found = found.ok_or(ErrorCode::UnknownTopicOrPartition)?;
    if producer.id == ProducerId::NONE || producer.epoch == ProducerEpoch::NONE {
        // Not from a coordinator; Kafka cannot build such a batch either.
        return Err(ErrorCode::UnknownServerError);
    }
    let kind = if end.is_commit {
        ControlRecordType::Commit
    } else {
        ControlRecordType::Abort
    };
    let coordinator_epoch = end.coordinator_epoch;
    let marker = EndTxnMarker { coordinator_epoch };
    let now = groups.surroundings.context.timestamp();
    let (released, appended) = oneshot::channel();
    let timeout_ms = request_timeout(&groups.surroundings).as_millis() as u64;
    let append = PendingAppend {
        batch: end_txn_batch(producer.id, producer.epoch, kind, marker, now),
        required_acks: RequiredAcks::All,
        expected_leader_epoch: None,
        of_transaction: OfTransaction::Marker(end.transaction_version),
        deadline_ms: groups
            .surroundings
            .context
            .now_ms()
            .saturating_add(timeout_ms),
        ack: Ack::Internal(released),
    };
    found.append(&groups.surroundings.host, append);
    Ok(appended)
}

/// The group coordinator writes the marker, because it holds the offsets committed in the
/// transaction.
async fn end_in_group(
    groups: &Arc<Groups>,
    ended: EndedTransaction,
    partition: &TopicPartition,
) -> ErrorCode {
    let index = partition.partition.0;
    if groups
        .surroundings
        .partitions
        .get(OFFSETS_TOPIC, index)
        .is_none()
    {
        return ErrorCode::UnknownTopicOrPartition;
    }
    let EndedTransaction { producer, end } = ended;
    let written = match groups.shard(index) {
        Err(error) => Err(error),
        Ok(shard) => {
            let ending = shard.request(groups, |groups, to, _| {
                groups.handle_transaction_end(to, producer, end)
            });
            ending.await
        }
    };
    match written.unwrap_or_else(|error| error) {
        // The errors that transaction coordinators retry.
        ErrorCode::CoordinatorNotAvailable
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::NotCoordinator => ErrorCode::NotLeaderOrFollower,
        error => error,
    }
}

/// Timeout for requests to other brokers and for the log.
pub fn request_timeout(surroundings: &Surroundings) -> Duration {
    let timeout_ms = surroundings.context.config().request_timeout_ms;
    Duration::from_millis(timeout_ms.max(1) as u64)
}
