//! One run: nodes, clients, the network between them and the time; the seed decides what happens.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use ottla_metadata::MetadataImage;
use ottla_raft::{KRaftVersion, SnapshotId};
use ottla_types::{ErrorCode, Offset, TopicIdPartition, Uuid};

use super::admin::Admin;
use super::broker_shell::BrokerShell;
use super::checkers::Checkers;
use super::clients::{Asked, Client, Consumer, Producer, Role};
use super::clock::Clock;
use super::group_clients::{GroupClient, Reader, Role as GroupRole};
use super::history::History;
use super::message::{Body, ClientRequest, ClientResponse, FIRST_CLIENT, Message, QuorumPayload};
use super::metadata_log::SnapshotContent;
use super::movers::Mover;
use super::network::Network;
use super::node::{Disk, Node, Out, Process, Stopped, Surroundings, is_broker, name};
use super::outcome::Outcome;
use super::quorum_shell::{ClusterSettings, QuorumShell, initial_voters};
use super::random::Random;
use super::setup::{Groups, Losses, Setup};
use super::sharers::Sharer;

/// How long things fail, how long nothing does, and when in that the producers stop.
const FAULTS_MS: u64 = 20_000;
const HEALING_MS: u64 = 25_000;
const WRITING_MS: u64 = 30_000;
/// The same where all that they write is moved on.
const MOVING_MS: u64 = 24_000;

#[derive(Debug)]
pub(super) enum Happening {
    Deliver(Box<Message>),
    Wake {
        node: i32,
        life: u64,
    },
    Flushed {
        node: i32,
        life: u64,
        partition: TopicIdPartition,
        up_to: Offset,
        generation: u64,
    },
    ClientTick {
        client: i32,
    },
    AdminTick,
    Trouble,
    Start {
        node: i32,
    },
    Mend {
        pair: Option<(i32, i32)>,
    },
    EmptyDisk {
        node: i32,
    },
}

pub(crate) struct World {
    pub(super) setup: Setup,
    pub(super) settings: ClusterSettings,
    pub(super) now_ms: u64,
    pub(super) random: Random,
    sequence: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    pub(super) nodes: BTreeMap<i32, Node>,
    pub(super) clients: BTreeMap<i32, Client>,
    pub(super) group_clients: BTreeMap<i32, GroupClient>,
    /// Second instances of movers, which should not be there.
    pub(super) twins: Vec<i32>,
    /// By client and broker.
    connections: BTreeMap<(i32, i32), Connection>,
    pub(super) admin: Admin,
    pub(super) network: Network,
    pub(super) checkers: Checkers,
    pub(super) history: History,
    pub(super) is_healing: bool,
    /// Until when a node is held up, as by SIGSTOP.
    pub(super) held_up: BTreeMap<i32, u64>,
    /// Brokers that lost something and are not registered anew yet, with the epoch that they had.
    pub(super) dirty: BTreeMap<i32, i64>,
    /// Brokers that were asked to stop and run on.
    pub(super) stopping: BTreeSet<i32>,
    pub(super) last_cut_ms: u64,
    /// What is known where nobody knows anything.
    pub(super) no_image: MetadataImage,
    pub(super) outcome: Outcome,
}

#[derive(Default)]
struct Connection {
    number: u64,
    is_broken: bool,
    /// When the last message that was sent over it arrives.
    arrives_ms: u64,
}

