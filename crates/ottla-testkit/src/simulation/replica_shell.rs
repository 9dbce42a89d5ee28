//! One replica on a broker: steps `ottla_replica::Replica` and carries out what it asks for.
//!
//! Mirrors `partition/execute.rs` of the broker (`on_append`, `verdict`, `step`, `execute`, `write`, `flush`),
//! `partition/execute/transactions.rs` (`begin_verification`, `check_verified`, `on_verified`) and
//! `partition/execute/replicating.rs` (`on_follower_fetch`, `on_leader_answered`, `propose`, `note_refusal`, `truncate`): the same
//! in the same order.

use std::collections::VecDeque;

use ottla_coordinator::{TransactionalProducer, WriteId};
use ottla_log::{AppendOrigin, ProducerStage, TransactionStart, TransactionVersion, Verifications};
use ottla_records::RecordBatch;
use ottla_records::legacy::AnyBatch;
use ottla_replica::{
    AckOutcome, AlterPartition, Append, Effect, Event, FetchPosition, FetchRefusal, Fetched,
    FollowerFetch, ProducerVerdict, Replica, ReplicaConfig, RequiredAcks,
};
use ottla_types::{
    BrokerId, ErrorCode, LeaderEpoch, Offset, Sequence, TopicIdPartition, TopicName,
};

use super::message::{Body, ClientResponse, CommittedFetch, FetchAnswer};
use super::node::{Out, Stopped, Surroundings};
use super::partition_log::PartitionLog;
use super::planted::{self, Bug};

/// Batches that one fetch of a follower's brings at most.
const FETCH_MAX_BATCHES: usize = 3;
/// The same of a `read_committed` consumer's, which works on all of them in one transaction.
const COMMITTED_FETCH_MAX_BATCHES: usize = 100;
/// How long a proposal waits that was refused and is made again.
const RETRY_MS: u64 = 50;

/// Who waits for an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ack {
    Client {
        client: i32,
        client_life: u64,
        correlation_id: u64,
        /// What the batch is told from others by.
        value: u32,
        records: i32,
    },
    /// The coordinator that leads this partition, for what it wrote in `leader_epoch`.
    Coordinator {
        leader_epoch: LeaderEpoch,
        first: WriteId,
    },
    /// Whoever has markers written, which of them.
    Marker { job: u64, partition: usize },
}

/// What a batch has to do with a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OfTransaction {
    No,
    /// Its coordinator was asked, under this guard; `None` where it had begun already.
    Verified(Option<u64>),
    /// It is the marker that ends one, by this `transaction.version`.
    Marker(i16),
}

/// A batch on its way into the log of its leader.
pub(crate) struct Arriving {
    pub batch: RecordBatch,
    pub required_acks: RequiredAcks,
    pub expected_leader_epoch: Option<LeaderEpoch>,
    pub of_transaction: OfTransaction,
    pub deadline_ms: u64,
    pub ack: Ack,
}

pub(crate) struct ReplicaShell {
    pub key: TopicIdPartition,
    pub topic: TopicName,
    pub replica: Replica<Ack>,
    stage: ProducerStage,
    verifications: Verifications,
    /// What came of appends that this broker itself waits for.
    pub released: VecDeque<(Ack, AckOutcome)>,
    /// What `WriteLog` asked for.
    unwritten: Vec<RecordBatch>,
    /// The standing order to the fetcher.
    pub order: Option<FetchPosition>,
    /// Whom to ask where its log ends, and whether that was done.
    pub question: Option<(BrokerId, LeaderEpoch, bool)>,
    /// The last proposal that was refused.
    refused: Option<AlterPartition>,
    /// Proposals to be handed on, and not before which time.
    pub proposals: VecDeque<(AlterPartition, u64)>,
    flush: FlushState,
}

enum FlushState {
    Idle,
    /// And up to where the log has to be flushed when that is done.
    Running(Option<Offset>),
}

#[derive(Clone, Copy)]
enum Truncation {
    To(Offset),
    FullyAndStartAt(Offset),
}

