//! One run: nodes, the controller, the network, and the faults.

use std::collections::{BTreeMap, HashMap, HashSet};

use ottla_types::{BrokerId, ErrorCode};

use super::checkers::Checkers;
use super::model_controller::{Elections, ModelController};
use super::node::{FetchAnswer, Message, Node, Outcome};
use super::random::Random;
use crate::{AckOutcome, AlterPartition, FetchRefusal, ReplicaSettings, RequiredAcks};

/// Steps with faults, and the steps after them without. A step takes 1 to 20 ms.
const FAULTY_STEPS: u32 = 1_500;
const HEALING_STEPS: u32 = 1_500;

/// The records that a kill loses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushes {
    /// `flush.messages` is not set: unflushed records are lost. With clean elections one node fails
    /// at a time, and only if another one has the records.
    Never,
    /// `flush.messages=1`: everything acknowledged is on disk, and all nodes may fail at once.
    EachRecord,
}

/// The result of a run.
#[derive(PartialEq, Debug)]
pub(super) struct Report {
    pub(super) finding: Option<String>,
    pub(super) committed: usize,
    pub(super) acknowledged: usize,
    pub(super) leader_epochs: i32,
    pub(super) isr_changes: i32,
    /// A hash of the events in order: equal for the same seed.
    pub(super) fingerprint: u64,
}

struct Cluster {
    random: Random,
    time_ms: u64,
    is_healing: bool,
    nodes: Vec<Node>,
    controller: ModelController,
    checkers: Checkers,
    min_insync_replicas: usize,
    /// Messages by arrival time and send number.
    in_flight: BTreeMap<(u64, u64), Envelope>,
    sent: u64,
    /// Cut links by both ends, and until when; the controller's index is the number of nodes.
    cut: HashMap<(usize, usize), u64>,
    /// Nodes that receive no images from this one on, and until when.
    stalled: HashMap<usize, (usize, u64)>,
    /// Nodes whose session expires, and when.
    doomed: Vec<(u64, usize)>,
    next_value: u32,
    acks_all: HashSet<u32>,
    /// Killed nodes that may have lost records and are not registered again yet: one at a time,
    /// unless elections are unclean.
    dirty: HashSet<usize>,
    elections: Elections,
    flushes: Flushes,
    fingerprint: u64,
    /// Print the events.
    is_told: bool,
    images_told: usize,
}

#[derive(Clone)]
struct Envelope {
    from: usize,
    to: usize,
    /// A response goes only to the requesting process, as over a connection.
    to_process: Option<i64>,
    message: Message,
}

/// Runs a seed to its end or to the first finding.
pub(super) fn run(seed: u64, elections: Elections, flushes: Flushes, is_told: bool) -> Report {
    let mut random = Random::new(seed);
    let replicas = 2 + random.below(3) as usize;
    let min_insync_replicas = 1 + random.below(2) as usize;
    let settings = ReplicaSettings {
        min_insync_replicas,
        flush_messages: match flushes {
            Flushes::Never => i64::MAX,
            Flushes::EachRecord => 1,
        },
    };
    let mut cluster = Cluster {
        controller: ModelController::new(replicas, min_insync_replicas, elections),
        nodes: (0..replicas as i32)
            .map(|id| Node::new(BrokerId(id), replicas, settings, is_told))
            .collect(),
        random,
        time_ms: 0,
        is_healing: false,
        checkers: Checkers::new(elections),
        min_insync_replicas,
        in_flight: BTreeMap::new(),
        sent: 0,
        cut: HashMap::new(),
        stalled: HashMap::new(),
        doomed: Vec::new(),
        next_value: 0,
        acks_all: HashSet::new(),
        dirty: HashSet::new(),
        elections,
        flushes,
        fingerprint: 0,
        is_told,
        images_told: 0,
    };
    for node in 0..replicas {
        cluster.start(node, true);
    }
    for step in 0..FAULTY_STEPS + HEALING_STEPS {
        cluster.is_healing = step >= FAULTY_STEPS;
        cluster.step(step < FAULTY_STEPS + HEALING_STEPS - 500);
        if cluster.checkers.finding.is_some() {
            break;
        }
    }
    cluster.finish()
}