impl World {
    pub(crate) fn new(seed: u64, history: History) -> World {
        let mut random = Random::new(seed);
        let setup = Setup::draw(&mut random);
        let settings = setup.cluster_settings(&mut random);
        let mut nodes = BTreeMap::new();
        let directory = |id: i32| Uuid::from_u128(0x1000_0000 + id as u128);
        let controllers = setup.controller_ids();
        let keys: Vec<_> = controllers.iter().map(|&id| (id, directory(id))).collect();
        for id in setup.broker_ids().into_iter().chain(controllers) {
            let second = Uuid::from_u128(0x2000_0000 + id as u128);
            let mut disk = Disk::new(directory(id), second);
            if setup.has_dynamic_voters && !is_broker(id) {
                let content = SnapshotContent {
                    records: Vec::new(),
                    kraft_version: KRaftVersion::V1,
                    voters: Some(initial_voters(&keys)),
                };
                disk.metadata
                    .snapshots
                    .insert(SnapshotId::BOOTSTRAP, content);
            }
            let node = Node {
                id,
                clock: Clock::skewed(&mut random),
                disk,
                process: None,
                life: 0,
                wake_at_ms: None,
            };
            nodes.insert(id, node);
        }
        let mut clients = BTreeMap::new();
        for partition in 0..setup.partitions {
            for role in [
                Role::Producer(Producer::default()),
                Role::Producer(Producer::default()),
                Role::Consumer(Consumer::default()),
            ] {
                let id = FIRST_CLIENT + 1 + clients.len() as i32;
                let client = Client::new(id, setup.broker_ids(), partition, role);
                clients.insert(id, client);
            }
        }
        let mut group_clients = BTreeMap::new();
        let mut twins = Vec::new();
        if setup.groups == Groups::Movers {
            // The third is a second instance of the first.
            for (slot, transactional_id) in [(1, "a"), (2, "b"), (1, "a")] {
                let id = FIRST_CLIENT + 101 + group_clients.len() as i32;
                let role = GroupRole::Mover(Mover::new(transactional_id.into(), slot));
                let mut client = GroupClient::new(id, setup.broker_ids(), role);
                if group_clients.len() == 2 {
                    client.is_stopped = true;
                    twins.push(id);
                }
                group_clients.insert(id, client);
            }
            for _ in 0..2 {
                let id = FIRST_CLIENT + 101 + group_clients.len() as i32;
                let role = GroupRole::Reader(Reader::default());
                let client = GroupClient::new(id, setup.broker_ids(), role);
                group_clients.insert(id, client);
            }
        }
        if setup.groups == Groups::Sharers {
            for _ in 0..3 {
                let id = FIRST_CLIENT + 101 + group_clients.len() as i32;
                let role = GroupRole::Sharer(Sharer::default());
                let client = GroupClient::new(id, setup.broker_ids(), role);
                group_clients.insert(id, client);
            }
        }
        let mut world = World {
            checkers: Checkers::new(setup.is_unclean),
            admin: Admin::new(&setup),
            setup,
            settings,
            now_ms: 0,
            network: Network::default(),
            random,
            sequence: 0,
            queue: BTreeMap::new(),
            nodes,
            clients,
            group_clients,
            twins,
            connections: BTreeMap::new(),
            history,
            is_healing: false,
            held_up: BTreeMap::new(),
            dirty: BTreeMap::new(),
            stopping: BTreeSet::new(),
            last_cut_ms: 0,
            no_image: MetadataImage::empty(),
            outcome: Outcome::default(),
        };
        world.network = Network::faulty(&mut world.random);
        world
    }

    pub(crate) fn run(mut self, seed: u64) -> (Outcome, Vec<String>) {
        let ran = catch_unwind(AssertUnwindSafe(|| self.run_to_the_end(seed)));
        self.outcome.finding = match ran {
            Ok(()) => self.checkers.finding(),
            Err(panic) => Some(format!("an assertion fails: {}", message_of(&*panic))),
        };
        if let Some(finding) = self.outcome.finding.clone() {
            self.note(|| format!("FOUND {finding}"));
        }
        self.outcome.metadata_epochs = self.checkers.metadata_leaders.epochs();
        self.outcome.metadata_records = self.checkers.metadata_committed.end();
        self.outcome.leader_epochs = self.checkers.partition_leaders.epochs();
        self.outcome.committed_batches = self.checkers.committed_records.count();
        self.outcome.acknowledged_batches = self.checkers.acknowledged.count();
        self.outcome.consumed_batches = self.checkers.consumers.count();
        self.outcome.transactions = self.checkers.atomic_transactions.count();
        self.outcome.moved_batches = self.checkers.missed_records.count();
        self.outcome.assignments = self.checkers.partition_owners.count();
        self.outcome.shared_records = self.checkers.share_deliveries.count();
        let is = |groups| u64::from(self.setup.groups == groups);
        self.outcome.with_movers = is(Groups::Movers);
        self.outcome.with_sharers = is(Groups::Sharers);
        (self.outcome, self.history.into_lines())
    }