impl ReplicaShell {
    pub(crate) fn open(
        key: TopicIdPartition,
        topic: TopicName,
        broker_id: BrokerId,
        replica_lag_time_max_ms: u64,
        log: &mut PartitionLog,
    ) -> ReplicaShell {
        log.open();
        let config = ReplicaConfig {
            broker_id,
            replica_lag_time_max_ms,
            replica_fetch_backoff_ms: 100,
        };
        ReplicaShell {
            key,
            topic,
            replica: Replica::new(
                config,
                log.end(),
                log.high_watermark(),
                log.flushed(),
                log.latest_epoch(),
            ),
            stage: ProducerStage::default(),
            verifications: Verifications::default(),
            released: VecDeque::new(),
            unwritten: Vec::new(),
            order: None,
            question: None,
            refused: None,
            proposals: VecDeque::new(),
            flush: FlushState::Idle,
        }
    }

    /// What is known of the producer is looked at, then the replica decides.
    pub(crate) fn append(
        &mut self,
        arriving: Arriving,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let mut batch = arriving.batch;
        batch.assign_offset(self.replica.next_offset(), self.replica.leader_epoch());
        let verdict = match batch.header.has_producer_id() {
            true => self.verdict(&batch, arriving.ack, arriving.of_transaction, around),
            false => ProducerVerdict::InSequence,
        };
        let unwritten = self.unwritten.len();
        self.step(
            Event::Append(Append {
                batch,
                required_acks: arriving.required_acks,
                expected_leader_epoch: arriving.expected_leader_epoch,
                deadline_ms: arriving.deadline_ms,
                verdict,
                ack: arriving.ack,
            }),
            around,
        )?;
        if verdict == ProducerVerdict::InSequence && self.unwritten.len() == unwritten {
            self.write(around)?;
            self.stage.clear();
        }
        // Neighbouring appends share a write: whether there is a neighbour is up to chance.
        match around.random.below(3) {
            0 => Ok(()),
            _ => self.write(around),
        }
    }

    fn verdict(
        &mut self,
        batch: &RecordBatch,
        ack: Ack,
        of_transaction: OfTransaction,
        around: &Surroundings<'_>,
    ) -> ProducerVerdict {
        let origin = match ack {
            Ack::Client { .. } => AppendOrigin::Client,
            Ack::Coordinator { .. } | Ack::Marker { .. } => AppendOrigin::Coordinator,
        };
        let log = log_of(self.key, around);
        let mut version = TransactionVersion::default();
        match of_transaction {
            OfTransaction::No => {}
            OfTransaction::Verified(guard) => {
                let known = log.staged_producer(&self.stage, batch.header.producer_id);
                let verified = self
                    .verifications
                    .check(known, &batch.header, guard, origin);
                if let Err(error) = verified {
                    return ProducerVerdict::Refused(error);
                }
            }
            OfTransaction::Marker(of_marker) => version = TransactionVersion(of_marker),
        }
        log.check_producer(&mut self.stage, batch, origin, version)
    }

    /// The guard under which the coordinator of a transaction is to be asked whether this partition is part of it; `None`
    /// where it has begun here.
    pub(crate) fn begin_verification(
        &mut self,
        producer: TransactionalProducer,
        sequence: Sequence,
        around: &Surroundings<'_>,
    ) -> Result<Option<u64>, ErrorCode> {
        if !self.replica.is_leader() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let start = TransactionStart {
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            sequence,
            raises_epoch: true,
        };
        let log = log_of(self.key, around);
        let known = log.staged_producer(&self.stage, producer.id);
        self.verifications
            .begin(known, start, around.now_ms, u64::MAX)
    }

    pub(crate) fn on_verification_refused(
        &mut self,
        producer: TransactionalProducer,
        guard: u64,
        error: ErrorCode,
    ) {
        self.verifications.on_refused(producer.id, guard, error);
    }

