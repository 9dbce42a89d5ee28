//! Markers of transactions that end: sent to the leaders of their partitions, and written where this broker is one.
//!
//! Mirrors `transactions/marker_sender.rs` of the broker (`send`, `destination_of`, `answer`) and `transactions/write_markers.rs`.

use std::collections::BTreeMap;

use ottla_coordinator::transaction::Markers;
use ottla_coordinator::{TransactionEnd, TransactionalProducer};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_replica::RequiredAcks;
use ottla_types::{BrokerId, ErrorCode, TopicPartition};

use super::{MARKER_RETRY_MS, Question, TIMEOUT_MS, Waiting};
use crate::simulation::broker_shell::BrokerShell;
use crate::simulation::coordinator_shell::{OFFSETS_TOPIC, at};
use crate::simulation::message::{Body, BrokerRequest, BrokerResponse};
use crate::simulation::node::{Stopped, Surroundings};
use crate::simulation::replica_shell::{Ack, Arriving, OfTransaction};

/// Markers that are being written here.
pub(super) struct MarkerJob {
    partitions: Vec<TopicPartition>,
    answers: Vec<Option<ErrorCode>>,
    for_whom: ForWhom,
}

pub(super) enum ForWhom {
    Here(i32, Markers),
    Broker {
        broker: i32,
        life: u64,
        correlation_id: u64,
    },
}

impl BrokerShell {
    pub(super) fn send_markers(
        &mut self,
        index: i32,
        markers: Markers,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let mut by_leader: BTreeMap<BrokerId, Vec<TopicPartition>> = BTreeMap::new();
        let (mut nowhere, mut unknown) = (Vec::new(), Vec::new());
        for partition in &markers.partitions {
            let topics = &self.image.topics;
            let Some(registration) = topics.partition(&partition.topic, partition.partition) else {
                nowhere.push((partition.clone(), ErrorCode::None));
                continue;
            };
            let leader = self.image.cluster.broker(registration.leader);
            let is_here = registration.leader.0 == around.id;
            match leader.is_some_and(|leader| !leader.fenced) || is_here {
                true => by_leader
                    .entry(registration.leader)
                    .or_default()
                    .push(partition.clone()),
                false => unknown.push((partition.clone(), ErrorCode::NotLeaderOrFollower)),
            }
        }
        nowhere.extend(unknown);
        if !nowhere.is_empty() {
            self.on_markers_answered(index, markers.clone(), nowhere, around);
        }
        for (leader, partitions) in by_leader {
            let (producer, end) = (markers.producer, markers.end);
            let of_leader = Markers {
                partitions: partitions.clone(),
                ..markers.clone()
            };
            if leader.0 == around.id {
                let for_whom = ForWhom::Here(index, of_leader);
                self.write_markers(producer, end, partitions, for_whom, around)?;
                continue;
            }
            let correlation_id = self.correlation_id();
            let question = Question::Markers(index, of_leader);
            let questions = &mut self.coordinators.questions;
            questions.insert(correlation_id, (around.now_ms, question));
            let body = Body::AskBroker {
                correlation_id,
                request: BrokerRequest::WriteMarkers {
                    producer,
                    end,
                    partitions,
                },
            };
            around.send(leader.0, body);
        }
        Ok(())
    }

