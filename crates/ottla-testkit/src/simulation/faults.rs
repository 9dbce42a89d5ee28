//! Bad luck, and the end of it.
//!
//! What is promised decides what may happen. Controllers may lose anything that they have not flushed, at any time and
//! all at once. Brokers lose processes as it comes; where they lose what is on their disks, another member of the ISR or the ELR
//! of each partition has to keep its own, and the controllers have to hear of the loss before anything else fails: a
//! member that is fenced meanwhile would be none when it counts.

use ottla_controller::LifecycleEvent;
use ottla_metadata::MetadataImage;
use ottla_types::{BrokerId, Uuid};

use super::network::Network;
use super::node::{Disk, Stopped, is_broker, name};
use super::setup::{Groups, Losses};
use super::world::{Happening, World};

/// For how long nothing may have been cut off before a broker loses what is on its disk.
const CALM_MS: u64 = 3_000;

impl World {
    pub(super) fn make_trouble(&mut self) {
        if self.is_healing {
            return;
        }
        let after_ms = 150 + self.random.below(1_200);
        self.schedule(after_ms, Happening::Trouble);
        if !self.dirty.is_empty() {
            return;
        }
        let (brokers, controllers) = (self.setup.broker_ids(), self.setup.controller_ids());
        let kinds = match self.setup.groups {
            Groups::None => 15,
            // Nobody comes a second time.
            Groups::Sharers => 17,
            Groups::Movers => 18,
        };
        match self.random.below(kinds) {
            0..=2 => {
                if let Some(broker) = self.random.pick(&brokers) {
                    self.crash_broker(broker);
                }
            }
            3 | 4 => {
                if let Some(controller) = self.random.pick(&controllers) {
                    self.crash_controller(controller);
                }
            }
            5 => {
                for controller in controllers {
                    self.crash_controller(controller);
                }
            }
            6 | 7 => self.isolate(),
            8 => {
                let all: Vec<i32> = self.nodes.keys().copied().collect();
                let (from, to) = (self.random.pick(&all), self.random.pick(&all));
                if let (Some(from), Some(to)) = (from, to) {
                    self.note(|| format!("nothing gets from {} to {}", name(from), name(to)));
                    self.network.cut.insert((from, to));
                    self.last_cut_ms = self.now_ms;
                    let pair = Some((from, to));
                    let after_ms = 300 + self.random.below(5_000);
                    self.schedule(after_ms, Happening::Mend { pair });
                }
            }
            9 | 10 => {
                if let Some(broker) = self.random.pick(&brokers) {
                    self.note(|| format!("{} is asked to stop", name(broker)));
                    if self.nodes[&broker].process.is_some() {
                        self.stopping.insert(broker);
                    }
                    self.with_process(broker, None, |process, around| {
                        let broker = process.broker.as_mut().expect("a broker");
                        let event = LifecycleEvent::ShutdownRequested;
                        broker.live(event, &mut process.quorum, around)
                    });
                }
            }
            11 => {
                let all: Vec<i32> = self.nodes.keys().copied().collect();
                if let Some(node) = self.random.pick(&all) {
                    self.note(|| format!("the disk of {} is full", name(node)));
                    if let Some(node) = self.nodes.get_mut(&node) {
                        node.disk.is_full = true;
                    }
                    let after_ms = 200 + self.random.below(3_000);
                    self.schedule(after_ms, Happening::EmptyDisk { node });
                }
            }
            12 => {
                let all: Vec<i32> = self.nodes.keys().copied().collect();
                if let Some(node) = self.random.pick(&all) {
                    let until_ms = self.now_ms + 200 + self.random.below(4_000);
                    self.note(|| format!("{} is held up until {until_ms}", name(node)));
                    self.held_up.insert(node, until_ms);
                    self.last_cut_ms = until_ms;
                }
            }
            13 => {
                // Where what is on the disks counts, a broker ends with its directory (`crash_broker`).
                if self.setup.losses == Losses::Processes
                    && let Some(broker) = self.random.pick(&brokers)
                {
                    self.lose_second_directory(broker);
                }
            }
            14 => {
                if self.setup.losses == Losses::Processes {
                    for broker in brokers {
                        self.crash_broker(broker);
                    }
                }
            }
            kind => self.trouble_group_client(kind),
        }
    }