    /// Anything but an append: what is unwritten is written first.
    pub(crate) fn take(
        &mut self,
        event: Event<Ack>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        self.write(around)?;
        if let Event::PartitionAltered {
            proposal,
            result: Err(_),
        } = &event
        {
            self.refused = Some(proposal.clone());
        }
        self.step(event, around)
    }

    pub(crate) fn serve_follower(
        &mut self,
        mut fetch: FollowerFetch,
        around: &mut Surroundings<'_>,
    ) -> Result<FetchAnswer, Stopped> {
        self.write(around)?;
        let log = log_of(self.key, around);
        fetch.end_of_last_fetched_epoch = fetch
            .last_fetched_epoch
            .and_then(|epoch| log.end_of_epoch(epoch));
        fetch.leader_log_start_offset = log.start();
        if let Err(refusal) = self.replica.check_follower_fetch(&fetch) {
            return Ok(FetchAnswer::Refused(refusal));
        }
        self.step(Event::FollowerFetched(fetch), around)?;
        let log = log_of(self.key, around);
        let batches = log.batches_from(fetch.fetch_offset);
        Ok(FetchAnswer::Records {
            batches: batches.iter().take(FETCH_MAX_BATCHES).cloned().collect(),
            high_watermark: self.replica.high_watermark(),
            log_start_offset: log.start(),
        })
    }

    pub(crate) fn on_leader_answered(
        &mut self,
        order: FetchPosition,
        answer: Result<FetchAnswer, ErrorCode>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        // Of an order that is in force no more, nobody wants to hear.
        if self.order != Some(order) {
            return Ok(());
        }
        let log = log_of(self.key, around);
        let result = match answer {
            Ok(FetchAnswer::Records {
                batches,
                high_watermark,
                log_start_offset,
            }) => Ok(Fetched::Records {
                batches: batches.into_iter().map(AnyBatch::Current).collect(),
                high_watermark,
                log_start_offset,
                local_log_start_offset: log.start(),
            }),
            Ok(FetchAnswer::Refused(FetchRefusal::Diverging(leader))) => Ok(Fetched::Diverging {
                leader,
                local: log.end_of_epoch(leader.leader_epoch),
            }),
            Ok(FetchAnswer::Refused(FetchRefusal::Error(error))) | Err(error) => Err(error),
        };
        self.order = None;
        let event = Event::FetchAnswered {
            order,
            result,
            now_ms: around.now_ms,
        };
        self.take(event, around)
    }

    /// Writes what `WriteLog` asked for and tells the replica how far that went.
    pub(crate) fn write(&mut self, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let batches = std::mem::take(&mut self.unwritten);
        self.stage.clear();
        if around.disk.is_full {
            let log_end_offset = log_of(self.key, around).end();
            return self.step(Event::WriteRefused { log_end_offset }, around);
        }
        for batch in batches {
            let (id, key) = (around.id, self.key);
            let log = &around.disk.partitions[&key];
            let idempotence = &mut around.checkers.idempotence;
            idempotence.on_written(id, key, log, &batch);
            log_of_mut(key, around).append(batch);
            around.stumble()?;
        }
        let log_end_offset = log_of(self.key, around).end();
        self.step(Event::LogWritten { log_end_offset }, around)
    }

    fn step(&mut self, event: Event<Ack>, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        let shown = match &event {
            Event::ClockTicked { .. } => None,
            // Nothing new.
            Event::FetchAnswered {
                result: Ok(Fetched::Records { batches, .. }),
                ..
            } if batches.is_empty() => None,
            event => Some(format!("{event:?}")).filter(|_| around.history.is_kept()),
        };
        let mut effects = Vec::new();
        self.replica.step(event, &mut effects);
        if let Some(shown) = shown {
            let key = self.key.partition;
            around.note(|| format!("replica {key} {shown} -> {effects:?}"));
        }
        let mut truncation = None;
        for effect in effects {
            if let Some(wanted) = self.execute(effect, around) {
                truncation = Some(wanted);
            }
        }
        if self.replica.is_leader() {
            around.checkers.partition_leaders.on_leader(
                around.id,
                around.life,
                self.key,
                self.replica.leader_epoch(),
            );
        }
        match truncation {
            Some(truncation) => self.truncate(truncation, around),
            None if !self.replica.is_leader() && !self.unwritten.is_empty() => self.write(around),
            None => Ok(()),
        }
    }

