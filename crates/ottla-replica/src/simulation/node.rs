//! A broker with its replica and its log, and the shell between them, which executes effects and
//! turns messages into events.

use std::collections::{HashSet, VecDeque};

use ottla_records::RecordBatch;
use ottla_records::legacy::AnyBatch;
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, Offset, PartitionEpoch};

use super::model_controller::Image;
use super::model_log::ModelLog;
use crate::test_batches::batch;
use crate::{
    AckOutcome, AlterPartition, AlteredPartition, Append, Effect, Event, FetchPosition,
    FetchRefusal, Fetched, FollowerFetch, LeaderOffsets, Leadership, ProducerVerdict, Replica,
    ReplicaConfig, ReplicaSettings, RequiredAcks,
};

pub(super) const REPLICA_LAG_TIME_MAX_MS: u64 = 2_000;
const FETCH_BACKOFF_MS: u64 = 100;
/// Maximum number of records per fetch.
const FETCH_MAX_RECORDS: usize = 3;

/// An acknowledgement is identified by the number of its record.
pub(super) type Ack = u32;

/// A message on the network.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Fetch {
        broker_epoch: BrokerEpoch,
        position: FetchPosition,
        log_start_offset: Offset,
    },
    FetchAnswer {
        position: FetchPosition,
        answer: FetchAnswer,
    },
    ListOffsets {
        leader_epoch: ottla_types::LeaderEpoch,
    },
    Offsets {
        leader_epoch: ottla_types::LeaderEpoch,
        result: Result<LeaderOffsets, ErrorCode>,
    },
    /// To the controller.
    AlterPartition {
        broker_epoch: BrokerEpoch,
        proposal: AlterPartition,
    },
    Altered {
        proposal: AlterPartition,
        result: Result<AlteredPartition, ErrorCode>,
    },
}

#[derive(Clone, Debug)]
pub(super) enum FetchAnswer {
    Records {
        batches: Vec<RecordBatch>,
        high_watermark: Offset,
        log_start_offset: Offset,
    },
    Refused(FetchRefusal),
}

/// Outcomes of a step that concern others.
#[derive(Debug)]
pub(super) enum Outcome {
    /// To a node, or to the controller if `None`.
    Send(Option<BrokerId>, Message),
    HighWatermarkLed(Offset),
    HighWatermarkFollowed(Offset),
    Elected,
    Released(Ack, AckOutcome),
}

/// The state lost with the process.
pub(super) struct Process {
    pub(super) replica: Replica<Ack>,
    /// On the clock of the cluster; the process's own clock starts at 0.
    started_ms: u64,
    pub(super) broker_epoch: BrokerEpoch,
    /// Number of the controller's images applied.
    pub(super) images_seen: usize,
    /// The partition epoch of the last applied image.
    partition_epoch_seen: Option<PartitionEpoch>,
    /// The fetcher's current position.
    pub(super) order: Option<FetchPosition>,
    /// Unanswered proposals; the first is sent repeatedly.
    pub(super) proposals: VecDeque<AlterPartition>,
    brokers: Vec<crate::ReplicaBroker>,
    /// A flush is running.
    is_flushing: bool,
}

pub(super) struct Node {
    pub(super) id: BrokerId,
    pub(super) log: ModelLog,
    pub(super) process: Option<Process>,
    /// Records that it held and lost when it was killed.
    pub(super) lost: HashSet<u32>,
    settings: ReplicaSettings,
    replicas: usize,
    /// Print each event and its effects.
    is_told: bool,
}

impl Node {
    pub(super) fn new(
        id: BrokerId,
        replicas: usize,
        settings: ReplicaSettings,
        is_told: bool,
    ) -> Node {
        Node {
            id,
            is_told,
            log: ModelLog::default(),
            process: None,
            lost: HashSet::new(),
            settings,
            replicas,
        }
    }