    /// Clients of groups are killed, held up, kept from sending heartbeats, and started a second time.
    fn trouble_group_client(&mut self, kind: u64) {
        let ids: Vec<i32> = self.group_clients.keys().copied().collect();
        let Some(id) = self.random.pick(&ids) else {
            return;
        };
        // Long enough for its group to have gone on without it a while, where it is held up.
        let longest_ms = if kind == 16 { 7_000 } else { 4_000 };
        let at_ms = self.now_ms + 100 + self.random.below(longest_ms);
        if kind == 16 && self.random.below(2) == 0 {
            self.note(|| format!("{} is held up until {at_ms}", name(id)));
            self.held_up.insert(id, at_ms);
            return;
        }
        if kind == 16 {
            // It works on, and its group may go on without it.
            let at_ms = at_ms + 2_000;
            self.note(|| format!("{} sends no heartbeats until {at_ms}", name(id)));
            if let Some(client) = self.group_clients.get_mut(&id) {
                client.member.next_heartbeat_ms = at_ms;
            }
            return;
        }
        let twins = &self.twins;
        let id = match kind {
            15 => id,
            _ => self.random.pick(twins).unwrap_or(id),
        };
        let Some(client) = self.group_clients.get_mut(&id) else {
            return;
        };
        client.is_stopped = kind != 15 && !client.is_stopped;
        client.restart(at_ms);
        let is_stopped = client.is_stopped;
        self.note(|| match is_stopped {
            true => format!("{} is killed", name(id)),
            false => format!("{} starts anew at {at_ms}", name(id)),
        });
    }

    /// One of a broker's two log directories fails while it runs; when it is started again, all is there.
    fn lose_second_directory(&mut self, id: i32) {
        let node = &self.nodes[&id];
        if node.process.is_none() || node.disk.has_lost_second {
            return;
        }
        self.outcome.lost_directories += 1;
        self.note(|| format!("the second directory of {} fails", name(id)));
        self.with_process(id, None, |process, around| {
            let broker = process.broker.as_mut().expect("a broker");
            broker.lose_second_directory(&mut process.quorum, around)
        });
    }

    /// A process ends by itself or by accident.
    pub(super) fn on_stopped(&mut self, id: i32, stopped: Stopped) {
        match stopped {
            Stopped::Crashed if is_broker(id) => self.crash_broker(id),
            Stopped::Crashed => self.crash_controller(id),
            Stopped::Failed => {
                self.note(|| format!("{} cannot go on", name(id)));
                self.end_process(id);
            }
            Stopped::Cleanly => {
                self.note(|| format!("{} has stopped", name(id)));
                self.outcome.clean_stops += 1;
                let Some(node) = self.nodes.get_mut(&id) else {
                    return;
                };
                let broker = node.process.as_ref().and_then(|it| it.broker.as_ref());
                let epoch = broker.map_or(-1, |broker| broker.broker_epoch().value());
                for log in node.disk.partitions.values_mut() {
                    log.flush(log.end());
                    log.checkpoint_high_watermark();
                }
                node.disk.metadata.flush();
                node.disk.clean_stop_epoch = epoch;
                self.end_process(id);
            }
        }
    }