    /// Returns how the log has to be cut next, if it has to.
    fn execute(
        &mut self,
        effect: Effect<Ack>,
        around: &mut Surroundings<'_>,
    ) -> Option<Truncation> {
        let key = self.key;
        match effect {
            Effect::AssignLeaderEpoch {
                leader_epoch,
                start_offset,
            } => {
                let (id, log) = (around.id, around.disk.partitions.get(&key));
                let log = log.expect("its log is here");
                around
                    .checkers
                    .acknowledged
                    .on_elected(id, key, leader_epoch, log);
                log_of_mut(key, around).assign_epoch(leader_epoch, start_offset);
            }
            Effect::WriteLog { batch } => {
                self.verifications.on_appended(&batch.header);
                let fenced_producers = &mut around.checkers.fenced_producers;
                fenced_producers.on_taken(around.id, key, &batch);
                self.unwritten.push(batch);
            }
            Effect::WriteLegacy { message } => panic!("nobody sends {message:?}"),
            Effect::Flush { up_to } => self.start_flush(up_to, around),
            Effect::AdvanceHighWatermark { high_watermark } => {
                let (id, epoch) = (around.id, self.replica.leader_epoch());
                let log = &around.disk.partitions[&key];
                let high_watermark = match planted::has(Bug::CommitWhatIsWritten) {
                    true => log.end(),
                    false => high_watermark,
                };
                let checkers = &mut *around.checkers;
                checkers
                    .high_watermarks
                    .on_led(id, key, epoch, high_watermark);
                checkers.on_committed(id, key, &self.topic, epoch, log, high_watermark);
                log_of_mut(key, around).set_high_watermark(high_watermark);
            }
            Effect::FollowHighWatermark { high_watermark } => {
                let (id, life, epoch) = (around.id, around.life, self.replica.leader_epoch());
                around
                    .checkers
                    .high_watermarks
                    .on_followed(id, life, key, epoch, high_watermark);
                log_of_mut(key, around).set_high_watermark(high_watermark);
            }
            Effect::IncrementLogStartOffset { .. } | Effect::MoveLowWatermark { .. } => {}
            Effect::ReleaseAck { ack, outcome } => self.release(ack, outcome, around),
            Effect::AlterPartition(proposal) => {
                let is_again = self.refused.take().as_ref() == Some(&proposal);
                let wait_ms = if is_again { RETRY_MS } else { 0 };
                let ready_at_ms = around.now_ms + wait_ms;
                self.proposals.push_back((proposal, ready_at_ms));
            }
            Effect::Fetch(position) => self.order = Some(position),
            Effect::StopFetching => self.order = None,
            Effect::ListLeaderOffsets {
                leader,
                leader_epoch,
            } => self.question = Some((leader, leader_epoch, false)),
            Effect::TruncateLog { to } => return Some(Truncation::To(to)),
            Effect::TruncateLogFully { start_at } => {
                return Some(Truncation::FullyAndStartAt(start_at));
            }
        }
        None
    }

    fn release(&mut self, ack: Ack, outcome: AckOutcome, around: &mut Surroundings<'_>) {
        let Ack::Client {
            client,
            client_life,
            correlation_id,
            value,
            records: _,
        } = ack
        else {
            self.released.push_back((ack, outcome));
            return;
        };
        let result = match outcome {
            AckOutcome::Appended { base_offset } | AckOutcome::Duplicate { base_offset, .. } => {
                let epoch = self.replica.leader_epoch();
                let acknowledged = &mut around.checkers.acknowledged;
                acknowledged.on_acknowledged(self.key, base_offset, value, epoch);
                Ok(base_offset)
            }
            refused => Err(refused.error_code()),
        };
        let body = Body::ToClient {
            correlation_id,
            response: ClientResponse::Produced(result),
        };
        around.answer(client, client_life, body);
    }

