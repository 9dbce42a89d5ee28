//! The way to the share coordinators, wherever they are, and what they answer: for the leaders of partitions, and for the
//! coordinators of share groups.
//!
//! Mirrors, in the broker, `share_groups/persister.rs` (`persevere`, `place_of`), `share_groups/state.rs` (`ask`) and of `groups.rs`
//! `initialize_share_state`.

use bytestring::ByteString;
use ottla_coordinator::group::{InitializeShareState, PartitionsOfTopics};
use ottla_coordinator::persister::{InitializeState, SharePartitionKey, StateRead};
use ottla_coordinator::share_partition::StateWriteId;
use ottla_coordinator::share_state::Response;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, PartitionIndex, TopicId};

use super::{Question, Waiting};
use crate::simulation::broker_shell::BrokerShell;
use crate::simulation::coordinator_shell::{SHARE_STATE_TOPIC, at};
use crate::simulation::message::{Body, BrokerRequest, BrokerResponse, ShareStateRequest};
use crate::simulation::node::{Stopped, Surroundings};

/// How often a coordinator is looked for, and how long the first pause is; each is twice the one before.
const ATTEMPTS: u32 = 8;
const FIRST_PAUSE_MS: u64 = 50;

/// What is to be persisted, or read, as often as it takes to find who does it.
#[derive(Clone)]
pub(crate) struct Persisting {
    request: ShareStateRequest,
    whom: ForShare,
    attempts: u32,
}

/// On whose behalf a share coordinator is asked.
#[derive(Clone)]
pub(crate) enum ForShare {
    /// A share partition that is taken up in this epoch of its leader.
    Loading(SharePartitionKey, LeaderEpoch),
    Writing(SharePartitionKey, LeaderEpoch, StateWriteId),
    /// A group that has new partitions.
    Initializing(u64, TopicId, i32),
}

/// The partitions of a group that are being initialized.
pub(super) struct Initializing {
    /// The coordinator of the group, and the epoch that it is in.
    index: i32,
    leader_epoch: LeaderEpoch,
    group_id: ByteString,
    missing: usize,
    done: PartitionsOfTopics,
    refused: PartitionsOfTopics,
}

impl BrokerShell {
    pub(super) fn initialize_share_state(
        &mut self,
        index: i32,
        leader_epoch: LeaderEpoch,
        command: InitializeShareState,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let partitions = command.partitions.iter();
        let partitions: Vec<(TopicId, i32)> = partitions
            .flat_map(|(topic_id, partitions)| partitions.iter().map(|index| (*topic_id, *index)))
            .collect();
        let job = self.correlation_id();
        let initializing = Initializing {
            index,
            leader_epoch,
            group_id: command.group_id.clone(),
            missing: partitions.len(),
            done: PartitionsOfTopics::new(),
            refused: PartitionsOfTopics::new(),
        };
        self.coordinators.initializing.insert(job, initializing);
        for (topic_id, partition) in partitions {
            let request = InitializeState {
                key: SharePartitionKey {
                    group_id: command.group_id.clone(),
                    topic_id,
                    partition,
                },
                state_epoch: command.state_epoch,
                start_offset: Offset::UNKNOWN,
            };
            let whom = ForShare::Initializing(job, topic_id, partition);
            self.persist(ShareStateRequest::Initialize(request), whom, around)?;
        }
        Ok(())
    }

    pub(crate) fn persist(
        &mut self,
        request: ShareStateRequest,
        whom: ForShare,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let persisting = Persisting {
            request,
            whom,
            attempts: 0,
        };
        self.try_to_persist(persisting, around)
    }

    pub(super) fn try_to_persist(
        &mut self,
        mut persisting: Persisting,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        persisting.attempts += 1;
        let request = persisting.request.clone();
        let id = self.correlation_id();
        let question = Question::ShareState(Box::new(persisting));
        self.coordinators
            .questions
            .insert(id, (around.now_ms, question));
        let index = self.partition_of(SHARE_STATE_TOPIC, &request.key().coordinator_key());
        let topics = &self.image.topics;
        let registration = topics.partition(SHARE_STATE_TOPIC, PartitionIndex(index));
        let leader = registration.map(|registration| registration.leader);
        if leader.is_some_and(|leader| leader.0 == around.id) {
            return self.ask_share_states(Waiting::Question(id), request, around);
        }
        let leader = leader.and_then(|leader| self.image.cluster.broker(leader));
        match leader.filter(|leader| !leader.fenced) {
            None => {
                let response = BrokerResponse::ShareState(Err(ErrorCode::CoordinatorNotAvailable));
                self.on_answered(id, Some(response), around)
            }
            Some(leader) => {
                let leader = leader.id;
                let body = Body::AskBroker {
                    correlation_id: id,
                    request: BrokerRequest::ShareState(request),
                };
                around.send(leader.0, body);
                Ok(())
            }
        }
    }

