//! What a broker's process does besides following the metadata quorum: replicas, fetchers, the way to the controller.
//!
//! Mirrors `local_replicas.rs` of the broker (`begin_change`, `take_up`, `tell_brokers`), `replication/fetcher.rs`
//! (one request a leader at a time, with all orders), `replication/alter_partitions.rs` (`send_all`), `membership/heartbeats.rs`
//! (`live`, around `BrokerLifecycle`), `dir_assignments.rs` and, for the start, `membership.rs` (`join`,
//! `catch_up`, `serve`).

use std::collections::{BTreeMap, VecDeque};

use ottla_controller::{BrokerLifecycle, LifecycleEvent, LifecycleSettings};
use ottla_metadata::{MetadataDelta, MetadataImage, PartitionRegistration};
use ottla_replica::{
    AlterPartition, Event, FollowerFetch, LeaderOffsets, Leadership, ReplicaBroker,
    ReplicaSettings, RequiredAcks,
};
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Offset, TopicIdPartition, Uuid};

use super::controller_calls::WantsProducerId;
use super::coordinators::{Caller, Coordinators};
use super::message::{Body, ClientRequest, ClientResponse, FetchAnswer, LedPartition};
use super::node::{Stopped, Surroundings};
use super::planted::{self, Bug};
use super::quorum_shell::QuorumShell;
use super::replica_shell::{Ack, Arriving, OfTransaction, ReplicaShell};
use super::share_partitions::SharePartitions;

pub(crate) const REPLICA_LAG_TIME_MAX_MS: u64 = 2_000;
/// `replica.socket.timeout.ms`
const FETCH_TIMEOUT_MS: u64 = 1_500;
/// `replica.fetch.backoff.ms`
const FETCH_BACKOFF_MS: u64 = 100;

pub(crate) struct BrokerShell {
    /// Which life of the broker this is.
    pub(super) incarnation: Uuid,
    pub(super) previous_broker_epoch: i64,
    pub(super) lifecycle: BrokerLifecycle,
    pub(super) is_registered: bool,
    /// Logs are loaded and the metadata is in force.
    pub(super) is_serving: bool,
    pub(super) image: MetadataImage,
    pub(super) replicas: BTreeMap<TopicIdPartition, ReplicaShell>,
    fetchers: BTreeMap<BrokerId, Fetcher>,
    pub(super) calls: super::controller_calls::ControllerCalls,
    pub(super) coordinators: Coordinators,
    pub(super) share_partitions: SharePartitions,
    next_correlation_id: u64,
    /// By what the topic was created with.
    min_insync_replicas: usize,
    flush_messages: i64,
}

/// What is under way to one leader.
#[derive(Default)]
struct Fetcher {
    under_way: Option<(u64, u64)>,
    not_before_ms: u64,
}

impl BrokerShell {
    pub(crate) fn new(
        around: &mut Surroundings<'_>,
        min_insync_replicas: usize,
        flush_messages: i64,
    ) -> BrokerShell {
        let previous_broker_epoch = std::mem::replace(&mut around.disk.clean_stop_epoch, -1);
        let settings = LifecycleSettings {
            heartbeat_interval_ms: 300,
            registration_timeout_ms: u64::MAX,
            dir_failure_timeout_ms: 30_000,
            session_timeout_ms: 2_000,
        };
        BrokerShell {
            incarnation: Uuid::from_u128(u128::from(around.random.next()) << 32 | 0x1_0000),
            previous_broker_epoch,
            lifecycle: BrokerLifecycle::new(settings, around.now_ms),
            is_registered: false,
            is_serving: false,
            image: MetadataImage::empty(),
            replicas: BTreeMap::new(),
            fetchers: BTreeMap::new(),
            calls: Default::default(),
            coordinators: Coordinators::default(),
            share_partitions: SharePartitions::default(),
            next_correlation_id: 0,
            min_insync_replicas,
            flush_messages,
        }
    }

    pub(super) fn correlation_id(&mut self) -> u64 {
        self.next_correlation_id += 1;
        self.next_correlation_id
    }

