//! Random members, failures, timeouts and leader changes from a seed, with a model of the share
//! coordinator.
//!
//! Checked: a record is held by one member at a time, and its holder can acknowledge it; a settled
//! record is never delivered again; the start offset does not decrease; every record is delivered
//! at least once; with a dead-letter queue, every rejected record is copied at least once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ottla_types::{LeaderEpoch, Offset, Timestamp, Uuid};

use super::super::{
    AcknowledgeType, AcknowledgementBatch, AcquireMode, AcquireRequest, DeadLetters, FetchedBatch,
    MemberId, PersistedBatch, PersistedState, SharePartition, SharePartitionSettings, StateWrite,
};
use super::fetched;
use crate::persister::{InitializeState, ReadState, SharePartitionKey, StateBatch, WriteState};
use crate::runtime::{Coordinator, ReplyId, ReplyTo};
use crate::share_state::{Outcome, Response, ShareCoordinator};

const MEMBERS: [&str; 3] = ["a", "b", "c"];

struct Held {
    member: &'static str,
    deadline_ms: u64,
    /// Whether an acknowledgement is being persisted.
    is_in_transition: bool,
}

struct Pending {
    write: StateWrite,
    acknowledged: Vec<(i64, AcknowledgeType)>,
}

struct World {
    seed: u64,
    random: u64,
    now_ms: u64,
    settings: SharePartitionSettings,
    leader_epoch: i32,
    partition: SharePartition,
    coordinator: ShareCoordinator,
    log: Vec<FetchedBatch>,
    log_start: i64,
    log_end: i64,
    holders: BTreeMap<i64, Held>,
    pending: VecDeque<Pending>,
    delivered: BTreeSet<i64>,
    /// Records whose acceptance, rejection or gap was answered.
    settled: BTreeSet<i64>,
    /// Records whose rejection was answered, and records that went to the dead-letter queue.
    rejected: BTreeSet<i64>,
    copied: BTreeSet<i64>,
    copying: VecDeque<Vec<DeadLetters>>,
    last_start: i64,
}

