//! What a broker's process does for groups and transactions: it coordinates those whose partitions it leads, asks the
//! coordinators of transactions before it writes to one, has markers written, and the state of share groups.
//!
//! Mirrors, in the broker, `coordination.rs` (`follow_leadership`, `elect`, `resign`), and of `api` what the requests of clients come
//! to.

mod asking;
mod markers;
mod share_states;

use std::collections::BTreeMap;

use ottla_coordinator::group::{
    self, GroupCoordinator, HeartbeatContext, Requester, ShareHeartbeatContext,
};
use ottla_coordinator::share_state::ShareCoordinator;
use ottla_coordinator::transaction::{self, InitProducerId, Markers, TransactionCoordinator};
use ottla_coordinator::{Outcome, ReplyTo, partition_for};
use ottla_metadata::{LocalReplicaChanges, MetadataDelta};
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use ottla_protocol::messages::{
    ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse, TxnOffsetCommitRequest,
};
use ottla_records::RecordBatch;
use ottla_replica::AckOutcome;
use ottla_types::{
    ErrorCode, Offset, ProducerId, Timestamp, TopicIdPartition, TopicName, TopicPartition,
};

use super::broker_shell::BrokerShell;
use super::checkers::partition_owners::Heartbeat;
use super::coordinator_shell::{
    Coordinated, CoordinatorShell, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC, at,
};
use super::message::{Body, BrokerResponse, ClientRequest, ClientResponse};
use super::node::{Stopped, Surroundings};
use super::partition_log::PartitionLog;
use super::replica_shell::{Ack, ReplicaShell};
use markers::{MarkerJob, marker_error};
pub(crate) use share_states::ForShare;
use share_states::{Initializing, Persisting};

/// `request.timeout.ms` between brokers.
const TIMEOUT_MS: u64 = 1_500;
/// How long a marker that could not be written waits before it goes again.
const MARKER_RETRY_MS: u64 = 50;

type Groups = CoordinatorShell<GroupCoordinator, Waiting>;
type Transactions = CoordinatorShell<TransactionCoordinator, Waiting>;
type ShareStates = CoordinatorShell<ShareCoordinator, Waiting>;

#[derive(Default)]
pub(crate) struct Coordinators {
    groups: BTreeMap<i32, Groups>,
    transactions: BTreeMap<i32, Transactions>,
    share_states: BTreeMap<i32, ShareStates>,
    /// What other brokers, or this one, were asked, and when.
    questions: BTreeMap<u64, (u64, Question)>,
    marker_jobs: BTreeMap<u64, MarkerJob>,
    /// Of which coordinators is to be told, and when, that markers could not be written.
    failed_markers: Vec<(u64, i32, Markers, Vec<(TopicPartition, ErrorCode)>)>,
    /// What is to be persisted, and when a coordinator for it is looked for again.
    share_retries: Vec<(u64, Persisting)>,
    initializing: BTreeMap<u64, Initializing>,
    /// Answers to appends of replicas that have been taken out since.
    released: Vec<Released>,
}

/// What came of an append that the broker itself waited for.
type Released = (TopicIdPartition, Ack, AckOutcome);

impl Coordinators {
    /// Takes what a replica has answered, which is going to be taken out.
    pub(crate) fn keep_released(&mut self, key: TopicIdPartition, shell: &mut ReplicaShell) {
        let released = shell.released.drain(..);
        self.released
            .extend(released.map(|(ack, outcome)| (key, ack, outcome)));
    }
}

/// A client that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub client: i32,
    pub life: u64,
    pub correlation_id: u64,
}

/// Who waits for the reply of a coordinator.
#[derive(Debug)]
pub(crate) enum Waiting {
    Client(Caller, Wanted),
    /// For AddPartitions, or the state of a share group.
    Broker {
        broker: i32,
        life: u64,
        correlation_id: u64,
    },
    /// This broker itself.
    Question(u64),
    Marker {
        job: u64,
        partition: usize,
    },
}

/// What a client asked for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Initialization,
    End,
    Heartbeat(Heartbeat),
    ShareHeartbeat,
    Commit,
    CommitInTransaction,
    Offsets,
}