    pub(crate) fn broker_epoch(&self) -> BrokerEpoch {
        self.lifecycle.broker_epoch()
    }

    /// After each step of the quorum: what it published is put in force.
    pub(crate) fn follow(
        &mut self,
        quorum: &mut QuorumShell,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        // What stands before its registration says what an earlier life of the broker was.
        let knows_registration = quorum.image_end() > self.broker_epoch().value()
            || planted::has(Bug::ServeBeforeRegistration);
        if !self.is_serving && quorum.has_caught_up() && self.is_registered && knows_registration {
            // The logs are loaded when the replicas are taken up.
            self.is_serving = true;
            quorum.begin_publishing();
        }
        let is_first = self.image.provenance.last_contained_offset.value() < 0;
        for delta in quorum.take_unpublished() {
            self.on_metadata_changed(&delta, around)?;
        }
        if self.is_serving && is_first {
            self.live(LifecycleEvent::ReadyToUnfence, quorum, around)?;
        }
        Ok(())
    }

    fn on_metadata_changed(
        &mut self,
        delta: &MetadataDelta,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let own = BrokerId(around.id);
        let changes = delta.local_changes(own);
        for deleted in &changes.deleted {
            let key = key_of(deleted);
            self.lose_replica(key, around)?;
            around.disk.remove(key);
        }
        let settings = ReplicaSettings {
            min_insync_replicas: self.min_insync_replicas,
            flush_messages: self.flush_messages,
        };
        let leaders = changes.leaders.iter().map(|replica| (replica, true));
        let followers = changes.followers.iter().map(|replica| (replica, false));
        for (replica, is_leader) in leaders.chain(followers) {
            let key = key_of(replica);
            if around.disk.is_out_of_reach(key) {
                continue;
            }
            let wanted = replica.registration.directory(own);
            let log = around.disk.log_at(key, wanted);
            let shell = self.replicas.entry(key).or_insert_with(|| {
                let topic = replica.topic.clone();
                ReplicaShell::open(key, topic, own, REPLICA_LAG_TIME_MAX_MS, log)
            });
            let registration = &replica.registration;
            if wanted != around.disk.place(key) {
                self.calls.wrong_directories.insert(key);
            }
            let event = match is_leader {
                true => Event::LeaderElected {
                    leadership: Leadership {
                        leader_epoch: registration.leader_epoch,
                        partition_epoch: registration.partition_epoch,
                        replicas: registration.replicas.clone(),
                        isr: registration.isr.clone(),
                        brokers: replica_brokers(registration, &delta.after),
                        settings,
                    },
                    now_ms: around.now_ms,
                },
                false => Event::FollowerOf {
                    leader: registration.leader,
                    leader_epoch: registration.leader_epoch,
                    partition_epoch: registration.partition_epoch,
                    settings,
                },
            };
            shell.take(event, around)?;
        }
        self.image = delta.after.clone();
        self.follow_leadership(&changes, delta, around)?;
        if delta.brokers.is_empty() {
            return Ok(());
        }
        for (key, shell) in &mut self.replicas {
            let Some(registration) = registration_of(&self.image, *key) else {
                continue;
            };
            let is_told = changes.leaders.iter().any(|told| key_of(told) == *key);
            let mut holders = registration.replicas.iter();
            if registration.leader == own
                && !is_told
                && holders.any(|replica| delta.brokers.contains(replica))
            {
                let brokers = replica_brokers(registration, &self.image);
                shell.take(Event::BrokersChanged(brokers), around)?;
            }
        }
        Ok(())
    }

    /// Takes a replica out whose log is gone. Who waits for its appends is told so.
    fn lose_replica(
        &mut self,
        key: TopicIdPartition,
        around: &mut Surroundings<'_>,
    ) -> Result<Option<ReplicaShell>, Stopped> {
        let Some(mut lost) = self.replicas.remove(&key) else {
            return Ok(None);
        };
        lost.take(Event::LogLost, around)?;
        self.coordinators.keep_released(key, &mut lost);
        Ok(Some(lost))
    }

