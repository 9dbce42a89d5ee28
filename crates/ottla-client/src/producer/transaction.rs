//! Transactions: records of several partitions, and the offsets of the records that they were made
//! from, become visible together or not at all (KIP-98). With `transaction.version` 2, partitions
//! and offsets need not be added explicitly, and every transaction has its own producer epoch
//! (KIP-890).
//!
//! [`TransactionState`] is pure; the calls around it talk to the transaction coordinator. Kafka:
//! `TransactionManager`.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use ottla_protocol::messages::add_partitions_to_txn_request::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnTopic,
};
use ottla_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use ottla_protocol::messages::{AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest};
use ottla_protocol::{ApiKey, ApiRequest};
use ottla_types::{ErrorCode, ProducerEpoch, ProducerId};

use super::Producer;
use super::metrics::Call;
use super::sequences::Identity;
use super::shared::Shared;
use super::topics::PartitionQueue;
use super::transaction_state::{Phase, TopicPartition, TransactionState, is_fatal, misuse};
use crate::client::CoordinatorKind;
use crate::consumer::CommitOffset;
use crate::error::ClientError;
use crate::partitions::{by_topic, first_error};

pub(super) const LAST_PRODUCE_VERSION_BEFORE_V2: i16 = 11;
const LAST_END_TXN_VERSION_BEFORE_V2: i16 = 4;
const LAST_TXN_OFFSET_COMMIT_VERSION_BEFORE_V2: i16 = 4;
/// Later versions name topics by ID, which a committed offset here does not have.
const LAST_TXN_OFFSET_COMMIT_VERSION_WITH_NAMES: i16 = 5;
/// Later versions are for brokers only.
const LAST_ADD_PARTITIONS_VERSION_OF_CLIENTS: i16 = 3;

/// The group member whose offsets a transaction commits, from [`crate::Consumer::group_metadata`].
///
/// ```
/// use ottla_client::ConsumerGroupMetadata;
///
/// // For a program that assigns partitions itself; others take that of their consumer.
/// let group = ConsumerGroupMetadata {
///     group_id: "billing".to_owned(),
///     generation_id: -1,
///     member_id: String::new(),
///     group_instance_id: None,
/// };
/// # assert_eq!(group.generation_id, -1);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConsumerGroupMetadata {
    pub group_id: String,
    /// -1 outside a group.
    pub generation_id: i32,
    pub member_id: String,
    pub group_instance_id: Option<String>,
}