fn key() -> SharePartitionKey {
    SharePartitionKey {
        group_id: "g".into(),
        topic_id: Uuid::from_u128(1),
        partition: 0,
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let settings = SharePartitionSettings {
            record_lock_duration_ms: 100,
            delivery_count_limit: 3 + (seed % 4) as i32,
            partition_max_record_locks: 30,
            renew_acknowledge_enable: true,
            has_dead_letter_queue: seed.is_multiple_of(2),
        };
        let empty = PersistedState {
            state_epoch: 0,
            start_offset: Offset(0),
            batches: vec![],
        };
        let partition = SharePartition::restore(settings, LeaderEpoch(0), &empty);
        let mut world = World {
            seed,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now_ms: 0,
            settings,
            leader_epoch: 0,
            partition: partition.expect("nothing is wrong with nothing"),
            coordinator: ShareCoordinator::new(Arc::default()),
            log: Vec::new(),
            log_start: 0,
            log_end: 0,
            holders: BTreeMap::new(),
            pending: VecDeque::new(),
            delivered: BTreeSet::new(),
            settled: BTreeSet::new(),
            rejected: BTreeSet::new(),
            copied: BTreeSet::new(),
            copying: VecDeque::new(),
            last_start: 0,
        };
        let request = InitializeState {
            key: key(),
            state_epoch: 1,
            start_offset: Offset(0),
        };
        let outcome = world.coordinator.initialize_state(
            ReplyTo::new(ReplyId(0)),
            request,
            Some(1),
            Timestamp(0),
        );
        world.persist(outcome);
        world.elect();
        world
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn persist(&mut self, outcome: Outcome) -> Response {
        let mut replies = outcome.replies;
        for write in outcome.writes {
            let coordinator = &mut self.coordinator;
            coordinator.on_appended(write.id, write.id, Offset(0));
            let committed = coordinator.on_records_committed(write.id, Timestamp(0));
            replies.extend(committed.replies);
        }
        replies.pop().expect("an answer").response
    }

    fn persist_write(&mut self, write: &StateWrite) {
        let batches = write.batches.iter().map(|batch| StateBatch {
            first_offset: batch.first_offset,
            last_offset: batch.last_offset,
            delivery_state: batch.delivery_state,
            delivery_count: batch.delivery_count,
        });
        let request = WriteState {
            key: key(),
            state_epoch: write.state_epoch,
            leader_epoch: write.leader_epoch,
            start_offset: write.start_offset,
            delivery_complete_count: write.delivery_complete_count,
            batches: batches.collect(),
        };
        let outcome =
            self.coordinator
                .write_state(ReplyTo::new(ReplyId(0)), request, Some(1), Timestamp(0));
        assert_eq!(self.persist(outcome), Response::Done(Ok(())));
    }

    /// A new leader restores the persisted state.
    fn elect(&mut self) {
        self.leader_epoch += 1;
        let leader_epoch = LeaderEpoch(self.leader_epoch);
        let request = ReadState {
            key: key(),
            leader_epoch,
        };
        let outcome =
            self.coordinator
                .read_state(ReplyTo::new(ReplyId(0)), request, Some(1), Timestamp(0));
        let Response::Read(Ok(read)) = self.persist(outcome) else {
            panic!("the state can be read");
        };
        let batches = read.batches.iter().map(|batch| PersistedBatch {
            first_offset: batch.first_offset,
            last_offset: batch.last_offset,
            delivery_state: batch.delivery_state,
            delivery_count: batch.delivery_count,
        });
        let state = PersistedState {
            state_epoch: read.state_epoch,
            start_offset: read.start_offset,
            batches: batches.collect(),
        };
        let restored = SharePartition::restore(self.settings, leader_epoch, &state);
        self.partition = restored.expect("written state can be restored");
        self.holders.clear();
        self.pending.clear();
        self.copying.clear();
        self.last_start = self.partition.start_offset().0;
    }

    fn produce(&mut self) {
        // Holes, as compaction and markers leave them.
        let hole = match self.below(6) {
            0 => 1 + self.below(3),
            _ => 0,
        };
        let base = self.log_end + hole as i64;
        let last = base + self.below(8) as i64;
        self.log.push(fetched((base, last)));
        self.log_end = last + 1;
    }

    fn fetch(&mut self, member: &'static str, mode: AcquireMode, max_records: i32) -> bool {
        if !self.partition.can_acquire_records() {
            return false;
        }
        let fetch_offset = self.partition.next_fetch_offset();
        if fetch_offset.0 < self.log_start {
            self.partition.on_log_start_offset(Offset(self.log_start));
            return true;
        }
        let count = 1 + self.below(4) as usize;
        let after = self
            .log
            .iter()
            .filter(|batch| batch.last_offset >= fetch_offset);
        let batches: Vec<FetchedBatch> = after.take(count).copied().collect();
        let shared: MemberId = Arc::from(member);
        let batch_size = 1 + self.below(6) as i32;
        let acquired = self.partition.acquire(AcquireRequest {
            member: &shared,
            mode,
            batch_size,
            max_records,
            fetch_offset,
            batches: &batches,
            aborted_transactions: &[],
            now_ms: self.now_ms,
        });
        if mode == AcquireMode::RecordLimit {
            assert!(acquired.records <= i64::from(max_records), "{acquired:?}");
        }
        let deadline_ms = self.now_ms + self.settings.record_lock_duration_ms;
        let mut expected = 0;
        for batch in &acquired.batches {
            assert!(batch.first_offset.0 >= expected, "{acquired:?}");
            assert!(i32::from(batch.delivery_count) <= self.settings.delivery_count_limit);
            expected = batch.last_offset.0 + 1;
            for offset in batch.first_offset.0..=batch.last_offset.0 {
                assert!(
                    !self.settled.contains(&offset),
                    "{offset} was settled: {self}"
                );
                let held = Held {
                    member,
                    deadline_ms,
                    is_in_transition: false,
                };
                let before = self.holders.insert(offset, held);
                assert!(before.is_none(), "{offset} is in other hands: {self}");
                self.delivered.insert(offset);
            }
        }
        !acquired.batches.is_empty()
    }

    /// A range that a member holds completely and has not acknowledged yet.
    fn held_range(&mut self, member: &'static str) -> Option<(i64, i64)> {
        let start = self.partition.start_offset().0;
        let is_open = |held: &Held| held.member == member && !held.is_in_transition;
        let open: Vec<i64> = self
            .holders
            .iter()
            .filter(|(offset, held)| is_open(held) && **offset >= start)
            .map(|(offset, _)| *offset)
            .collect();
        if open.is_empty() {
            return None;
        }
        let first = open[self.below(open.len() as u64) as usize];
        let wanted = first + self.below(9) as i64;
        let mut last = first;
        while last < wanted && open.binary_search(&(last + 1)).is_ok() {
            last += 1;
        }
        Some((first, last))
    }

    fn acknowledge(&mut self, member: &'static str) {
        use AcknowledgeType::{Accept, Gap, Reject, Release, Renew};
        let Some((first, last)) = self.held_range(member) else {
            return;
        };
        let mut any = || [Accept, Accept, Release, Reject, Renew, Gap][self.below(6) as usize];
        let types: Vec<AcknowledgeType> = match any() {
            Gap => (first..=last).map(|_| any()).collect(),
            kind => vec![kind],
        };
        let batch = AcknowledgementBatch {
            first_offset: Offset(first),
            last_offset: Offset(last),
            types: types.clone(),
        };
        let taken = self.partition.acknowledge(member, &[batch], self.now_ms);
        let write = taken.unwrap_or_else(|error| {
            panic!(
                "{member} holds {first} to {last} and is refused {types:?} with {error:?}: {self}"
            )
        });
        let mut acknowledged = Vec::new();
        for (index, offset) in (first..=last).enumerate() {
            let kind = types[if types.len() == 1 { 0 } else { index }];
            let held = self.holders.get_mut(&offset).expect("it is held");
            match kind {
                Renew => held.deadline_ms = self.now_ms + self.settings.record_lock_duration_ms,
                _ => {
                    held.is_in_transition = true;
                    acknowledged.push((offset, kind));
                }
            }
        }
        match write {
            Some(write) => self.pending.push_back(Pending {
                write,
                acknowledged,
            }),
            None => assert!(acknowledged.is_empty()),
        }
    }

    /// Acknowledgements by other members must be refused.
    fn acknowledge_what_others_hold(&mut self, member: &'static str) {
        let others = self
            .holders
            .iter()
            .filter(|(_, held)| held.member != member);
        let offsets: Vec<i64> = others.map(|(offset, _)| *offset).collect();
        if offsets.is_empty() {
            return;
        }
        let offset = Offset(offsets[self.below(offsets.len() as u64) as usize]);
        if offset < self.partition.start_offset() {
            return;
        }
        let batch = AcknowledgementBatch {
            first_offset: offset,
            last_offset: offset,
            types: vec![AcknowledgeType::Accept],
        };
        let taken = self.partition.acknowledge(member, &[batch], self.now_ms);
        assert!(taken.is_err(), "{member} has acknowledged {offset}: {self}");
    }

    fn leave(&mut self, member: &'static str) {
        let mut acknowledged = Vec::new();
        for (offset, held) in &mut self.holders {
            if held.member == member && !held.is_in_transition {
                held.is_in_transition = true;
                acknowledged.push((*offset, AcknowledgeType::Release));
            }
        }
        match self.partition.release_acquired_records(member) {
            Some(write) => self.pending.push_back(Pending {
                write,
                acknowledged,
            }),
            None => assert!(
                acknowledged.is_empty(),
                "{acknowledged:?} stay locked: {self}"
            ),
        }
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        if let Some(write) = self.partition.on_lock_timeouts(now_ms) {
            self.pending.push_back(Pending {
                write,
                acknowledged: Vec::new(),
            });
        }
        self.holders
            .retain(|_, held| held.is_in_transition || held.deadline_ms > now_ms);
    }

    fn answer_write(&mut self, is_persisted: bool) {
        let Some(pending) = self.pending.pop_front() else {
            return;
        };
        if is_persisted {
            self.persist_write(&pending.write);
        }
        self.partition
            .on_state_written(pending.write.id, is_persisted);
        for (offset, kind) in pending.acknowledged {
            let held = self
                .holders
                .get_mut(&offset)
                .expect("it is held while it is persisted");
            held.is_in_transition = false;
            if is_persisted || held.deadline_ms <= self.now_ms {
                self.holders.remove(&offset);
            }
            if is_persisted && kind != AcknowledgeType::Release {
                self.settled.insert(offset);
            }
            if is_persisted && kind == AcknowledgeType::Reject {
                self.rejected.insert(offset);
            }
        }
    }

    /// Copies records to the dead-letter queue, some time after they were handed out.
    fn copy(&mut self) {
        if self.partition.has_dead_letters() {
            self.copying.push_back(self.partition.take_dead_letters());
            return;
        }
        let Some(copied) = self.copying.pop_front() else {
            return;
        };
        for letters in &copied {
            self.copied
                .extend(letters.first_offset.0..=letters.last_offset.0);
        }
        if let Some(write) = self.partition.on_dead_letters_written(&copied) {
            self.pending.push_back(Pending {
                write,
                acknowledged: Vec::new(),
            });
        }
    }

    fn cut_log(&mut self) {
        let open = self.log_end - self.log_start;
        self.log_start += self.below(open.max(1) as u64 / 4 + 1) as i64;
        let log_start = Offset(self.log_start);
        self.log.retain(|batch| batch.last_offset >= log_start);
        self.partition.on_log_start_offset(log_start);
    }

    fn fail_over(&mut self) {
        // Some of the pending writes were persisted without an answer.
        for _ in 0..self.below(self.pending.len() as u64 + 1) {
            if let Some(pending) = self.pending.pop_front() {
                self.persist_write(&pending.write);
            }
        }
        self.elect();
    }

    fn check(&mut self) {
        let start = self.partition.start_offset().0;
        assert!(start >= self.last_start, "the start has gone back: {self}");
        self.last_start = start;
        assert_eq!(
            self.partition.delivery_complete_count,
            self.partition.count_terminal(),
            "{self}"
        );
        let mut runs = self
            .partition
            .in_flight
            .values()
            .flat_map(|batch| batch.runs());
        let lost = runs.find(|(_, last, state)| *last < start && state.is_acquirable());
        assert!(
            lost.is_none(),
            "{lost:?} is before the start offset and still has a waiting request: {self}"
        );
        let mut expected = i64::MIN;
        for batch in self.partition.in_flight.values() {
            assert!(batch.first_offset >= expected && batch.last_offset >= batch.first_offset);
            expected = batch.last_offset + 1;
        }
    }

    fn step(&mut self) {
        let member = MEMBERS[self.below(3) as usize];
        let kinds = match self.settings.has_dead_letter_queue {
            true => 42,
            false => 40,
        };
        match self.below(kinds) {
            0..=6 => self.produce(),
            7..=15 => {
                let mode = [AcquireMode::BatchOptimized, AcquireMode::RecordLimit];
                let mode = mode[self.below(2) as usize];
                let max_records = 1 + self.below(12) as i32;
                self.fetch(member, mode, max_records);
            }
            16..=24 => self.acknowledge(member),
            25 => self.acknowledge_what_others_hold(member),
            26..=34 => {
                let is_persisted = self.below(6) != 0;
                self.answer_write(is_persisted);
            }
            35..=37 => {
                let ms = self.below(40);
                self.wait(ms);
            }
            38 if self.below(3) == 0 => self.leave(member),
            39 if self.below(8) == 0 => self.fail_over(),
            39 if self.below(8) == 0 => self.cut_log(),
            40..=41 => self.copy(),
            _ => {}
        }
        self.check();
    }

    /// Without failures, every record is delivered and settled.
    fn heal(&mut self) {
        for _ in 0..10_000 {
            while !self.pending.is_empty() {
                self.answer_write(true);
            }
            self.wait(self.settings.record_lock_duration_ms);
            while !self.pending.is_empty() {
                self.answer_write(true);
            }
            while self.partition.has_dead_letters() || !self.copying.is_empty() {
                self.copy();
            }
            let found = self.fetch("a", AcquireMode::BatchOptimized, 100);
            while let Some((first, last)) = self.held_range("a") {
                let batch = AcknowledgementBatch {
                    first_offset: Offset(first),
                    last_offset: Offset(last),
                    types: vec![AcknowledgeType::Accept],
                };
                let write = self.partition.acknowledge("a", &[batch], self.now_ms);
                let write = write.expect("it is held").expect("something changes");
                self.persist_write(&write);
                self.partition.on_state_written(write.id, true);
                for offset in first..=last {
                    self.holders.remove(&offset);
                    self.settled.insert(offset);
                }
            }
            self.check();
            let is_at_end = self.partition.next_fetch_offset().0 >= self.log_end;
            if !found && is_at_end && self.partition.in_flight_records() == 0 {
                return;
            }
        }
        panic!("it does not come to an end: {self}");
    }

    fn check_all_rejected_copied(&self) {
        if !self.settings.has_dead_letter_queue {
            assert!(self.copied.is_empty(), "there is no queue: {self}");
            return;
        }
        let lost = self.rejected.range(self.log_start..);
        let lost: Vec<_> = lost
            .filter(|offset| !self.copied.contains(*offset))
            .collect();
        assert!(
            lost.is_empty(),
            "{lost:?} were rejected, and are not in the queue: {self}"
        );
    }

    fn check_all_delivered(&self) {
        for batch in &self.log {
            for offset in batch.base_offset.0.max(self.log_start)..=batch.last_offset.0 {
                assert!(
                    self.delivered.contains(&offset),
                    "{offset} was never delivered: {self}"
                );
            }
        }
    }
}

impl std::fmt::Display for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seed, log_start, log_end) = (self.seed, self.log_start, self.log_end);
        write!(
            f,
            "seed {seed}, log {log_start}..{log_end}, {:#?}",
            self.partition
        )
    }
}

#[test]
fn random_members_failures_and_leaders() {
    for seed in (1..=60).chain([815]) {
        let mut world = World::new(seed);
        for _ in 0..400 {
            world.step();
        }
        world.heal();
        world.check_all_delivered();
        world.check_all_rejected_copied();
    }
}
