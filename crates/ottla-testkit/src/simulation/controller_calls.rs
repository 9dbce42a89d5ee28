//! A broker's requests to the active controller: one of a kind at a time, sent again where nobody answered.
//!
//! Mirrors `membership/heartbeats.rs` (`live`, `register`, `heartbeat`), `replication/alter_partitions.rs` (`send_all`, `on_results`,
//! `request_of`, `results_of`), `dir_assignments.rs` and `controller/channel.rs` of the broker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytestring::ByteString;
use ottla_controller::{
    HeartbeatAnswer, LifecycleEffect, LifecycleEvent, local_supported_features,
};
use ottla_protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use ottla_protocol::messages::{
    AllocateProducerIdsRequest, AlterPartitionRequest, AlterPartitionResponse,
    AssignReplicasToDirsRequest, BrokerHeartbeatRequest, BrokerRegistrationRequest,
    assign_replicas_to_dirs_request, broker_registration_request,
};
use ottla_replica::{AlterPartition, AlteredPartition, Event};
use ottla_types::{
    BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, PartitionEpoch, PartitionIndex, ProducerId,
    TopicIdPartition,
};

use super::broker_shell::{BrokerShell, registration_of};
use super::coordinators::Caller;
use super::deciding::CLUSTER_ID;
use super::message::{Body, ClientResponse, ControllerRequest, ControllerResponse};
use super::node::{Stopped, Surroundings};
use super::quorum_shell::QuorumShell;

/// After what time a request counts as unanswered.
const TIMEOUT_MS: u64 = 1_000;
/// How long a request that failed waits until it is sent again.
const RETRY_MS: u64 = 50;

#[derive(Default)]
pub(crate) struct ControllerCalls {
    lifecycle: Option<Call>,
    proposals: Option<(Call, Vec<(TopicIdPartition, AlterPartition)>)>,
    directories: Option<Call>,
    producer_ids: Option<Call>,
    not_before_ms: u64,
    /// Replicas that the metadata look for in another directory.
    pub(super) wrong_directories: BTreeSet<TopicIdPartition>,
    pub(super) producers_waiting: VecDeque<WantsProducerId>,
}

/// Who wants a producer id.
#[derive(Clone, Copy)]
pub(crate) enum WantsProducerId {
    Client(Caller),
    /// The coordinator of transactions in this partition.
    Transactions(i32),
}

#[derive(Clone, Copy)]
struct Call {
    correlation_id: u64,
    sent_ms: u64,
}

impl BrokerShell {
    /// Hands the lifecycle an event and carries out what follows.
    pub(super) fn live(
        &mut self,
        event: LifecycleEvent,
        quorum: &mut QuorumShell,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let effects = self.lifecycle.step(around.now_ms, event);
        for effect in effects {
            match effect {
                LifecycleEffect::SendRegistration => {
                    let request = ControllerRequest::Register(self.registration(around));
                    self.calls.lifecycle = Some(self.call(request, quorum, around));
                }
                LifecycleEffect::SendHeartbeat(heartbeat) => {
                    let version = self.image.metadata_version();
                    let last = self.image.provenance.last_contained_offset;
                    let request = BrokerHeartbeatRequest {
                        broker_id: around.id,
                        broker_epoch: self.broker_epoch().value(),
                        current_metadata_offset: last.value(),
                        want_fence: heartbeat.want_fence,
                        want_shut_down: heartbeat.want_shut_down,
                        offline_log_dirs: heartbeat.failed_directories,
                        cordoned_log_dirs: heartbeat
                            .cordoned_directories
                            .filter(|_| version.is_cordoned_log_dirs_supported()),
                        ..Default::default()
                    };
                    let request = ControllerRequest::Heartbeat(request);
                    self.calls.lifecycle = Some(self.call(request, quorum, around));
                }
                LifecycleEffect::Registered => self.is_registered = true,
                LifecycleEffect::CaughtUp | LifecycleEffect::Unfenced => {}
                LifecycleEffect::LetGo | LifecycleEffect::GiveUpLeaving => {
                    return Err(Stopped::Cleanly);
                }
                LifecycleEffect::Fail(_) => return Err(Stopped::Failed),
            }
        }
        Ok(())
    }

    fn registration(&self, around: &Surroundings<'_>) -> BrokerRegistrationRequest {
        BrokerRegistrationRequest {
            broker_id: around.id,
            cluster_id: ByteString::from_static(CLUSTER_ID),
            incarnation_id: self.incarnation,
            listeners: vec![broker_registration_request::Listener {
                name: ByteString::from_static("PLAINTEXT"),
                host: ByteString::from(format!("n{}", around.id)),
                port: 9092,
                ..Default::default()
            }],
            features: local_supported_features()
                .into_iter()
                .map(|feature| broker_registration_request::Feature {
                    name: feature.name,
                    min_supported_version: feature.min,
                    max_supported_version: feature.max,
                    ..Default::default()
                })
                .collect(),
            log_dirs: around.disk.online(),
            previous_broker_epoch: self.previous_broker_epoch,
            ..Default::default()
        }
    }

