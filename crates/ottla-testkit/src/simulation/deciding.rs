//! The controller while its node leads: decides requests ahead of the disk, and answers when their records are committed.
//!
//! Mirrors `ottla-node/src/controller_thread/deciding.rs`: `begin_deciding`, `end_deciding`, `decide`, `activate`, `append`,
//! `append_control`, `settle`, `release`, `fence_silent_brokers`, and `controller/requests.rs` for which function decides what.

use std::collections::VecDeque;

use ottla_controller::{ControllerContext, Decision};
use ottla_metadata::{MetadataDelta, MetadataLoader};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{ControlRecord, Event};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use super::message::{Body, ControllerRequest, ControllerResponse};
use super::metadata_log::{Content, MetadataBatch};
use super::node::{Stopped, Surroundings};
use super::planted::{self, Bug};
use super::quorum_shell::{QuorumShell, control_batch, load};

pub(crate) const CLUSTER_ID: &str = "the simulated cluster";

/// Above the interval of brokers' heartbeats, and well below their sessions.
const MOMENT_MS: u64 = 700;

pub(crate) struct Deciding {
    /// Everything that is in the log, committed or not.
    pub loader: MetadataLoader,
    /// What waits to be committed, and up to where the log has to be for it, in order.
    pending: VecDeque<(i64, Pending)>,
    is_unflushed: bool,
    records_unflushed: u64,
    /// By the clock of its node.
    active_since_ms: Option<u64>,
    /// The first of its records is committed, and nothing was decided yet.
    pub is_activation_due: bool,
}

enum Pending {
    Delta(Box<MetadataDelta>),
    Reply(Reply),
    /// All of a flush.
    Flushed(Box<MetadataLoader>, u64),
}

struct Reply {
    to: i32,
    to_life: u64,
    correlation_id: u64,
    response: ControllerResponse,
}

impl QuorumShell {
    /// This node leads from here on: what is in the log and not known as committed is decided on as well.
    pub(super) fn begin_deciding(&mut self, _around: &mut Surroundings<'_>) {
        let mut loader = self.committed.0.clone();
        let mut pending = VecDeque::new();
        for batch in std::mem::take(&mut self.uncommitted) {
            let (end, records) = (batch.end(), (batch.end() - batch.base_offset) as u64);
            let delta = load(&mut loader, &batch);
            pending.extend(delta.map(|delta| (end, Pending::Delta(Box::new(delta)))));
            let flushed = Pending::Flushed(Box::new(loader.clone()), records);
            pending.push_back((end, flushed));
        }
        self.deciding = Some(Deciding {
            loader,
            pending,
            is_unflushed: false,
            records_unflushed: 0,
            active_since_ms: None,
            is_activation_due: false,
        });
    }

    /// This node leads no longer: back to what is committed. What is not may still become so.
    pub(super) fn end_deciding(&mut self, around: &mut Surroundings<'_>) {
        let Some(deciding) = self.deciding.take() else {
            return;
        };
        for (_, pending) in deciding.pending {
            if let Pending::Reply(reply) = pending {
                answer(reply, Err(ErrorCode::NotController), around);
            }
        }
        let behind = around.disk.metadata.batches_from(self.committed.1);
        self.uncommitted = behind.iter().cloned().collect();
    }

