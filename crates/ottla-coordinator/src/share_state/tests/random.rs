//! Random requests, failures and restarts from a seed. Every request must be answered once,
//! acknowledged writes must not be lost, and a coordinator that loads the log must have the
//! committed state of the one that wrote it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_types::{ErrorCode, LeaderEpoch, Offset, Timestamp};

use super::super::state::ShareState;
use super::super::{
    Command, Outcome, Response, ShareCoordinator, ShareCoordinatorConfig, ShareStateRecord,
    TimerKey,
};
use super::{PARTITIONS, batch, key};
use crate::persister::{InitializeState, ReadState, SharePartitionKey, WriteState};
use crate::runtime::{Coordinator, EncodeRecord, ReplyId, ReplyTo, Write};

struct World {
    config: Arc<ShareCoordinatorConfig>,
    coordinator: ShareCoordinator,
    random: u64,
    now: Timestamp,
    next_reply: u64,
    unanswered: BTreeSet<u64>,
    /// Writes that are not committed yet.
    outstanding: VecDeque<Write<ShareStateRecord>>,
    log: BTreeMap<i64, ShareStateRecord>,
    next_offset: i64,
    /// The highest start offset of an acknowledged write since the state was last set.
    acknowledged: BTreeMap<(i32, i32), i64>,
    /// Partition, state epoch and start offset of a request. A request without a start offset sets
    /// or deletes the state.
    asked: BTreeMap<u64, (i32, i32, Option<i64>)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let config = Arc::new(ShareCoordinatorConfig {
            snapshot_update_records_per_snapshot: 3,
            ..Default::default()
        });
        World {
            coordinator: ShareCoordinator::new(Arc::clone(&config)),
            config,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now: Timestamp(1_000_000),
            next_reply: 0,
            unanswered: BTreeSet::new(),
            outstanding: VecDeque::new(),
            log: BTreeMap::new(),
            next_offset: 0,
            acknowledged: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    fn below(&mut self, bound: u64) -> i64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound) as i64
    }

    fn ask(&mut self) -> ReplyId {
        self.next_reply += 1;
        self.unanswered.insert(self.next_reply);
        ReplyId(self.next_reply)
    }

    fn take(&mut self, outcome: Outcome) {
        for reply in outcome.replies {
            assert!(
                self.unanswered.remove(&reply.to.0),
                "{reply:?} is a second answer"
            );
            let Some((partition, epoch, start)) = self.asked.remove(&reply.to.0) else {
                continue;
            };
            match (reply.response, start) {
                (Response::Done(Ok(())), Some(start)) => {
                    let highest = self.acknowledged.entry((partition, epoch)).or_insert(start);
                    *highest = (*highest).max(start);
                }
                (Response::Done(Ok(())), None) => {
                    self.acknowledged.retain(|(of, _), _| *of != partition);
                }
                _ => {}
            }
        }
        self.outstanding.extend(outcome.writes);
        for command in outcome.commands {
            let Command::DeleteRecordsBefore(offset) = command;
            self.log = self.log.split_off(&offset.0);
        }
    }

    fn request(&mut self) {
        let partition = self.below(3) as i32;
        let state = self.coordinator.latest(&key(partition)).cloned();
        let state_epoch = state.as_ref().map_or(0, |state| state.state_epoch);
        let start = state.map_or(0, |state| state.start_offset.0.max(0));
        let to = self.ask();
        self.asked.insert(to.0, (partition, state_epoch, None));
        let now = self.now;
        let outcome = match self.below(12) {
            0 => {
                let request = InitializeState {
                    key: key(partition),
                    state_epoch: state_epoch + self.below(3) as i32 - 1,
                    start_offset: Offset(self.below(100)),
                };
                self.coordinator
                    .initialize_state(ReplyTo::new(to), request, PARTITIONS, now)
            }
            1 => self
                .coordinator
                .delete_state(ReplyTo::new(to), key(partition), PARTITIONS),
            2 => {
                let request = ReadState {
                    key: key(partition),
                    leader_epoch: LeaderEpoch(self.below(4) as i32),
                };
                self.coordinator
                    .read_state(ReplyTo::new(to), request, PARTITIONS, now)
            }
            3 => self
                .coordinator
                .read_state_summary(ReplyTo::new(to), &key(partition), PARTITIONS),
            _ => {
                let start_offset = start + self.below(4);
                self.asked
                    .insert(to.0, (partition, state_epoch, Some(start_offset)));
                let first = start_offset + self.below(5);
                let request = WriteState {
                    key: key(partition),
                    state_epoch,
                    leader_epoch: LeaderEpoch(self.below(4) as i32),
                    start_offset: Offset(start_offset),
                    delivery_complete_count: 0,
                    batches: vec![batch(first, first + self.below(4), 2, 1)],
                };
                self.coordinator
                    .write_state(ReplyTo::new(to), request, PARTITIONS, now)
            }
        };
        self.take(outcome);
    }

    fn commit_one(&mut self) {
        let Some(write) = self.outstanding.pop_front() else {
            return;
        };
        let base_offset = Offset(self.next_offset);
        self.coordinator
            .on_appended(write.id, write.id, base_offset);
        for record in write.records {
            self.log.insert(self.next_offset, record);
            self.next_offset += 1;
        }
        let outcome = self.coordinator.on_records_committed(write.id, self.now);
        self.take(outcome);
    }

    fn fail_one(&mut self) {
        let Some(write) = self.outstanding.front() else {
            return;
        };
        let id = write.id;
        self.outstanding.clear();
        let error = ErrorCode::NotEnoughReplicas;
        let outcome = self.coordinator.on_write_failed(id, error, self.now);
        self.take(outcome);
    }

    fn committed(&self) -> BTreeMap<SharePartitionKey, ShareState> {
        let states = self.coordinator.states.iter();
        let committed =
            states.filter_map(|(key, state)| Some((key.clone(), state.committed()?.clone())));
        committed.collect()
    }

    fn replayed(&self) -> ShareCoordinator {
        let mut replayed = ShareCoordinator::new(Arc::clone(&self.config));
        for (offset, record) in &self.log {
            let (key, value) = record.encode().expect("it can be written");
            let read = replayed.replay(Offset(*offset), &key, value.as_ref());
            read.expect("it can be read");
        }
        replayed
    }

    fn restart(&mut self) {
        let before = self.committed();
        let outcome = self.coordinator.on_unloaded();
        self.outstanding.clear();
        self.take(outcome);
        assert!(
            self.unanswered.is_empty(),
            "{:?} wait forever",
            self.unanswered
        );
        self.coordinator = self.replayed();
        let after = self.committed();
        // Counters of pruned records need not be restored; persisted state must be.
        let shown = |states: &BTreeMap<SharePartitionKey, ShareState>| -> Vec<_> {
            let states = states.iter().map(|(key, s)| {
                (
                    key.clone(),
                    s.state_epoch,
                    s.leader_epoch,
                    s.start_offset,
                    s.batches.clone(),
                )
            });
            states.collect()
        };
        assert_eq!(shown(&before), shown(&after));
        let outcome = self.coordinator.on_loaded(self.now);
        self.take(outcome);
    }

    fn check_acknowledged(&self) {
        for (key, state) in self.committed() {
            let acknowledged = self.acknowledged.get(&(key.partition, state.state_epoch));
            let is_kept = acknowledged.is_none_or(|start| state.start_offset.0 >= *start);
            assert!(is_kept, "{key:?}: {state:?} lacks {acknowledged:?}");
        }
    }
}

#[test]
fn random_requests_and_failures() {
    for seed in 1..=150 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.now = Timestamp(world.now.0 + world.below(60_000));
            match world.below(20) {
                0..=9 => world.request(),
                10..=16 => world.commit_one(),
                17 => world.fail_one(),
                18 => {
                    let timer = [TimerKey::Prune, TimerKey::SnapshotCold][world.below(2) as usize];
                    let outcome = world.coordinator.on_timer(timer, world.now);
                    world.take(outcome);
                }
                _ if world.below(4) == 0 => world.restart(),
                _ => {}
            }
        }
        while !world.outstanding.is_empty() {
            world.commit_one();
        }
        assert!(world.unanswered.is_empty(), "seed {seed}");
        world.restart();
        world.check_acknowledged();
    }
}