    pub(super) fn write_markers(
        &mut self,
        producer: TransactionalProducer,
        end: TransactionEnd,
        partitions: Vec<TopicPartition>,
        for_whom: ForWhom,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let job = self.correlation_id();
        let written = MarkerJob {
            answers: vec![None; partitions.len()],
            partitions: partitions.clone(),
            for_whom,
        };
        self.coordinators.marker_jobs.insert(job, written);
        for (at, partition) in partitions.into_iter().enumerate() {
            let key = self.key_of(&partition);
            let Some(replica) = key.and_then(|key| self.replicas.get_mut(&key)) else {
                self.on_marker_settled(job, at, ErrorCode::UnknownTopicOrPartition, around);
                continue;
            };
            if *partition.topic == *OFFSETS_TOPIC {
                let waiting = Waiting::Marker { job, partition: at };
                self.ask_groups(partition.partition.0, waiting, around, |it, to| {
                    it.handle_transaction_end(to, producer, end)
                })?;
                continue;
            }
            let kind = match end.is_commit {
                true => ControlRecordType::Commit,
                false => ControlRecordType::Abort,
            };
            let marker = EndTxnMarker {
                coordinator_epoch: end.coordinator_epoch,
            };
            let now = around.timestamp();
            let arriving = Arriving {
                batch: end_txn_batch(producer.id, producer.epoch, kind, marker, now),
                required_acks: RequiredAcks::All,
                expected_leader_epoch: None,
                of_transaction: OfTransaction::Marker(end.transaction_version),
                deadline_ms: around.now_ms + TIMEOUT_MS,
                ack: Ack::Marker { job, partition: at },
            };
            replica.append(arriving, around)?;
        }
        Ok(())
    }

    pub(super) fn on_marker_settled(
        &mut self,
        job: u64,
        partition: usize,
        error: ErrorCode,
        around: &mut Surroundings<'_>,
    ) {
        let jobs = &mut self.coordinators.marker_jobs;
        let Some(written) = jobs.get_mut(&job) else {
            return;
        };
        written.answers[partition] = Some(error);
        if written.answers.iter().any(Option::is_none) {
            return;
        }
        let Some(written) = jobs.remove(&job) else {
            return;
        };
        let errors = written.answers.into_iter().flatten();
        let answers: Vec<_> = written.partitions.into_iter().zip(errors).collect();
        match written.for_whom {
            ForWhom::Here(index, markers) => {
                self.on_markers_answered(index, markers, answers, around);
            }
            ForWhom::Broker {
                broker,
                life,
                correlation_id,
            } => {
                let body = Body::BrokerAnswered {
                    correlation_id,
                    response: Some(BrokerResponse::MarkersWritten(answers)),
                };
                around.answer(broker, life, body);
            }
        }
    }

    /// What is written the coordinator is told at once, the rest a moment later.
    pub(super) fn on_markers_answered(
        &mut self,
        index: i32,
        markers: Markers,
        answers: Vec<(TopicPartition, ErrorCode)>,
        around: &mut Surroundings<'_>,
    ) {
        let (written, failed): (Vec<_>, Vec<_>) = answers
            .into_iter()
            .partition(|(_, error)| *error == ErrorCode::None);
        if !written.is_empty() {
            self.tell_of_markers(index, &markers, &written, around);
        }
        if !failed.is_empty() {
            let due_ms = around.now_ms + MARKER_RETRY_MS;
            let failed = (due_ms, index, markers, failed);
            self.coordinators.failed_markers.push(failed);
        }
    }

    pub(super) fn tell_of_markers(
        &mut self,
        index: i32,
        markers: &Markers,
        answers: &[(TopicPartition, ErrorCode)],
        around: &Surroundings<'_>,
    ) {
        let now = around.timestamp();
        // Another coordinator reads from its log what is left to do.
        let shell = self.coordinators.transactions.get_mut(&index);
        let shell = shell.filter(|shell| shell.leader_epoch().0 == markers.end.coordinator_epoch);
        if let Some(shell) = shell {
            shell.tell(&at(around.now_ms, around.timestamp()), |it| {
                it.on_markers_answered(&markers.transactional_id, markers.producer, answers, now)
            });
        }
    }
}

pub(super) fn all(
    partitions: &[TopicPartition],
    error: ErrorCode,
) -> Vec<(TopicPartition, ErrorCode)> {
    partitions.iter().map(|it| (it.clone(), error)).collect()
}

/// What coordinators of transactions take for "not yet".
pub(super) fn marker_error(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::CoordinatorNotAvailable
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::NotCoordinator => ErrorCode::NotLeaderOrFollower,
        error => error,
    }
}
