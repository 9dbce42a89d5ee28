//! What has to be so in the end, when nothing fails any more, of nodes and clients together.

use ottla_coordinator::persister::ReadState;
use ottla_coordinator::share_state::{Response, ShareCoordinator};
use ottla_coordinator::{Coordinator, ReplyId, ReplyTo, partition_for};
use ottla_types::{LeaderEpoch, Offset, Timestamp, TopicIdPartition};

use super::clients::Role;
use super::coordinator_shell::{Coordinated, SHARE_STATE_TOPIC, for_each_entry};
use super::group_clients::{INPUT_TOPIC, MOVERS, OUTPUT_TOPIC, Role as GroupRole, SHARERS};
use super::partition_log::PartitionLog;
use super::setup::Groups;
use super::share_partitions::{key_of, restored};
use super::world::World;

impl World {
    pub(super) fn check_convergence(&mut self) {
        self.checkers.convergence.check_nodes(&self.nodes);
        let topics = self.newest_committed().topics.clone();
        let keys = topics.iter().flat_map(|topic| {
            topic.partitions().map(|(partition, _)| TopicIdPartition {
                topic_id: topic.id,
                partition,
            })
        });
        let keys: Vec<TopicIdPartition> = keys.collect();
        let checkers = &mut self.checkers;
        let mut has_leaders = true;
        for key in &keys {
            let (nodes, acknowledged) = (&self.nodes, &mut checkers.acknowledged);
            let convergence = &mut checkers.convergence;
            has_leaders &= convergence.check_partition(*key, nodes, acknowledged);
        }
        if !has_leaders {
            // Its clients wait for what does not come.
            return;
        }
        if self.setup.is_unclean {
            // A producer of whose records some are lost would have to begin anew, and a consumer is ahead of the log.
            return;
        }
        for (id, client) in &self.clients {
            let Some(key) = client.key() else {
                checkers
                    .convergence
                    .report(|| format!("healed, and client {id} knows no leader"));
                continue;
            };
            if !client.is_done() {
                checkers
                    .convergence
                    .report(|| format!("healed, and producer {id} has not been answered"));
            }
            if let Role::Consumer(consumer) = &client.role {
                let logs = self
                    .nodes
                    .values()
                    .filter_map(|node| node.disk.partitions.get(&key));
                let end = logs.map(|log| log.end()).max().unwrap_or_default();
                let position = consumer.position;
                if position != end {
                    checkers
                        .convergence
                        .report(|| format!("healed, and consumer {id} is at {position} of {end}"));
                }
            }
        }
        match self.setup.groups {
            Groups::None => {}
            Groups::Movers => self.check_groups(),
            Groups::Sharers => self.check_share_group(),
        }
    }

    /// Everything that was written has been delivered, and is settled as a new leader would take it up.
    fn check_share_group(&mut self) {
        let topics = self.newest_committed().topics.clone();
        let logs_of = |topic: &str| -> Vec<(TopicIdPartition, &PartitionLog)> {
            let topic = topics.by_name(topic);
            let logs = topic.iter().flat_map(|topic| {
                topic.partitions().filter_map(|(partition, registration)| {
                    let key = TopicIdPartition {
                        topic_id: topic.id,
                        partition,
                    };
                    let leader = self.nodes.get(&registration.leader.value())?;
                    Some((key, leader.disk.partitions.get(&key)?))
                })
            });
            logs.collect()
        };
        let (inputs, states) = (logs_of(INPUT_TOPIC), logs_of(SHARE_STATE_TOPIC));
        let (checkers, now) = (&mut self.checkers, Timestamp(self.now_ms as i64));
        for (key, log) in &inputs {
            let share = key_of(&SHARERS.into(), *key);
            let index = partition_for(&share.coordinator_key(), states.len() as i32);
            let Some((_, state)) = states.iter().find(|(it, _)| it.partition.0 == index) else {
                // That nobody leads it has been reported.
                continue;
            };
            let mut coordinator = <ShareCoordinator as Coordinated>::new(LeaderEpoch(0));
            for batch in state.batches_from(state.start()) {
                for_each_entry(batch, |entry| {
                    let replayed = Coordinator::replay(&mut coordinator, entry, now);
                    replayed.expect("what a coordinator wrote can be read");
                });
            }
            let read = ReadState {
                key: share,
                leader_epoch: LeaderEpoch::UNKNOWN,
            };
            let count = Some(inputs.len() as i32);
            let outcome = coordinator.read_state(ReplyTo::new(ReplyId(0)), read, count, now);
            let settled = match outcome.replies.first().map(|reply| &reply.response) {
                Some(Response::Read(Ok(read))) => restored(read, LeaderEpoch(0)).start_offset(),
                _ => Offset::UNKNOWN,
            };
            let end = log.end();
            if settled != end {
                checkers.convergence.report(|| {
                    let partition = key.partition;
                    format!("healed, and the share group is at {settled} of {end} of partition {partition}")
                });
            }
            let (deliveries, committed) =
                (&mut checkers.share_deliveries, &checkers.committed_records);
            deliveries.check_all_delivered(*key, end, committed);
        }
        for (id, client) in &self.group_clients {
            if !client.is_done() {
                checkers
                    .convergence
                    .report(|| format!("healed, and client {id} is not done"));
            }
        }
    }

    /// Everything that was written has been moved, and what was moved has been read.
    fn check_groups(&mut self) {
        let topics = self.newest_committed().topics.clone();
        let ends = |topic: &str| -> Vec<(TopicIdPartition, Offset)> {
            let topic = topics.by_name(topic);
            let partitions = topic.iter().flat_map(|topic| {
                let keys = topic.partitions().map(|(partition, _)| TopicIdPartition {
                    topic_id: topic.id,
                    partition,
                });
                keys.collect::<Vec<_>>()
            });
            let logs = |key| {
                self.nodes
                    .values()
                    .filter_map(move |it| it.disk.partitions.get(&key))
            };
            let end = |key| logs(key).map(|log| log.end()).max().unwrap_or_default();
            partitions.map(|key| (key, end(key))).collect()
        };
        let (inputs, outputs) = (ends(INPUT_TOPIC), ends(OUTPUT_TOPIC));
        let checkers = &mut self.checkers;
        for (key, end) in inputs {
            let partition = key.partition.0;
            let moved = checkers
                .committed_offsets
                .of(MOVERS, INPUT_TOPIC, partition);
            let atomic = &mut checkers.atomic_transactions;
            atomic.on_position(key, moved, &checkers.committed_records);
            atomic.check_nothing_ahead(partition, moved);
            if moved != end {
                checkers.convergence.report(|| {
                    format!("healed, and {moved} of {end} of partition {partition} are moved")
                });
            }
        }
        for (key, end) in outputs {
            let partition = key.partition.0;
            let readers = self
                .group_clients
                .values()
                .filter_map(|client| match client.role {
                    GroupRole::Reader(_) => {
                        client.member.positions.get(&partition).copied().flatten()
                    }
                    GroupRole::Mover(_) | GroupRole::Sharer(_) => None,
                });
            let positions: Vec<Offset> = readers.collect();
            if positions != [end] {
                checkers.convergence.report(|| {
                    format!(
                        "healed, and readers are at {positions:?} of {end} of output {partition}"
                    )
                });
            }
        }
        for (id, client) in &self.group_clients {
            if !client.is_done() {
                checkers
                    .convergence
                    .report(|| format!("healed, and client {id} is not done"));
            }
        }
        checkers.missed_records.check_all_read();
    }
}