impl Cluster {
    fn step(&mut self, is_producing: bool) {
        self.time_ms += 1 + self.random.below(20);
        self.controller.preference = self.random.next() >> 32;
        if !self.is_healing {
            self.fail_something();
        }
        self.mend();
        if self.is_told {
            println!("at {} ms", self.time_ms);
            for image in &self.controller.images[self.images_told..] {
                println!("  controller: {image:?}");
            }
            self.images_told = self.controller.images.len();
        }
        self.deliver();
        for node in 0..self.nodes.len() {
            self.act(node, is_producing);
        }
        if self.random.per_mille(100) {
            for node in &self.nodes {
                self.checkers.check_visible(node);
            }
        }
    }

    fn fail_something(&mut self) {
        let node = self.random.below(self.nodes.len() as u64) as usize;
        let id = self.nodes[node].id;
        if self.nodes[node].process.is_some() && self.may_fail() {
            if self.random.per_mille(6) && self.another_keeps_its_disk(id) {
                self.kill(node);
            } else if self.random.per_mille(3) {
                self.tell(node, "is stopped");
                self.controller.begin_controlled_shutdown(id);
                self.nodes[node].stop();
            } else if self.random.per_mille(5) {
                self.controller.fence(id);
            } else if self.random.per_mille(8) {
                self.controller.elect(id);
            }
        }
        if self.random.per_mille(8) {
            let other = self.random.below(self.nodes.len() as u64 + 1) as usize;
            let lasts_ms = self.random.below(3_000);
            self.cut(node, other, lasts_ms);
        }
        if let Some(at) = self
            .doomed
            .iter()
            .position(|doomed| doomed.0 <= self.time_ms)
        {
            let (_, node) = self.doomed.swap_remove(at);
            if self.may_fail() {
                self.controller.fence(self.nodes[node].id);
            }
        }
    }

    /// Messages of the killed node may be delayed until it has restarted and is cut off from the
    /// others.
    fn kill(&mut self, node: usize) {
        self.tell(node, "is killed");
        self.dirty.insert(node);
        self.nodes[node].kill();
        let sent_by_it: Vec<(u64, u64)> = self
            .in_flight
            .iter()
            .filter(|(_, envelope)| envelope.from == node)
            .map(|(key, _)| *key)
            .collect();
        let is_cut_off = self.random.per_mille(500);
        for key in sent_by_it {
            let Some(envelope) = self.in_flight.remove(&key) else {
                continue;
            };
            // Its proposal might remove the only members that keep their disks from the ISR.
            if !matches!(envelope.message, Message::AlterPartition { .. }) {
                let held_up_ms = if is_cut_off {
                    1_000 + self.random.below(3_000)
                } else {
                    0
                };
                self.in_flight.insert((key.0 + held_up_ms, key.1), envelope);
            }
        }
        if is_cut_off {
            for other in (0..self.nodes.len()).filter(|other| *other != node) {
                self.cut(node, other, 4_000);
            }
        }
    }

    fn cut(&mut self, node: usize, other: usize, lasts_ms: u64) {
        let until_ms = self.time_ms + lasts_ms;
        self.cut.insert((node, other), until_ms);
        self.cut.insert((other, node), until_ms);
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        let until_ms = self.cut.get(&(from, to));
        until_ms.is_some_and(|until_ms| *until_ms > self.time_ms && !self.is_healing)
    }

    /// The worst case: the controller has applied a leader's proposal, and the leader learns of it
    /// neither from the response nor from the metadata; then its followers cannot reach it, and its
    /// session expires.
    fn strand(&mut self, leader: usize, proposal: &AlterPartition, images_before: usize) {
        let lasts_ms = 3_000 + self.random.below(2_000);
        self.stalled
            .insert(leader, (images_before, self.time_ms + lasts_ms));
        let last = proposal.new_isr.last().map(|member| member.broker_id);
        let is_last_only = self.random.per_mille(500);
        for other in 0..self.nodes.len() {
            let is_last = last == Some(self.nodes[other].id);
            let is_cut = is_last || !is_last_only && self.random.per_mille(700);
            if other != leader && is_cut {
                self.cut(leader, other, lasts_ms);
            }
        }
        self.doomed.push((self.time_ms + lasts_ms - 100, leader));
    }