    /// Sends a request to whoever is known to lead; nobody answers where nobody is.
    fn call(
        &mut self,
        request: ControllerRequest,
        quorum: &QuorumShell,
        around: &mut Surroundings<'_>,
    ) -> Call {
        let correlation_id = self.correlation_id();
        if let Some(controller) = quorum.active_controller() {
            let body = Body::Ask {
                correlation_id,
                request,
            };
            around.send(controller, body);
        }
        Call {
            correlation_id,
            sent_ms: around.now_ms,
        }
    }

    pub(super) fn want_producer_id(&mut self, index: i32) {
        let waiting = WantsProducerId::Transactions(index);
        self.calls.producers_waiting.push_back(waiting);
    }

    /// What is due of all that is asked of the controller.
    pub(super) fn call_controller(
        &mut self,
        quorum: &mut QuorumShell,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let now_ms = around.now_ms;
        let is_late = |call: Call| now_ms >= call.sent_ms + TIMEOUT_MS;
        if let Some(call) = self.calls.lifecycle.filter(|&call| is_late(call)) {
            let timed_out = Err(ErrorCode::RequestTimedOut);
            self.on_answer(call.correlation_id, timed_out, quorum, around)?;
        }
        if let Some((call, _)) = &self.calls.proposals
            && is_late(*call)
        {
            self.calls.proposals = None;
        }
        self.calls.directories = self.calls.directories.filter(|&call| !is_late(call));
        self.calls.producer_ids = self.calls.producer_ids.filter(|&call| !is_late(call));
        let next_ms = self.lifecycle.next_wakeup_ms();
        if next_ms.is_some_and(|next_ms| next_ms <= now_ms) {
            self.live(LifecycleEvent::TimePassed, quorum, around)?;
        }
        if now_ms < self.calls.not_before_ms || !self.is_serving {
            return Ok(());
        }
        if self.calls.proposals.is_none() {
            let ready = self.ready_proposals(now_ms);
            if !ready.is_empty() {
                let request = proposals_request(around.id, self.broker_epoch(), &ready);
                let request = ControllerRequest::AlterPartition(request);
                let call = self.call(request, quorum, around);
                self.calls.proposals = Some((call, ready));
            }
        }
        self.tell_directories(quorum, around);
        if self.calls.producer_ids.is_none() && !self.calls.producers_waiting.is_empty() {
            let request = AllocateProducerIdsRequest {
                broker_id: around.id,
                broker_epoch: self.broker_epoch().value(),
                ..Default::default()
            };
            let request = ControllerRequest::AllocateProducerIds(request);
            self.calls.producer_ids = Some(self.call(request, quorum, around));
        }
        Ok(())
    }

    fn tell_directories(&mut self, quorum: &QuorumShell, around: &mut Surroundings<'_>) {
        let own = BrokerId(around.id);
        let image = &self.image;
        self.calls.wrong_directories.retain(|key| {
            registration_of(image, *key).is_some_and(|registration| {
                let place = around.disk.place(*key);
                registration.is_replica(own)
                    && registration.directory(own) != place
                    && !around.disk.is_out_of_reach(*key)
            })
        });
        if self.calls.directories.is_some() || self.calls.wrong_directories.is_empty() {
            return;
        }
        let mut by_place: BTreeMap<_, BTreeMap<_, Vec<_>>> = BTreeMap::new();
        for key in &self.calls.wrong_directories {
            let Some(place) = around.disk.place(*key) else {
                continue;
            };
            let of_place = by_place.entry(place).or_default();
            let of_topic = of_place.entry(key.topic_id).or_default();
            of_topic.push(assign_replicas_to_dirs_request::PartitionData {
                partition_index: key.partition.value(),
                ..Default::default()
            });
        }
        let directories = by_place.into_iter().map(|(id, topics)| {
            let topics = topics.into_iter().map(|(topic_id, partitions)| {
                assign_replicas_to_dirs_request::TopicData {
                    topic_id,
                    partitions,
                    ..Default::default()
                }
            });
            assign_replicas_to_dirs_request::DirectoryData {
                id,
                topics: topics.collect(),
                ..Default::default()
            }
        });
        let request = AssignReplicasToDirsRequest {
            broker_id: around.id,
            broker_epoch: self.broker_epoch().value(),
            directories: directories.collect(),
            ..Default::default()
        };
        let request = ControllerRequest::AssignDirectories(request);
        self.calls.directories = Some(self.call(request, quorum, around));
    }

