//! Clients that read, process and write: what they read of a topic they write to another in transactions, together with how
//! far they have read.
//!
//! Kafka: `KafkaProducer` with `transactional.id`, `TransactionManager`, and an application as of KIP-447. A producer works by
//! version 2 of the protocol: each transaction has an epoch of its own, and brokers add what is written to. An error that only a
//! new instance gets over ends the instance; a supervisor starts the next a while later.

use std::collections::BTreeMap;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_coordinator::TransactionalProducer;
use ottla_coordinator::transaction::EndTransaction;
use ottla_protocol::messages::TxnOffsetCommitRequest;
use ottla_protocol::messages::txn_offset_commit_request::{
    TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use ottla_records::{Attributes, BatchHeader, RecordBatch};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, Sequence, Timestamp, TopicIdPartition};

use super::checkers::Checkers;
use super::coordinator_shell::TRANSACTION_VERSION;
use super::group_clients::{Then, delivered};
use super::membership::{Heard, Member};
use super::message::{ClientRequest, ClientResponse, CommittedFetch};
use super::random::Random;

const TRANSACTION_TIMEOUT_MS: i32 = 4_000;
const REQUEST_TIMEOUT_MS: u64 = 1_500;

pub(crate) struct Mover {
    pub transactional_id: ByteString,
    /// Tells the values of its transactions from those of others: instances of one id share it.
    slot: u32,
    producer: Option<TransactionalProducer>,
    transaction: Option<Moving>,
    /// The partition that it asks about.
    source: i32,
}

/// One transaction.
struct Moving {
    source: i32,
    /// Where it goes on in `source` when this is committed.
    next: Offset,
    outputs: Vec<Output>,
    written: usize,
    has_offsets: bool,
    is_commit: bool,
    /// It can only be aborted.
    is_given_up: bool,
}

struct Output {
    partition: TopicIdPartition,
    value: u32,
    sequence: i32,
    records: i32,
}

impl Mover {
    pub(crate) fn new(transactional_id: ByteString, slot: u32) -> Mover {
        Mover {
            transactional_id,
            slot,
            producer: None,
            transaction: None,
            source: 0,
        }
    }

    /// A new instance knows nothing of the one before.
    pub(crate) fn restart(&mut self) {
        self.producer = None;
        self.transaction = None;
    }

    /// The partition whose records are in an open transaction.
    pub(crate) fn busy(&self) -> Option<i32> {
        self.transaction.as_ref().map(|moving| moving.source)
    }