    /// The second log directory can be got at no more, and neither can what lies in it.
    pub(crate) fn lose_second_directory(
        &mut self,
        quorum: &mut QuorumShell,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        around.disk.has_lost_second = true;
        let keys: Vec<TopicIdPartition> = self.replicas.keys().copied().collect();
        for key in keys {
            if around.disk.is_out_of_reach(key)
                && let Some(lost) = self.lose_replica(key, around)?
            {
                self.resign(&lost.topic, key.partition.value(), around)?;
            }
        }
        let event = LifecycleEvent::DirectoriesChanged {
            failed: vec![around.disk.second],
            cordoned: Vec::new(),
        };
        self.live(event, quorum, around)
    }

    /// What is due by the clock.
    pub(crate) fn tick(
        &mut self,
        quorum: &mut QuorumShell,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        self.follow(quorum, around)?;
        self.call_controller(quorum, around)?;
        let now_ms = around.now_ms;
        for shell in self.replicas.values_mut() {
            shell.take(Event::ClockTicked { now_ms }, around)?;
            if around.random.per_mille(20) {
                let log = around.disk.partitions.get_mut(&shell.key);
                log.expect("its log is here").checkpoint_high_watermark();
            }
            if around.random.per_mille(15) {
                // The kernel writes back what it likes.
                let log = around.disk.partitions.get_mut(&shell.key);
                let log = log.expect("its log is here");
                log.flush(log.end());
            }
        }
        self.fetch(around)
    }

    fn fetch(&mut self, around: &mut Surroundings<'_>) -> Result<(), Stopped> {
        let now_ms = around.now_ms;
        let mut orders: BTreeMap<BrokerId, Vec<_>> = BTreeMap::new();
        for (key, shell) in &mut self.replicas {
            if let Some(order) = shell.order {
                let log_start = around.disk.partitions[key].start();
                let of_leader = orders.entry(order.leader).or_default();
                of_leader.push((*key, order, log_start));
            }
            if let Some((leader, leader_epoch, is_asked)) = &mut shell.question
                && !*is_asked
            {
                *is_asked = true;
                let body = Body::ListOffsets {
                    partition: *key,
                    leader_epoch: *leader_epoch,
                };
                around.send(leader.value(), body);
            }
        }
        for (leader, partitions) in orders {
            let correlation_id = self.correlation_id();
            let broker_epoch = self.broker_epoch();
            let fetcher = self.fetchers.entry(leader).or_default();
            if let Some((_, sent_ms)) = fetcher.under_way
                && now_ms >= sent_ms + FETCH_TIMEOUT_MS
            {
                fetcher.under_way = None;
            }
            if fetcher.under_way.is_none() && now_ms >= fetcher.not_before_ms {
                fetcher.under_way = Some((correlation_id, now_ms));
                let body = Body::Fetch {
                    correlation_id,
                    broker_epoch,
                    partitions,
                };
                around.send(leader.value(), body);
            }
        }
        // A question that got no answer is given up.
        for shell in self.replicas.values_mut() {
            if let Some((_, leader_epoch, true)) = shell.question
                && around.random.per_mille(5)
            {
                shell.question = None;
                let event = Event::LeaderOffsetsListed {
                    leader_epoch,
                    result: Err(ErrorCode::NetworkException),
                    now_ms,
                };
                shell.take(event, around)?;
            }
        }
        Ok(())
    }