    pub(super) fn start(&mut self, broker_epoch: BrokerEpoch, images_seen: usize, time_ms: u64) {
        let config = ReplicaConfig {
            broker_id: self.id,
            replica_lag_time_max_ms: REPLICA_LAG_TIME_MAX_MS,
            replica_fetch_backoff_ms: FETCH_BACKOFF_MS,
        };
        let log = &self.log;
        self.process = Some(Process {
            replica: Replica::new(
                config,
                log.end(),
                log.high_watermark,
                log.flushed_end(),
                log.latest_epoch(),
            ),
            started_ms: time_ms,
            broker_epoch,
            images_seen,
            partition_epoch_seen: None,
            order: None,
            proposals: VecDeque::new(),
            brokers: Vec::new(),
            is_flushing: false,
        });
    }

    /// Ends the process and loses unflushed records.
    pub(super) fn kill(&mut self) {
        self.process = None;
        self.lost.extend(self.log.lose_unflushed());
    }

    /// Stops the process cleanly.
    pub(super) fn stop(&mut self) {
        self.process = None;
        self.log.flush();
        self.log.checkpoint_high_watermark();
    }

    fn now_ms(&self, time_ms: u64) -> u64 {
        let process = self.process.as_ref();
        time_ms - process.map_or(0, |process| process.started_ms)
    }

    /// Applies an image of the metadata.
    pub(super) fn take_up(&mut self, image: &Image, time_ms: u64, out: &mut Vec<Outcome>) {
        let now_ms = self.now_ms(time_ms);
        let (id, replicas) = (self.id, self.replicas);
        let settings = self.settings;
        let Some(process) = &mut self.process else {
            return;
        };
        // The shell checks whether the registration of the partition or of a broker has changed. A
        // change that the replica knows from a response of the controller arrives again.
        let has_changed = process.partition_epoch_seen != Some(image.partition_epoch);
        process.partition_epoch_seen = Some(image.partition_epoch);
        let brokers_changed = process.brokers != image.brokers;
        process.brokers.clone_from(&image.brokers);
        if has_changed && image.leader == id {
            let is_new = process.replica.leader_epoch() != image.leader_epoch;
            let leadership = Leadership {
                leader_epoch: image.leader_epoch,
                partition_epoch: image.partition_epoch,
                replicas: (0..replicas as i32).map(BrokerId).collect(),
                isr: image.isr.clone(),
                brokers: image.brokers.clone(),
                settings,
            };
            if is_new {
                out.push(Outcome::Elected);
            }
            self.step(Event::LeaderElected { leadership, now_ms }, out);
        } else if has_changed {
            let event = Event::FollowerOf {
                leader: image.leader,
                leader_epoch: image.leader_epoch,
                partition_epoch: image.partition_epoch,
                settings,
            };
            self.step(event, out);
        }
        if brokers_changed {
            self.step(Event::BrokersChanged(image.brokers.clone()), out);
        }
    }

    pub(super) fn tick(&mut self, time_ms: u64, out: &mut Vec<Outcome>) {
        let now_ms = self.now_ms(time_ms);
        self.step(Event::ClockTicked { now_ms }, out);
    }

    pub(super) fn is_flushing(&self) -> bool {
        self.process.as_ref().is_some_and(|it| it.is_flushing)
    }

    /// Completes the running flush.
    pub(super) fn end_flush(&mut self, out: &mut Vec<Outcome>) {
        let Some(process) = &mut self.process else {
            return;
        };
        process.is_flushing = false;
        self.log.flush();
        let up_to = self.log.flushed_end();
        self.step(Event::Flushed { up_to }, out);
    }

    pub(super) fn produce(
        &mut self,
        value: u32,
        required_acks: RequiredAcks,
        time_ms: u64,
        out: &mut Vec<Outcome>,
    ) {
        let deadline_ms = self.now_ms(time_ms) + 1_500;
        self.step(
            Event::Append(Append {
                batch: record(value),
                required_acks,
                expected_leader_epoch: None,
                deadline_ms,
                verdict: ProducerVerdict::InSequence,
                ack: value,
            }),
            out,
        );
    }