enum Question {
    /// Whether a batch may be written.
    Produce {
        key: TopicIdPartition,
        batch: RecordBatch,
        guard: u64,
        ack: Ack,
        deadline_ms: u64,
    },
    /// Whether offsets may be.
    Offsets {
        partition: i32,
        request: TxnOffsetCommitRequest,
        guard: u64,
        caller: Caller,
    },
    /// Of the coordinator in this partition.
    Markers(i32, Markers),
    /// To have the state of a share group read or written.
    ShareState(Box<Persisting>),
}

impl BrokerShell {
    fn partition_of(&self, topic: &str, key: &str) -> i32 {
        let existing = self.image.topics.by_name(topic);
        partition_for(
            key,
            existing.map_or(1, |topic| topic.partition_count() as i32),
        )
    }

    fn key_of(&self, partition: &TopicPartition) -> Option<TopicIdPartition> {
        let topic = self.image.topics.by_name(&partition.topic)?;
        Some(TopicIdPartition {
            topic_id: topic.id,
            partition: partition.partition,
        })
    }

    /// The replicas have followed: takes up the partitions that this broker leads now and gives up the others.
    pub(super) fn follow_leadership(
        &mut self,
        changes: &LocalReplicaChanges,
        delta: &MetadataDelta,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        self.follow_share_leadership(changes, around);
        for gone in changes.deleted.iter().chain(&changes.followers) {
            self.resign(&gone.topic, gone.partition.0, around)?;
        }
        for led in &changes.leaders {
            let key = TopicIdPartition {
                topic_id: led.topic_id,
                partition: led.partition,
            };
            let (index, epoch) = (led.partition.0, led.registration.leader_epoch);
            if !self.replicas.contains_key(&key) {
                self.resign(&led.topic, index, around)?;
                continue;
            }
            let end = around.disk.partitions[&key].end();
            let of_groups = self.coordinators.groups.get(&index);
            let of_transactions = self.coordinators.transactions.get(&index);
            let of_share_states = self.coordinators.share_states.get(&index);
            let known = match &*led.topic {
                OFFSETS_TOPIC => of_groups.map(Groups::leader_epoch),
                TRANSACTION_TOPIC => of_transactions.map(Transactions::leader_epoch),
                SHARE_STATE_TOPIC => of_share_states.map(ShareStates::leader_epoch),
                _ => continue,
            };
            if known == Some(epoch) {
                continue;
            }
            self.resign(&led.topic, index, around)?;
            around.note(|| format!("coordinates {}-{index} in epoch {epoch}", led.topic));
            let coordinators = &mut self.coordinators;
            match &*led.topic {
                OFFSETS_TOPIC => {
                    let shell = Groups::new(key, epoch, end);
                    coordinators.groups.insert(index, shell);
                }
                TRANSACTION_TOPIC => {
                    let shell = Transactions::new(key, epoch, end);
                    coordinators.transactions.insert(index, shell);
                }
                _ => {
                    let shell = ShareStates::new(key, epoch, end);
                    coordinators.share_states.insert(index, shell);
                }
            }
        }
        let at = at(around.now_ms, around.timestamp());
        for shell in self.coordinators.groups.values_mut() {
            shell.tell(&at, |groups| {
                groups.on_metadata_changed(delta.after.clone().into(), delta);
                Outcome::<GroupCoordinator>::default()
            });
        }
        Ok(())
    }

    pub(super) fn resign(
        &mut self,
        topic: &TopicName,
        index: i32,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        if **topic == *OFFSETS_TOPIC
            && let Some(mut shell) = self.coordinators.groups.remove(&index)
        {
            shell.runtime.close();
            for (waiting, response) in shell.runtime.take_replies() {
                self.on_groups_replied(waiting, response, &shell, around)?;
            }
        }
        if **topic == *TRANSACTION_TOPIC
            && let Some(mut shell) = self.coordinators.transactions.remove(&index)
        {
            shell.runtime.close();
            for (waiting, response) in shell.runtime.take_replies() {
                self.on_transactions_replied(waiting, response, around)?;
            }
        }
        if **topic == *SHARE_STATE_TOPIC
            && let Some(mut shell) = self.coordinators.share_states.remove(&index)
        {
            shell.runtime.close();
            for (waiting, response) in shell.runtime.take_replies() {
                self.on_share_states_replied(waiting, response, around)?;
            }
        }
        Ok(())
    }

