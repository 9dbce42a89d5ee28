//! Fetches the state of a follower whose next records the leader has only in remote storage.
//!
//! The leader is asked over the inter-broker listener, the store for the leader epochs and the
//! producers before the leader's local records. The records themselves are not copied.
//!
//! Kafka: `TierStateMachine`, `LocalLeaderEndPoint`, `RemoteLeaderEndPoint`.

use std::sync::Arc;
use std::time::Duration;

use ottla_log::RemoteState;
use ottla_net::PeerError;
use ottla_partition::Partition;
use ottla_partition::partition::host::FetchRemoteState;
use ottla_protocol::ApiRequest;
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};
use ottla_sync::Semaphore;
use ottla_tiered::{
    AuxiliaryEffect, AuxiliaryEvent, AuxiliaryFailure, AuxiliaryState, FetchedIndex, ListedOffset,
    OffsetAndEpoch, RemoteLogSegmentMetadata, Restart,
};
use ottla_tiered_storage::{IndexType, Permit};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset};

use crate::remote_tier::{RemoteTier, remote_partition};
use crate::stores::failure_of;
use crate::tier_metrics::TierCounter;

const REQUEST: Duration = Duration::from_secs(30);
/// How long the metadata of the partition may take to be read. The follower tries again.
const METADATA: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Failure(#[from] AuxiliaryFailure),
}

impl Trouble {
    fn error_code(&self) -> ErrorCode {
        match self {
            Trouble::Peer(_) => ErrorCode::NetworkException,
            Trouble::Failure(AuxiliaryFailure::Leader(code)) => *code,
            Trouble::Failure(_) => ErrorCode::KafkaStorageError,
        }
    }
}

/// The leader that a follower asks.
struct Leader<'a> {
    remote: &'a RemoteTier,
    partition: &'a Partition,
    id: BrokerId,
    epoch: LeaderEpoch,
}

impl FetchRemoteState for RemoteTier {
    fn fetch_state(
        self: Arc<Self>,
        partition: &Arc<Partition>,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
    ) {
        let partition = Arc::clone(partition);
        let topic = &partition.topic_partition.topic;
        self.metrics.add(topic, TierCounter::BuildStateRequests, 1);
        ottla_sync::task::spawn(async move {
            let leader = Leader {
                remote: &self,
                partition: &partition,
                id: leader,
                epoch: leader_epoch,
            };
            let fetched = ottla_sync::select! {
                fetched = leader.fetch_state() => fetched,
                () = self.context.stopping() => return,
            };
            let topic_partition = &partition.topic_partition;
            let (topic, metrics) = (&topic_partition.topic, &self.metrics);
            if fetched.is_err() {
                metrics.add(topic, TierCounter::BuildStateErrors, 1);
            }
            match &fetched {
                Ok(state) => tracing::info!(
                    partition = %topic_partition,
                    "the records before offset {} are in remote storage; following from there",
                    state.next_offset
                ),
                Err(trouble) => tracing::warn!(
                    partition = %topic_partition,
                    "the state before the leader's local log cannot be fetched yet: {trouble}"
                ),
            }
            let result = fetched.map_err(|trouble| trouble.error_code());
            partition.on_remote_state_fetched(&self.host, leader_epoch, result);
        });
    }
}

/// After a start, all followers of a broker can need state at once. Too many of them would take the
/// memory of as many producer snapshots, and the store's connections from reads.
async fn in_turn<T>(turns: &Semaphore, work: impl Future<Output = T>) -> T {
    let _turn = turns.acquire().await;
    work.await
}