    /// If no record may be lost, at most one failure at a time that may lose records.
    fn may_fail(&self) -> bool {
        self.dirty.is_empty() || self.may_all_fail()
    }

    fn may_all_fail(&self) -> bool {
        self.elections == Elections::Unclean || self.flushes == Flushes::EachRecord
    }

    fn another_keeps_its_disk(&self, id: BrokerId) -> bool {
        if self.may_all_fail() {
            return true;
        }
        let image = self.controller.now();
        let mut eligible = image.isr.iter().chain(&image.elr);
        eligible.any(|member| *member != id)
    }

    fn mend(&mut self) {
        let haste = if self.is_healing { 20 } else { 1 };
        for node in 0..self.nodes.len() {
            let id = self.nodes[node].id;
            let is_up = self.nodes[node].process.is_some();
            let is_fenced = self.controller.broker(id).is_fenced;
            if !is_up && !is_fenced && self.random.per_mille(20) {
                self.controller.fence(id);
            }
            if !is_up && self.random.per_mille(10 * haste) {
                // The controller does not learn of a kill that lost nothing.
                let is_clean = !self.dirty.contains(&node) || self.flushes == Flushes::EachRecord;
                self.start(node, is_clean);
            }
            if is_up && is_fenced && self.random.per_mille(20 * haste) {
                self.controller.unfence(id);
            }
        }
    }

    fn start(&mut self, node: usize, is_clean: bool) {
        self.tell(node, "is started");
        let id = self.nodes[node].id;
        // All nodes are registered at the beginning.
        let broker_epoch = match self.time_ms {
            0 => self.controller.broker(id).broker_epoch,
            _ => self.controller.register(id, is_clean),
        };
        self.dirty.remove(&node);
        let images_seen = self.controller.images.len();
        self.nodes[node].start(broker_epoch, images_seen, self.time_ms);
        let image = self.controller.now().clone();
        let mut out = Vec::new();
        self.nodes[node].take_up(&image, self.time_ms, &mut out);
        self.follow(node, out);
    }

    /// A node's own actions in a step.
    fn act(&mut self, node: usize, is_producing: bool) {
        let Some(process) = &self.nodes[node].process else {
            return;
        };
        let mut out = Vec::new();
        let (time_ms, images_seen) = (self.time_ms, process.images_seen);
        let is_leader = process.replica.is_leader();
        let is_stalled = self.stalled.get(&node).is_some_and(|stalled| {
            images_seen >= stalled.0 && stalled.1 > time_ms && !self.is_healing
        });
        let is_cut_off = self.is_cut(node, self.nodes.len()) || is_stalled;
        if images_seen < self.controller.images.len()
            && !is_cut_off
            && self
                .random
                .per_mille(if self.is_healing { 900 } else { 150 })
        {
            let image = self.controller.images[images_seen].clone();
            if let Some(process) = &mut self.nodes[node].process {
                process.images_seen += 1;
            }
            self.nodes[node].take_up(&image, time_ms, &mut out);
            self.follow(node, std::mem::take(&mut out));
        }
        if self.random.per_mille(300) {
            self.nodes[node].fetch(&mut out);
        }
        if self.random.per_mille(100) {
            self.nodes[node].propose(&mut out);
        }
        if self.random.per_mille(50) {
            self.nodes[node].tick(time_ms, &mut out);
        }
        let flushed_per_mille = if self.is_healing { 1_000 } else { 300 };
        if self.nodes[node].is_flushing() && self.random.per_mille(flushed_per_mille) {
            self.nodes[node].end_flush(&mut out);
        }
        if self.random.per_mille(10) {
            self.nodes[node].log.flush();
        }
        if self.random.per_mille(10) {
            self.nodes[node].log.checkpoint_high_watermark();
        }
        if is_leader && self.random.per_mille(1) {
            let up_to = self
                .random
                .below(self.nodes[node].log.high_watermark.0 as u64 + 1);
            let up_to = ottla_types::Offset(up_to as i64);
            self.tell(node, "deletes records");
            self.checkers.on_deleted(up_to);
            self.nodes[node].log.increment_start(up_to);
        }
        if is_leader && is_producing && self.random.per_mille(200) {
            self.next_value += 1;
            let value = self.next_value;
            let required_acks = match self.random.per_mille(700) {
                true => RequiredAcks::All,
                false => RequiredAcks::Leader,
            };
            if required_acks == RequiredAcks::All {
                self.acks_all.insert(value);
            }
            self.nodes[node].produce(value, required_acks, time_ms, &mut out);
        }
        self.follow(node, out);
    }

