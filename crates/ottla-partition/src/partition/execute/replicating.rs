//! Replication: a leader serves its followers' fetches; a follower passes its fetch position to a
//! fetcher, appends the records and truncates its log.
//!
//! A truncation may write checkpoints and reads index and log files, so it runs on a thread of the
//! log's directory: it is deferred as an event that only such a thread may take, before any other
//! event.
//!
//! Kafka: `Partition.fetchRecords`, `ReplicaFetcherThread.processPartitionData`, `ReplicaFetcherThread.truncate`.

use std::sync::Arc;

use ottla_log::{LogError, RemoteState, StorageError};
use ottla_replica::{AlterPartition, EpochEnd, Event, FetchPosition, Fetched, FollowerFetch};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch};

use crate::partition::append::Ack;
use crate::partition::event::{PartitionEvent, Truncation};
use crate::partition::follower_turns::{FollowerVerdict, Turn};
use crate::partition::host::PartitionHost;
use crate::partition::leader_answer::{Answered, LeaderAnswer};
use crate::partition::{LeaderFetcher, Partition, PartitionState};
use ottla_metrics::Metric;

impl PartitionState {
    /// Decides whether a follower's fetch is served, and records the follower's position.
    pub(super) fn on_follower_fetch(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        mut fetch: FollowerFetch,
        turn: Turn,
    ) {
        fetch.leader_log_start_offset = self.log.log_start_offset();
        let last_fetched = fetch.last_fetched_epoch;
        fetch.end_of_last_fetched_epoch = last_fetched.and_then(|epoch| self.end_of(epoch));
        let verdict = match self.replica.check_follower_fetch(&fetch) {
            Ok(()) => {
                self.step(partition, host, Event::FollowerFetched(fetch));
                let is_in_sync = self.replica.isr().contains(&fetch.replica_id);
                FollowerVerdict::Served { is_in_sync }
            }
            Err(refusal) => FollowerVerdict::Refused(refusal),
        };
        turn.decide(&partition.follower_turns, &partition.followers, verdict);
    }

    /// Handles the leader's response to a fetch.
    pub(super) fn on_leader_answered(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        answer: LeaderAnswer,
    ) {
        let result = answer.result.map(|answered| match answered {
            Answered::Records {
                batches,
                high_watermark,
                log_start_offset,
            } => Fetched::Records {
                batches,
                high_watermark,
                log_start_offset,
                local_log_start_offset: self.log.log_start_offset(),
            },
            Answered::Diverging(leader) => Fetched::Diverging {
                leader,
                local: self.end_of(leader.leader_epoch),
            },
        });
        let event = Event::FetchAnswered {
            order: answer.order,
            result,
            now_ms: host.context.now_ms(),
        };
        self.step(partition, host, event);
    }

    /// Keeps the state from remote storage until the replica starts with it.
    pub(super) fn on_remote_state_fetched(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        leader_epoch: LeaderEpoch,
        result: Result<Box<RemoteState>, ErrorCode>,
    ) {
        let result = result.map(|state| {
            self.replicating.remote_state = Some(state);
        });
        let event = Event::RemoteStateFetched {
            leader_epoch,
            result,
            now_ms: host.context.now_ms(),
        };
        self.step(partition, host, event);
        let starts = matches!(
            self.deferred.as_deref(),
            Some(PartitionEvent::Truncate(Truncation::StartAfterRemoteLog))
        );
        if !starts {
            // It came too late, and would only take memory.
            self.replicating.remote_state = None;
        }
    }

    /// The end offset of an epoch in this log.
    fn end_of(&self, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let (epochs, log_end_offset) = (self.log.leader_epochs(), self.log.log_end_offset());
        let (leader_epoch, end_offset) = epochs.end_offset_for(epoch, log_end_offset)?;
        Some(EpochEnd {
            leader_epoch,
            end_offset,
        })
    }

    pub(super) fn order_fetch(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        position: FetchPosition,
    ) {
        if let Some(fetcher) = self.fetcher_of(partition, host, position.leader) {
            fetcher.order(partition, position);
        }
    }

    pub(super) fn stop_fetching(&mut self, partition: &Partition) {
        if let Some(fetcher) = self.replicating.fetcher.take() {
            fetcher.stop(partition);
        }
    }

    pub(super) fn list_leader_offsets(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        leader: BrokerId,
        leader_epoch: LeaderEpoch,
    ) {
        if let Some(fetcher) = self.fetcher_of(partition, host, leader) {
            fetcher.list_leader_offsets(partition, leader_epoch);
        }
    }

    /// The fetcher for `leader`, which fetches this partition from here on. `None` if the broker
    /// has stopped.
    fn fetcher_of(
        &mut self,
        partition: &Partition,
        host: &PartitionHost,
        leader: BrokerId,
    ) -> Option<&dyn LeaderFetcher> {
        let topic_partition = &partition.topic_partition;
        let known = self.replicating.fetcher.take();
        let fetcher = match known {
            Some(known) if known.is_for(leader, topic_partition) => known,
            known => {
                if let Some(known) = known {
                    known.stop(partition);
                }
                host.replication()?.fetcher(leader, topic_partition)
            }
        };
        Some(&**self.replicating.fetcher.insert(fetcher))
    }