    fn run_to_the_end(&mut self, seed: u64) {
        let setup = self.setup.clone();
        self.note(|| format!("seed {seed}: {setup:?}"));
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for node in ids {
            self.schedule(0, Happening::Start { node });
        }
        let clients = self.clients.keys().chain(self.group_clients.keys());
        let clients: Vec<i32> = clients.copied().collect();
        for client in clients {
            self.schedule(10, Happening::ClientTick { client });
        }
        self.schedule(100, Happening::AdminTick);
        self.schedule(3_000, Happening::Trouble);
        self.run_until(FAULTS_MS);
        if self.checkers.finding().is_none() {
            self.heal();
            self.run_until(FAULTS_MS + HEALING_MS);
        }
        if self.checkers.finding().is_none() {
            self.check_convergence();
        }
    }

    fn run_until(&mut self, end_ms: u64) {
        while let Some(entry) = self.queue.first_entry() {
            if entry.key().0 >= end_ms {
                break;
            }
            let ((at_ms, _), happening) = entry.remove_entry();
            self.now_ms = at_ms;
            self.outcome.events += 1;
            self.happen(happening);
            if self.outcome.events.is_multiple_of(512) {
                self.checkers.log_matching.check(&self.nodes);
            }
            if self.checkers.finding().is_some() {
                return;
            }
        }
        self.checkers.log_matching.check(&self.nodes);
    }