    /// What was asked is answered; where a coordinator could not be found, it is looked for again.
    pub(super) fn on_persisted(
        &mut self,
        persisting: Persisting,
        result: Result<Option<StateRead>, ErrorCode>,
        around: &mut Surroundings<'_>,
    ) {
        if let Err(error) = result
            && may_ask_again(error)
            && persisting.attempts < ATTEMPTS
        {
            let pause_ms = FIRST_PAUSE_MS << (persisting.attempts - 1);
            let retries = &mut self.coordinators.share_retries;
            retries.push((around.now_ms + pause_ms, persisting));
            return;
        }
        match persisting.whom {
            ForShare::Loading(key, leader_epoch) => {
                let read = result.map(|read| read.expect("a read is answered with what was read"));
                self.on_share_state_read(&key, leader_epoch, read);
            }
            ForShare::Writing(key, leader_epoch, id) => {
                let error = result.err().unwrap_or(ErrorCode::None);
                self.on_share_state_written(&key, (leader_epoch, id), error, around);
            }
            ForShare::Initializing(job, topic_id, partition) => {
                self.on_initialized(job, topic_id, partition, result.is_ok(), around);
            }
        }
    }

    fn on_initialized(
        &mut self,
        job: u64,
        topic_id: TopicId,
        partition: i32,
        is_done: bool,
        around: &Surroundings<'_>,
    ) {
        let jobs = &mut self.coordinators.initializing;
        let Some(initializing) = jobs.get_mut(&job) else {
            return;
        };
        let partitions = match is_done {
            true => &mut initializing.done,
            false => &mut initializing.refused,
        };
        partitions.entry(topic_id).or_default().insert(partition);
        initializing.missing -= 1;
        if initializing.missing > 0 {
            return;
        }
        let Some(ended) = jobs.remove(&job) else {
            return;
        };
        let (now_ms, now) = (around.now_ms, around.timestamp());
        let shell = self.coordinators.groups.get_mut(&ended.index);
        // A coordinator that is gone has nobody who waits for it.
        let Some(shell) = shell.filter(|shell| shell.leader_epoch() == ended.leader_epoch) else {
            return;
        };
        let (group_id, done, refused) = (&ended.group_id, &ended.done, &ended.refused);
        if !done.is_empty() {
            shell.tell(&at(now_ms, now), |it| {
                it.on_share_state_initialized(group_id, done, now)
            });
        }
        if !refused.is_empty() {
            shell.tell(&at(now_ms, now), |it| {
                it.on_share_state_not_initialized(group_id, refused, now)
            });
        }
    }

    /// Has the share coordinator of this broker decide.
    pub(super) fn ask_share_states(
        &mut self,
        waiting: Waiting,
        request: ShareStateRequest,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let key = request.key();
        let index = self.partition_of(SHARE_STATE_TOPIC, &key.coordinator_key());
        let topic = self.image.topics.by_id(key.topic_id);
        let count = topic.map(|topic| topic.partition_count() as i32);
        let now = around.timestamp();
        let at = &at(around.now_ms, now);
        let refused = match self.coordinators.share_states.get_mut(&index) {
            Some(shell) => match request {
                ShareStateRequest::Initialize(request) => {
                    shell.runtime.request(waiting, at, |it, to| {
                        it.initialize_state(to, request, count, now)
                    })
                }
                ShareStateRequest::Read(request) => shell
                    .runtime
                    .request(waiting, at, |it, to| it.read_state(to, request, count, now)),
                ShareStateRequest::Write(request) => {
                    shell.runtime.request(waiting, at, |it, to| {
                        it.write_state(to, request, count, now)
                    })
                }
            },
            None => Err((waiting, ErrorCode::NotCoordinator)),
        };
        match refused {
            Ok(()) => Ok(()),
            Err((waiting, error)) => self.tell_share_state(waiting, Err(error), around),
        }
    }

    pub(super) fn on_share_states_replied(
        &mut self,
        waiting: Waiting,
        response: Response,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        around.note(|| format!("share coordinator tells {waiting:?}: {response:?}"));
        let result = match response {
            Response::Done(result) => result.map(|()| None),
            Response::Read(result) => result.map(Some),
            other => panic!("nobody asks for {other:?}"),
        };
        self.tell_share_state(waiting, result.map_err(|error| error.code), around)
    }

    fn tell_share_state(
        &mut self,
        waiting: Waiting,
        result: Result<Option<StateRead>, ErrorCode>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let response = Some(BrokerResponse::ShareState(result));
        match waiting {
            Waiting::Question(id) => self.on_answered(id, response, around),
            Waiting::Broker {
                broker,
                life,
                correlation_id,
            } => {
                let body = Body::BrokerAnswered {
                    correlation_id,
                    response,
                };
                around.answer(broker, life, body);
                Ok(())
            }
            other => panic!("{other:?} asks no share coordinator"),
        }
    }
}

fn may_ask_again(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::NetworkException
    )
}