    pub(crate) fn on_fetch(
        &mut self,
        from: i32,
        from_life: u64,
        correlation_id: u64,
        broker_epoch: BrokerEpoch,
        partitions: Vec<(TopicIdPartition, ottla_replica::FetchPosition, Offset)>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let mut answers = Vec::new();
        for (key, position, log_start_offset) in partitions {
            let fetch = FollowerFetch {
                replica_id: BrokerId(from),
                broker_epoch,
                leader_epoch: Some(position.leader_epoch),
                fetch_offset: position.fetch_offset,
                last_fetched_epoch: position.last_fetched_epoch,
                end_of_last_fetched_epoch: None,
                log_start_offset,
                leader_log_start_offset: Offset(0),
                now_ms: around.now_ms,
            };
            let answer = match self.replicas.get_mut(&key) {
                Some(shell) => shell.serve_follower(fetch, around)?,
                None => {
                    let error = ErrorCode::UnknownTopicId;
                    FetchAnswer::Refused(ottla_replica::FetchRefusal::Error(error))
                }
            };
            answers.push((key, position, answer));
        }
        let body = Body::Fetched {
            correlation_id,
            partitions: Some(answers),
        };
        around.answer(from, from_life, body);
        Ok(())
    }

    pub(crate) fn on_fetched(
        &mut self,
        from: i32,
        correlation_id: u64,
        partitions: Option<Vec<(TopicIdPartition, ottla_replica::FetchPosition, FetchAnswer)>>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let Some(fetcher) = self.fetchers.get_mut(&BrokerId(from)) else {
            return Ok(());
        };
        if fetcher.under_way.is_none_or(|(id, _)| id != correlation_id) {
            return Ok(());
        }
        fetcher.under_way = None;
        let Some(partitions) = partitions else {
            fetcher.not_before_ms = match planted::has(Bug::GiveUpFetching) {
                true => u64::MAX,
                false => around.now_ms + FETCH_BACKOFF_MS,
            };
            return Ok(());
        };
        for (key, order, answer) in partitions {
            if let Some(shell) = self.replicas.get_mut(&key) {
                shell.on_leader_answered(order, Ok(answer), around)?;
            }
        }
        Ok(())
    }

    pub(crate) fn on_list_offsets(
        &mut self,
        from: i32,
        from_life: u64,
        partition: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        around: &mut Surroundings<'_>,
    ) {
        let result = match self.replicas.get(&partition) {
            Some(shell) if shell.replica.is_leader() => shell
                .replica
                .check_leader_epoch(Some(leader_epoch))
                .map(|()| {
                    let log = &around.disk.partitions[&partition];
                    LeaderOffsets {
                        log_start_offset: log.start(),
                        log_end_offset: log.end(),
                    }
                }),
            _ => Err(ErrorCode::NotLeaderOrFollower),
        };
        let body = Body::OffsetsListed {
            partition,
            leader_epoch,
            result,
        };
        around.answer(from, from_life, body);
    }

    pub(crate) fn on_offsets_listed(
        &mut self,
        partition: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        result: Result<LeaderOffsets, ErrorCode>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let Some(shell) = self.replicas.get_mut(&partition) else {
            return Ok(());
        };
        if shell
            .question
            .is_none_or(|(_, asked, _)| asked != leader_epoch)
        {
            return Ok(());
        }
        shell.question = None;
        let now_ms = around.now_ms;
        let event = Event::LeaderOffsetsListed {
            leader_epoch,
            result,
            now_ms,
        };
        shell.take(event, around)
    }