    pub(crate) fn give_up(&mut self) {
        if let Some(moving) = &mut self.transaction {
            moving.is_given_up = true;
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.transaction.is_none()
    }

    /// What it asks for next. `key_of` knows the partitions of the topic that it reads.
    pub(crate) fn next_request(
        &mut self,
        member: &Member,
        key_of: impl Fn(i32) -> Option<TopicIdPartition>,
        random: &mut Random,
    ) -> Option<ClientRequest> {
        let Some(producer) = self.producer else {
            return Some(ClientRequest::InitTransactions {
                transactional_id: self.transactional_id.clone(),
                timeout_ms: TRANSACTION_TIMEOUT_MS,
            });
        };
        let Some(moving) = &mut self.transaction else {
            let sources: Vec<i32> = member.positions.keys().copied().collect();
            self.source = random.pick(&sources)?;
            return Some(match member.positions[&self.source] {
                None => ClientRequest::FetchOffsets(member.fetch_offset(self.source)),
                Some(offset) => ClientRequest::FetchCommitted {
                    partition: key_of(self.source)?,
                    offset,
                },
            });
        };
        if !member.positions.contains_key(&moving.source) {
            moving.is_given_up = true;
        }
        if !moving.is_given_up && moving.written < moving.outputs.len() {
            let output = &moving.outputs[moving.written];
            return Some(ClientRequest::Produce {
                partition: output.partition,
                batch: batch(producer, output),
                transactional_id: Some(self.transactional_id.clone()),
                timeout_ms: REQUEST_TIMEOUT_MS,
            });
        }
        if !moving.is_given_up && !moving.has_offsets {
            return Some(ClientRequest::CommitInTransaction(TxnOffsetCommitRequest {
                transactional_id: self.transactional_id.clone(),
                group_id: member.group_id.clone(),
                producer_id: producer.id.value(),
                producer_epoch: producer.epoch.value(),
                generation_id: member.epoch,
                member_id: member.id.clone(),
                topics: vec![TxnOffsetCommitRequestTopic {
                    name: member.topic.clone(),
                    partitions: vec![TxnOffsetCommitRequestPartition {
                        partition_index: moving.source,
                        committed_offset: moving.next.0,
                        committed_leader_epoch: -1,
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            }));
        }
        Some(ClientRequest::EndTransaction(EndTransaction {
            transactional_id: self.transactional_id.clone(),
            producer,
            is_commit: moving.is_commit && !moving.is_given_up,
            client_transaction_version: TRANSACTION_VERSION,
        }))
    }

    pub(crate) fn receive(
        &mut self,
        response: ClientResponse,
        member: &mut Member,
        (inputs, outputs): (&[TopicIdPartition], &[TopicIdPartition]),
        now_ms: u64,
        random: &mut Random,
        checkers: &mut Checkers,
    ) -> Then {
        let key_of = |partition: i32| {
            inputs
                .iter()
                .find(|it| it.partition.0 == partition)
                .copied()
        };
        match response {
            ClientResponse::TransactionsInitialized(Ok(producer)) => {
                checkers
                    .idempotence
                    .on_producer(producer.id, -(self.slot as i32));
                self.producer = Some(producer);
                Then::Go
            }
            ClientResponse::OffsetsFetched(response) => match member.on_offset(&response) {
                (Heard::Fine, Some((partition, offset))) => {
                    if let Some(key) = key_of(partition) {
                        let committed = &checkers.committed_records;
                        let atomic = &mut checkers.atomic_transactions;
                        atomic.on_position(key, offset, committed);
                    }
                    Then::Go
                }
                (Heard::Fine, None) => Then::Wait,
                (heard, _) => Then::of(heard),
            },
            ClientResponse::FetchedCommitted(Ok(fetched)) => {
                self.begin(&fetched, member, outputs, random, checkers)
            }
            ClientResponse::Produced(result) => match (result, &mut self.transaction) {
                (Ok(_), Some(moving)) => {
                    moving.written += 1;
                    Then::Go
                }
                (Ok(_), None) => Then::Go,
                (Err(error), _) => self.on_refused(error),
            },
            ClientResponse::CommittedInTransaction(ErrorCode::None) => {
                if let Some(moving) = &mut self.transaction {
                    moving.has_offsets = true;
                }
                Then::Go
            }
            ClientResponse::CommittedInTransaction(error) => self.on_refused(error),
            ClientResponse::TransactionEnded(Ok(Some(producer))) => {
                self.on_ended(producer, member, now_ms, checkers);
                Then::Go
            }
            // Nothing can be said about a transaction that is not in its state: Kafka's producer fails for good.
            ClientResponse::TransactionEnded(Err(ErrorCode::InvalidTxnState)) => Then::Restart,
            ClientResponse::TransactionsInitialized(Err(error))
            | ClientResponse::TransactionEnded(Err(error)) => self.on_refused(error),
            _ => Then::Trouble,
        }
    }

    fn on_refused(&mut self, error: ErrorCode) -> Then {
        match error {
            ErrorCode::InvalidProducerEpoch
            | ErrorCode::ProducerFenced
            | ErrorCode::InvalidProducerIdMapping
            | ErrorCode::UnknownServerError => Then::Restart,
            ErrorCode::InvalidTxnState
            | ErrorCode::OutOfOrderSequenceNumber
            | ErrorCode::TransactionAbortable
            | ErrorCode::UnknownMemberId
            | ErrorCode::StaleMemberEpoch
            | ErrorCode::IllegalGeneration => {
                self.give_up();
                Then::Go
            }
            ErrorCode::ConcurrentTransactions => Then::Wait,
            _ => Then::Trouble,
        }
    }

    fn begin(
        &mut self,
        fetched: &CommittedFetch,
        member: &Member,
        outputs: &[TopicIdPartition],
        random: &mut Random,
        checkers: &mut Checkers,
    ) -> Then {
        let at = member.positions.get(&self.source).copied().flatten();
        let inputs = delivered(fetched);
        let count = match random.per_mille(400) {
            true => inputs.len(),
            false => 1 + random.below(10) as usize,
        };
        let inputs = &inputs[..inputs.len().min(count)];
        let (Some(producer), Some(last)) = (self.producer, inputs.last()) else {
            return Then::Wait;
        };
        // What came late may be of before.
        if at != Some(inputs[0].header.base_offset) {
            return Then::Wait;
        }
        let mut sequences: BTreeMap<TopicIdPartition, i32> = BTreeMap::new();
        let mut moving = Moving {
            source: self.source,
            next: last.header.next_offset(),
            outputs: Vec::new(),
            written: 0,
            has_offsets: false,
            is_commit: !random.per_mille(200),
            is_given_up: false,
        };
        let per_output = 1 + random.below(inputs.len() as u64) as usize;
        let per_output = per_output.max(inputs.len().div_ceil(3));
        for (number, inputs) in inputs.chunks(per_output).enumerate() {
            let Some(partition) = random.pick(outputs) else {
                return Then::Trouble;
            };
            let records = 1 + random.below(2) as i32;
            let sequence = sequences.entry(partition).or_default();
            let epoch = producer.epoch.value() as u32;
            let output = Output {
                partition,
                // Grows with the epoch, whoever it is that has it.
                value: self.slot * 100_000 + epoch * 10 + number as u32,
                sequence: *sequence,
                records,
            };
            *sequence += records;
            let inputs = inputs
                .iter()
                .map(|input| (self.source, input.header.base_offset));
            let atomic = &mut checkers.atomic_transactions;
            atomic.on_begun(output.value, inputs, producer);
            moving.outputs.push(output);
        }
        self.transaction = Some(moving);
        Then::Go
    }

    fn on_ended(
        &mut self,
        next: TransactionalProducer,
        member: &mut Member,
        now_ms: u64,
        checkers: &mut Checkers,
    ) {
        let before = self.producer.replace(next);
        let (Some(moving), Some(before)) = (self.transaction.take(), before) else {
            return;
        };
        if moving.is_commit && !moving.is_given_up {
            let values = moving.outputs.iter().map(|output| output.value);
            let atomic = &checkers.atomic_transactions;
            checkers.missed_records.on_told(before, values, atomic);
            if let Some(position) = member.positions.get_mut(&moving.source) {
                *position = Some(moving.next);
            }
        }
        member.give_up(None, now_ms);
    }
}

/// A batch without records, told from others by what stands for its checksum.
fn batch(producer: TransactionalProducer, output: &Output) -> RecordBatch {
    let header = BatchHeader {
        base_offset: Offset(0),
        batch_length: (BatchHeader::SIZE - 12) as i32,
        partition_leader_epoch: LeaderEpoch(0),
        magic: 2,
        crc: output.value,
        attributes: Attributes::default().with_transactional(true),
        last_offset_delta: output.records - 1,
        base_timestamp: Timestamp(0),
        max_timestamp: Timestamp(0),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        base_sequence: Sequence(output.sequence),
        record_count: output.records,
    };
    RecordBatch::new(header, Bytes::new())
}