    /// The fetcher's request for its position.
    pub(super) fn fetch(&self, out: &mut Vec<Outcome>) {
        let Some(process) = &self.process else {
            return;
        };
        if let Some(position) = process.order {
            let message = Message::Fetch {
                broker_epoch: process.broker_epoch,
                position,
                log_start_offset: self.log.start(),
            };
            out.push(Outcome::Send(Some(position.leader), message));
        }
    }

    /// Sends the first unanswered proposal, possibly again.
    pub(super) fn propose(&self, out: &mut Vec<Outcome>) {
        let Some(process) = &self.process else {
            return;
        };
        if let Some(proposal) = process.proposals.front() {
            let message = Message::AlterPartition {
                broker_epoch: process.broker_epoch,
                proposal: proposal.clone(),
            };
            out.push(Outcome::Send(None, message));
        }
    }

    pub(super) fn receive(
        &mut self,
        from: BrokerId,
        message: Message,
        time_ms: u64,
        out: &mut Vec<Outcome>,
    ) {
        if self.process.is_none() {
            return;
        }
        let now_ms = self.now_ms(time_ms);
        match message {
            Message::Fetch {
                broker_epoch,
                position,
                log_start_offset,
            } => {
                let fetch = FollowerFetch {
                    replica_id: from,
                    broker_epoch,
                    leader_epoch: Some(position.leader_epoch),
                    fetch_offset: position.fetch_offset,
                    last_fetched_epoch: position.last_fetched_epoch,
                    end_of_last_fetched_epoch: position
                        .last_fetched_epoch
                        .and_then(|epoch| self.log.end_of_epoch(epoch)),
                    log_start_offset,
                    leader_log_start_offset: self.log.start(),
                    now_ms,
                };
                let answer = self.serve_fetch(&fetch, out);
                let message = Message::FetchAnswer { position, answer };
                out.push(Outcome::Send(Some(from), message));
            }
            Message::FetchAnswer { position, answer } => {
                if let Some(process) = &mut self.process
                    && process.order == Some(position)
                {
                    process.order = None;
                }
                let result = match answer {
                    FetchAnswer::Records {
                        batches,
                        high_watermark,
                        log_start_offset,
                    } => Ok(Fetched::Records {
                        batches: batches.into_iter().map(AnyBatch::Current).collect(),
                        high_watermark,
                        log_start_offset,
                        local_log_start_offset: self.log.start(),
                    }),
                    FetchAnswer::Refused(FetchRefusal::Diverging(leader)) => {
                        let local = self.log.end_of_epoch(leader.leader_epoch);
                        Ok(Fetched::Diverging { leader, local })
                    }
                    FetchAnswer::Refused(FetchRefusal::Error(error)) => Err(error),
                };
                self.step(
                    Event::FetchAnswered {
                        order: position,
                        result,
                        now_ms,
                    },
                    out,
                );
            }
            Message::ListOffsets { leader_epoch } => {
                let Some(process) = &self.process else {
                    return;
                };
                let checked = match process.replica.is_leader() {
                    true => process.replica.check_leader_epoch(Some(leader_epoch)),
                    false => Err(ErrorCode::NotLeaderOrFollower),
                };
                let result = checked.map(|()| LeaderOffsets {
                    log_start_offset: self.log.start(),
                    log_end_offset: self.log.end(),
                });
                let message = Message::Offsets {
                    leader_epoch,
                    result,
                };
                out.push(Outcome::Send(Some(from), message));
            }
            Message::Offsets {
                leader_epoch,
                result,
            } => self.step(
                Event::LeaderOffsetsListed {
                    leader_epoch,
                    result,
                    now_ms,
                },
                out,
            ),
            Message::Altered { proposal, result } => {
                if let Some(process) = &mut self.process
                    && process.proposals.front() == Some(&proposal)
                    && result != Err(ErrorCode::StaleBrokerEpoch)
                {
                    process.proposals.pop_front();
                    self.step(Event::PartitionAltered { proposal, result }, out);
                }
            }
            Message::AlterPartition { .. } => {}
        }
    }

