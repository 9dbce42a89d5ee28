//! Random requests, failures and times from a seed. Every request must be answered exactly once, a
//! coordinator that loads the log must have the committed state of the one that wrote it, and every
//! decision must be completed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_types::{ErrorCode, Offset, Timestamp};

use super::super::{
    AddPartitions, Command, EndTransaction, InitProducerId, Markers, Outcome, Response, TimerKey,
    TransactionCoordinator, TransactionCoordinatorConfig, TransactionState,
};
use super::{partition, producer};
use crate::runtime::TimerQueue;
use crate::runtime::{Coordinator, EncodeRecord, ReplyId, ReplyTo, TransactionalProducer, Write};
use crate::transaction::TransactionLogRecord;

const IDS: [&str; 3] = ["a", "b", "c"];

struct World {
    coordinator: TransactionCoordinator,
    config: Arc<TransactionCoordinatorConfig>,
    timers: TimerQueue<TimerKey>,
    now_ms: i64,
    random: u64,
    next_reply: u64,
    next_producer_id: i64,
    wanted_producer_ids: u32,
    unanswered: BTreeSet<u64>,
    outstanding: VecDeque<Write<TransactionLogRecord>>,
    log: Vec<TransactionLogRecord>,
    markers: Vec<Markers>,
    /// The ids and epochs that producers have received.
    producers: Vec<(&'static str, TransactionalProducer)>,
    asked_for: Vec<(u64, &'static str)>,
}

impl World {
    fn new(seed: u64) -> Self {
        let config = Arc::new(TransactionCoordinatorConfig {
            transactional_id_expiration_ms: 200_000,
            transaction_remove_expired_transaction_cleanup_interval_ms: 50_000,
            ..Default::default()
        });
        let version = (seed % 3) as i16;
        let mut world = World {
            coordinator: TransactionCoordinator::new(Arc::clone(&config), 7, version),
            config,
            timers: TimerQueue::default(),
            now_ms: 1_000_000,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next_reply: 0,
            next_producer_id: 1,
            wanted_producer_ids: 0,
            unanswered: BTreeSet::new(),
            outstanding: VecDeque::new(),
            log: Vec::new(),
            markers: Vec::new(),
            producers: Vec::new(),
            asked_for: Vec::new(),
        };
        let outcome = world.coordinator.on_loaded(Timestamp(world.now_ms));
        world.take(outcome);
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn ask<T>(&mut self, id: &'static str) -> ReplyTo<T> {
        self.next_reply += 1;
        self.unanswered.insert(self.next_reply);
        self.asked_for.push((self.next_reply, id));
        ReplyTo::new(ReplyId(self.next_reply))
    }

    fn take(&mut self, outcome: Outcome) {
        for change in outcome.timers {
            self.timers.apply(change, self.now_ms as u64);
        }
        for reply in outcome.replies {
            assert!(
                self.unanswered.remove(&reply.to.0),
                "{:?} is answered a second time, with {:?}",
                reply.to,
                reply.response
            );
            let index = self.asked_for.iter().position(|(to, _)| *to == reply.to.0);
            let (_, id) = self.asked_for.swap_remove(index.expect("it was asked"));
            let given = match reply.response {
                Response::InitProducerId(Ok(producer)) => Some(producer),
                Response::EndTxn(Ok(producer)) => producer,
                _ => None,
            };
            if let Some(given) = given {
                self.producers.push((id, given));
                let excess = self.producers.len().saturating_sub(8);
                self.producers.drain(..excess);
            }
        }
        for write in outcome.writes {
            let last = self.outstanding.back();
            assert!(last.is_none_or(|last| last.id < write.id));
            self.outstanding.push_back(write);
        }
        for command in outcome.commands {
            match command {
                Command::AllocateProducerId => self.wanted_producer_ids += 1,
                Command::SendMarkers(markers) => self.markers.push(markers),
            }
        }
    }

    /// A producer that may be outdated.
    fn any_producer(&mut self) -> (&'static str, TransactionalProducer) {
        if self.producers.is_empty() {
            return ("a", producer(1, 0));
        }
        let index = self.below(self.producers.len() as u64) as usize;
        self.producers[index]
    }

    fn step(&mut self) {
        let now = Timestamp(self.now_ms);
        let outcome = match self.below(16) {
            0 | 1 => {
                let id = IDS[self.below(3) as usize];
                let to = self.ask(id);
                let (of, producer) = self.any_producer();
                let expected = (of == id && self.below(3) == 0).then_some(producer);
                let request = InitProducerId {
                    transactional_id: id.into(),
                    transaction_timeout_ms: 20_000,
                    enable_two_phase_commit: false,
                    keep_prepared_transaction: false,
                    expected,
                };
                self.coordinator.handle_init_producer_id(to, request, now)
            }
            2..=4 => {
                let (id, producer) = self.any_producer();
                let to = self.ask(id);
                let partitions = vec![partition(self.below(4) as i32)];
                let client_transaction_version = self.client_version();
                let request = AddPartitions {
                    transactional_id: id.into(),
                    producer,
                    partitions,
                    client_transaction_version,
                };
                self.coordinator.handle_add_partitions(to, request, now)
            }
            5..=7 => {
                let (id, producer) = self.any_producer();
                let to = self.ask(id);
                let is_commit = self.below(2) == 0;
                let client_transaction_version = self.client_version();
                let request = EndTransaction {
                    transactional_id: id.into(),
                    producer,
                    is_commit,
                    client_transaction_version,
                };
                self.coordinator.handle_end_txn(to, request, now)
            }
            8 | 9 => return self.answer_markers(),
            10 => return self.give_producer_id(),
            11..=13 => return self.commit(),
            14 if self.below(4) == 0 => return self.fail(),
            14 => {
                self.now_ms += self.below(5_000) as i64;
                return self.fire_timers();
            }
            _ => {
                let index = self.below(self.outstanding.len().max(1) as u64) as usize;
                match self.outstanding.get(index).map(|write| write.id) {
                    Some(id) => self.coordinator.on_write_timed_out(id, now),
                    None => return,
                }
            }
        };
        self.take(outcome);
    }

    fn client_version(&mut self) -> i16 {
        match self.coordinator.transaction_version {
            2 => 2,
            _ => 0,
        }
    }

    fn answer_markers(&mut self) {
        if self.markers.is_empty() {
            return;
        }
        let index = self.below(self.markers.len() as u64) as usize;
        let markers = self.markers.swap_remove(index);
        let answers: Vec<_> = markers
            .partitions
            .iter()
            .map(|partition| match self.below(4) {
                0 => (partition.clone(), ErrorCode::NotLeaderOrFollower),
                _ => (partition.clone(), ErrorCode::None),
            })
            .collect();
        let now = Timestamp(self.now_ms);
        let id = &markers.transactional_id;
        let outcome = self
            .coordinator
            .on_markers_answered(id, markers.producer, &answers, now);
        self.take(outcome);
    }

    fn give_producer_id(&mut self) {
        if self.wanted_producer_ids == 0 {
            return;
        }
        self.wanted_producer_ids -= 1;
        let given = match self.below(5) {
            0 => Err(ErrorCode::RequestTimedOut),
            _ => {
                self.next_producer_id += 1;
                Ok(ottla_types::ProducerId(self.next_producer_id))
            }
        };
        let outcome = self
            .coordinator
            .on_producer_id(given, Timestamp(self.now_ms));
        self.take(outcome);
    }

    fn commit(&mut self) {
        let count = self.below(self.outstanding.len() as u64 + 1) as usize;
        let committed: Vec<_> = self.outstanding.drain(..count).collect();
        let Some(last) = committed.last().map(|write| write.id) else {
            return;
        };
        for write in committed {
            self.log.extend(write.records);
        }
        let now = Timestamp(self.now_ms);
        let outcome = self.coordinator.on_records_committed(last, now);
        self.take(outcome);
    }

    fn fail(&mut self) {
        let index = self.below(self.outstanding.len().max(1) as u64) as usize;
        let Some(id) = self.outstanding.get(index).map(|write| write.id) else {
            return;
        };
        self.outstanding.truncate(index);
        let now = Timestamp(self.now_ms);
        let error = ErrorCode::NotEnoughReplicas;
        let outcome = self.coordinator.on_write_failed(id, error, now);
        self.take(outcome);
    }

    fn fire_timers(&mut self) {
        while let Some(key) = self.timers.pop_due(self.now_ms as u64) {
            let outcome = self.coordinator.on_timer(key, Timestamp(self.now_ms));
            self.take(outcome);
        }
    }

    /// Completes everything that is waiting.
    fn settle(&mut self) {
        while self.wanted_producer_ids > 0
            || !self.markers.is_empty()
            || !self.outstanding.is_empty()
        {
            self.give_producer_id();
            self.answer_markers();
            self.commit();
        }
    }

    fn reread(&self) -> TransactionCoordinator {
        let mut read = TransactionCoordinator::new(Arc::clone(&self.config), 8, 2);
        for (offset, record) in (0i64..).zip(&self.log) {
            let (key, value) = record.encode().expect("a record");
            read.replay(Offset(offset), &key, value.as_ref())
                .expect("readable");
        }
        read
    }
}

#[test]
fn replayed_state_equals_committed_state() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
        }
        world.settle();
        // Failed completions are retried.
        world.now_ms += 1_000;
        world.fire_timers();
        world.settle();
        assert!(
            world.unanswered.is_empty(),
            "seed {seed}: {:?}",
            world.unanswered
        );
        let read = world.reread();
        for id in IDS {
            let known = world.coordinator.describe(id).ok();
            // Ids that were never written, and epochs that were raised for fencing without being
            // written, are not in the log.
            let known = known.filter(|it| it.producer_epoch.value() >= 0);
            let known = known.map(|it| (it.state, it.partitions.clone(), it.producer_id));
            let read = read.describe(id).ok();
            let read = read.map(|it| (it.state, it.partitions.clone(), it.producer_id));
            assert_eq!(known, read, "seed {seed}, id {id}");
            if let Some((state, partitions, _)) = known {
                let is_ending = matches!(
                    state,
                    TransactionState::PrepareCommit | TransactionState::PrepareAbort
                );
                assert!(!is_ending, "seed {seed}: a decided end completes");
                assert_eq!(partitions.is_empty(), state != TransactionState::Ongoing);
            }
        }
    }
}