    /// The controller answered, or nobody did.
    pub(crate) fn on_answer(
        &mut self,
        correlation_id: u64,
        response: Result<ControllerResponse, ErrorCode>,
        quorum: &mut QuorumShell,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let is_of =
            |call: &Option<Call>| call.is_some_and(|it| it.correlation_id == correlation_id);
        if is_of(&self.calls.lifecycle) {
            self.calls.lifecycle = None;
            let event = match response {
                Ok(ControllerResponse::Registered(response)) => {
                    let code = ErrorCode::from_code(response.error_code);
                    let answer = code.into_result();
                    let epoch = BrokerEpoch(response.broker_epoch);
                    LifecycleEvent::RegistrationAnswered(answer.map(|()| epoch))
                }
                Ok(ControllerResponse::Heartbeat(response)) => {
                    let code = ErrorCode::from_code(response.error_code);
                    let answer = code.into_result();
                    LifecycleEvent::HeartbeatAnswered(answer.map(|()| HeartbeatAnswer {
                        is_caught_up: response.is_caught_up,
                        is_fenced: response.is_fenced,
                        should_shut_down: response.should_shut_down,
                    }))
                }
                Ok(_) => return Ok(()),
                Err(code) => match self.is_registered {
                    true => LifecycleEvent::HeartbeatAnswered(Err(code)),
                    false => LifecycleEvent::RegistrationAnswered(Err(code)),
                },
            };
            return self.live(event, quorum, around);
        }
        if is_of(&self.calls.directories) {
            self.calls.directories = None;
        } else if is_of(&self.calls.producer_ids) {
            self.calls.producer_ids = None;
            if let Ok(ControllerResponse::ProducerIds(response)) = response
                && response.error_code == ErrorCode::None.code()
                && let Some(waiting) = self.calls.producers_waiting.pop_front()
            {
                let id = response.producer_id_start;
                match waiting {
                    WantsProducerId::Client(caller) => {
                        let body = Body::ToClient {
                            correlation_id: caller.correlation_id,
                            response: ClientResponse::ProducerId(id),
                        };
                        around.answer(caller.client, caller.life, body);
                    }
                    WantsProducerId::Transactions(index) => {
                        let now = around.timestamp();
                        self.on_producer_id_for(index, ProducerId(id), around.now_ms, now);
                    }
                }
            }
        } else if let Some((call, sent)) = self.calls.proposals.take() {
            if call.correlation_id != correlation_id {
                self.calls.proposals = Some((call, sent));
                return Ok(());
            }
            return self.on_proposals_answered(sent, response, around);
        }
        Ok(())
    }

    fn on_proposals_answered(
        &mut self,
        sent: Vec<(TopicIdPartition, AlterPartition)>,
        response: Result<ControllerResponse, ErrorCode>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let response = match response {
            Ok(ControllerResponse::AlteredPartition(response))
                if response.error_code == ErrorCode::None.code() =>
            {
                response
            }
            // As a whole it is sent again, without end.
            _ => {
                self.calls.not_before_ms = around.now_ms + RETRY_MS;
                return Ok(());
            }
        };
        let mut results = results_of(&response);
        for (key, proposal) in sent {
            let (Some(result), Some(shell)) = (results.remove(&key), self.replicas.get_mut(&key))
            else {
                continue;
            };
            shell.proposals.pop_front();
            shell.take(Event::PartitionAltered { proposal, result }, around)?;
        }
        Ok(())
    }
}

fn proposals_request(
    broker_id: i32,
    broker_epoch: BrokerEpoch,
    proposals: &[(TopicIdPartition, AlterPartition)],
) -> AlterPartitionRequest {
    let mut topics: Vec<TopicData> = Vec::new();
    for (key, proposal) in proposals {
        let members = proposal.new_isr.iter().map(|member| BrokerState {
            broker_id: member.broker_id.0,
            broker_epoch: member.broker_epoch.0,
            ..Default::default()
        });
        let partition = PartitionData {
            partition_index: key.partition.0,
            leader_epoch: proposal.leader_epoch.0,
            new_isr_with_epochs: members.collect(),
            partition_epoch: proposal.partition_epoch.0,
            ..Default::default()
        };
        match topics.last_mut() {
            Some(topic) if topic.topic_id == key.topic_id => topic.partitions.push(partition),
            _ => topics.push(TopicData {
                topic_id: key.topic_id,
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    AlterPartitionRequest {
        broker_id,
        broker_epoch: broker_epoch.0,
        topics,
        ..Default::default()
    }
}

type Results = BTreeMap<TopicIdPartition, Result<AlteredPartition, ErrorCode>>;

fn results_of(response: &AlterPartitionResponse) -> Results {
    let mut results = Results::new();
    for topic in &response.topics {
        for partition in &topic.partitions {
            let key = TopicIdPartition {
                topic_id: topic.topic_id,
                partition: PartitionIndex(partition.partition_index),
            };
            let result = match ErrorCode::from_code(partition.error_code) {
                ErrorCode::None => Ok(AlteredPartition {
                    leader_epoch: LeaderEpoch(partition.leader_epoch),
                    partition_epoch: PartitionEpoch(partition.partition_epoch),
                    isr: partition.isr.iter().copied().map(BrokerId).collect(),
                }),
                error => Err(error),
            };
            results.insert(key, result);
        }
    }
    results
}
