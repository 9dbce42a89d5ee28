//! Clients of the three kinds of coordinators. Each has its own keys and one request in flight, so
//! it knows the required contents of the log when it is answered, and of memory from then on.

use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_coordinator::group::GroupCoordinator;
use ottla_coordinator::persister::{
    InitializeState, SharePartitionKey, StateFailure, StateSummary, WriteState,
};
use ottla_coordinator::share_state::{ShareCoordinator, StateError};
use ottla_coordinator::transaction::{
    AddPartitions, EndTransaction, InitProducerId, Response as TransactionResponse, Transaction,
    TransactionState,
};
use ottla_coordinator::{Coordinator, Outcome, ReplyId, ReplyTo, TransactionalProducer};
use ottla_partition::test_host::{TOPIC, TOPIC_ID};
use ottla_protocol::messages::OffsetCommitRequest;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use ottla_sync::simulation::Random;
use ottla_sync::time::sleep;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, ProducerEpoch, TopicPartition};

use super::broker::{OF_CLIENTS, SimulatedBroker, in_time};
use crate::share_groups::{ReadSummary, StateQuestion};

/// One in this many answers is compared with the whole log.
const LOOKS_AT_LOG_ONE_IN: u64 = 5;

/// Prints the waits when a single seed is repeated.
macro_rules! tell {
    ($($what:tt)*) => {
        if super::number("OTTLA_SEED").is_some() {
            println!("{:?} {}", ottla_sync::simulation::now(), format!($($what)*));
        }
    };
}
/// Errors that may occur while leaders and replicas change.
fn check_passing(what: &str, code: ErrorCode) {
    tell!("{what}: {code}");
    let is_passing = matches!(
        code,
        ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::ConcurrentTransactions
    );
    assert!(is_passing, "{what} is refused: {code}");
}

async fn pause(random: &mut Random) {
    // Usually short, so that requests overlap.
    if random.one_in(6) {
        sleep(Duration::from_micros(random.below(80_000))).await;
    } else {
        sleep(Duration::from_micros(random.below(100))).await;
    }
}

// Groups

/// A request for the committed offsets of a group.
fn fetch_request(group: &str) -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup {
        group_id: group.to_owned().into(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: TOPIC.into(),
            topic_id: TOPIC_ID,
            partition_indexes: vec![0],
            ..Default::default()
        }]),
        ..Default::default()
    }
}

fn fetched(response: OffsetFetchResponseGroup) -> Result<i64, ErrorCode> {
    ErrorCode::from_code(response.error_code).into_result()?;
    let partition = &response.topics[0].partitions[0];
    ErrorCode::from_code(partition.error_code).into_result()?;
    Ok(partition.committed_offset)
}

