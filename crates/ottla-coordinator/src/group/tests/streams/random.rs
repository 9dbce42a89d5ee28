//! Random heartbeats, failures and times from a seed. No task may be active in two places, or twice
//! in one process, and loading the log must give the committed state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::StreamsGroupHeartbeatRequest;
use ottla_protocol::messages::streams_group_heartbeat_request as request;
use ottla_protocol::messages::streams_group_heartbeat_response as response;
use ottla_types::{ErrorCode, Offset, ProducerId, Timestamp};

use super::{Beat, beat, joining, subtopology};
use crate::group::modern::test_image::TestImage;
use crate::group::outcome::{
    Outcome, ReplyId, ReplyTo, Response, StreamsHeartbeat, TimerKey, Write,
};
use crate::group::streams::StreamsHeartbeatContext;
use crate::group::{GroupCoordinator, GroupCoordinatorConfig};
use crate::runtime::TimerQueue;
use crate::runtime::{Coordinator, EncodeRecord};

const PROCESSES: [&str; 3] = ["p1", "p2", "p3"];
/// In both subtopologies; the tasks of the first have state.
const NUM_TASKS: usize = 8;
const NUM_STATEFUL_TASKS: usize = 5;

type Tasks = BTreeSet<(ByteString, i32)>;

/// A correct stream thread: it revokes tasks at once when required, and starts again when it is
/// fenced.
#[derive(Clone, Default)]
struct Thread {
    epoch: i32,
    process_id: &'static str,
    active: Tasks,
    standby: Tasks,
    waits_for: Option<u64>,
}