    fn truncate(
        &mut self,
        truncation: Truncation,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        around.stumble()?;
        let log = log_of_mut(self.key, around);
        match truncation {
            Truncation::To(to) => log.truncate_to(to),
            Truncation::FullyAndStartAt(start) => log.truncate_fully(start),
        }
        let event = Event::LogTruncated {
            log_start_offset: log.start(),
            log_end_offset: log.end(),
            latest_epoch: log.latest_epoch(),
        };
        self.step(event, around)
    }

    /// A flush that was asked for is done.
    pub(crate) fn on_flushed(
        &mut self,
        up_to: Offset,
        generation: u64,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let wanted = match std::mem::replace(&mut self.flush, FlushState::Idle) {
            FlushState::Running(wanted) => wanted,
            FlushState::Idle => None,
        };
        let log = log_of_mut(self.key, around);
        // What was cut off meanwhile, and what took its place, was not flushed.
        if log.generation() == generation {
            log.flush(up_to);
        }
        let up_to = log.flushed();
        if let Some(wanted) = wanted.filter(|&wanted| wanted > up_to) {
            self.start_flush(wanted, around);
        }
        self.take(Event::Flushed { up_to }, around)
    }

    fn start_flush(&mut self, up_to: Offset, around: &mut Surroundings<'_>) {
        self.flush = match self.flush {
            FlushState::Running(_) => FlushState::Running(Some(up_to)),
            FlushState::Idle => {
                let partition = self.key;
                around.out.push(Out::Flush { partition });
                FlushState::Running(None)
            }
        };
    }

    /// What a consumer gets, from here up to the high watermark.
    pub(crate) fn read_for_consumer(
        &self,
        offset: Offset,
        leader_epoch: Option<LeaderEpoch>,
        around: &Surroundings<'_>,
    ) -> Result<Vec<RecordBatch>, ErrorCode> {
        self.replica.check_leader_epoch(leader_epoch)?;
        let log = log_of(self.key, around);
        let end = match planted::has(Bug::ReadPastHighWatermark) {
            true => log.end(),
            false => self.replica.high_watermark().min(log.end()),
        };
        if offset < log.start() || offset > log.end() {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let batches = log.batches_from(offset).iter();
        let readable = batches.take_while(|batch| batch.header.next_offset() <= end);
        Ok(readable.take(FETCH_MAX_BATCHES).cloned().collect())
    }

    /// What a `read_committed` consumer gets of the leader: up to the last stable offset, with what of it was aborted.
    pub(crate) fn read_committed(
        &self,
        offset: Offset,
        around: &Surroundings<'_>,
    ) -> Result<CommittedFetch, ErrorCode> {
        if !self.replica.is_leader() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        let log = log_of(self.key, around);
        if offset < log.start() || offset > log.end() {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let end = match planted::has(Bug::ReadPastLastStableOffset) {
            true => log.high_watermark(),
            false => log.last_stable_offset(),
        };
        let batches = log.batches_from(offset).iter();
        let readable = batches.take_while(|batch| batch.header.next_offset() <= end);
        let readable = readable.take(COMMITTED_FETCH_MAX_BATCHES);
        let batches: Vec<RecordBatch> = readable.cloned().collect();
        let end = batches.last().map(|batch| batch.header.next_offset());
        let aborted = match end {
            Some(end) => log.aborted_between(offset, end),
            None => Vec::new(),
        };
        Ok(CommittedFetch { batches, aborted })
    }
}

fn log_of<'a>(key: TopicIdPartition, around: &'a Surroundings<'_>) -> &'a PartitionLog {
    &around.disk.partitions[&key]
}

fn log_of_mut<'a>(key: TopicIdPartition, around: &'a mut Surroundings<'_>) -> &'a mut PartitionLog {
    around
        .disk
        .partitions
        .get_mut(&key)
        .expect("its log is here")
}
