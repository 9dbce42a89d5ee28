//! Actions of clients and admins, and faults.

use ottla_types::{BrokerId, Offset};

use super::disk::{Disk, Value};
use super::network::{Message, Payload};
use super::node::ADMIN;
use super::world::{ScheduledEvent, World};
use crate::{AddVoterRequest, Event, KRaftVersion, RemoveVoterRequest, Request};

impl World {
    pub(super) fn leaders(&self) -> Vec<i32> {
        self.nodes
            .values()
            .filter(|node| {
                node.quorum
                    .as_ref()
                    .is_some_and(|quorum| quorum.is_active_leader())
            })
            .map(|node| node.id)
            .collect()
    }

    pub(super) fn client_writes(&mut self) -> Result<(), String> {
        let after_ms = 20 + self.below(150);
        self.schedule(after_ms, ScheduledEvent::ClientWrites);
        for id in self.leaders() {
            let count = 1 + self.below(3);
            let values: Vec<Value> = (0..count)
                .map(|index| Value::Data(self.next_value + index))
                .collect();
            self.next_value += count;
            let flush_ms = 1 + self.below(30);
            let is_shown_at_once = self.below(2) == 0;
            let node = self.nodes.get_mut(&id).expect("a node");
            let epoch = node.quorum.as_ref().expect("leads").epoch();
            node.append(epoch, values);
            let (end, generation, life) = (node.disk.end(), node.disk.generation, node.life);
            let end_offset = Offset(end);
            if is_shown_at_once {
                self.step(id, Event::LogAppended { end_offset })?;
                let flushed = ScheduledEvent::Flushed {
                    node: id,
                    life,
                    end,
                    generation,
                };
                self.schedule(flush_ms, flushed);
            } else {
                node.disk.flush();
                self.step(id, Event::LogFlushed { end_offset })?;
            }
        }
        Ok(())
    }

    pub(super) fn make_trouble(&mut self) -> Result<(), String> {
        if self.is_healing {
            return Ok(());
        }
        let after_ms = 200 + self.below(2_000);
        self.schedule(after_ms, ScheduledEvent::Trouble);
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        match self.below(9) {
            0 | 1 => {
                let Some(node) = self.pick(&ids) else {
                    return Ok(());
                };
                self.schedule(0, ScheduledEvent::Crash { node });
                let after_ms = 50 + self.below(6_000);
                self.schedule(after_ms, ScheduledEvent::Restart { node });
            }
            2 => {
                // A power failure of all nodes.
                for node in ids {
                    self.schedule(0, ScheduledEvent::Crash { node });
                    let after_ms = 50 + self.below(500);
                    self.schedule(after_ms, ScheduledEvent::Restart { node });
                }
            }
            3 | 4 => self.isolate(&ids),
            5 => {
                let (from, to) = (self.pick(&ids), self.pick(&ids));
                let (Some(from), Some(to)) = (from, to) else {
                    return Ok(());
                };
                self.network.cut.insert((from, to));
                let after_ms = 500 + self.below(8_000);
                self.schedule(
                    after_ms,
                    ScheduledEvent::Heal {
                        pair: Some((from, to)),
                    },
                );
            }
            6 => {
                let Some(node) = self.pick(&ids) else {
                    return Ok(());
                };
                self.take_snapshot(node)?;
            }
            7 => self.lose_disk(&ids),
            _ => {
                let leaders = self.leaders();
                if let Some(leader) = self.pick(&leaders)
                    && self.below(2) == 0
                {
                    let quorum = self.nodes[&leader].quorum.as_ref().expect("leads");
                    let epoch = quorum.epoch();
                    self.step(leader, Event::ResignRequested { epoch })?;
                }
            }
        }
        Ok(())
    }

    /// A broker restarts with an empty disk.
    fn lose_disk(&mut self, ids: &[i32]) {
        let others: Vec<i32> = ids.iter().copied().filter(|&id| id >= 21).collect();
        let Some(id) = self.pick(&others) else {
            return;
        };
        self.crash(id);
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.quorum.is_none() {
            node.disk = Disk::default();
            node.directory += 1_000;
            self.note(format!("{id} has a new disk"));
            self.schedule(100, ScheduledEvent::Restart { node: id });
        }
    }