impl Producer {
    /// Fences earlier producers with this `transactional.id`, and waits until their last
    /// transaction has ended. Must be called once, before everything else.
    ///
    /// ```no_run
    /// # async fn example(client: ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::{Producer, ProducerConfig};
    ///
    /// let transactional_id = Some("billing-1".to_owned());
    /// let config = ProducerConfig { transactional_id, ..ProducerConfig::default() };
    /// let producer = Producer::new(client, config)?;
    /// producer.init_transactions().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn init_transactions(&self) -> Result<(), ClientError> {
        let shared = &self.shared;
        let state = shared.transactional()?;
        if !matches!(state.lock().phase, Phase::Uninitialized) {
            return Err(misuse("init_transactions has been called before"));
        }
        let began = ottla_sync::time::now();
        let identity = shared
            .within_max_block(shared.init_producer_id(None))
            .await?;
        shared.sensors.on_spent(Call::InitTransactions, began);
        *shared.identity.lock() = Some(identity);
        state.lock().phase = Phase::Ready;
        Ok(())
    }

    /// Begins a transaction, to which all records belong that are sent until its end.
    ///
    /// ```no_run
    /// # async fn transfer(producer: ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// producer.init_transactions().await?;
    /// producer.begin_transaction()?;
    /// producer.send_ref(RecordRef::new("debits", b"a:10")).await?;
    /// producer.send_ref(RecordRef::new("credits", b"b:10")).await?;
    /// if let Err(error) = producer.commit_transaction().await {
    ///     producer.abort_transaction().await?;
    ///     return Err(error);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin_transaction(&self) -> Result<(), ClientError> {
        let began = ottla_sync::time::now();
        let state = self.shared.transactional()?;
        let is_v2 = self.shared.client.finalized_feature("transaction.version") >= 2;
        state.lock().begin(is_v2)?;
        self.shared.sensors.on_spent(Call::BeginTransaction, began);
        Ok(())
    }

    /// Commits a group's offsets with the transaction. The consumer itself must not commit.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer, consumer: &ottla_client::Consumer) -> Result<(), ottla_client::ClientError> {
    /// use std::collections::BTreeMap;
    /// use ottla_client::CommitOffset;
    ///
    /// let offsets = BTreeMap::from([(("orders".to_owned(), 0), CommitOffset::new(4200))]);
    /// producer.send_offsets_to_transaction(&offsets, &consumer.group_metadata()).await?;
    /// producer.commit_transaction().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn send_offsets_to_transaction(
        &self,
        offsets: &BTreeMap<(String, i32), CommitOffset>,
        group: &ConsumerGroupMetadata,
    ) -> Result<(), ClientError> {
        let shared = &self.shared;
        let state = shared.transactional()?;
        state.lock().check_may_send()?;
        if offsets.is_empty() {
            return Ok(());
        }
        let began = ottla_sync::time::now();
        let sent = shared
            .within_max_block(shared.send_offsets(offsets, group))
            .await;
        let mut state = state.lock();
        match sent {
            Ok(()) => {
                shared.sensors.on_spent(Call::SendOffsets, began);
                state.has_started = true;
            }
            Err(error) => {
                state.on_error(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends the remaining records and commits the transaction. After an error the transaction must
    /// be aborted, unless the producer has failed permanently; see [`Producer::abort_transaction`].
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// producer.begin_transaction()?;
    /// producer.send_ref(RecordRef::new("orders", b"1")).await?;
    /// producer.commit_transaction().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn commit_transaction(&self) -> Result<(), ClientError> {
        let shared = &self.shared;
        let state = shared.transactional()?;
        state.lock().begin_commit()?;
        let began = ottla_sync::time::now();
        shared.flush().await;
        if let Phase::Abortable(error) | Phase::Fatal(error) = &state.lock().phase {
            return Err(error.clone());
        }
        self.end_transaction(true).await?;
        shared.sensors.on_spent(Call::CommitTransaction, began);
        Ok(())
    }

    /// Drops unsent records and aborts the transaction.
    ///
    /// ```no_run
    /// # async fn example(producer: &ottla_client::Producer) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::RecordRef;
    ///
    /// producer.begin_transaction()?;
    /// producer.send_ref(RecordRef::new("orders", b"1")).await?;
    /// // Readers of committed records never see it.
    /// producer.abort_transaction().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn abort_transaction(&self) -> Result<(), ClientError> {
        let shared = &self.shared;
        shared.transactional()?.lock().begin_abort()?;
        let began = ottla_sync::time::now();
        shared.wake_sender.notify_one();
        // Records in flight must complete first, so that they do not become part of the next
        // transaction.
        shared.flush().await;
        self.end_transaction(false).await?;
        shared.sensors.on_spent(Call::AbortTransaction, began);
        Ok(())
    }

    async fn end_transaction(&self, commits: bool) -> Result<(), ClientError> {
        let shared = &self.shared;
        let state = shared.transactional()?;
        let (has_started, needs_new_epoch, is_v2) = {
            let state = state.lock();
            (state.has_started, state.needs_new_epoch, state.is_v2)
        };
        let end = async {
            let mut identity = None;
            if has_started {
                identity = shared.end(commits, is_v2).await?;
            }
            if needs_new_epoch && identity.is_none() {
                let current = *shared.identity.lock();
                identity = Some(shared.init_producer_id(current).await?);
            }
            Ok(identity)
        };
        match shared.within_max_block(end).await {
            Ok(identity) => {
                if let Some(identity) = identity {
                    *shared.identity.lock() = Some(identity);
                }
                *state.lock() = TransactionState {
                    phase: Phase::Ready,
                    ..TransactionState::default()
                };
                Ok(())
            }
            Err(error) => {
                let mut state = state.lock();
                state.phase = match is_fatal(&error) {
                    true => Phase::Fatal(error.clone()),
                    false => Phase::Abortable(error.clone()),
                };
                Err(error)
            }
        }
    }
}

impl Shared {
    fn transactional(&self) -> Result<&ottla_sync::Mutex<TransactionState>, ClientError> {
        self.transaction
            .as_ref()
            .ok_or_else(|| misuse("transactions need a transactional.id"))
    }

    fn transactional_id(&self) -> &str {
        self.config.transactional_id.as_deref().unwrap_or_default()
    }

    pub(super) fn is_transaction_v2(&self) -> bool {
        self.transaction
            .as_ref()
            .is_some_and(|state| state.lock().is_v2)
    }

    pub(super) fn is_completing_transaction(&self) -> bool {
        let completing = |state: &TransactionState| matches!(state.phase, Phase::Committing);
        self.transaction
            .as_ref()
            .is_some_and(|state| completing(&state.lock()))
    }

    /// Whether waiting batches are dropped with their transaction.
    pub(super) fn discards_batches(&self) -> bool {
        self.transaction.as_ref().is_some_and(|state| {
            matches!(
                state.lock().phase,
                Phase::Aborting | Phase::Abortable(_) | Phase::Fatal(_)
            )
        })
    }

    pub(super) fn may_repeat_batches(&self) -> bool {
        !self.discards_batches()
    }

    pub(super) fn why_discarded(&self) -> ClientError {
        let phase = self
            .transaction
            .as_ref()
            .map(|state| state.lock().phase.clone());
        match phase {
            Some(Phase::Abortable(error) | Phase::Fatal(error)) => error,
            _ => ClientError::Unsendable("its transaction was aborted".into()),
        }
    }

    pub(super) fn may_leave(&self, queue: &PartitionQueue) -> bool {
        match &self.transaction {
            Some(state) => state.lock().may_leave(&queue.topic, queue.partition),
            None => true,
        }
    }

    /// A batch of the transaction has failed permanently. If it was sent, it leaves a gap in the
    /// sequences.
    pub(super) fn on_batch_failed(&self, error: &ClientError, has_left: bool) {
        if let Some(state) = &self.transaction {
            let mut state = state.lock();
            state.needs_new_epoch |= has_left;
            state.on_error(error.clone());
        }
    }

    pub(super) fn take_pending_partitions(&self) -> Option<Vec<TopicPartition>> {
        self.transaction
            .as_ref()?
            .lock()
            .take_pending(ottla_sync::time::now())
    }

    /// Adds partitions to the transaction at the coordinator before anything is written to them.
    pub(super) async fn add_partitions_to_transaction(&self, partitions: Vec<TopicPartition>) {
        let result = self
            .within_max_block(self.add_partitions(&partitions))
            .await;
        if let Some(state) = &self.transaction {
            state.lock().on_added(partitions, result);
        }
    }

    async fn add_partitions(&self, partitions: &[TopicPartition]) -> Result<(), ClientError> {
        let identity = self.known_identity()?;
        let topics = by_topic(partitions.iter().map(|it| (it, it.1)));
        let request = AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: self.transactional_id().to_owned().into(),
            v3_and_below_producer_id: identity.id.0,
            v3_and_below_producer_epoch: identity.epoch.0,
            v3_and_below_topics: topics
                .into_iter()
                .map(|(name, partitions)| AddPartitionsToTxnTopic {
                    name: name.to_owned().into(),
                    partitions,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        self.ask_coordinator(
            &request,
            LAST_ADD_PARTITIONS_VERSION_OF_CLIENTS,
            |response| {
                response
                    .results_by_topic_v3_and_below
                    .iter()
                    .flat_map(|topic| &topic.results_by_partition)
                    .map(|partition| partition.partition_error_code)
                    // The cause matters more than the code of the items that were not attempted.
                    .filter(|code| *code != ErrorCode::OperationNotAttempted.code())
                    .find(|code| *code != 0)
                    .unwrap_or(0)
            },
        )
        .await
        .map(drop)
    }

    async fn init_producer_id(&self, current: Option<Identity>) -> Result<Identity, ClientError> {
        let request = InitProducerIdRequest {
            transactional_id: Some(self.transactional_id().to_owned().into()),
            transaction_timeout_ms: self.config.transaction_timeout.as_millis() as i32,
            producer_id: current.map_or(-1, |identity| identity.id.0),
            producer_epoch: current.map_or(-1, |identity| identity.epoch.0),
            ..Default::default()
        };
        let response = self
            .ask_coordinator(&request, i16::MAX, |response| response.error_code)
            .await?;
        Ok(Identity {
            id: ProducerId(response.producer_id),
            epoch: ProducerEpoch(response.producer_epoch),
        })
    }

    /// Ends the transaction. Returns the identity for the next one if the coordinator assigns it.
    async fn end(&self, commits: bool, is_v2: bool) -> Result<Option<Identity>, ClientError> {
        let identity = self.known_identity()?;
        let request = EndTxnRequest {
            transactional_id: self.transactional_id().to_owned().into(),
            producer_id: identity.id.0,
            producer_epoch: identity.epoch.0,
            committed: commits,
            ..Default::default()
        };
        let newest = match is_v2 {
            true => i16::MAX,
            false => LAST_END_TXN_VERSION_BEFORE_V2,
        };
        let response = self
            .ask_coordinator(&request, newest, |response| response.error_code)
            .await?;
        Ok((response.producer_id >= 0).then_some(Identity {
            id: ProducerId(response.producer_id),
            epoch: ProducerEpoch(response.producer_epoch),
        }))
    }

    async fn send_offsets(
        &self,
        offsets: &BTreeMap<TopicPartition, CommitOffset>,
        group: &ConsumerGroupMetadata,
    ) -> Result<(), ClientError> {
        let identity = self.known_identity()?;
        let is_v2 = self.is_transaction_v2();
        if !is_v2 {
            let request = AddOffsetsToTxnRequest {
                transactional_id: self.transactional_id().to_owned().into(),
                producer_id: identity.id.0,
                producer_epoch: identity.epoch.0,
                group_id: group.group_id.clone().into(),
                ..Default::default()
            };
            self.ask_coordinator(&request, i16::MAX, |response| response.error_code)
                .await?;
            if let Some(state) = &self.transaction {
                state.lock().has_started = true;
            }
        }
        let committed = offsets.iter().map(|(partition, offset)| {
            let committed = TxnOffsetCommitRequestPartition {
                partition_index: partition.1,
                committed_offset: offset.offset,
                committed_leader_epoch: offset.leader_epoch,
                committed_metadata: Some(offset.metadata.clone().into()),
                ..Default::default()
            };
            (partition, committed)
        });
        let request = TxnOffsetCommitRequest {
            transactional_id: self.transactional_id().to_owned().into(),
            group_id: group.group_id.clone().into(),
            producer_id: identity.id.0,
            producer_epoch: identity.epoch.0,
            generation_id_or_member_epoch: group.generation_id,
            member_id: group.member_id.clone().into(),
            group_instance_id: group.group_instance_id.clone().map(Into::into),
            topics: by_topic(committed)
                .into_iter()
                .map(|(name, partitions)| TxnOffsetCommitRequestTopic {
                    name: name.to_owned().into(),
                    partitions,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        let newest = match is_v2 {
            true => LAST_TXN_OFFSET_COMMIT_VERSION_WITH_NAMES,
            false => LAST_TXN_OFFSET_COMMIT_VERSION_BEFORE_V2,
        };
        self.ask(
            CoordinatorKind::Group,
            &group.group_id,
            &request,
            newest,
            |response| {
                let topics = response.topics.iter();
                let partitions = topics.flat_map(|topic| &topic.partitions);
                first_error(partitions.map(|partition| partition.error_code))
            },
        )
        .await
        .map(drop)
    }

    fn known_identity(&self) -> Result<Identity, ClientError> {
        let identity = *self.identity.lock();
        identity.ok_or_else(|| misuse("init_transactions comes before everything else"))
    }

    async fn ask_coordinator<R: ApiRequest>(
        &self,
        request: &R,
        newest_version: i16,
        error_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, ClientError> {
        let kind = CoordinatorKind::Transaction;
        self.ask(
            kind,
            self.transactional_id(),
            request,
            newest_version,
            error_of,
        )
        .await
    }

    /// Retries a request to the coordinator until it succeeds or fails permanently. The caller
    /// limits the time.
    async fn ask<R: ApiRequest>(
        &self,
        kind: CoordinatorKind,
        key: &str,
        request: &R,
        newest_version: i16,
        error_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response, ClientError> {
        let client = &self.client;
        loop {
            let attempt = async {
                let coordinator = client.coordinator(kind, key).await?;
                let connection = client.connection(&coordinator.address()).await?;
                let response = connection.send_up_to(request, newest_version).await?;
                ClientError::check_code(R::API_KEY.name(), error_of(&response))?;
                Ok::<_, ClientError>(response)
            };
            let error = match attempt.await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            // The epoch of a producer that was replaced by another one.
            if error.code() == Some(ErrorCode::InvalidProducerEpoch)
                && R::API_KEY != ApiKey::TxnOffsetCommit
            {
                return Err(ClientError::broker(
                    R::API_KEY.name(),
                    ErrorCode::ProducerFenced.code(),
                    Some("another producer with this transactional.id has taken over"),
                ));
            }
            if !error.is_retriable() {
                return Err(error);
            }
            tracing::debug!(%error, "asking the coordinator again");
            // The end of the last transaction takes the brokers only a moment.
            let pause = match error.code() {
                Some(ErrorCode::ConcurrentTransactions) => Duration::from_millis(20),
                _ => {
                    client.forget_coordinator(kind, key);
                    client.config().retry_backoff
                }
            };
            ottla_sync::time::sleep(pause).await;
        }
    }

    async fn within_max_block<T>(
        &self,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let limit = self.config.max_block;
        match ottla_sync::time::timeout(limit, call).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::GaveUp {
                what: format!(
                    "a call about the transactions of {}",
                    self.transactional_id()
                ),
                after: limit,
                last: Box::new(ClientError::Unsendable("max.block.ms is over".into())),
            }),
        }
    }
}