    pub(crate) fn on_client(
        &mut self,
        from: i32,
        from_life: u64,
        correlation_id: u64,
        request: ClientRequest,
        around: &mut Surroundings<'_>,
    ) -> Result<(), Stopped> {
        let caller = Caller {
            client: from,
            life: from_life,
            correlation_id,
        };
        let response = match request {
            _ if !self.is_serving => ClientResponse::Failed,
            ClientRequest::Metadata => ClientResponse::Metadata(led_partitions(&self.image)),
            ClientRequest::InitProducerId => {
                let waiting = WantsProducerId::Client(caller);
                self.calls.producers_waiting.push_back(waiting);
                return Ok(());
            }
            ClientRequest::Produce {
                partition,
                batch,
                transactional_id,
                timeout_ms,
            } => match self.replicas.get_mut(&partition) {
                Some(shell) => {
                    let ack = Ack::Client {
                        client: from,
                        client_life: from_life,
                        correlation_id,
                        value: batch.header.crc,
                        records: batch.header.record_count,
                    };
                    let deadline_ms = around.now_ms + timeout_ms;
                    if let Some(id) = transactional_id {
                        return self.produce_in_transaction(
                            partition,
                            id,
                            batch,
                            deadline_ms,
                            ack,
                            around,
                        );
                    }
                    let arriving = Arriving {
                        batch,
                        required_acks: RequiredAcks::All,
                        expected_leader_epoch: None,
                        of_transaction: OfTransaction::No,
                        deadline_ms,
                        ack,
                    };
                    return shell.append(arriving, around);
                }
                None => ClientResponse::Produced(Err(ErrorCode::NotLeaderOrFollower)),
            },
            ClientRequest::FetchCommitted { partition, offset } => {
                ClientResponse::FetchedCommitted(match self.replicas.get(&partition) {
                    Some(shell) => shell.read_committed(offset, around),
                    None => Err(ErrorCode::NotLeaderOrFollower),
                })
            }
            ClientRequest::Fetch {
                partition,
                offset,
                leader_epoch,
            } => ClientResponse::Fetched(match self.replicas.get(&partition) {
                Some(shell) => shell.read_for_consumer(offset, leader_epoch, around),
                None => Err(ErrorCode::NotLeaderOrFollower),
            }),
            ClientRequest::ShareFetch(request) => {
                return self.on_share_fetch(caller, request, around);
            }
            ClientRequest::ShareAcknowledge(request) => {
                self.on_share_acknowledge(caller, request, around);
                return Ok(());
            }
            ClientRequest::ShareMemberGone {
                group_id,
                member_id,
            } => {
                self.on_share_member_gone(&group_id, &member_id, around);
                return Ok(());
            }
            of_coordinator => {
                return self.on_client_of_coordinator(caller, of_coordinator, around);
            }
        };
        let body = Body::ToClient {
            correlation_id,
            response,
        };
        around.answer(from, from_life, body);
        Ok(())
    }

    /// Proposals that are ready to be sent, the oldest of each partition.
    pub(super) fn ready_proposals(&self, now_ms: u64) -> Vec<(TopicIdPartition, AlterPartition)> {
        let first = |shell: &ReplicaShell| {
            let proposals: &VecDeque<(AlterPartition, u64)> = &shell.proposals;
            let (proposal, ready_at_ms) = proposals.front()?;
            (*ready_at_ms <= now_ms).then(|| (shell.key, proposal.clone()))
        };
        self.replicas.values().filter_map(first).collect()
    }
}

fn key_of(replica: &ottla_metadata::LocalReplica) -> TopicIdPartition {
    TopicIdPartition {
        topic_id: replica.topic_id,
        partition: replica.partition,
    }
}

pub(crate) fn registration_of(
    image: &MetadataImage,
    key: TopicIdPartition,
) -> Option<&PartitionRegistration> {
    image.topics.by_id(key.topic_id)?.partition(key.partition)
}

fn replica_brokers(
    registration: &PartitionRegistration,
    image: &MetadataImage,
) -> Vec<ReplicaBroker> {
    let brokers = registration.replicas.iter().filter_map(|&broker_id| {
        let broker = image.cluster.broker(broker_id)?;
        Some(ReplicaBroker {
            broker_id,
            broker_epoch: broker.epoch,
            is_fenced: broker.fenced,
            is_in_controlled_shutdown: broker.in_controlled_shutdown,
        })
    });
    brokers.collect()
}

fn led_partitions(image: &MetadataImage) -> Vec<LedPartition> {
    let topics = image.topics.iter();
    let partitions = topics.flat_map(|topic| {
        topic
            .partitions()
            .map(|(partition, registration)| LedPartition {
                topic: topic.name.clone(),
                partition: TopicIdPartition {
                    topic_id: topic.id,
                    partition,
                },
                leader: registration.leader,
                leader_epoch: registration.leader_epoch,
                replicas: registration.replicas.clone(),
            })
    });
    partitions.collect()
}