    fn serve_fetch(&mut self, fetch: &FollowerFetch, out: &mut Vec<Outcome>) -> FetchAnswer {
        let Some(process) = &self.process else {
            return FetchAnswer::Refused(FetchRefusal::Error(ErrorCode::NetworkException));
        };
        if let Err(refusal) = process.replica.check_follower_fetch(fetch) {
            return FetchAnswer::Refused(refusal);
        }
        let (high_watermark, log_start_offset) =
            (process.replica.high_watermark(), self.log.start());
        let mut batches = Vec::new();
        let mut offset = fetch.fetch_offset.0;
        while batches.len() < FETCH_MAX_RECORDS
            && let Some(stored) = self.log.get(offset)
        {
            let mut batch = record(stored.value);
            batch.assign_offset(Offset(offset), stored.leader_epoch);
            batches.push(batch);
            offset += 1;
        }
        self.step(Event::FollowerFetched(*fetch), out);
        FetchAnswer::Records {
            batches,
            high_watermark,
            log_start_offset,
        }
    }

    /// Steps the replica and executes the effects.
    fn step(&mut self, event: Event<Ack>, out: &mut Vec<Outcome>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(process) = &mut self.process else {
                return;
            };
            let mut effects = Vec::new();
            if self.is_told {
                println!("  {} {event:?}", self.id);
            }
            process.replica.step(event, &mut effects);
            if self.is_told && !effects.is_empty() {
                println!("  {}   {effects:?}", self.id);
            }
            let mut has_written = false;
            for effect in effects {
                match effect {
                    Effect::AssignLeaderEpoch {
                        leader_epoch,
                        start_offset,
                    } => self.log.assign_epoch(leader_epoch, start_offset),
                    Effect::WriteLog { batch } => {
                        self.log.append(&batch);
                        has_written = true;
                    }
                    Effect::WriteLegacy { .. } => {
                        unreachable!("the simulation writes no old formats")
                    }
                    Effect::Flush { .. } => process.is_flushing = true,
                    Effect::AdvanceHighWatermark { high_watermark } => {
                        self.log.high_watermark = high_watermark;
                        out.push(Outcome::HighWatermarkLed(high_watermark));
                    }
                    Effect::FollowHighWatermark { high_watermark } => {
                        self.log.high_watermark = high_watermark.max(self.log.start());
                        out.push(Outcome::HighWatermarkFollowed(self.log.high_watermark));
                    }
                    Effect::IncrementLogStartOffset { log_start_offset } => {
                        self.log.increment_start(log_start_offset);
                    }
                    Effect::MoveLowWatermark { .. } => {}
                    Effect::ReleaseAck { ack, outcome } => {
                        out.push(Outcome::Released(ack, outcome));
                    }
                    Effect::AlterPartition(proposal) => process.proposals.push_back(proposal),
                    Effect::Fetch(position) => process.order = Some(position),
                    Effect::StopFetching => process.order = None,
                    Effect::ListLeaderOffsets {
                        leader,
                        leader_epoch,
                    } => {
                        let message = Message::ListOffsets { leader_epoch };
                        out.push(Outcome::Send(Some(leader), message));
                    }
                    Effect::FetchRemoteState { .. } | Effect::StartAfterRemoteLog => {
                        unreachable!("no log is tiered here")
                    }
                    Effect::TruncateLog { to } => {
                        self.log.truncate_to(to);
                        // Even if no record is removed, epochs that start after the end are.
                        events.push_front(truncated(&self.log));
                    }
                    Effect::TruncateLogFully { start_at } => {
                        self.log.truncate_fully(start_at);
                        events.push_front(truncated(&self.log));
                    }
                }
            }
            if has_written {
                let log_end_offset = self.log.end();
                events.push_front(Event::LogWritten { log_end_offset });
            }
        }
    }
}

fn truncated(log: &ModelLog) -> Event<Ack> {
    Event::LogTruncated {
        log_start_offset: log.start(),
        log_end_offset: log.end(),
        latest_epoch: log.latest_epoch(),
    }
}

/// A batch with one record, identified by its checksum field.
fn record(value: u32) -> RecordBatch {
    batch(0, 1, -1, value)
}