    /// Decides a request, if this node is the active controller.
    pub(crate) fn decide(
        &mut self,
        from: i32,
        from_life: u64,
        correlation_id: u64,
        request: &ControllerRequest,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let refuse = |code, around: &mut Surroundings<'_>| {
            let response = Err(code);
            let body = Body::Answer {
                correlation_id,
                response,
            };
            around.answer(from, from_life, body);
        };
        let next_offset = Offset(around.disk.metadata.end());
        let now_ms = around.now_ms;
        let decided = self.with_context(around, |context, shell| {
            decision(context, request, shell, next_offset, now_ms)
        });
        // None of the requests that are simulated raises `kraft.version`.
        let Some(Decision {
            records, response, ..
        }) = decided
        else {
            refuse(ErrorCode::NotController, around);
            return Ok(());
        };
        let is_plain = matches!(request, ControllerRequest::Heartbeat(_)) && records.is_empty();
        if !is_plain {
            around.note(|| format!("decides {request:?} -> {response:?} with {records:?}"));
        }
        if around.disk.is_full && !records.is_empty() {
            refuse(ErrorCode::KafkaStorageError, around);
            return Ok(());
        }
        self.append(records, around);
        let reply = Reply {
            to: from,
            to_life: from_life,
            correlation_id,
            response,
        };
        if planted::has(Bug::AnswerBeforeCommit) {
            around
                .checkers
                .metadata_committed
                .on_answered(around.id, around.disk.metadata.end());
            let response = Ok(reply.response.clone());
            answer(reply, response, around);
        } else if let Some(deciding) = &mut self.deciding {
            let end = around.disk.metadata.end();
            deciding.pending.push_back((end, Pending::Reply(reply)));
        }
        around.stumble()?;
        self.settle(around)
    }

    /// `None` where this node is not the active controller.
    fn with_context<T>(
        &self,
        around: &mut Surroundings<'_>,
        decide: impl FnOnce(&mut ControllerContext<'_>, &QuorumShell) -> T,
    ) -> Option<T> {
        let deciding = self
            .deciding
            .as_ref()
            .filter(|it| it.active_since_ms.is_some())?;
        let mut random = || around.random.next();
        let mut context = ControllerContext {
            image: deciding.loader.image(),
            config: &self.settings.config,
            kraft_version: self.quorum.kraft_version().feature_level(),
            kraft_version_upgrade: &|_| Ok(false),
            random: &mut random,
        };
        Some(decide(&mut context, self))
    }

    /// Requests may be decided from here on; first what a new leader has to write.
    fn activate(&mut self, around: &mut Surroundings<'_>) {
        let Some(deciding) = self
            .deciding
            .as_mut()
            .filter(|it| it.active_since_ms.is_none())
        else {
            return;
        };
        deciding.active_since_ms = Some(around.now_ms);
        deciding.is_activation_due = false;
        self.sessions.begin(deciding.loader.image(), around.now_ms);
        let is_in_transaction = deciding.loader.is_in_transaction();
        let records = self.with_context(around, |context, shell| {
            let bootstrap = &shell.settings.bootstrap;
            ottla_controller::activation_records(context, bootstrap, is_in_transaction)
        });
        self.append(records.unwrap_or_default(), around);
    }

    /// Appends records as one batch and applies them to what was decided.
    fn append(&mut self, records: Vec<MetadataRecord>, around: &mut Surroundings<'_>) {
        if records.is_empty() {
            return;
        }
        let batch = MetadataBatch {
            base_offset: around.disk.metadata.end(),
            epoch: self.quorum.epoch(),
            content: Content::Records(records),
        };
        self.append_batch(batch, around);
    }

    /// Appends control records of the quorum's as one batch.
    pub(super) fn append_control(
        &mut self,
        epoch: LeaderEpoch,
        base_offset: Offset,
        records: Vec<ControlRecord>,
        around: &mut Surroundings<'_>,
    ) {
        self.append_batch(control_batch(base_offset, epoch, records), around);
    }

    fn append_batch(&mut self, batch: MetadataBatch, around: &mut Surroundings<'_>) {
        let Some(deciding) = &mut self.deciding else {
            panic!("only a leader appends");
        };
        around.disk.metadata.append(batch.clone());
        let end = batch.end();
        deciding.is_unflushed = true;
        deciding.records_unflushed += (end - batch.base_offset) as u64;
        let delta = load(&mut deciding.loader, &batch);
        let delta = delta.map(|delta| (end, Pending::Delta(Box::new(delta))));
        deciding.pending.extend(delta);
    }

    /// Forces everything to disk, publishes what is committed, and answers, up to where nothing more follows from it.
    pub(super) fn settle(&mut self, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        loop {
            if self
                .deciding
                .as_ref()
                .is_some_and(|it| it.is_activation_due)
            {
                self.activate(around);
            }
            let Some(deciding) = self.deciding.as_mut().filter(|it| it.is_unflushed) else {
                break;
            };
            around.stumble()?;
            around.disk.metadata.flush();
            let end_offset = Offset(around.disk.metadata.end());
            deciding.is_unflushed = false;
            let records = std::mem::take(&mut deciding.records_unflushed);
            let flushed = Pending::Flushed(Box::new(deciding.loader.clone()), records);
            deciding.pending.push_back((end_offset.value(), flushed));
            self.step(Event::LogFlushed { end_offset }, around)?;
        }
        self.release(around);
        Ok(())
    }

    /// Publishes and answers what is committed, in the order in which it was decided.
    fn release(&mut self, around: &mut Surroundings<'_>) {
        let Some(high_watermark) = self.quorum.high_watermark().map(Offset::value) else {
            return;
        };
        loop {
            let Some(deciding) = &mut self.deciding else {
                return;
            };
            let is_committed = |(end, _): &(i64, Pending)| *end <= high_watermark;
            if !deciding.pending.front().is_some_and(is_committed) {
                return;
            }
            let Some((end, pending)) = deciding.pending.pop_front() else {
                return;
            };
            match pending {
                Pending::Delta(delta) => {
                    if self.take_committed(end, &delta) {
                        self.unpublished.push_back(*delta);
                    }
                }
                Pending::Reply(reply) => {
                    around
                        .checkers
                        .metadata_committed
                        .on_answered(around.id, end);
                    let response = Ok(reply.response.clone());
                    answer(reply, response, around);
                }
                Pending::Flushed(loader, records) => {
                    self.committed = (*loader, end);
                    self.count_committed(records);
                }
            }
        }
    }

    /// Fences the brokers that have been silent for too long, as the active controller.
    /// Whether this node is the active controller, and every active broker has found it and sent a heartbeat a moment ago.
    pub(super) fn hears_all_brokers(&self, now_ms: u64) -> bool {
        let active = self
            .deciding
            .as_ref()
            .and_then(|it| Some((it, it.active_since_ms?)));
        let Some((deciding, since_ms)) = active else {
            return false;
        };
        let timeout_ms = self.settings.config.broker_session_timeout_ms as u64;
        let image = deciding.loader.image();
        let silent_soon = || self.sessions.silent(image, now_ms + timeout_ms - MOMENT_MS);
        // Until then a heartbeat may be one of those that a new controller takes as sent.
        now_ms >= since_ms + MOMENT_MS && silent_soon().is_empty()
    }

    pub(super) fn fence_silent_brokers(
        &mut self,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let Some(deciding) = self
            .deciding
            .as_ref()
            .filter(|it| it.active_since_ms.is_some())
        else {
            return Ok(());
        };
        if around.disk.is_full {
            return Ok(());
        }
        let silent = self.sessions.silent(deciding.loader.image(), around.now_ms);
        for id in silent {
            let records = self.with_context(around, |context, _| {
                ottla_controller::fence_broker(context, id)
            });
            around.note(|| format!("fences broker {id}: {records:?}"));
            self.append(records.unwrap_or_default(), around);
        }
        Ok(())
    }
}