async fn commit(broker: &SimulatedBroker, group: &str, offset: i64) -> Result<(), ErrorCode> {
    let shard = broker.groups.coordinator_of(group)?;
    let request = OffsetCommitRequest {
        group_id: group.to_owned().into(),
        topics: vec![OffsetCommitRequestTopic {
            name: TOPIC.into(),
            topic_id: TOPIC_ID,
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answered = shard.request(&broker.groups, |groups, to, now| {
        groups.handle_offset_commit(to, request, true, now)
    });
    let response = answered.await?;
    ErrorCode::from_code(response.topics[0].partitions[0].error_code).into_result()
}

async fn fetch(broker: &SimulatedBroker, group: &str) -> Result<i64, ErrorCode> {
    let shard = broker.groups.coordinator_of(group)?;
    let answered = shard.request(&broker.groups, |groups, to, _| {
        groups.handle_offset_fetch(to, &fetch_request(group), false)
    });
    fetched(answered.await?)
}

/// The immediate answer of a coordinator without other requests.
fn answer_of<C: Coordinator, T: TryFrom<C::Response>>(outcome: Outcome<C>) -> T {
    let mut replies = outcome.replies.into_iter();
    let reply = replies.next().expect("it has nothing to wait for");
    T::try_from(reply.response)
        .ok()
        .expect("the response has the requested type")
}

fn committed_offset(groups: &mut GroupCoordinator, group: &str) -> i64 {
    let outcome =
        groups.handle_offset_fetch(ReplyTo::new(ReplyId(0)), &fetch_request(group), false);
    fetched(answer_of::<GroupCoordinator, _>(outcome)).expect("it is loaded")
}

/// Commits increasing offsets; they must never decrease.
pub async fn commit_offsets(broker: Arc<SimulatedBroker>, group: String, mut random: Random) {
    let (mut next, mut seen) = (0, -1);
    while !broker.is_over() {
        next += 1;
        match in_time(commit(&broker, &group, next)).await {
            Ok(()) => {
                seen = next;
                if random.one_in(LOOKS_AT_LOG_ONE_IN) {
                    let in_log = committed_offset(&mut broker.committed_groups(), &group);
                    assert_eq!(in_log, next, "an offset was answered that is not committed");
                }
                broker.tally.lock().commits += 1;
            }
            Err(code) => check_passing(&group, code),
        }
        pause(&mut random).await;
        match in_time(fetch(&broker, &group)).await {
            Ok(offset) => {
                assert!((seen..=next).contains(&offset), "{offset} after {seen}");
                seen = offset;
            }
            Err(code) => check_passing(&group, code),
        }
    }
}

// Transactions

/// The fields of a transaction that do not change once it has ended.
pub fn essence(transaction: &Transaction) -> String {
    format!(
        "{} epoch {} {:?} {:?}",
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state,
        transaction.partitions
    )
}

/// A transactional producer.
pub struct Producer {
    broker: Arc<SimulatedBroker>,
    id: ByteString,
    /// Only a refused append could make it pending.
    is_quiet: bool,
    /// The `min.insync.replicas` phase in which a request was refused and nothing else happened.
    refused_in: Option<u64>,
    random: Random,
}

impl Producer {
    pub fn new(broker: Arc<SimulatedBroker>, id: String, random: Random) -> Producer {
        Producer {
            broker,
            id: id.into(),
            is_quiet: true,
            refused_in: None,
            random,
        }
    }

    async fn ask<T: Into<TransactionResponse> + TryFrom<TransactionResponse>>(
        &mut self,
        decide: impl FnOnce(
            &mut ottla_coordinator::transaction::TransactionCoordinator,
            ReplyTo<T>,
            ottla_types::Timestamp,
        ) -> ottla_coordinator::transaction::Outcome,
    ) -> Result<Option<TransactionalProducer>, ErrorCode> {
        let broker = Arc::clone(&self.broker);
        let before = broker.phase_under_min_isr();
        let answered = in_time(async {
            let shard = broker.transactions.coordinator_of(&self.id)?;
            shard
                .request(&broker.transactions.coordinators, decide)
                .await
        });
        let answered = match answered.await.map(T::into) {
            Ok(TransactionResponse::InitProducerId(init)) => init.map(Some),
            Ok(TransactionResponse::AddPartitions(code)) => code.into_result().map(|()| None),
            Ok(TransactionResponse::EndTxn(ended)) => ended,
            Err(code) => Err(code),
        };
        let phase = before.filter(|_| broker.phase_under_min_isr() == before);
        match answered {
            Ok(_) => (self.is_quiet, self.refused_in) = (true, None),
            Err(ErrorCode::ConcurrentTransactions) => {
                assert!(
                    phase.is_none() || self.refused_in != phase,
                    "{} stays pending under an append that was refused",
                    self.id
                );
            }
            Err(code) => {
                check_passing(&self.id, code);
                self.refused_in = phase.filter(|_| self.is_quiet);
                self.is_quiet = self.refused_in.is_some();
                self.broker.tally.lock().refused += u64::from(self.is_quiet);
            }
        }
        answered
    }

    /// The log holds what the response implied.
    fn check_committed(&mut self, is_as_answered: impl Fn(&Transaction) -> bool) {
        if !self.random.one_in(LOOKS_AT_LOG_ONE_IN) {
            return;
        }
        let coordinator = self.broker.committed_transactions();
        let transaction = coordinator.describe(&self.id);
        assert!(
            transaction.is_ok_and(is_as_answered),
            "{} was answered something that is not committed: {transaction:?}",
            self.id
        );
    }

    /// Runs transactions until the end.
    pub async fn run(mut self) {
        while !self.broker.is_over() {
            // Pause first, because a refused request is repeated.
            pause(&mut self.random).await;
            let Some(mut producer) = self.init().await else {
                continue;
            };
            while !self.broker.is_over() && !self.random.one_in(4) {
                pause(&mut self.random).await;
                let is_commit = self.random.one_in(2);
                match self.transact(producer, is_commit).await {
                    Some(next) => producer = next,
                    // A new instance is started, which ends the transaction of this one.
                    None => break,
                }
            }
        }
    }

    async fn init(&mut self) -> Option<TransactionalProducer> {
        let request = InitProducerId {
            transactional_id: self.id.clone(),
            transaction_timeout_ms: 60_000,
            enable_two_phase_commit: false,
            keep_prepared_transaction: false,
            expected: None,
        };
        let init = self.ask(|it, to, now| it.handle_init_producer_id(to, request, now));
        let producer = init.await.ok()??;
        self.check_committed(|it| {
            it.producer_id == producer.id && it.producer_epoch == producer.epoch
        });
        if let Ok(in_memory) = describe(&self.broker, &self.id) {
            assert_eq!(in_memory.producer_epoch, producer.epoch);
        }
        Some(producer)
    }

    async fn transact(
        &mut self,
        producer: TransactionalProducer,
        is_commit: bool,
    ) -> Option<TransactionalProducer> {
        let request = AddPartitions {
            transactional_id: self.id.clone(),
            producer,
            partitions: vec![TopicPartition::new(TOPIC, 0)],
            client_transaction_version: 2,
        };
        let added = self.ask(|it, to, now| it.handle_add_partitions(to, request, now));
        added.await.ok()?;
        self.check_committed(|it| it.state == TransactionState::Ongoing);
        let request = EndTransaction {
            transactional_id: self.id.clone(),
            producer,
            is_commit,
            client_transaction_version: 2,
        };
        let ended = self.ask(|it, to, now| it.handle_end_txn(to, request, now));
        let next = ended.await.ok()?;
        // The markers are being written.
        self.is_quiet = false;
        self.check_committed(|it| it.state != TransactionState::Ongoing);
        self.broker.tally.lock().transactions += 1;
        next
    }
}

fn describe(broker: &SimulatedBroker, id: &str) -> Result<Transaction, ErrorCode> {
    let shard = broker.transactions.coordinator_of(id)?;
    shard.read(|coordinator| coordinator.describe(id).cloned())?
}

/// The coordinator's state of a transactional ID when no operation is in progress.
pub async fn settled_transaction(broker: &Arc<SimulatedBroker>, id: String) -> String {
    loop {
        match describe(broker, &id) {
            // As in Kafka, an ID whose first record was refused is known without an epoch until it
            // is loaded again.
            Ok(transaction) if transaction.producer_epoch == ProducerEpoch::NONE => {
                return "unknown".to_owned();
            }
            Ok(transaction) if !is_ending(transaction.state) => return essence(&transaction),
            Ok(transaction) => tell!("{} is {}", id, essence(&transaction)),
            Err(ErrorCode::TransactionalIdNotFound) => return "unknown".to_owned(),
            Err(code) => check_passing(&id, code),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn is_ending(state: TransactionState) -> bool {
    matches!(
        state,
        TransactionState::PrepareCommit
            | TransactionState::PrepareAbort
            | TransactionState::PrepareEpochFence
    )
}

pub async fn settled_offset(broker: &Arc<SimulatedBroker>, group: String) -> String {
    loop {
        match fetch(broker, &group).await {
            Ok(offset) => return offset.to_string(),
            Err(code) => check_passing(&group, code),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

// Share groups

pub fn share_key(group: &str) -> SharePartitionKey {
    SharePartitionKey {
        group_id: group.to_owned().into(),
        topic_id: TOPIC_ID,
        partition: 0,
    }
}

async fn summary(broker: &SimulatedBroker, group: &str) -> Result<i64, StateFailure> {
    let key = share_key(group);
    let summary = ReadSummary { key }.ask_here(&broker.share_groups.coordinators);
    Ok(summary.await?.start_offset.0)
}

fn committed_start(coordinator: &mut ShareCoordinator, group: &str) -> i64 {
    let outcome =
        coordinator.read_state_summary(ReplyTo::new(ReplyId(0)), &share_key(group), Some(1));
    let summary: Result<StateSummary, StateError> = answer_of::<ShareCoordinator, _>(outcome);
    match summary {
        Ok(summary) => summary.start_offset.0,
        Err(error) => panic!("share state of {group} is gone from the log: {error:?}"),
    }
}

/// Advances a start offset, often or rarely: pruning must keep state that is rarely written.
pub async fn write_share_state(
    broker: Arc<SimulatedBroker>,
    group: String,
    one_in: u64,
    mut random: Random,
) {
    let mut is_initialized = false;
    let (mut next, mut seen) = (0, 0);
    while !broker.is_over() {
        pause(&mut random).await;
        let written = if !is_initialized {
            let request = InitializeState {
                key: share_key(&group),
                state_epoch: 0,
                start_offset: Offset(0),
            };
            in_time(request.ask_here(&broker.share_groups.coordinators)).await
        } else if random.one_in(one_in) {
            next += 1;
            let request = WriteState {
                key: share_key(&group),
                state_epoch: 0,
                leader_epoch: LeaderEpoch::UNKNOWN,
                start_offset: Offset(next),
                delivery_complete_count: 0,
                batches: Vec::new(),
            };
            in_time(request.ask_here(&broker.share_groups.coordinators)).await
        } else {
            match in_time(summary(&broker, &group)).await {
                Ok(start) => {
                    assert!((seen..=next).contains(&start), "{start} after {seen}");
                    seen = start;
                }
                Err(failure) => check_passing(&group, failure.code),
            }
            continue;
        };
        match written {
            Ok(()) => {
                (is_initialized, seen) = (true, next);
                let in_log = committed_start(&mut broker.committed_share_state(), &group);
                assert_eq!(
                    in_log, next,
                    "share state was answered that is not committed"
                );
                broker.tally.lock().share_writes += 1;
            }
            Err(failure) => check_passing(&group, failure.code),
        }
    }
}

pub async fn settled_share_state(broker: &Arc<SimulatedBroker>, group: String) -> String {
    loop {
        match summary(broker, &group).await {
            Ok(start) => return start.to_string(),
            // Never written.
            Err(failure) if failure.code == ErrorCode::InvalidRequest => {
                return "unknown".to_owned();
            }
            Err(failure) => check_passing(&group, failure.code),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Opens and closes share partitions repeatedly, as fetches do.
pub async fn open_share_partitions(
    broker: Arc<SimulatedBroker>,
    group: String,
    mut random: Random,
) {
    while !broker.is_over() {
        let groups = &broker.share_groups;
        let opened = groups.partitions.get_or_open(&group, TOPIC, OF_CLIENTS);
        broker.tally.lock().opened += u64::from(opened.is_ok());
        pause(&mut random).await;
        if random.one_in(3) {
            groups.partitions.close_group(&group);
        }
    }
}
