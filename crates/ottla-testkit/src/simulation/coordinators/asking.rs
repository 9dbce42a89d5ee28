//! Before something is written to a transaction, its coordinator is asked to make the partition part of it; and what other
//! brokers ask.
//!
//! Mirrors `transactions/verifier.rs` of the broker (`ask_coordinator`, `ask_here`, `result_of`), `api/txn_offset_commit.rs` (`commit`,
//! `verify`) and `partition/execute/transactions.rs` (`admit`, `on_verified`). A question goes alone and once: who asked is told to
//! try again, where the verifier of the broker would.

use bytestring::ByteString;
use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::transaction::AddPartitions;
use ottla_protocol::messages::TxnOffsetCommitRequest;
use ottla_records::RecordBatch;
use ottla_replica::RequiredAcks;
use ottla_types::{
    ErrorCode, PartitionIndex, ProducerEpoch, ProducerId, Sequence, TopicIdPartition,
    TopicPartition,
};

use super::markers::{ForWhom, all};
use super::{Caller, Question, Waiting, Wanted, answer};
use crate::simulation::broker_shell::BrokerShell;
use crate::simulation::coordinator_shell::{OFFSETS_TOPIC, TRANSACTION_TOPIC, TRANSACTION_VERSION};
use crate::simulation::message::{Body, BrokerRequest, BrokerResponse, ClientResponse};
use crate::simulation::node::{Stopped, Surroundings};
use crate::simulation::replica_shell::{Ack, Arriving, OfTransaction};

impl BrokerShell {
    /// A batch of a transaction: its coordinator is asked first, where it is the first here.
    pub(crate) fn produce_in_transaction(
        &mut self,
        key: TopicIdPartition,
        transactional_id: ByteString,
        batch: RecordBatch,
        deadline_ms: u64,
        ack: Ack,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let producer = producer_of(&batch);
        let replica = self.replicas.get_mut(&key).expect("it was looked for");
        let sequence = batch.header.base_sequence;
        let guard = match replica.begin_verification(producer, sequence, around) {
            Ok(Some(guard)) => guard,
            Ok(None) => {
                let arriving = arriving(batch, None, deadline_ms, ack);
                return replica.append(arriving, around);
            }
            Err(error) => {
                refuse_produce(ack, error, around);
                return Ok(());
            }
        };
        let topic = replica.topic.clone();
        let question = Question::Produce {
            key,
            batch,
            guard,
            ack,
            deadline_ms,
        };
        let partition = TopicPartition::new(topic, key.partition.0);
        self.ask_to_add(question, transactional_id, producer, partition, around)
    }

    pub(super) fn commit_in_transaction(
        &mut self,
        caller: Caller,
        request: TxnOffsetCommitRequest,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let index = self.partition_of(OFFSETS_TOPIC, &request.group_id);
        let producer = TransactionalProducer {
            id: ProducerId(request.producer_id),
            epoch: ProducerEpoch(request.producer_epoch),
        };
        let key = self.coordinators.groups.get(&index).map(|shell| shell.key);
        let replica = key.and_then(|key| self.replicas.get_mut(&key));
        let guard = match replica {
            None => Err(ErrorCode::NotCoordinator),
            Some(replica) => replica
                .begin_verification(producer, Sequence::NONE, around)
                .map_err(ottla_coordinator::error_after_append),
        };
        match guard {
            Err(error) => {
                answer(
                    caller,
                    ClientResponse::CommittedInTransaction(error),
                    around,
                );
                Ok(())
            }
            Ok(None) => self.write_offsets(index, caller, request, None, around),
            Ok(Some(guard)) => {
                let transactional_id = request.transactional_id.clone();
                let question = Question::Offsets {
                    partition: index,
                    request,
                    guard,
                    caller,
                };
                let partition = TopicPartition::new(OFFSETS_TOPIC, index);
                self.ask_to_add(question, transactional_id, producer, partition, around)
            }
        }
    }

    fn write_offsets(
        &mut self,
        index: i32,
        caller: Caller,
        request: TxnOffsetCommitRequest,
        guard: Option<u64>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let now = around.timestamp();
        let waiting = Waiting::Client(caller, Wanted::CommitInTransaction);
        self.ask_groups(index, waiting, around, |it, to| {
            it.handle_txn_offset_commit(to, request, guard, now)
        })
    }

    /// Has the coordinator of a transaction make a partition part of it.
    fn ask_to_add(
        &mut self,
        question: Question,
        transactional_id: ByteString,
        producer: TransactionalProducer,
        partition: TopicPartition,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let id = self.correlation_id();
        let questions = &mut self.coordinators.questions;
        questions.insert(id, (around.now_ms, question));
        let index = self.partition_of(TRANSACTION_TOPIC, &transactional_id);
        let request = AddPartitions {
            transactional_id,
            producer,
            partitions: vec![partition],
            client_transaction_version: TRANSACTION_VERSION,
        };
        let registration = self
            .image
            .topics
            .partition(TRANSACTION_TOPIC, PartitionIndex(index));
        let leader = registration.and_then(|it| self.image.cluster.broker(it.leader));
        match leader
            .filter(|leader| !leader.fenced)
            .map(|leader| leader.id)
        {
            None => {
                let error = ErrorCode::CoordinatorNotAvailable;
                let response = BrokerResponse::PartitionsAdded(error);
                self.on_answered(id, Some(response), around)
            }
            Some(leader) if leader.0 == around.id => {
                let now = around.timestamp();
                self.ask_transactions(index, Waiting::Question(id), around, |it, to| {
                    it.handle_add_partitions(to, request, now)
                })
            }
            Some(leader) => {
                let body = Body::AskBroker {
                    correlation_id: id,
                    request: BrokerRequest::AddPartitions(request),
                };
                around.send(leader.0, body);
                Ok(())
            }
        }
    }