struct World {
    coordinator: GroupCoordinator,
    timers: TimerQueue<TimerKey>,
    now_ms: i64,
    random: u64,
    next_reply: u64,
    threads: BTreeMap<ByteString, Thread>,
    outstanding: VecDeque<Write>,
    log: Vec<Write>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut config = GroupCoordinatorConfig::default();
        config.group_streams_assignment_interval_ms.value = 500;
        config.group_streams_num_standby_replicas.value = 1;
        let mut coordinator = GroupCoordinator::new(Arc::new(config));
        let image = TestImage::new()
            .topic("in", 5)
            .topic("store", 5)
            .topic("b", 3);
        coordinator.begin(Arc::new(image.build()));
        World {
            coordinator,
            timers: TimerQueue::default(),
            now_ms: 1_000_000,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next_reply: 0,
            threads: BTreeMap::new(),
            outstanding: VecDeque::new(),
            log: Vec::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms)
    }

    fn take(&mut self, outcome: Outcome) {
        for change in outcome.timers {
            self.timers.apply(change, self.now_ms as u64);
        }
        for reply in outcome.replies {
            self.hear(reply.to.0, reply.response);
        }
        self.outstanding.extend(outcome.writes);
    }

    fn hear(&mut self, reply: u64, response: Response) {
        let Response::StreamsGroupHeartbeat(StreamsHeartbeat { response, .. }) = response else {
            panic!("only heartbeats are sent");
        };
        let waiting = self
            .threads
            .iter_mut()
            .find(|(_, thread)| thread.waits_for == Some(reply));
        // The thread may be dead by now.
        let Some((member_id, thread)) = waiting else {
            return;
        };
        thread.waits_for = None;
        let fenced = [
            ErrorCode::FencedMemberEpoch,
            ErrorCode::UnknownMemberId,
            ErrorCode::GroupIdNotFound,
        ];
        if fenced.contains(&ErrorCode::from_code(response.error_code)) {
            thread.epoch = 0;
            thread.active.clear();
            thread.standby.clear();
            return;
        }
        if response.error_code != 0 {
            return;
        }
        thread.epoch = response.member_epoch;
        if let (Some(active), Some(standby)) = (&response.active_tasks, &response.standby_tasks) {
            thread.active = tasks_of(active);
            thread.standby = tasks_of(standby);
            let member_id = member_id.clone();
            self.check_shared_with_nobody(&member_id);
        }
    }

    fn check_shared_with_nobody(&self, member_id: &ByteString) {
        let group = self
            .coordinator
            .streams_group("g")
            .expect("it has answered");
        let thread = &self.threads[member_id];
        for (other_id, other) in &self.threads {
            // A removed member will learn of it.
            if other_id == member_id || group.member(other_id).is_none() {
                continue;
            }
            let shared: Vec<_> = thread.active.intersection(&other.active).collect();
            assert!(
                shared.is_empty(),
                "{member_id} and {other_id} both work on {shared:?}"
            );
            if thread.process_id == other.process_id {
                let all = |thread: &Thread| -> Tasks {
                    thread.active.union(&thread.standby).cloned().collect()
                };
                let (one, two) = (all(thread), all(other));
                let shared: Vec<_> = one.intersection(&two).collect();
                assert!(
                    shared.is_empty(),
                    "{member_id} and {other_id} of one process both have {shared:?}"
                );
            }
        }
        let twice: Vec<_> = thread.active.intersection(&thread.standby).collect();
        assert!(twice.is_empty(), "{member_id} has {twice:?} twice");
    }

    fn beat(&mut self, member_id: &ByteString) {
        let Some(thread) = self.threads.get_mut(member_id) else {
            return;
        };
        if thread.waits_for.is_some() {
            return;
        }
        self.next_reply += 1;
        let to = ReplyId(self.next_reply);
        thread.waits_for = Some(to.0);
        let subtopologies = vec![
            subtopology("0", &["in"], &["store"]),
            subtopology("1", &["b"], &[]),
        ];
        let Beat(mut beat) = joining(member_id, thread.process_id).topology(0, subtopologies);
        if thread.epoch != 0 {
            beat.topology = None;
            beat.process_id = None;
            beat.rebalance_timeout_ms = -1;
            beat.member_epoch = thread.epoch;
            beat.active_tasks = Some(said(&thread.active));
            beat.standby_tasks = Some(said(&thread.standby));
        }
        self.send(to, beat);
    }

    /// A thread that ends says so once. It does not wait for the response.
    fn leave(&mut self, member_id: &ByteString) {
        self.next_reply += 1;
        let Beat(request) = beat(member_id, -1);
        self.send(ReplyId(self.next_reply), request);
    }

    fn send(&mut self, to: ReplyId, request: StreamsGroupHeartbeatRequest) {
        let context = StreamsHeartbeatContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
            knows_offsets_and_tags: true,
        };
        let now = self.now();
        let outcome = self.coordinator.handle_streams_group_heartbeat(
            ReplyTo::new(to),
            request,
            context,
            now,
        );
        self.take(outcome);
    }

    fn any_member(&mut self) -> Option<ByteString> {
        let count = self.threads.len() as u64;
        if count == 0 {
            return None;
        }
        let index = self.below(count) as usize;
        self.threads.keys().nth(index).cloned()
    }

    fn step(&mut self, number: usize) {
        match self.below(20) {
            0 | 1 if self.threads.len() < 6 => {
                let process = self.below(PROCESSES.len() as u64) as usize;
                let thread = Thread {
                    process_id: PROCESSES[process],
                    ..Thread::default()
                };
                self.threads.insert(format!("m{number}").into(), thread);
            }
            2 => {
                // Leaves, or dies without leaving. Its session also expires if the log refuses the
                // departure.
                if let Some(member_id) = self.any_member() {
                    self.threads.remove(&member_id);
                    if self.below(2) == 0 {
                        self.leave(&member_id);
                    }
                }
            }
            3 => self.fail_last(),
            4..=8 => self.commit_first(),
            9 => {
                let ms = self.below(4_000) as i64;
                self.pass(ms);
            }
            _ => {
                if let Some(member_id) = self.any_member() {
                    self.beat(&member_id);
                }
            }
        }
    }

    fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        while let Some(key) = self.timers.pop_due(self.now_ms as u64) {
            let now = self.now();
            let outcome = self.coordinator.on_timer(key, now);
            self.take(outcome);
        }
    }

    fn commit_first(&mut self) {
        if let Some(write) = self.outstanding.pop_front() {
            let now = self.now();
            let outcome = self.coordinator.on_records_committed(write.id, now);
            self.log.push(write);
            self.take(outcome);
        }
    }

    fn fail_last(&mut self) {
        if let Some(write) = self.outstanding.pop_back() {
            let now = self.now();
            let error = ErrorCode::NotEnoughReplicas;
            let outcome = self.coordinator.on_write_failed(write.id, error, now);
            self.take(outcome);
        }
    }

    fn settle(&mut self) {
        for _ in 0..80 {
            while !self.outstanding.is_empty() {
                self.commit_first();
            }
            self.pass(2_000);
            let members: Vec<ByteString> = self.threads.keys().cloned().collect();
            for member_id in members {
                self.beat(&member_id);
            }
        }
        while !self.outstanding.is_empty() {
            self.commit_first();
        }
    }

    /// At the end, every task must be active, its standby tasks assigned where possible, and
    /// loading the log must give the same state.
    fn check(&self, seed: u64) {
        if self.threads.is_empty() {
            return;
        }
        let group = self.coordinator.streams_group("g").expect("it has members");
        let processes: BTreeSet<&str> = self.threads.values().map(|it| it.process_id).collect();
        let active: usize = self.threads.values().map(|it| it.active.len()).sum();
        let standby: usize = self.threads.values().map(|it| it.standby.len()).sum();
        assert_eq!(active, NUM_TASKS, "seed {seed}");
        let num_standby = match processes.len() {
            1 => 0,
            _ => NUM_STATEFUL_TASKS,
        };
        assert_eq!(standby, num_standby, "seed {seed}");
        assert_eq!(group.num_members(), self.threads.len(), "seed {seed}");
        assert_eq!(group.state().name(), "Stable", "seed {seed}");

        let config = Arc::clone(&self.coordinator.config);
        let mut restarted = GroupCoordinator::new(config);
        let records = self.log.iter().flat_map(|write| &write.records);
        for (offset, record) in (0..).zip(records) {
            let (key, value) = record.encode().expect("it can be said");
            let (offset, now) = (Offset(offset), self.now());
            restarted
                .replay(offset, ProducerId::NONE, &key, value.as_ref(), now)
                .expect("it can be read");
        }
        let read = restarted.streams_group("g").map(|it| format!("{it:?}"));
        assert_eq!(read, Some(format!("{group:?}")), "seed {seed}");
    }
}

fn tasks_of(task_ids: &[response::TaskIds]) -> Tasks {
    let each = task_ids.iter().flat_map(|it| {
        let partitions = it.partitions.iter();
        partitions.map(|index| (it.subtopology_id.clone(), *index))
    });
    each.collect()
}

fn said(tasks: &Tasks) -> Vec<request::TaskIds> {
    let mut by_subtopology: BTreeMap<&ByteString, Vec<i32>> = BTreeMap::new();
    for (id, index) in tasks {
        by_subtopology.entry(id).or_default().push(*index);
    }
    let task_ids = by_subtopology
        .into_iter()
        .map(|(id, partitions)| request::TaskIds {
            subtopology_id: id.clone(),
            partitions,
            ..Default::default()
        });
    task_ids.collect()
}

#[test]
fn a_task_works_in_one_place() {
    for seed in 1..=60 {
        let mut world = World::new(seed);
        for number in 0..400 {
            world.step(number);
        }
        world.settle();
        world.check(seed);
    }
}