    /// Ends a process; another one is started later.
    fn end_process(&mut self, id: i32) {
        self.stopping.remove(&id);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.process = None;
        }
        let longest_ms = if self.random.below(2) == 0 {
            200
        } else {
            4_000
        };
        let after_ms = match self.is_healing {
            true => 100,
            false => 20 + self.random.below(longest_ms),
        };
        self.schedule(after_ms, Happening::Start { node: id });
    }

    fn crash_controller(&mut self, id: i32) {
        let is_power = self.random.below(2) == 0;
        let random = self.random.next();
        let Some(node) = self
            .nodes
            .get_mut(&id)
            .filter(|node| node.process.is_some())
        else {
            return;
        };
        self.outcome.crashes += 1;
        if is_power {
            node.disk.metadata.lose_unflushed(random);
        }
        self.note(|| match is_power {
            true => format!("{} loses power", name(id)),
            false => format!("{} is killed", name(id)),
        });
        self.end_process(id);
    }

    fn crash_broker(&mut self, id: i32) {
        if self.nodes[&id].process.is_none() {
            return;
        }
        if self.setup.losses == Losses::Processes {
            self.outcome.crashes += 1;
            self.note(|| format!("{} is killed", name(id)));
            return self.end_process(id);
        }
        if !self.setup.is_unclean && !self.may_lose(id) {
            return;
        }
        self.outcome.crashes += 1;
        self.drop_questions_of(id);
        let known = self.newest_committed().cluster.broker_epoch(BrokerId(id));
        self.dirty.insert(id, known.value());
        // From here on nothing else fails until the controllers know.
        self.network = Network::default();
        let (kind, random) = (self.random.below(5), self.random.next());
        let node = self.nodes.get_mut(&id).expect("a node");
        match kind {
            0 => self.note(|| format!("{} is killed", name(id))),
            1 => {
                self.outcome.losses += 1;
                let empty = |low| Uuid::from_u128(u128::from(random) << 64 | low);
                node.disk = Disk::new(empty(0x1_0000), empty(0x2_0000));
                self.note(|| format!("{} starts with an empty disk", name(id)));
            }
            2 => {
                let empty = Uuid::from_u128(u128::from(random) << 64 | 0x2_0000);
                let has_lost = node.disk.replace_second(empty);
                self.outcome.losses += u64::from(has_lost);
                self.outcome.lost_directories += 1;
                self.note(|| format!("{} starts with one of its directories empty", name(id)));
            }
            _ => {
                node.disk.metadata.lose_unflushed(random);
                let mut has_lost = false;
                for (index, log) in node.disk.partitions.values_mut().enumerate() {
                    has_lost |= log.lose_unflushed(random.rotate_left(index as u32));
                }
                self.outcome.losses += u64::from(has_lost);
                self.note(|| format!("{} loses power", name(id)));
            }
        }
        self.end_process(id);
    }

    /// Whether another member of each ISR or ELR that the broker is in keeps its disk, whatever the controllers are about to
    /// commit, and is not about to be fenced.
    fn may_lose(&self, id: i32) -> bool {
        if !self.dirty.is_empty() || self.now_ms < self.last_cut_ms + CALM_MS {
            return false;
        }
        if !self.stopping.is_empty() {
            // It leaves the ISR as soon as a controller hears of it, and where enough remain, the ELR as well.
            return false;
        }
        if self
            .nodes
            .values()
            .any(|node| node.process.is_none() && is_broker(node.id))
        {
            return false;
        }
        let hears_everybody = self.nodes.values().any(|node| {
            let now_ms = node.clock.now_ms(self.now_ms);
            let process = node.process.as_ref();
            process.is_some_and(|process| process.quorum.hears_all_brokers(now_ms))
        });
        if !hears_everybody {
            // Somebody has not found a new controller yet, and may be fenced before it does.
            return false;
        }
        let processes = self.nodes.values().filter_map(|node| node.process.as_ref());
        processes
            .flat_map(|process| process.quorum.possible_images())
            .all(|image| is_another_in_sync(&image, BrokerId(id)))
    }

    /// Who is registered anew is no member any more by what it was.
    pub(super) fn forget_dirty(&mut self) {
        if self.dirty.is_empty() {
            return;
        }
        let image = self.newest_committed().clone();
        let before = self.dirty.len();
        self.dirty
            .retain(|&id, known| image.cluster.broker_epoch(BrokerId(id)).value() == *known);
        if self.dirty.is_empty() && before > 0 && !self.is_healing {
            self.network = Network::faulty(&mut self.random);
        }
    }

    pub(super) fn newest_committed(&self) -> &MetadataImage {
        let processes = self.nodes.values().filter_map(|node| node.process.as_ref());
        processes
            .map(|process| process.quorum.committed_image())
            .max_by_key(|image| image.provenance.last_contained_offset)
            .unwrap_or(&self.no_image)
    }

    /// Cuts some nodes off from all others.
    fn isolate(&mut self) {
        let all: Vec<i32> = self.nodes.keys().copied().collect();
        let group: Vec<i32> = all
            .iter()
            .copied()
            .filter(|_| self.random.below(3) == 0)
            .collect();
        self.note(|| format!("{group:?} are cut off"));
        for &one in &all {
            for &other in &all {
                if group.contains(&one) != group.contains(&other) {
                    self.network.cut.insert((one, other));
                }
            }
        }
        self.last_cut_ms = self.now_ms;
        let after_ms = 500 + self.random.below(5_000);
        self.schedule(after_ms, Happening::Mend { pair: None });
    }

    /// Nothing fails any more.
    pub(super) fn heal(&mut self) {
        self.note(|| "everything is well from now on".to_owned());
        self.is_healing = true;
        self.network = Network::default();
        self.held_up.clear();
        for id in &self.twins {
            if let Some(twin) = self.group_clients.get_mut(id) {
                twin.is_stopped = true;
            }
        }
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        for id in ids {
            let Some(node) = self.nodes.get_mut(&id) else {
                continue;
            };
            node.disk.is_full = false;
            if node.disk.has_lost_second {
                // Somebody has mended it, and starts the broker again.
                node.process = None;
                self.stopping.remove(&id);
            }
            self.schedule(1, Happening::Start { node: id });
        }
    }
}

fn is_another_in_sync(image: &MetadataImage, id: BrokerId) -> bool {
    let topics = image.topics.iter();
    let mut partitions = topics.flat_map(|topic| topic.partitions());
    partitions.all(|(_, partition)| {
        // In Kafka too, who was moved away may stand in the ELR, and leads no more.
        let members = || {
            let members = partition.isr.iter().chain(&partition.elr).copied();
            members.filter(|&member| partition.is_replica(member))
        };
        let is_member = members().chain(partition.last_known_elr.iter().copied());
        let is_well = |member: BrokerId| image.cluster.is_broker_active(member);
        !partition.replicas.contains(&id)
            || !is_member.into_iter().any(|member| member == id)
            || members().any(|member| member != id && is_well(member))
    })
}