fn answer(
    reply: Reply,
    response: Result<ControllerResponse, ErrorCode>,
    around: &mut Surroundings<'_>,
) {
    let body = Body::Answer {
        correlation_id: reply.correlation_id,
        response,
    };
    around.answer(reply.to, reply.to_life, body);
}

/// Which function of `ottla-controller` decides a request.
fn decision(
    context: &mut ControllerContext<'_>,
    request: &ControllerRequest,
    shell: &QuorumShell,
    next_offset: Offset,
    now_ms: u64,
) -> Decision<ControllerResponse> {
    use ControllerRequest as Q;
    use ControllerResponse as R;
    fn as_response<T>(decision: Decision<T>, name: fn(T) -> R) -> Decision<R> {
        Decision::new(decision.records, name(decision.response))
    }
    let sessions = &shell.sessions;
    match request {
        Q::Register(request) => as_response(
            sessions.register(context, request, CLUSTER_ID, next_offset, now_ms),
            R::Registered,
        ),
        Q::Heartbeat(request) => {
            as_response(sessions.heartbeat(context, request, now_ms), R::Heartbeat)
        }
        Q::AlterPartition(request) => as_response(
            ottla_controller::alter_partition(context, request),
            R::AlteredPartition,
        ),
        Q::AssignDirectories(request) => as_response(
            ottla_controller::assign_replicas_to_dirs(context, request),
            |_| R::DirectoriesAssigned,
        ),
        Q::AllocateProducerIds(request) => as_response(
            ottla_controller::allocate_producer_ids(context, request),
            R::ProducerIds,
        ),
        Q::CreateTopics(request) => as_response(
            ottla_controller::create_topics(context, request),
            R::TopicsCreated,
        ),
        Q::ElectLeaders(request) => {
            as_response(ottla_controller::elect_leaders(context, request), |_| {
                R::LeadersElected
            })
        }
        Q::Reassign(request) => as_response(
            ottla_controller::alter_partition_reassignments(context, request),
            |_| R::Reassigned,
        ),
    }
}
