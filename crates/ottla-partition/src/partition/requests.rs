//! The interface of a partition: each call puts an event into its inbox.

use std::sync::Arc;

use ottla_config::TopicConfig;
use ottla_coordinator::TransactionalProducer;
use ottla_log::{CloseJob, Log, RemoteState};
use ottla_replica::{Event, Replica};
use ottla_sync::oneshot;
use ottla_types::{ErrorCode, LeaderEpoch};

use super::Partition;
use super::append::{Ack, PendingAppend};
use super::event::{BeginVerification, PartitionEvent, Verified};
use super::host::PartitionHost;
use super::inbox::InboxSlot;
use super::leader_answer::LeaderAnswer;
use super::log_location::LogLocation;
use super::settings::PartitionSettings;

/// A reserved slot in the inbox of a partition; dropping it abandons the slot.
pub struct ReservedSlot {
    host: Arc<PartitionHost>,
    partition: Arc<Partition>,
    slot: Option<InboxSlot>,
}

impl Partition {
    /// Appends a batch. Its acknowledgement is released later.
    pub fn append(self: &Arc<Self>, host: &Arc<PartitionHost>, append: PendingAppend) {
        self.put(host, PartitionEvent::Append(append));
    }

    /// Steps the replica with an event.
    pub fn notify(self: &Arc<Self>, host: &Arc<PartitionHost>, event: Event<Ack>) {
        self.put(host, PartitionEvent::Replica(event));
    }

    /// Reports that more of the log was flushed.
    pub fn on_flushed(self: &Arc<Self>, host: &Arc<PartitionHost>) {
        self.put(host, PartitionEvent::Flushed);
    }

    /// Begins the verification that this partition is part of a transaction, for a coordinator that
    /// is about to append to it. `None` if the transaction has begun here and needs no
    /// verification.
    pub async fn begin_verification(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        producer: TransactionalProducer,
        raises_epoch: bool,
    ) -> Result<Option<u64>, ErrorCode> {
        let (done, begun) = oneshot::channel();
        let event = BeginVerification {
            producer,
            raises_epoch,
            done,
        };
        self.put(host, PartitionEvent::BeginVerification(event));
        begun.await.unwrap_or(Err(ErrorCode::NotLeaderOrFollower))
    }

    /// Passes on the transaction coordinator's response.
    pub fn on_transaction_verified(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        producer: TransactionalProducer,
        guard: u64,
        result: Result<(), ErrorCode>,
    ) {
        let event = Verified {
            producer,
            guard,
            result,
        };
        self.put(host, PartitionEvent::TransactionVerified(event));
    }

    /// Runs `work` on the log between two steps and returns its result. It must not block: no
    /// flush, no unlink, no disk read.
    pub async fn with_log<R: Send + 'static>(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        work: impl FnOnce(&mut Log) -> R + Send + 'static,
    ) -> Option<R> {
        let (done, result) = oneshot::channel();
        let work = Box::new(move |log: &mut Log| drop(done.send(work(log))));
        self.put(host, PartitionEvent::Work(work));
        result.await.ok()
    }

    /// Passes on the leader's response to a fetch of this replica.
    pub fn on_leader_answered(self: &Arc<Self>, host: &Arc<PartitionHost>, answer: LeaderAnswer) {
        self.put(host, PartitionEvent::LeaderAnswered(answer));
    }

    /// Passes on the state that this follower needs from remote storage.
    pub fn on_remote_state_fetched(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        leader_epoch: LeaderEpoch,
        result: Result<RemoteState, ErrorCode>,
    ) {
        let result = result.map(Box::new);
        self.put(
            host,
            PartitionEvent::RemoteStateFetched(leader_epoch, result),
        );
    }

    /// Reads the replica and the log between two steps; `None` if the partition is gone.
    pub async fn look<R: Send + 'static>(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        look: impl FnOnce(&Replica<Ack>, &Log) -> R + Send + 'static,
    ) -> Option<R> {
        let (done, result) = oneshot::channel();
        // The receiver may be gone.
        let look = Box::new(move |replica: &Replica<Ack>, log: &Log| {
            drop(done.send(look(replica, log)));
        });
        self.put(host, PartitionEvent::Look(look));
        result.await.ok()
    }

    /// Replaces the log between two steps. `replace` checks that the new log holds the same
    /// records, swaps it in, and may wait for the disk.
    pub fn replace_log(
        self: &Arc<Self>,
        host: &Arc<PartitionHost>,
        replace: impl FnOnce(&mut Log) -> Option<LogLocation> + Send + 'static,
    ) {
        self.put(host, PartitionEvent::Replace(Box::new(replace)));
    }

    /// Refuses further appends, answers waiting requests, and returns the job that closes the log.
    pub async fn close(self: &Arc<Self>, host: &Arc<PartitionHost>) -> Option<CloseJob> {
        self.notify(host, Event::LogLost);
        self.wake_all();
        self.with_log(host, Log::close_job).await
    }

    /// Applies changed settings.
    pub fn set_config(self: &Arc<Self>, host: &Arc<PartitionHost>, config: Arc<TopicConfig>) {
        let max_request_bytes = host.context.config().socket_request_max_bytes;
        let (partition, broker_id) = (self.topic_partition.partition, host.context.broker_id());
        let settings = PartitionSettings::new(&config, max_request_bytes, partition, broker_id);
        let of_replica = settings.replica;
        self.settings.store(Arc::new(settings));
        let work = Box::new(move |log: &mut Log| log.set_config(config));
        self.put(host, PartitionEvent::Work(work));
        self.notify(host, Event::SettingsChanged(of_replica));
    }

    /// Reserves a position for an append that is not ready yet.
    pub fn reserve(self: &Arc<Self>, host: &Arc<PartitionHost>, bytes: usize) -> ReservedSlot {
        ReservedSlot {
            host: Arc::clone(host),
            partition: Arc::clone(self),
            slot: Some(self.inbox.reserve(bytes)),
        }
    }
}

impl ReservedSlot {
    pub fn fill(mut self, append: PendingAppend) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        let event = PartitionEvent::Append(append);
        if let Some(token) = self.partition.inbox.fill(slot, event) {
            self.partition.run_where_it_belongs(&self.host, token);
        }
    }
}

impl Drop for ReservedSlot {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        if let Some(token) = self.partition.inbox.abandon(slot) {
            self.partition.run_where_it_belongs(&self.host, token);
        }
    }
}