    /// After each step: whatever the coordinators can do now.
    pub(crate) fn coordinate(&mut self, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        let now_ms = around.now_ms;
        let questions = &self.coordinators.questions;
        let late = questions
            .iter()
            .filter(|(_, (sent_ms, _))| now_ms >= sent_ms + TIMEOUT_MS);
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.on_answered(id, None, around)?;
        }
        let failed = std::mem::take(&mut self.coordinators.failed_markers);
        for (due_ms, index, markers, answers) in failed {
            match due_ms <= now_ms {
                true => self.tell_of_markers(index, &markers, &answers, around),
                false => {
                    let failed = (due_ms, index, markers, answers);
                    self.coordinators.failed_markers.push(failed);
                }
            }
        }
        let is_due = |it: &mut (u64, Persisting)| it.0 <= now_ms;
        let retries = &mut self.coordinators.share_retries;
        let due: Vec<_> = retries.extract_if(.., is_due).collect();
        for (_, persisting) in due {
            self.try_to_persist(persisting, around)?;
        }
        loop {
            let mut has_moved = self.take_released(around)?;
            has_moved |= self.run_share_partitions(around)?;
            let indexes: Vec<i32> = self.coordinators.groups.keys().copied().collect();
            for index in indexes {
                has_moved |= self.run_groups(index, around)?;
            }
            let indexes: Vec<i32> = self.coordinators.transactions.keys().copied().collect();
            for index in indexes {
                has_moved |= self.run_transactions(index, around)?;
            }
            let indexes: Vec<i32> = self.coordinators.share_states.keys().copied().collect();
            for index in indexes {
                has_moved |= self.run_share_states(index, around)?;
            }
            if !has_moved {
                return Ok(());
            }
        }
    }

    /// Appends that this broker itself waited for have been answered.
    fn take_released(&mut self, around: &mut Surroundings<'_>) -> Result<bool, Stopped> {
        for (key, shell) in &mut self.replicas {
            self.coordinators.keep_released(*key, shell);
        }
        let released = std::mem::take(&mut self.coordinators.released);
        let has_moved = !released.is_empty();
        for (key, ack, outcome) in released {
            match ack {
                Ack::Client { .. } => {}
                Ack::Marker { job, partition } => {
                    self.on_marker_settled(job, partition, outcome.error_code(), around);
                }
                Ack::Coordinator {
                    leader_epoch,
                    first,
                } => {
                    let index = key.partition.0;
                    let at = at(around.now_ms, around.timestamp());
                    let log = around.disk.partitions.get(&key);
                    let end = log.map_or(Offset(0), PartitionLog::high_watermark);
                    let coordinators = &mut self.coordinators;
                    if let Some(shell) = coordinators.groups.get_mut(&index)
                        && shell.key == key
                        && shell.leader_epoch() == leader_epoch
                    {
                        shell.on_written(first, outcome, end, &at);
                    } else if let Some(shell) = coordinators.transactions.get_mut(&index)
                        && shell.key == key
                        && shell.leader_epoch() == leader_epoch
                    {
                        shell.on_written(first, outcome, end, &at);
                    } else if let Some(shell) = coordinators.share_states.get_mut(&index)
                        && shell.key == key
                        && shell.leader_epoch() == leader_epoch
                    {
                        shell.on_written(first, outcome, end, &at);
                    }
                }
            }
        }
        Ok(has_moved)
    }

    fn run_groups(&mut self, index: i32, around: &mut Surroundings<'_>) -> Result<bool, Stopped> {
        let Some(mut shell) = self.coordinators.groups.remove(&index) else {
            return Ok(false);
        };
        let ran = self.run(&mut shell, around);
        let (replies, commands) = (shell.runtime.take_replies(), shell.runtime.take_commands());
        let has_asked = !replies.is_empty() || !commands.is_empty();
        for (waiting, response) in replies {
            self.on_groups_replied(waiting, response, &shell, around)?;
        }
        let epoch = shell.leader_epoch();
        self.coordinators.groups.insert(index, shell);
        for command in commands {
            match command {
                group::Command::InitializeShareState(command) => {
                    self.initialize_share_state(index, epoch, command, around)?;
                }
                group::Command::ResolveRegexes(command) => {
                    panic!("nobody subscribes by {command:?}");
                }
            }
        }
        Ok(ran? || has_asked)
    }

    fn run_share_states(
        &mut self,
        index: i32,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Stopped> {
        let Some(mut shell) = self.coordinators.share_states.remove(&index) else {
            return Ok(false);
        };
        let ran = self.run(&mut shell, around);
        let replies = shell.runtime.take_replies();
        let commands = shell.runtime.take_commands();
        assert!(commands.is_empty(), "{commands:?}");
        let has_asked = !replies.is_empty();
        self.coordinators.share_states.insert(index, shell);
        for (waiting, response) in replies {
            self.on_share_states_replied(waiting, response, around)?;
        }
        Ok(ran? || has_asked)
    }

    fn run_transactions(
        &mut self,
        index: i32,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Stopped> {
        let Some(mut shell) = self.coordinators.transactions.remove(&index) else {
            return Ok(false);
        };
        let ran = self.run(&mut shell, around);
        let replies = shell.runtime.take_replies();
        let commands = shell.runtime.take_commands();
        let has_asked = !replies.is_empty() || !commands.is_empty();
        self.coordinators.transactions.insert(index, shell);
        for (waiting, response) in replies {
            self.on_transactions_replied(waiting, response, around)?;
        }
        for command in commands {
            match command {
                transaction::Command::AllocateProducerId => self.want_producer_id(index),
                transaction::Command::SendMarkers(markers) => {
                    let atomic = &mut around.checkers.atomic_transactions;
                    atomic.on_decided(markers.producer, markers.end.is_commit);
                    self.send_markers(index, markers, around)?;
                }
            }
        }
        Ok(ran? || has_asked)
    }

    /// Whether anything has moved.
    fn run<C: Coordinated>(
        &mut self,
        shell: &mut CoordinatorShell<C, Waiting>,
        around: &mut Surroundings<'_>,
    ) -> Result<bool, Stopped> {
        let Some(replica) = self.replicas.get_mut(&shell.key) else {
            return Ok(false);
        };
        let (now_ms, now) = (around.now_ms, around.timestamp());
        let log = &around.disk.partitions[&shell.key];
        // Reading takes a while.
        let mut has_moved =
            around.random.per_mille(200) && shell.load(log, &self.image, now_ms, now);
        has_moved |= shell.advance(log.high_watermark(), now_ms, now);
        while let Some(arriving) = shell.next_append(now_ms, now) {
            has_moved = true;
            replica.append(arriving, around)?;
        }
        Ok(has_moved)
    }

    // The requests of clients

    /// A request that is not about one partition.
    pub(super) fn on_client_of_coordinator(
        &mut self,
        caller: Caller,
        request: ClientRequest,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let now = around.timestamp();
        match request {
            ClientRequest::InitTransactions {
                transactional_id,
                timeout_ms,
            } => {
                let index = self.partition_of(TRANSACTION_TOPIC, &transactional_id);
                let request = InitProducerId {
                    transactional_id,
                    transaction_timeout_ms: timeout_ms,
                    enable_two_phase_commit: false,
                    keep_prepared_transaction: false,
                    expected: None,
                };
                let waiting = Waiting::Client(caller, Wanted::Initialization);
                self.ask_transactions(index, waiting, around, |it, to| {
                    it.handle_init_producer_id(to, request, now)
                })
            }
            ClientRequest::EndTransaction(request) => {
                let index = self.partition_of(TRANSACTION_TOPIC, &request.transactional_id);
                let waiting = Waiting::Client(caller, Wanted::End);
                self.ask_transactions(index, waiting, around, |it, to| {
                    it.handle_end_txn(to, request, now)
                })
            }
            ClientRequest::GroupHeartbeat(request) => {
                let index = self.partition_of(OFFSETS_TOPIC, &request.group_id);
                let heartbeat = around.checkers.partition_owners.on_heard(&request);
                let wanted = Wanted::Heartbeat(heartbeat);
                let context = HeartbeatContext {
                    client_id: Default::default(),
                    client_host: Default::default(),
                    new_member_id: Default::default(),
                    requester: Requester::nobody(),
                };
                let waiting = Waiting::Client(caller, wanted);
                self.ask_groups(index, waiting, around, |it, to| {
                    it.handle_consumer_group_heartbeat(to, request, context, now)
                })
            }
            ClientRequest::ShareHeartbeat(request) => {
                let index = self.partition_of(OFFSETS_TOPIC, &request.group_id);
                let context = ShareHeartbeatContext {
                    client_id: Default::default(),
                    client_host: Default::default(),
                };
                let waiting = Waiting::Client(caller, Wanted::ShareHeartbeat);
                self.ask_groups(index, waiting, around, |it, to| {
                    it.handle_share_group_heartbeat(to, &request, &context, now)
                })
            }
            ClientRequest::CommitOffsets(mut request) => {
                for topic in &mut request.topics {
                    let known = self.image.topics.by_name(&topic.name);
                    topic.topic_id = known.map_or_else(Default::default, |known| known.id);
                }
                let index = self.partition_of(OFFSETS_TOPIC, &request.group_id);
                let waiting = Waiting::Client(caller, Wanted::Commit);
                self.ask_groups(index, waiting, around, |it, to| {
                    it.handle_offset_commit(to, request, true, now)
                })
            }
            ClientRequest::FetchOffsets(request) => {
                let index = self.partition_of(OFFSETS_TOPIC, &request.group_id);
                let waiting = Waiting::Client(caller, Wanted::Offsets);
                self.ask_groups(index, waiting, around, |it, to| {
                    it.handle_offset_fetch(to, &request, true)
                })
            }
            ClientRequest::CommitInTransaction(request) => {
                self.commit_in_transaction(caller, request, around)
            }
            other => panic!("{other:?} is no request to a coordinator"),
        }
    }

    fn ask_groups<T>(
        &mut self,
        index: i32,
        waiting: Waiting,
        around: &mut Surroundings<'_>,
        decide: impl FnOnce(&mut GroupCoordinator, ReplyTo<T>) -> Outcome<GroupCoordinator>,
    ) -> Result<(), Stopped> {
        let at = at(around.now_ms, around.timestamp());
        let refused = match self.coordinators.groups.get_mut(&index) {
            Some(shell) => shell.runtime.request(waiting, &at, decide),
            None => Err((waiting, ErrorCode::NotCoordinator)),
        };
        match refused {
            Ok(()) => Ok(()),
            Err((waiting, error)) => self.refuse(waiting, error, around),
        }
    }

    fn ask_transactions<T>(
        &mut self,
        index: i32,
        waiting: Waiting,
        around: &mut Surroundings<'_>,
        decide: impl FnOnce(&mut TransactionCoordinator, ReplyTo<T>) -> Outcome<TransactionCoordinator>,
    ) -> Result<(), Stopped> {
        let at = at(around.now_ms, around.timestamp());
        let refused = match self.coordinators.transactions.get_mut(&index) {
            Some(shell) => shell.runtime.request(waiting, &at, decide),
            None => Err((waiting, ErrorCode::NotCoordinator)),
        };
        match refused {
            Ok(()) => Ok(()),
            Err((waiting, error)) => self.refuse(waiting, error, around),
        }
    }

    /// No coordinator can be asked here.
    fn refuse(
        &mut self,
        waiting: Waiting,
        error: ErrorCode,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        match waiting {
            Waiting::Client(caller, wanted) => {
                let response = match wanted {
                    Wanted::Initialization => ClientResponse::TransactionsInitialized(Err(error)),
                    Wanted::End => ClientResponse::TransactionEnded(Err(error)),
                    Wanted::Heartbeat(_) => {
                        ClientResponse::Heard(Box::new(ConsumerGroupHeartbeatResponse {
                            error_code: error.code(),
                            ..Default::default()
                        }))
                    }
                    Wanted::ShareHeartbeat => {
                        ClientResponse::ShareHeard(Box::new(ShareGroupHeartbeatResponse {
                            error_code: error.code(),
                            ..Default::default()
                        }))
                    }
                    Wanted::Commit => ClientResponse::OffsetsCommitted(error),
                    Wanted::CommitInTransaction => ClientResponse::CommittedInTransaction(error),
                    Wanted::Offsets => ClientResponse::OffsetsFetched(OffsetFetchResponseGroup {
                        error_code: error.code(),
                        ..Default::default()
                    }),
                };
                answer(caller, response, around);
                Ok(())
            }
            waiting @ (Waiting::Broker { .. } | Waiting::Question(_)) => {
                let response = transaction::Response::AddPartitions(error);
                self.on_transactions_replied(waiting, response, around)
            }
            Waiting::Marker { job, partition } => {
                self.on_marker_settled(job, partition, marker_error(error), around);
                Ok(())
            }
        }
    }

    fn on_groups_replied(
        &mut self,
        waiting: Waiting,
        response: group::Response,
        shell: &Groups,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        around.note(|| {
            format!(
                "groups {} tell {waiting:?}: {response:?}",
                shell.key.partition
            )
        });
        match (waiting, response) {
            (Waiting::Client(caller, wanted), response) => {
                let response = match (wanted, response) {
                    (
                        Wanted::Heartbeat(heartbeat),
                        group::Response::ConsumerGroupHeartbeat(response),
                    ) => {
                        let owners = &mut around.checkers.partition_owners;
                        owners.on_told(&heartbeat, shell.leader_epoch(), &response);
                        ClientResponse::Heard(Box::new(response))
                    }
                    (_, group::Response::ShareGroupHeartbeat(response)) => {
                        ClientResponse::ShareHeard(Box::new(response))
                    }
                    (_, group::Response::OffsetCommit(response)) => {
                        let mut partitions = response.topics.iter().flat_map(|it| &it.partitions);
                        let error = partitions.find(|it| it.error_code != 0);
                        let code = error.map_or(0, |it| it.error_code);
                        ClientResponse::OffsetsCommitted(ErrorCode::from_code(code))
                    }
                    (_, group::Response::TxnOffsetCommit(response)) => {
                        let mut partitions = response.topics.iter().flat_map(|it| &it.partitions);
                        let error = partitions.find(|it| it.error_code != 0);
                        let code = error.map_or(0, |it| it.error_code);
                        ClientResponse::CommittedInTransaction(ErrorCode::from_code(code))
                    }
                    (_, group::Response::OffsetFetch(response)) => {
                        ClientResponse::OffsetsFetched(response)
                    }
                    (wanted, other) => panic!("{wanted:?} is answered {other:?}"),
                };
                answer(caller, response, around);
            }
            (Waiting::Marker { job, partition }, group::Response::TransactionEnd(error)) => {
                self.on_marker_settled(job, partition, marker_error(error), around);
            }
            (waiting, other) => panic!("{waiting:?} is answered {other:?}"),
        }
        Ok(())
    }

    fn on_transactions_replied(
        &mut self,
        waiting: Waiting,
        response: transaction::Response,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        around.note(|| format!("transactions tell {waiting:?}: {response:?}"));
        match (waiting, response) {
            (Waiting::Client(caller, _), transaction::Response::InitProducerId(result)) => {
                if let Ok(producer) = result {
                    around.checkers.fenced_producers.on_initialized(producer);
                }
                answer(
                    caller,
                    ClientResponse::TransactionsInitialized(result),
                    around,
                );
                Ok(())
            }
            (Waiting::Client(caller, _), transaction::Response::EndTxn(result)) => {
                answer(caller, ClientResponse::TransactionEnded(result), around);
                Ok(())
            }
            (Waiting::Question(id), transaction::Response::AddPartitions(error)) => {
                let response = BrokerResponse::PartitionsAdded(error);
                self.on_answered(id, Some(response), around)
            }
            (
                Waiting::Broker {
                    broker,
                    life,
                    correlation_id,
                },
                transaction::Response::AddPartitions(error),
            ) => {
                let body = Body::BrokerAnswered {
                    correlation_id,
                    response: Some(BrokerResponse::PartitionsAdded(error)),
                };
                around.answer(broker, life, body);
                Ok(())
            }
            (waiting, other) => panic!("{waiting:?} is answered {other:?}"),
        }
    }

    /// A producer id that the coordinator in this partition wanted is there.
    pub(super) fn on_producer_id_for(
        &mut self,
        index: i32,
        producer_id: ProducerId,
        now_ms: u64,
        now: Timestamp,
    ) {
        if let Some(shell) = self.coordinators.transactions.get_mut(&index) {
            shell.tell(&at(now_ms, now), |it| {
                it.on_producer_id(Ok(producer_id), now)
            });
        }
    }
}

pub(crate) fn answer(caller: Caller, response: ClientResponse, around: &mut Surroundings<'_>) {
    let body = Body::ToClient {
        correlation_id: caller.correlation_id,
        response,
    };
    around.answer(caller.client, caller.life, body);
}