    pub(super) fn propose(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        proposal: AlterPartition,
    ) {
        self.replicating.proposes_more = proposal.new_isr.len() > self.replica.isr().len();
        let is_again = self.replicating.refused.take().as_deref() == Some(&proposal);
        if let Some(replication) = host.replication() {
            replication.propose(partition, proposal, is_again);
        }
    }

    /// Records the controller's response to a proposal. If the same proposal follows a refusal, it
    /// is delayed a little.
    pub(super) fn note_answer(&mut self, host: &PartitionHost, event: &Event<Ack>) {
        let Event::PartitionAltered { proposal, result } = event else {
            return;
        };
        let metric = match result {
            Ok(_) if self.replicating.proposes_more => Metric::IsrExpands,
            Ok(_) => Metric::IsrShrinks,
            Err(_) => {
                self.replicating.refused = Some(Box::new(proposal.clone()));
                Metric::FailedIsrUpdates
            }
        };
        host.context.metrics.add(metric, 1);
    }

    /// Makes the truncation the next event.
    pub(super) fn put_truncation_off(&mut self, truncation: Truncation) {
        assert!(
            self.deferred.is_none(),
            "a postponed event is taken before any other"
        );
        self.deferred = Some(Box::new(PartitionEvent::Truncate(truncation)));
    }

    /// Truncates the log and reports the result to the replica. Waits for the disk.
    pub(super) fn truncate(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        truncation: Truncation,
    ) {
        if self.replica.is_lost() {
            return;
        }
        let before = self.log.log_end_offset();
        let committed = self.replica.high_watermark();
        let was_in_doubt = self.replica.is_in_doubt();
        match self.cut(host, truncation) {
            Ok(()) => {
                let after = self.log.log_end_offset();
                partition.readers.note_truncated(after);
                let partition_name = &partition.topic_partition;
                if was_in_doubt {
                    tracing::warn!(
                        partition = %partition_name,
                        "the crash may have taken records from {after} on, though the log went on to {before}: \
                         they are fetched again from the leader"
                    );
                } else if after < committed {
                    tracing::warn!(
                        partition = %partition_name,
                        "the log was truncated from {before} to {after}, where it diverged from the leader's, though all below \
                         {committed} was committed: the leader was elected without that, and it is lost"
                    );
                } else {
                    tracing::info!(
                        partition = %partition_name,
                        "the log was truncated from {before} to {after}, where it diverged from the leader's"
                    );
                }
                let event = Event::LogTruncated {
                    log_start_offset: self.log.log_start_offset(),
                    log_end_offset: after,
                    latest_epoch: self.log.latest_epoch(),
                };
                self.step(partition, host, event);
            }
            // The leader's next response leads to the same truncation, until it succeeds.
            Err(error) if error.storage().is_some_and(StorageError::is_temporary) => {
                tracing::warn!(
                    partition = %partition.topic_partition,
                    "the log cannot yet be truncated to where it diverged from the leader's: {error}"
                );
                self.step(partition, host, Event::TruncationRefused);
            }
            Err(error) => self.on_truncation_failed(partition, host, &error),
        }
    }

    /// Lowers the checkpoints, then truncates the log.
    fn cut(&mut self, host: &PartitionHost, truncation: Truncation) -> Result<(), LogError> {
        let offset = match (truncation, &self.replicating.remote_state) {
            (Truncation::To(to) | Truncation::FullyAndStartAt(to), _) => to,
            (Truncation::StartAfterRemoteLog, Some(state)) => state.next_offset,
            (Truncation::StartAfterRemoteLog, None) => {
                unreachable!("the replica starts after remote records once their state is fetched")
            }
        };
        if truncation != Truncation::To(offset) || offset < self.log.log_end_offset() {
            self.log.announce_truncation(offset);
            if let Some(log_dirs) = host.log_dirs() {
                log_dirs.lower_checkpoints(&self.log.reader(), offset)?;
            }
        }
        #[cfg(test)]
        if let Some(error) = self.replicating.truncation_fault.take() {
            return Err(ottla_log::StorageError::new("cut", &self.log.dir(), error).into());
        }
        let now = host.context.timestamp();
        match truncation {
            Truncation::To(to) => self.log.truncate_to(to, now).map(|_| ()),
            Truncation::FullyAndStartAt(start) => {
                self.log.truncate_fully_and_start_at(start, None, now)
            }
            Truncation::StartAfterRemoteLog => match self.replicating.remote_state.take() {
                Some(state) => self.log.start_after_remote(&state, now),
                None => Ok(()),
            },
        }
    }

    fn on_truncation_failed(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        error: &LogError,
    ) {
        if let Some(log_dirs) = host.log_dirs() {
            log_dirs.on_partition_log_error(&partition.reader(), error);
        }
        self.step(partition, host, Event::LogLost);
        partition.wake_all();
    }
}

/// Has tiered storage fetch the state of a follower whose next records are only there.
pub(super) fn fetch_remote_state(
    partition: &Arc<Partition>,
    host: &Arc<PartitionHost>,
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
) {
    match host.remote_states() {
        Some(remote) => remote.fetch_state(partition, leader, leader_epoch),
        None => {
            let refused = Err(ErrorCode::UnknownServerError);
            partition.on_remote_state_fetched(host, leader_epoch, refused);
        }
    }
}