impl Leader<'_> {
    async fn fetch_state(&self) -> Result<RemoteState, Trouble> {
        let metadata = &self.remote.metadata;
        let key = self.partition.topic_id_partition();
        let until_read = metadata.until_initialized(key);
        if ottla_sync::time::timeout(METADATA, until_read)
            .await
            .is_err()
        {
            return Err(AuxiliaryFailure::NotReady.into());
        }
        in_turn(&self.remote.state_builders, self.build_state()).await
    }

    async fn build_state(&self) -> Result<RemoteState, Trouble> {
        let metadata = &self.remote.metadata;
        let key = self.partition.topic_id_partition();
        let log_end_offset = self.partition.reader().log_end_offset();
        let is_last_tiered = self.remote.is_last_tiered_enabled();
        let (mut machine, mut effect) = AuxiliaryState::begin(log_end_offset, is_last_tiered);
        loop {
            let event = match effect {
                AuxiliaryEffect::ListOffsets(listed) => {
                    AuxiliaryEvent::OffsetListed(self.list(listed).await?)
                }
                AuxiliaryEffect::FindEpochEnd { leader_epoch } => {
                    AuxiliaryEvent::EpochEndFound(self.find_epoch_end(leader_epoch).await?)
                }
                AuxiliaryEffect::FetchIndex { segment, index } => {
                    let index = match index {
                        FetchedIndex::LeaderEpoch => IndexType::LeaderEpoch,
                        FetchedIndex::ProducerSnapshot => IndexType::ProducerSnapshot,
                    };
                    let metadata = RemoteLogSegmentMetadata {
                        partition: remote_partition(self.partition),
                        segment,
                    };
                    // It is dropped only when the broker stops, so it needs no permit that outlives it.
                    let stores = &self.remote.stores;
                    let fetched = stores.index(&Permit::default(), &metadata, index).await;
                    let fetched = fetched.map(|bytes| bytes.to_vec());
                    AuxiliaryEvent::IndexFetched(fetched.map_err(|error| {
                        let partition = &metadata.partition;
                        tracing::warn!(%partition, "{} cannot be read: {error}", index.name());
                        failure_of(&error)
                    }))
                }
                AuxiliaryEffect::Restart(restart) => return Ok(state_of(*restart)),
                AuxiliaryEffect::Failed(failure) => return Err(failure.into()),
            };
            effect = metadata.with_cache(key, |cache| machine.step(event, cache));
        }
    }

    async fn list(
        &self,
        listed: ListedOffset,
    ) -> Result<Result<OffsetAndEpoch, ErrorCode>, PeerError> {
        let topic_partition = &self.partition.topic_partition;
        let request = ListOffsetsRequest {
            replica_id: self.remote.context.broker_id().0,
            topics: vec![ListOffsetsTopic {
                name: topic_partition.topic.clone(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: topic_partition.partition.0,
                    current_leader_epoch: self.epoch.0,
                    timestamp: listed.timestamp(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let topics = self.ask(&request).await?.topics.into_iter();
        let found = topics.flat_map(|topic| topic.partitions).next();
        let found = found.ok_or(ErrorCode::UnknownServerError);
        Ok(found.and_then(|it| found_offset(it.error_code, it.offset, it.leader_epoch)))
    }

    async fn find_epoch_end(
        &self,
        leader_epoch: LeaderEpoch,
    ) -> Result<Result<OffsetAndEpoch, ErrorCode>, PeerError> {
        let topic_partition = &self.partition.topic_partition;
        let request = OffsetForLeaderEpochRequest {
            replica_id: self.remote.context.broker_id().0,
            topics: vec![OffsetForLeaderTopic {
                topic: topic_partition.topic.clone(),
                partitions: vec![OffsetForLeaderPartition {
                    partition: topic_partition.partition.0,
                    current_leader_epoch: self.epoch.0,
                    leader_epoch: leader_epoch.0,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let topics = self.ask(&request).await?.topics.into_iter();
        let found = topics.flat_map(|topic| topic.partitions).next();
        let found = found.ok_or(ErrorCode::UnknownServerError);
        Ok(found.and_then(|it| found_offset(it.error_code, it.end_offset, it.leader_epoch)))
    }

    async fn ask<R: ApiRequest>(&self, request: &R) -> Result<R::Response, PeerError> {
        let (peers, context) = (&self.remote.peers, &self.remote.context);
        let connection = peers.connection(context, self.id, REQUEST).await?;
        connection.send(request).await
    }
}

fn found_offset(
    error_code: i16,
    offset: i64,
    leader_epoch: i32,
) -> Result<OffsetAndEpoch, ErrorCode> {
    match ErrorCode::from_code(error_code) {
        ErrorCode::None => Ok(OffsetAndEpoch {
            offset: Offset(offset),
            leader_epoch: LeaderEpoch(leader_epoch),
        }),
        code => Err(code),
    }
}

fn state_of(restart: Restart) -> RemoteState {
    let mut leader_epochs = ottla_log::LeaderEpochs::default();
    for entry in restart.leader_epochs.entries() {
        leader_epochs.assign(entry.epoch, entry.start_offset);
    }
    RemoteState {
        next_offset: restart.next_offset,
        log_start_offset: restart.log_start_offset,
        leader_epochs,
        producer_snapshot: restart.producer_snapshot,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::remote_tier::STATE_BUILDERS;

    async fn fetch(running: &AtomicUsize, most: &AtomicUsize) {
        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
        tokio::task::yield_now().await;
        running.fetch_sub(1, Ordering::SeqCst);
    }

    #[tokio::test]
    async fn a_bounded_number_of_followers_fetches_state_at_once() {
        let turns = Semaphore::new(STATE_BUILDERS);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let fetches = 0..5 * STATE_BUILDERS;
        let fetches = fetches.map(|_| in_turn(&turns, fetch(&running, &most)));
        futures_util::future::join_all(fetches).await;
        assert_eq!(most.into_inner(), STATE_BUILDERS);
    }
}