    /// Partitions some nodes, preferably a leader, from the other nodes.
    fn isolate(&mut self, ids: &[i32]) {
        let leaders = self.leaders();
        let mut group: Vec<i32> = ids.iter().copied().filter(|_| self.below(3) == 0).collect();
        if self.below(2) == 0 {
            group.extend(leaders);
        }
        for &one in ids {
            for &other in ids {
                if group.contains(&one) != group.contains(&other) {
                    self.network.cut.insert((one, other));
                }
            }
        }
        let after_ms = 1_000 + self.below(6_000);
        self.schedule(after_ms, ScheduledEvent::Heal { pair: None });
    }

    fn take_snapshot(&mut self, id: i32) -> Result<(), String> {
        let node = self.nodes.get_mut(&id).expect("a node");
        let Some(quorum) = &node.quorum else {
            return Ok(());
        };
        let Some(end) = quorum.high_watermark().map(Offset::value) else {
            return Ok(());
        };
        let control = quorum.control_records().clone();
        if end <= node.disk.start_offset || node.disk.snapshot(end, &control).is_none() {
            return Ok(());
        }
        node.disk.clean();
        let event = Event::SnapshotsChanged {
            snapshots: node.disk.snapshots.keys().copied().collect(),
            log_start_offset: Offset(node.disk.start_offset),
        };
        self.step(id, event)
    }

    pub(super) fn change_voters(&mut self) -> Result<(), String> {
        let after_ms = 200 + self.below(1_500);
        self.schedule(after_ms, ScheduledEvent::VoterChange);
        let leaders = self.leaders();
        let Some(leader) = self.pick(&leaders) else {
            return Ok(());
        };
        let quorum = self.nodes[&leader].quorum.as_ref().expect("leads");
        if !quorum.kraft_version().is_reconfig_supported() {
            // Refused until every voter has reported itself to this leader, which may take until
            // the faults end.
            let (epoch, version) = (quorum.epoch(), KRaftVersion::V1);
            let event = Event::KRaftVersionUpgradeRequested { epoch, version };
            return self.step(leader, event);
        }
        if self.is_healing {
            return Ok(());
        }
        let voters = quorum.voters().clone();
        let voter_ids: Vec<i32> = voters.voters().map(|voter| voter.key.id.value()).collect();
        let others: Vec<i32> = self
            .nodes
            .values()
            .filter(|node| node.can_become_voter && !voter_ids.contains(&node.id))
            .map(|node| node.id)
            .collect();
        let changes = 1 + self.below(2);
        for _ in 0..changes {
            let is_removal = self.below(2) == 0 && voter_ids.len() > 2;
            let request = if is_removal {
                let Some(voter) = self.pick(&voter_ids) else {
                    continue;
                };
                let voter = voters.voter(BrokerId(voter)).expect("a voter").key;
                Request::RemoveVoter(RemoveVoterRequest { voter })
            } else {
                let Some(other) = self.pick(&others) else {
                    continue;
                };
                let voter = self.nodes[&other].voter();
                Request::AddVoter(AddVoterRequest {
                    voter: voter.key,
                    endpoints: voter.endpoints,
                    ack_when_committed: self.below(2) == 0,
                })
            };
            let after_ms = 1 + self.below(10);
            self.schedule(
                after_ms,
                ScheduledEvent::Deliver(Message {
                    from: ADMIN,
                    to: leader,
                    known_as: BrokerId(leader),
                    correlation_id: 0,
                    life: 0,
                    payload: Payload::Request(request),
                }),
            );
        }
        Ok(())
    }

    pub(super) fn crash(&mut self, id: i32) {
        if self.is_healing || self.nodes[&id].quorum.is_none() {
            return;
        }
        let random = self.below(u64::MAX);
        self.nodes.get_mut(&id).expect("a node").crash(random);
        self.outcome.crashes += 1;
        self.note(format!("{id} crashes"));
    }

    pub(super) fn restart(&mut self, id: i32) -> Result<(), String> {
        let is_moved = self.setup.dynamic && self.below(4) == 0;
        let node = self.nodes.get_mut(&id).expect("a node");
        if node.quorum.is_some() {
            return Ok(());
        }
        if is_moved && id < 21 {
            // Its listener has a new port, which the voter set must learn.
            node.port += 1;
        }
        node.boot();
        self.note(format!("{id} starts"));
        self.step(id, Event::Started)
    }
}