    /// Passes the outcomes of a node to the network and the checkers.
    fn follow(&mut self, node: usize, out: Vec<Outcome>) {
        for outcome in out {
            let id = self.nodes[node].id;
            let Some(process) = &self.nodes[node].process else {
                return;
            };
            let epoch = process.replica.leader_epoch();
            match outcome {
                Outcome::Send(to, message) => {
                    let to = to.map_or(self.nodes.len(), |id| id.0 as usize);
                    self.send(node, to, message);
                }
                Outcome::HighWatermarkLed(high_watermark) => {
                    let log = &self.nodes[node].log;
                    self.checkers
                        .on_high_watermark_led(id, epoch, log, high_watermark);
                    self.mark(high_watermark.0 as u64);
                }
                Outcome::HighWatermarkFollowed(high_watermark) => {
                    let process = process.broker_epoch.0 as u64;
                    self.checkers
                        .on_high_watermark_followed(id, process, epoch, high_watermark);
                    self.mark(high_watermark.0 as u64);
                }
                Outcome::Elected => {
                    let log = &self.nodes[node].log;
                    // A leader that was deposed before it learned of its election leads no one.
                    if self.controller.now().leader_epoch == epoch {
                        self.checkers.on_elected(id, epoch, log);
                    }
                    self.mark(epoch.0 as u64);
                }
                Outcome::Released(ack, AckOutcome::Appended { base_offset })
                    if self.acks_all.contains(&ack) =>
                {
                    self.checkers.on_acknowledged(
                        ack,
                        base_offset,
                        &self.nodes,
                        self.min_insync_replicas,
                    );
                    self.mark(u64::from(ack));
                }
                Outcome::Released(..) => {}
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let is_lost = !self.is_healing && self.random.per_mille(50);
        if is_lost || self.is_cut(from, to) {
            return self.fail(from, to, message);
        }
        let copies = 1 + u64::from(!self.is_healing && self.random.per_mille(50));
        for _ in 0..copies {
            let longest = match self.random.per_mille(30) && !self.is_healing {
                true => 4_000,
                false => 40,
            };
            let arrives_ms = self.time_ms + 1 + self.random.below(longest);
            let is_answer = matches!(
                message,
                Message::FetchAnswer { .. } | Message::Offsets { .. } | Message::Altered { .. }
            );
            let envelope = Envelope {
                from,
                to,
                to_process: Some(self.process_of(to)).filter(|_| is_answer),
                message: message.clone(),
            };
            self.sent += 1;
            self.in_flight.insert((arrives_ms, self.sent), envelope);
        }
    }

    fn process_of(&self, node: usize) -> i64 {
        let process = self.nodes.get(node).and_then(|node| node.process.as_ref());
        process.map_or(-1, |process| process.broker_epoch.0)
    }

    /// The requester notices a broken connection, sometimes at once.
    fn fail(&mut self, from: usize, to: usize, message: Message) {
        let failed = match message {
            Message::Fetch { position, .. } if self.random.per_mille(300) => {
                let error = FetchRefusal::Error(ErrorCode::NetworkException);
                let answer = FetchAnswer::Refused(error);
                (from, Message::FetchAnswer { position, answer })
            }
            Message::ListOffsets { leader_epoch } => {
                let result = Err(ErrorCode::NetworkException);
                let message = Message::Offsets {
                    leader_epoch,
                    result,
                };
                (from, message)
            }
            Message::Offsets { leader_epoch, .. } => {
                let result = Err(ErrorCode::NetworkException);
                let message = Message::Offsets {
                    leader_epoch,
                    result,
                };
                (to, message)
            }
            _ => return,
        };
        let (to, message) = failed;
        let envelope = Envelope {
            from: to,
            to,
            to_process: Some(self.process_of(to)),
            message,
        };
        self.sent += 1;
        self.in_flight
            .insert((self.time_ms + 50, self.sent), envelope);
    }

    fn deliver(&mut self) {
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.time_ms {
                break;
            }
            let Envelope {
                from,
                to,
                to_process,
                message,
            } = entry.remove();
            if to_process.is_some_and(|process| process != self.process_of(to)) {
                continue;
            }
            if to == self.nodes.len() {
                if let Message::AlterPartition {
                    broker_epoch,
                    proposal,
                } = message
                {
                    let sender = self.nodes[from].id;
                    let images_before = self.controller.images.len();
                    let result = self
                        .controller
                        .alter_partition(sender, broker_epoch, &proposal);
                    // More often if the leader knows a change from a response before the metadata
                    // contains it.
                    let process = self.nodes[from].process.as_ref();
                    let is_behind = process.is_some_and(|p| p.images_seen < images_before);
                    let chance = if is_behind { 600 } else { 150 };
                    if result.is_ok() && !self.is_healing && self.random.per_mille(chance) {
                        self.strand(from, &proposal, images_before);
                    } else {
                        self.send(to, from, Message::Altered { proposal, result });
                    }
                }
                continue;
            }
            if self.nodes[to].process.is_none() {
                self.fail(from, to, message);
                continue;
            }
            let mut out = Vec::new();
            let sender = BrokerId(from as i32);
            self.nodes[to].receive(sender, message, self.time_ms, &mut out);
            self.follow(to, out);
        }
    }

    fn tell(&self, node: usize, what: &str) {
        if self.is_told {
            println!("  {node} {what}");
        }
    }

    fn mark(&mut self, what: u64) {
        self.fingerprint = (self.fingerprint ^ what ^ self.time_ms)
            .wrapping_mul(0x100_0000_01b3)
            .rotate_left(5);
    }

    /// After the healing phase, the replicas have converged.
    fn finish(mut self) -> Report {
        if self.checkers.finding.is_none() {
            self.check_converged();
        }
        let image = self.controller.now();
        Report {
            committed: self.checkers.committed_count(),
            acknowledged: self.checkers.acknowledged_count(),
            leader_epochs: image.leader_epoch.0,
            isr_changes: image.partition_epoch.0,
            finding: self.checkers.finding,
            fingerprint: self.fingerprint,
        }
    }

    fn check_converged(&mut self) {
        let image = self.controller.now().clone();
        let Ok(leader) = usize::try_from(image.leader.0) else {
            self.checkers.finding = Some(format!("no leader in the end: {image:?}"));
            return;
        };
        self.checkers.check_nothing_lost(&self.nodes[leader].log);
        let end = self.nodes[leader].log.end();
        for node in &self.nodes {
            let log = &node.log;
            let of_leader = &self.nodes[leader].log;
            let is_same = (log.start().0.max(of_leader.start().0)..end.0)
                .all(|offset| log.get(offset) == of_leader.get(offset));
            let is_whole = log.end() == end && log.high_watermark == end && is_same;
            if self.checkers.finding.is_none() && (!is_whole || !image.isr.contains(&node.id)) {
                self.checkers.finding = Some(format!(
                    "replica {} is not as the leader in the end: it ends at {}, with high watermark {}, \
                     the leader {leader} at {end}, {:?} of {image:?}",
                    node.id,
                    log.end(),
                    log.high_watermark,
                    node.process.as_ref().map(|process| &process.replica),
                ));
            }
            self.checkers.check_visible(node);
        }
    }
}
