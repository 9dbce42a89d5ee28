//! Nodes, network, clients and the clock. The seed decides the order of events and the faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt::Write;

use ottla_types::{BrokerId, ErrorCode, Offset};

use super::checkers::Checkers;
use super::disk::{Entry, SnapshotContent, Value};
use super::network::{Message, Network, Payload};
use super::node::{ADMIN, Seen, SimNode};
use crate::{
    ApiVersionsResponse, ControlRecord, Effect, Event, KRaftVersion, Moment, QuorumConfig, Request,
    Response, Role, SnapshotId, Voter, VoterSet,
};

pub(super) const FAULTS_MS: u64 = 30_000;
const HEALING_MS: u64 = 30_000;
/// Number of events printed with a failure.
const HISTORY: usize = 60;

/// The kind of quorum.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub seed: u64,
    pub voters: i32,
    /// Controllers that are not voters and can become voters.
    pub spares: i32,
    /// Brokers.
    pub observers: i32,
    /// Voters are in the log and change; otherwise they are configured.
    pub dynamic: bool,
    /// `kraft.version` is raised from configured voters, which change from then on.
    pub upgrades: bool,
    pub auto_join: bool,
    /// Short election timeouts, so that elections collide more often.
    pub is_hasty: bool,
}

impl Setup {
    pub fn of(seed: u64) -> Setup {
        let dynamic = !seed.is_multiple_of(3);
        let upgrades = !dynamic && !seed.is_multiple_of(9);
        Setup {
            seed,
            // All voters must report to one leader, which is likelier with few.
            voters: if seed.is_multiple_of(2) || upgrades {
                3
            } else {
                5
            },
            spares: if dynamic || upgrades { 2 } else { 0 },
            observers: 1,
            dynamic,
            upgrades,
            auto_join: seed % 6 == 1,
            is_hasty: seed % 4 == 3 && !upgrades,
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Outcome {
    pub events: u64,
    pub committed: usize,
    pub epochs: i32,
    pub crashes: u64,
    pub voter_changes: u64,
    /// When the upgrade of `kraft.version` was committed; 0 if it never was, or was in the
    /// snapshot.
    pub raised_at_ms: u64,
    pub truncations: u64,
    pub snapshots_installed: u64,
    /// A hash of the events in order.
    pub digest: u64,
}

#[derive(Clone, Debug)]
pub(super) enum ScheduledEvent {
    Deliver(Message),
    Tick {
        node: i32,
        life: u64,
    },
    Flushed {
        node: i32,
        life: u64,
        end: i64,
        generation: u64,
    },
    ClientWrites,
    Trouble,
    VoterChange,
    Crash {
        node: i32,
    },
    Restart {
        node: i32,
    },
    Heal {
        pair: Option<(i32, i32)>,
    },
}

struct Scheduled(u64, u64, ScheduledEvent);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) now_ms: u64,
    pub(super) random: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    pub(super) nodes: BTreeMap<i32, SimNode>,
    pub(super) network: Network,
    pub(super) checkers: Checkers,
    pub(super) is_healing: bool,
    pub(super) next_value: u64,
    pub(super) outcome: Outcome,
    pub(super) history: VecDeque<String>,
}

pub(super) fn run(setup: Setup) -> Result<Outcome, String> {
    let mut world = World::new(setup);
    world.run().map_err(|failure| {
        let mut text = format!("seed {}: {failure}\n", world.setup.seed);
        for line in &world.history {
            let _ = writeln!(text, "  {line}");
        }
        text
    })?;
    world.outcome.committed = world.checkers.committed.len();
    Ok(world.outcome)
}

impl World {
    fn new(setup: Setup) -> World {
        let (election_timeout_ms, fetch_timeout_ms) = if setup.is_hasty {
            (150, 700)
        } else {
            (1_000, 2_000)
        };
        let config = QuorumConfig {
            auto_join: setup.auto_join,
            election_timeout_ms,
            fetch_timeout_ms,
            ..QuorumConfig::default()
        };
        let voter_ids: Vec<i32> = (1..=setup.voters).collect();
        let plain =
            |id: i32, voters: VoterSet| SimNode::new(id, config.clone(), voters, voter_ids.clone());
        let voters: Vec<Voter> = voter_ids
            .iter()
            .map(|&id| plain(id, VoterSet::empty()).voter())
            .collect();
        let static_voters = if setup.dynamic {
            VoterSet::empty()
        } else {
            VoterSet::new(voters.iter().map(|voter| {
                let mut voter = voter.clone();
                voter.key.directory_id = None;
                voter.supported_kraft_versions = (0, 0);
                voter
            }))
            .expect("voters")
        };
        let mut nodes = BTreeMap::new();
        let spares = 11..11 + setup.spares;
        let observers = 21..21 + setup.observers;
        for id in voter_ids.iter().copied().chain(spares).chain(observers) {
            let mut node = plain(id, static_voters.clone());
            node.can_become_voter = id < 21;
            if setup.dynamic && id <= setup.voters {
                node.disk.snapshots.insert(
                    SnapshotId::BOOTSTRAP,
                    SnapshotContent {
                        entries: Vec::new(),
                        kraft_version: KRaftVersion::V1,
                        voters: Some(VoterSet::new(voters.clone()).expect("voters")),
                    },
                );
            }
            nodes.insert(id, node);
        }
        World {
            random: setup.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            now_ms: 1_000,
            sequence: 0,
            queue: BinaryHeap::new(),
            nodes,
            network: Network::faulty(0),
            checkers: Checkers::default(),
            is_healing: false,
            next_value: 0,
            outcome: Outcome::default(),
            history: VecDeque::new(),
            setup,
        }
    }