    pub(super) fn schedule(&mut self, after_ms: u64, happening: Happening) {
        self.sequence += 1;
        let key = (self.now_ms + after_ms, self.sequence);
        self.queue.insert(key, happening);
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        self.history.note(self.now_ms, line);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Deliver(message) => self.deliver(*message),
            Happening::Wake { node, life } => self.wake(node, life),
            Happening::Flushed {
                node,
                life,
                partition,
                up_to,
                generation,
            } => self.with_process(node, Some(life), |process, around| {
                let broker = process.broker.as_mut().expect("only brokers flush");
                match broker.replicas.get_mut(&partition) {
                    Some(shell) => shell.on_flushed(up_to, generation, around),
                    None => Ok(()),
                }
            }),
            Happening::ClientTick { client } => self.tick_client(client),
            Happening::AdminTick => {
                let after_ms = 100 + self.random.below(200);
                self.schedule(after_ms, Happening::AdminTick);
                let is_calm = self.is_healing;
                for (to, body) in self.admin.tick(is_calm, &mut self.random) {
                    self.send(FIRST_CLIENT, 0, to, None, body);
                }
            }
            Happening::Trouble => self.make_trouble(),
            Happening::Start { node } => self.start(node),
            Happening::Mend { pair: Some(pair) } => {
                self.network.cut.remove(&pair);
                self.last_cut_ms = self.now_ms;
            }
            Happening::Mend { pair: None } => {
                self.network.cut.clear();
                self.last_cut_ms = self.now_ms;
            }
            Happening::EmptyDisk { node } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.disk.is_full = false;
                }
            }
        }
    }

    /// Has a process take a step, and sees to what follows from it.
    pub(super) fn with_process(
        &mut self,
        id: i32,
        life: Option<u64>,
        step: impl FnOnce(&mut Process, &mut Surroundings<'_>) -> Result<(), Stopped>,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if life.is_some_and(|life| life != node.life) {
            return;
        }
        let Some(mut process) = node.process.take() else {
            return;
        };
        let may_stumble =
            !self.is_healing && (!is_broker(id) || self.setup.losses == Losses::Processes);
        let mut around = Surroundings {
            id,
            life: node.life,
            now_ms: node.clock.now_ms(self.now_ms),
            true_ms: self.now_ms,
            disk: &mut node.disk,
            random: &mut self.random,
            checkers: &mut self.checkers,
            history: &mut self.history,
            out: Vec::new(),
            stumbles: if may_stumble { 3 } else { 0 },
        };
        let mut outcome = step(&mut process, &mut around);
        if let (Ok(()), Some(broker)) = (outcome, &mut process.broker) {
            outcome = broker.follow(&mut process.quorum, &mut around);
            outcome = outcome.and_then(|()| broker.coordinate(&mut around));
        }
        let out = around.out;
        let node_life = node.life;
        let wake_at_ms = node.clock.true_ms(process.quorum.quorum.wake_at_ms());
        node.process = Some(process);
        for out in out {
            match out {
                Out::Send { to, to_life, body } => self.send(id, node_life, to, to_life, *body),
                Out::Flush { partition } => {
                    let after_ms = 1 + self.random.below(30);
                    // The step may have removed it.
                    let Some(log) = self.nodes[&id].disk.partitions.get(&partition) else {
                        continue;
                    };
                    let (up_to, generation) = (log.end(), log.generation());
                    let flushed = Happening::Flushed {
                        node: id,
                        life: node_life,
                        partition,
                        up_to,
                        generation,
                    };
                    self.schedule(after_ms, flushed);
                }
            }
        }
        match outcome {
            Ok(()) => {
                let idle_ms = 15 + self.random.below(20);
                let at_ms = wake_at_ms.clamp(self.now_ms + 1, self.now_ms + idle_ms);
                self.wake_at(id, at_ms);
            }
            Err(stopped) => self.on_stopped(id, stopped),
        }
    }

    /// The earliest of what was asked for counts.
    fn wake_at(&mut self, id: i32, at_ms: u64) {
        let now_ms = self.now_ms;
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        if node
            .wake_at_ms
            .is_some_and(|known| known <= at_ms && known > now_ms)
        {
            return;
        }
        node.wake_at_ms = Some(at_ms);
        let life = node.life;
        self.schedule(at_ms - now_ms, Happening::Wake { node: id, life });
    }

    fn wake(&mut self, id: i32, life: u64) {
        if self.nodes[&id].wake_at_ms != Some(self.now_ms) {
            return;
        }
        if let Some(until_ms) = self.held_up_until(id) {
            self.wake_at(id, until_ms);
            return;
        }
        self.forget_dirty();
        self.with_process(id, Some(life), |process, around| {
            process.quorum.tick(around)?;
            match &mut process.broker {
                Some(broker) => broker.tick(&mut process.quorum, around),
                None => Ok(()),
            }
        });
    }

    fn held_up_until(&self, id: i32) -> Option<u64> {
        self.held_up
            .get(&id)
            .copied()
            .filter(|&until_ms| until_ms > self.now_ms)
    }

    fn start(&mut self, id: i32) {
        let (min_insync_replicas, flush_messages) =
            (self.setup.min_insync_replicas, self.setup.flush_messages);
        let settings = self.settings.clone();
        let Some(node) = self
            .nodes
            .get_mut(&id)
            .filter(|node| node.process.is_none())
        else {
            return;
        };
        node.life += 1;
        node.wake_at_ms = None;
        node.disk.has_lost_second = false;
        let quorum = QuorumShell::open(id, &mut node.disk, &settings);
        let mut around = Surroundings {
            id,
            life: node.life,
            now_ms: node.clock.now_ms(self.now_ms),
            true_ms: self.now_ms,
            disk: &mut node.disk,
            random: &mut self.random,
            checkers: &mut self.checkers,
            history: &mut self.history,
            out: Vec::new(),
            stumbles: 0,
        };
        around.note(|| "starts".to_owned());
        let broker = is_broker(id)
            .then(|| BrokerShell::new(&mut around, min_insync_replicas, flush_messages));
        node.process = Some(Process { quorum, broker });
        self.with_process(id, None, |process, around| process.quorum.start(around));
    }

    pub(super) fn send(
        &mut self,
        from: i32,
        from_life: u64,
        to: i32,
        to_life: Option<u64>,
        body: Body,
    ) {
        let delays = self.network.delays(from, to, &mut self.random);
        if delays.is_empty() {
            self.note(|| format!("lost between {} and {}", name(from), name(to)));
        }
        for after_ms in delays {
            let message = Message {
                from,
                to,
                to_life,
                from_life,
                body: body.clone(),
            };
            self.schedule(after_ms, Happening::Deliver(Box::new(message)));
        }
    }

    fn deliver(&mut self, message: Message) {
        if message.to >= FIRST_CLIENT {
            return self.deliver_to_client(message);
        }
        if self.is_of_closed_connection(&message) {
            return;
        }
        if let Some(until_ms) = self.held_up_until(message.to) {
            return self.schedule(
                until_ms - self.now_ms,
                Happening::Deliver(Box::new(message)),
            );
        }
        let Some(node) = self.nodes.get(&message.to) else {
            return;
        };
        if node.process.is_none() {
            return self.refuse(message);
        }
        let (from, life) = (message.from, message.from_life);
        self.with_process(message.to, message.to_life, |process, around| {
            let broker = process.broker.as_mut();
            match (message.body, broker) {
                (
                    Body::Quorum {
                        known_as,
                        correlation_id,
                        payload,
                    },
                    _,
                ) => process
                    .quorum
                    .receive(from, life, known_as, correlation_id, payload, around),
                (
                    Body::Ask {
                        correlation_id,
                        request,
                    },
                    _,
                ) => process
                    .quorum
                    .decide(from, life, correlation_id, &request, around),
                (
                    Body::Answer {
                        correlation_id,
                        response,
                    },
                    Some(broker),
                ) => broker.on_answer(correlation_id, response, &mut process.quorum, around),
                (
                    Body::Fetch {
                        correlation_id,
                        broker_epoch,
                        partitions,
                    },
                    Some(broker),
                ) => broker.on_fetch(from, life, correlation_id, broker_epoch, partitions, around),
                (
                    Body::Fetched {
                        correlation_id,
                        partitions,
                    },
                    Some(broker),
                ) => broker.on_fetched(from, correlation_id, partitions, around),
                (
                    Body::ListOffsets {
                        partition,
                        leader_epoch,
                    },
                    Some(broker),
                ) => {
                    broker.on_list_offsets(from, life, partition, leader_epoch, around);
                    Ok(())
                }
                (
                    Body::OffsetsListed {
                        partition,
                        leader_epoch,
                        result,
                    },
                    Some(broker),
                ) => broker.on_offsets_listed(partition, leader_epoch, result, around),
                (
                    Body::AskBroker {
                        correlation_id,
                        request,
                    },
                    Some(broker),
                ) => broker.on_asked_by_broker(from, life, correlation_id, request, around),
                (
                    Body::BrokerAnswered {
                        correlation_id,
                        response,
                    },
                    Some(broker),
                ) => broker.on_answered(correlation_id, response, around),
                (
                    Body::Client {
                        correlation_id,
                        request,
                    },
                    Some(broker),
                ) => broker.on_client(from, life, correlation_id, request, around),
                _ => Ok(()),
            }
        });
    }

    fn is_of_closed_connection(&self, message: &Message) -> bool {
        let client = self.group_clients.get(&message.from);
        let ends = |request: &ClientRequest| request.ends_with_its_connection();
        client.is_some_and(|client| client.connection > message.from_life)
            && matches!(&message.body, Body::Client { request, .. } if ends(request))
    }

    /// Nobody listens there: whoever asked is told by its own machine.
    fn refuse(&mut self, message: Message) {
        let error = ErrorCode::NetworkException;
        let body = match message.body {
            Body::Quorum {
                known_as,
                correlation_id,
                payload: QuorumPayload::Request(_),
            } => Body::Quorum {
                known_as,
                correlation_id,
                payload: QuorumPayload::Failure(error),
            },
            Body::Ask { correlation_id, .. } => Body::Answer {
                correlation_id,
                response: Err(error),
            },
            Body::Fetch { correlation_id, .. } => Body::Fetched {
                correlation_id,
                partitions: None,
            },
            Body::AskBroker { correlation_id, .. } => Body::BrokerAnswered {
                correlation_id,
                response: None,
            },
            Body::ListOffsets {
                partition,
                leader_epoch,
            } => Body::OffsetsListed {
                partition,
                leader_epoch,
                result: Err(error),
            },
            Body::Client { correlation_id, .. } => Body::ToClient {
                correlation_id,
                response: ClientResponse::Failed,
            },
            _ => return,
        };
        let to_life = Some(message.from_life);
        self.send(message.to, 0, message.from, to_life, body);
    }

    fn tick_client(&mut self, id: i32) {
        let after_ms = 15 + self.random.below(20);
        self.schedule(after_ms, Happening::ClientTick { client: id });
        if self.held_up_until(id).is_some() {
            return;
        }
        // What is moved on is no more than what can be.
        let writes = match self.setup.groups {
            Groups::None if self.now_ms < WRITING_MS => 400,
            Groups::Movers | Groups::Sharers if self.now_ms < MOVING_MS => 80,
            _ => 0,
        };
        if let Some(client) = self.group_clients.get_mut(&id) {
            for asked in client.tick(self.now_ms, &mut self.random) {
                self.send_in_order(id, asked);
            }
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        for asked in client.tick(self.now_ms, writes, &mut self.random) {
            self.send_in_order(id, asked);
        }
    }

    /// Over one connection nothing overtakes anything, nothing comes twice, and behind what is lost nothing comes at all.
    fn send_in_order(&mut self, from: i32, asked: Asked) {
        let delays = self.network.delays(from, asked.to, &mut self.random);
        let connection = self.connections.entry((from, asked.to)).or_default();
        if connection.number != asked.connection {
            *connection = Connection {
                number: asked.connection,
                ..Connection::default()
            };
        }
        let Some(&delay_ms) = delays.first().filter(|_| !connection.is_broken) else {
            connection.is_broken = true;
            return;
        };
        let at_ms = (self.now_ms + delay_ms).max(connection.arrives_ms);
        connection.arrives_ms = at_ms;
        let message = Message {
            from,
            to: asked.to,
            to_life: None,
            from_life: asked.connection,
            body: Body::Client {
                correlation_id: asked.correlation_id,
                request: asked.request,
            },
        };
        self.schedule(at_ms - self.now_ms, Happening::Deliver(Box::new(message)));
    }

    fn deliver_to_client(&mut self, message: Message) {
        if let Some(until_ms) = self.held_up_until(message.to) {
            return self.schedule(
                until_ms - self.now_ms,
                Happening::Deliver(Box::new(message)),
            );
        }
        match message.body {
            Body::ToClient {
                correlation_id,
                response,
            } => {
                let (now_ms, from) = (self.now_ms, message.from);
                let is_plain = matches!(&response, ClientResponse::Fetched(Ok(batches)) if batches.is_empty())
                    || matches!(&response, ClientResponse::FetchedCommitted(Ok(it)) if it.batches.is_empty())
                    || matches!(&response, ClientResponse::ShareFetched(Ok(batches)) if batches.is_empty());
                if !is_plain {
                    let id = message.to;
                    self.note(|| format!("{} is told by {}: {response:?}", name(id), name(from)));
                }
                if let Some(client) = self.clients.get_mut(&message.to) {
                    client.receive(from, correlation_id, response, now_ms, &mut self.checkers);
                } else if let Some(client) = self.group_clients.get_mut(&message.to) {
                    let (random, checkers) = (&mut self.random, &mut self.checkers);
                    client.receive(correlation_id, response, now_ms, random, checkers);
                }
            }
            Body::Answer { response, .. } => self.admin.receive(response),
            _ => {}
        }
    }

    /// Of a process that ends, what it asked of the controller may not be decided later, where that matters.
    pub(super) fn drop_questions_of(&mut self, id: i32) {
        self.queue.retain(|_, happening| {
            !matches!(happening, Happening::Deliver(message)
                if message.from == id && matches!(message.body, Body::Ask { .. }))
        });
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}