    /// Another broker asks.
    pub(crate) fn on_asked_by_broker(
        &mut self,
        broker: i32,
        life: u64,
        correlation_id: u64,
        request: BrokerRequest,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        if !self.is_serving {
            let response = None;
            let body = Body::BrokerAnswered {
                correlation_id,
                response,
            };
            around.answer(broker, life, body);
            return Ok(());
        }
        match request {
            BrokerRequest::AddPartitions(request) => {
                let index = self.partition_of(TRANSACTION_TOPIC, &request.transactional_id);
                let waiting = Waiting::Broker {
                    broker,
                    life,
                    correlation_id,
                };
                let now = around.timestamp();
                self.ask_transactions(index, waiting, around, |it, to| {
                    it.handle_add_partitions(to, request, now)
                })
            }
            BrokerRequest::ShareState(request) => {
                let waiting = Waiting::Broker {
                    broker,
                    life,
                    correlation_id,
                };
                self.ask_share_states(waiting, request, around)
            }
            BrokerRequest::WriteMarkers {
                producer,
                end,
                partitions,
            } => {
                let for_whom = ForWhom::Broker {
                    broker,
                    life,
                    correlation_id,
                };
                self.write_markers(producer, end, partitions, for_whom, around)
            }
        }
    }

    /// A question has its answer, or nobody gives one.
    pub(crate) fn on_answered(
        &mut self,
        id: u64,
        response: Option<BrokerResponse>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let Some((_, question)) = self.coordinators.questions.remove(&id) else {
            return Ok(());
        };
        let added = match &response {
            Some(BrokerResponse::PartitionsAdded(error)) => *error,
            _ => ErrorCode::NetworkException,
        };
        match question {
            Question::ShareState(persisting) => {
                let result = match response {
                    Some(BrokerResponse::ShareState(result)) => result,
                    _ => Err(ErrorCode::NetworkException),
                };
                self.on_persisted(*persisting, result, around);
                Ok(())
            }
            Question::Markers(index, markers) => {
                let answers = match response {
                    Some(BrokerResponse::MarkersWritten(answers)) => answers,
                    _ => all(&markers.partitions, ErrorCode::NetworkException),
                };
                self.on_markers_answered(index, markers, answers, around);
                Ok(())
            }
            Question::Produce {
                key,
                batch,
                guard,
                ack,
                deadline_ms,
            } => {
                let Some(replica) = self.replicas.get_mut(&key) else {
                    refuse_produce(ack, ErrorCode::NotLeaderOrFollower, around);
                    return Ok(());
                };
                if added == ErrorCode::None {
                    let arriving = arriving(batch, Some(guard), deadline_ms, ack);
                    return replica.append(arriving, around);
                }
                let error = error_of_verification(added, true);
                replica.on_verification_refused(producer_of(&batch), guard, error);
                refuse_produce(ack, error, around);
                Ok(())
            }
            Question::Offsets {
                partition,
                request,
                guard,
                caller,
            } => {
                if added == ErrorCode::None {
                    return self.write_offsets(partition, caller, request, Some(guard), around);
                }
                let error = error_of_verification(added, false);
                let producer = TransactionalProducer {
                    id: ProducerId(request.producer_id),
                    epoch: ProducerEpoch(request.producer_epoch),
                };
                let key = self.key_of(&TopicPartition::new(OFFSETS_TOPIC, partition));
                if let Some(replica) = key.and_then(|key| self.replicas.get_mut(&key)) {
                    replica.on_verification_refused(producer, guard, error);
                }
                let error = ottla_coordinator::error_after_append(error);
                answer(
                    caller,
                    ClientResponse::CommittedInTransaction(error),
                    around,
                );
                Ok(())
            }
        }
    }
}

fn producer_of(batch: &RecordBatch) -> TransactionalProducer {
    TransactionalProducer {
        id: batch.header.producer_id,
        epoch: batch.header.producer_epoch,
    }
}

fn arriving(batch: RecordBatch, guard: Option<u64>, deadline_ms: u64, ack: Ack) -> Arriving {
    Arriving {
        batch,
        required_acks: RequiredAcks::All,
        expected_leader_epoch: None,
        of_transaction: OfTransaction::Verified(guard),
        deadline_ms,
        ack,
    }
}

fn refuse_produce(ack: Ack, error: ErrorCode, around: &mut Surroundings<'_>) {
    if let Ack::Client {
        client,
        client_life,
        correlation_id,
        ..
    } = ack
    {
        let caller = Caller {
            client,
            life: client_life,
            correlation_id,
        };
        answer(caller, ClientResponse::Produced(Err(error)), around);
    }
}

/// What a client is told that the coordinator of its transaction refused, or that could not be asked.
fn error_of_verification(error: ErrorCode, is_produce: bool) -> ErrorCode {
    match error {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::NetworkException
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator
            if is_produce =>
        {
            ErrorCode::NotEnoughReplicas
        }
        error => error,
    }
}