    fn run(&mut self) -> Result<(), String> {
        self.network = Network::faulty(10 + self.below(60));
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for id in ids {
            self.schedule(0, ScheduledEvent::Restart { node: id });
        }
        self.schedule(100, ScheduledEvent::ClientWrites);
        self.schedule(2_000, ScheduledEvent::Trouble);
        if self.setup.dynamic || self.setup.upgrades {
            self.schedule(2_500, ScheduledEvent::VoterChange);
        }
        self.run_until(FAULTS_MS)?;
        self.heal();
        self.run_until(FAULTS_MS + HEALING_MS)?;
        self.check_agreement()
    }

    fn run_until(&mut self, end_ms: u64) -> Result<(), String> {
        while let Some(Reverse(next)) = self.queue.peek() {
            if next.0 >= end_ms {
                break;
            }
            let Some(Reverse(Scheduled(at, _, happening))) = self.queue.pop() else {
                break;
            };
            self.now_ms = at;
            self.outcome.events += 1;
            self.happen(happening)?;
            if self.outcome.events.is_multiple_of(256) {
                self.checkers.check_logs_match(&self.nodes)?;
            }
        }
        self.checkers.check_logs_match(&self.nodes)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(super) fn pick(&mut self, of: &[i32]) -> Option<i32> {
        let index = self.below(of.len().max(1) as u64) as usize;
        of.get(index).copied()
    }

    pub(super) fn schedule(&mut self, after_ms: u64, happening: ScheduledEvent) {
        self.sequence += 1;
        let at = self.now_ms + after_ms;
        self.queue
            .push(Reverse(Scheduled(at, self.sequence, happening)));
    }

    pub(super) fn note(&mut self, line: String) {
        for byte in line.bytes() {
            self.outcome.digest =
                (self.outcome.digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(format!("{:>6} {line}", self.now_ms));
    }

    fn happen(&mut self, happening: ScheduledEvent) -> Result<(), String> {
        match happening {
            ScheduledEvent::Deliver(message) => self.deliver(message),
            // Only the last requested tick counts.
            ScheduledEvent::Tick { node, life } => {
                let is_due = self.nodes[&node].tick_at_ms == Some(self.now_ms);
                if is_due && self.is_alive(node, life) {
                    self.step(node, Event::Ticked)
                } else {
                    Ok(())
                }
            }
            ScheduledEvent::Flushed {
                node,
                life,
                end,
                generation,
            } => self.on_flushed(node, life, end, generation),
            ScheduledEvent::ClientWrites => self.client_writes(),
            ScheduledEvent::Trouble => self.make_trouble(),
            ScheduledEvent::VoterChange => self.change_voters(),
            ScheduledEvent::Crash { node } => {
                self.crash(node);
                Ok(())
            }
            ScheduledEvent::Restart { node } => self.restart(node),
            ScheduledEvent::Heal { pair: Some(pair) } => {
                self.network.cut.remove(&pair);
                Ok(())
            }
            ScheduledEvent::Heal { pair: None } => {
                self.network.cut.clear();
                Ok(())
            }
        }
    }

    fn is_alive(&self, node: i32, life: u64) -> bool {
        let node = &self.nodes[&node];
        node.quorum.is_some() && node.life == life
    }

    fn moment(&mut self) -> Moment {
        Moment {
            now_ms: self.now_ms,
            random: self.below(u64::MAX),
        }
    }

    /// Passes an event in and executes the effects, unless the node crashes in between.
    pub(super) fn step(&mut self, id: i32, event: Event) -> Result<(), String> {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let moment = self.moment();
            let node = self.nodes.get_mut(&id).expect("a node");
            if node.quorum.is_none() {
                return Ok(());
            }
            let name = name_of(&event);
            let effects = node.step(moment, event);
            let quorum = node.quorum.as_ref().expect("is up");
            let is_written = |effect: &Effect| matches!(effect, Effect::PersistElectionState(_));
            let odds = if effects.iter().any(is_written) {
                50
            } else {
                2_000
            };
            let line = format!(
                "{id} {:?} epoch {} end {} hw {:?}: {name} -> {}",
                quorum.role(),
                quorum.epoch(),
                node.disk.end(),
                quorum.high_watermark().map(Offset::value),
                effects
                    .iter()
                    .map(effect_name)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            self.note(line);
            let crash_after = if !self.is_healing && self.below(odds) == 0 {
                Some(self.below(effects.len() as u64 + 1) as usize)
            } else {
                None
            };
            let count = effects.len();
            for (index, effect) in effects.into_iter().enumerate() {
                if crash_after == Some(index) {
                    self.crash_for_a_while(id);
                    return Ok(());
                }
                let node = self.nodes.get_mut(&id).expect("a node");
                for seen in node.carry_out(effect) {
                    if let Some(event) = self.see(id, seen)? {
                        events.push_back(event);
                    }
                }
            }
            self.check_mirror(id)?;
            if crash_after == Some(count) {
                self.crash_for_a_while(id);
                return Ok(());
            }
        }
        let now_ms = self.now_ms;
        let node = self.nodes.get_mut(&id).expect("a node");
        let life = node.life;
        let Some(quorum) = &node.quorum else {
            return Ok(());
        };
        let tick_at_ms = quorum.wake_at_ms().max(now_ms + 1);
        if tick_at_ms != u64::MAX && node.tick_at_ms != Some(tick_at_ms) {
            node.tick_at_ms = Some(tick_at_ms);
            self.schedule(tick_at_ms - now_ms, ScheduledEvent::Tick { node: id, life });
        }
        Ok(())
    }

    /// A short crash after a vote, for itself or another, is the most dangerous: the election still
    /// runs when the node returns.
    fn stumble(&mut self, id: i32) {
        if !self.is_healing && self.below(4) == 0 {
            let after_ms = self.below(4);
            self.schedule(after_ms, ScheduledEvent::Crash { node: id });
            let after_ms = after_ms + 2 + self.below(40);
            self.schedule(after_ms, ScheduledEvent::Restart { node: id });
        }
    }

    fn crash_for_a_while(&mut self, id: i32) {
        self.crash(id);
        let longest_ms = if self.below(2) == 0 { 100 } else { 3_000 };
        let after_ms = 20 + self.below(longest_ms);
        self.schedule(after_ms, ScheduledEvent::Restart { node: id });
    }

    fn check_mirror(&self, id: i32) -> Result<(), String> {
        let node = &self.nodes[&id];
        let Some(quorum) = &node.quorum else {
            return Ok(());
        };
        let log = quorum.log();
        let found = (log.start_offset().value(), log.end_offset().value());
        let wanted = (node.disk.start_offset, node.disk.end());
        if found == wanted {
            Ok(())
        } else {
            Err(format!(
                "{id} takes its log for {found:?}, and it is {wanted:?}"
            ))
        }
    }

    fn see(&mut self, id: i32, seen: Seen) -> Result<Option<Event>, String> {
        match seen {
            Seen::Send(message) => {
                if let Payload::Request(Request::Vote(vote)) = &message.payload
                    && !vote.pre_vote
                {
                    // A candidate has voted for itself.
                    let key = self.nodes[&id].key();
                    self.checkers.on_vote(key, vote.epoch, key)?;
                    self.stumble(id);
                }
                self.send(message);
            }
            Seen::StartedEpoch(epoch) => {
                self.outcome.epochs = self.outcome.epochs.max(epoch.value());
                self.checkers.on_leader(&self.nodes[&id], epoch)?;
            }
            Seen::Committed(end) => {
                let node = self.nodes.get_mut(&id).expect("a node");
                let from = node.applied;
                node.applied = from.max(end);
                self.checkers.on_committed(&self.nodes[&id], from, end)?;
                let is_raised = |entry: &Entry| {
                    matches!(&entry.value, Value::Control(ControlRecord::KRaftVersion(_)))
                };
                let mut committed =
                    (from..end).filter_map(|at| self.checkers.committed.get(at as usize));
                if self.setup.upgrades && self.outcome.raised_at_ms == 0 && committed.any(is_raised)
                {
                    self.outcome.raised_at_ms = self.now_ms;
                }
                self.checkers.on_leader_committed(&self.nodes, id, end)?;
            }
            Seen::Truncated { before, end } => {
                self.outcome.truncations += 1;
                let start = self.nodes[&id].disk.start_offset;
                self.checkers.on_truncated(id, start, &before, end)?;
                let node = &self.nodes[&id];
                let history = node.disk.control_records(node.static_voters.clone());
                let quorum = node.quorum.as_ref().expect("is up");
                if quorum.voters() != history.last_voters() {
                    return Err(format!("{id} goes by voters that were cut off"));
                }
            }
            Seen::Voted { epoch, candidate } => {
                let key = self.nodes[&id].key();
                self.checkers.on_vote(key, epoch, candidate)?;
                self.stumble(id);
            }
            Seen::Answered(response) => {
                let (Response::AddVoter(response) | Response::RemoveVoter(response)) = response
                else {
                    return Ok(None);
                };
                if response.error == ErrorCode::None {
                    self.outcome.voter_changes += 1;
                }
                self.note(format!("{id} answers a change of voters: {response:?}"));
            }
            Seen::Installed(event) => {
                self.outcome.snapshots_installed += 1;
                return Ok(Some(event));
            }
            Seen::Flush { end, generation } => {
                let after_ms = 1 + self.below(20);
                let life = self.nodes[&id].life;
                self.schedule(
                    after_ms,
                    ScheduledEvent::Flushed {
                        node: id,
                        life,
                        end,
                        generation,
                    },
                );
            }
            Seen::Reported(refusal) => self.note(format!("{id} refuses: {refusal}")),
            Seen::Shutdown => {}
        }
        Ok(None)
    }

    fn send(&mut self, message: Message) {
        let network = self.network.clone();
        let delays = network.delays(message.from, message.to, |bound| self.below(bound));
        for after_ms in delays {
            self.schedule(after_ms, ScheduledEvent::Deliver(message.clone()));
        }
    }

    fn deliver(&mut self, message: Message) -> Result<(), String> {
        let to = message.to;
        let is_request = matches!(message.payload, Payload::Request(_));
        let Some(node) = self.nodes.get_mut(&to) else {
            return Ok(());
        };
        if node.quorum.is_none() {
            if is_request && message.from != ADMIN {
                // No process listens there.
                self.send(Message {
                    from: to,
                    to: message.from,
                    payload: Payload::Failure(ErrorCode::NetworkException),
                    ..message
                });
            }
            return Ok(());
        }
        if let Payload::Request(Request::ApiVersions) = message.payload {
            self.send(Message {
                from: to,
                to: message.from,
                payload: Payload::Response {
                    response: Response::ApiVersions(ApiVersionsResponse {
                        error: ErrorCode::None,
                        kraft_versions: Some((0, 1)),
                    }),
                    entries: Vec::new(),
                    snapshot: None,
                },
                ..message
            });
            return Ok(());
        }
        match node.receive(&message) {
            Some(event) => self.step(to, event),
            None => Ok(()),
        }
    }

    fn on_flushed(&mut self, id: i32, life: u64, end: i64, generation: u64) -> Result<(), String> {
        if !self.is_alive(id, life) {
            return Ok(());
        }
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.disk.generation != generation {
            return Ok(());
        }
        node.disk.flushed = node.disk.flushed.max(end);
        self.step(
            id,
            Event::LogFlushed {
                end_offset: Offset(end),
            },
        )
    }

    // Healing

    fn heal(&mut self) {
        self.is_healing = true;
        self.network = Network::default();
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for id in ids {
            self.schedule(0, ScheduledEvent::Restart { node: id });
        }
        self.note("everything is well from now on".to_owned());
    }

    fn check_agreement(&self) -> Result<(), String> {
        let leaders = self.leaders();
        let [leader] = leaders[..] else {
            return Err(format!("healed, and led by {leaders:?}"));
        };
        let leader = &self.nodes[&leader];
        let quorum = leader.quorum.as_ref().expect("leads");
        // Records of the last moments may be in flight.
        let settled = self.checkers.committed.len() as i64 - 60;
        if self.checkers.leader_of(quorum.epoch()) != quorum.leader() {
            return Err("the leader leads an epoch of another".to_owned());
        }
        if quorum.high_watermark().map(Offset::value) < Some(settled) || settled < 0 {
            return Err("healed, and nothing is committed".to_owned());
        }
        for node in self.nodes.values() {
            let other = node.quorum.as_ref().expect("was restarted");
            if other.epoch() != quorum.epoch() || other.leader() != quorum.leader() {
                return Err(format!(
                    "healed, and {} follows {:?}",
                    node.id,
                    other.leader()
                ));
            }
            if node.applied < settled {
                return Err(format!(
                    "healed, and {} has applied {} of {settled}",
                    node.id, node.applied
                ));
            }
            if other.voters() != quorum.voters() {
                return Err(format!("healed, and {} knows other voters", node.id));
            }
            let is_raised = self.setup.dynamic || self.setup.upgrades;
            if other.kraft_version().is_reconfig_supported() != is_raised {
                let level = other.kraft_version();
                return Err(format!("healed, and {} is at {level}", node.id));
            }
            let is_leader = matches!(other.role(), Role::Leader { .. });
            if is_leader != (node.id == leader.id) {
                return Err(format!("healed, and {} is {:?}", node.id, other.role()));
            }
            let is_named_rightly = !other.is_voter()
                || !self.setup.dynamic
                || quorum.voters().voter(BrokerId(node.id)) == Some(&node.voter());
            if !is_named_rightly {
                return Err(format!("healed, and {} is not known where it is", node.id));
            }
        }
        Ok(())
    }
}

fn name_of(event: &Event) -> String {
    match event {
        Event::RequestReceived { request, .. } => format!("request {request:?}"),
        Event::ResponseReceived { from, response, .. } => {
            format!("from {from} {}", short(format!("{response:?}")))
        }
        other => short(format!("{other:?}")),
    }
}

fn effect_name(effect: &Effect) -> String {
    short(format!("{effect:?}"))
}

fn short(mut text: String) -> String {
    text.truncate(160);
    text
}
