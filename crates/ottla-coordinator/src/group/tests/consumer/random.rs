//! Random heartbeats, failures and times from a seed. No two members may own a partition at the
//! same time, and loading the log must give the committed state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::messages::ConsumerGroupHeartbeatRequest;
use ottla_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use ottla_types::{ErrorCode, Offset, ProducerId, Timestamp, TopicId};

use crate::group::consumer::HeartbeatContext;
use crate::group::modern::test_image::TestImage;
use crate::group::outcome::{Command, Outcome, ReplyId, ReplyTo, Response, TimerKey, Write};
use crate::group::{ComputeTarget, Requester};
use crate::group::{GroupCoordinator, GroupCoordinatorConfig};
use crate::runtime::TimerQueue;
use crate::runtime::{Coordinator, EncodeRecord};

const TOPICS: [&str; 3] = ["a", "b", "c"];

type Partitions = BTreeSet<(TopicId, i32)>;

/// A correct consumer: it revokes partitions at once when required, and stops when it is fenced.
#[derive(Clone, Default)]
struct Consumer {
    epoch: i32,
    topics: Vec<&'static str>,
    owned: Partitions,
    waits_for: Option<u64>,
    /// A response was lost or was an error: the next heartbeat is a full one.
    says_all: bool,
}

struct World {
    coordinator: GroupCoordinator,
    timers: TimerQueue<TimerKey>,
    now_ms: i64,
    random: u64,
    next_reply: u64,
    consumers: BTreeMap<ByteString, Consumer>,
    outstanding: VecDeque<Write>,
    /// Target assignments that the shell must compute.
    computing: VecDeque<Box<ComputeTarget>>,
    log: Vec<Write>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut config = GroupCoordinatorConfig::default();
        config.group_consumer_assignment_interval_ms.value = 500;
        // Half of the worlds compute their target assignments outside the coordinator.
        if seed.is_multiple_of(2) {
            config.group_consumer_inline_assignment_max = 0;
        }
        let mut coordinator = GroupCoordinator::new(Arc::new(config));
        let image = TestImage::new().topic("a", 5).topic("b", 3).topic("c", 1);
        coordinator.begin(Arc::new(image.build()));
        World {
            coordinator,
            timers: TimerQueue::default(),
            now_ms: 1_000_000,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next_reply: 0,
            consumers: BTreeMap::new(),
            outstanding: VecDeque::new(),
            computing: VecDeque::new(),
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
        for command in outcome.commands {
            if let Command::ComputeTarget(target) = command {
                self.computing.push_back(target);
            }
        }
        for reply in outcome.replies {
            self.hear(reply.to.0, reply.response);
        }
        self.outstanding.extend(outcome.writes);
    }

    fn hear(&mut self, reply: u64, response: Response) {
        let Response::ConsumerGroupHeartbeat(response) = response else {
            panic!("only heartbeats are sent");
        };
        let waiting = self
            .consumers
            .iter_mut()
            .find(|(_, consumer)| consumer.waits_for == Some(reply));
        // The consumer may be dead by now.
        let Some((member_id, consumer)) = waiting else {
            return;
        };
        consumer.waits_for = None;
        let fenced = [
            ErrorCode::FencedMemberEpoch,
            ErrorCode::UnknownMemberId,
            ErrorCode::GroupIdNotFound,
        ];
        if fenced.contains(&ErrorCode::from_code(response.error_code)) {
            consumer.epoch = 0;
            consumer.owned.clear();
            return;
        }
        if response.error_code != 0 {
            consumer.says_all = true;
            return;
        }
        consumer.epoch = response.member_epoch;
        let member_id = member_id.clone();
        if let Some(assignment) = response.assignment {
            let assigned: Partitions = assignment
                .topic_partitions
                .iter()
                .flat_map(|topic| {
                    topic
                        .partitions
                        .iter()
                        .map(|index| (topic.topic_id, *index))
                })
                .collect();
            let group = self
                .coordinator
                .consumer_group("g")
                .expect("it has answered");
            for (other_id, other) in &self.consumers {
                if !group.has_member(other_id) {
                    // It was removed, and will learn of it.
                    continue;
                }
                let shared: Vec<_> = assigned.intersection(&other.owned).collect();
                assert!(
                    *other_id == member_id || shared.is_empty(),
                    "{member_id} and {other_id} both have {shared:?}"
                );
            }
            if let Some(consumer) = self.consumers.get_mut(&member_id) {
                consumer.owned = assigned;
            }
        }
    }

    fn beat(&mut self, member_id: &ByteString, is_full: bool) {
        self.next_reply += 1;
        let to = ReplyId(self.next_reply);
        let Some(consumer) = self.consumers.get_mut(member_id) else {
            return;
        };
        let says_all = std::mem::take(&mut consumer.says_all) || consumer.waits_for.is_some();
        consumer.waits_for = Some(to.0);
        let is_joining = consumer.epoch == 0;
        let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
        for (topic, partition) in &consumer.owned {
            topics.entry(*topic).or_default().push(*partition);
        }
        let owned = topics
            .into_iter()
            .map(|(topic_id, partitions)| TopicPartitions {
                topic_id,
                partitions,
                ..Default::default()
            });
        let wanted = consumer.topics.iter().map(|topic| (*topic).into());
        let says_all = is_joining || is_full || says_all;
        let request = ConsumerGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id: member_id.clone(),
            member_epoch: consumer.epoch,
            rebalance_timeout_ms: if says_all { 30_000 } else { -1 },
            subscribed_topic_names: says_all.then(|| wanted.collect()),
            topic_partitions: Some(owned.collect()),
            ..Default::default()
        };
        self.send(to, request);
    }

    /// A consumer that ends says so once. It does not wait for the response.
    fn leave(&mut self, member_id: ByteString) {
        self.next_reply += 1;
        let request = ConsumerGroupHeartbeatRequest {
            group_id: "g".into(),
            member_id,
            member_epoch: -1,
            ..Default::default()
        };
        self.send(ReplyId(self.next_reply), request);
    }

    fn send(&mut self, to: ReplyId, request: ConsumerGroupHeartbeatRequest) {
        let context = HeartbeatContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
            new_member_id: "given".into(),
            requester: Requester::none(),
        };
        let now = self.now();
        let outcome = self.coordinator.handle_consumer_group_heartbeat(
            ReplyTo::new(to),
            request,
            context,
            now,
        );
        self.take(outcome);
    }

    fn any_member(&mut self) -> Option<ByteString> {
        let count = self.consumers.len() as u64;
        if count == 0 {
            return None;
        }
        let index = self.below(count) as usize;
        self.consumers.keys().nth(index).cloned()
    }

    fn step(&mut self, number: usize) {
        match self.below(20) {
            0 if self.consumers.len() < 6 => {
                let consumer = Consumer {
                    topics: self.some_topics(),
                    ..Consumer::default()
                };
                self.consumers.insert(format!("m{number}").into(), consumer);
            }
            1 => {
                // Leaves, or dies without leaving. Its session also expires if the log refuses the
                // departure.
                if let Some(member_id) = self.any_member() {
                    self.consumers.remove(&member_id);
                    if self.below(2) == 0 {
                        self.leave(member_id);
                    }
                }
            }
            2 => {
                if let Some(member_id) = self.any_member() {
                    let topics = self.some_topics();
                    if let Some(consumer) = self.consumers.get_mut(&member_id) {
                        consumer.topics = topics;
                        consumer.owned.clear();
                    }
                    self.beat(&member_id, true);
                }
            }
            3 => self.fail_last(),
            4..=8 => self.commit_first(),
            10..=11 => self.compute_first(),
            9 => {
                self.now_ms += self.below(4_000) as i64;
                while let Some(key) = self.timers.pop_due(self.now_ms as u64) {
                    let now = self.now();
                    let outcome = self.coordinator.on_timer(key, now);
                    self.take(outcome);
                }
            }
            _ => {
                if let Some(member_id) = self.any_member() {
                    self.beat(&member_id, false);
                }
            }
        }
    }

    fn some_topics(&mut self) -> Vec<&'static str> {
        TOPICS.into_iter().filter(|_| self.below(3) > 0).collect()
    }

    fn commit_first(&mut self) {
        if let Some(write) = self.outstanding.pop_front() {
            let now = self.now();
            let outcome = self.coordinator.on_records_committed(write.id, now);
            self.log.push(write);
            self.take(outcome);
        }
    }

    fn compute_first(&mut self) {
        if let Some(target) = self.computing.pop_front() {
            let now = self.now();
            let outcome = self.coordinator.on_target_computed(&target.compute(), now);
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
            self.now_ms += 2_000;
            while let Some(key) = self.timers.pop_due(self.now_ms as u64) {
                let now = self.now();
                let outcome = self.coordinator.on_timer(key, now);
                self.take(outcome);
            }
            let members: Vec<ByteString> = self.consumers.keys().cloned().collect();
            for member_id in members {
                self.beat(&member_id, false);
            }
            while !self.computing.is_empty() {
                self.compute_first();
            }
        }
        while !self.outstanding.is_empty() {
            self.commit_first();
        }
    }

    /// At the end, all subscribed partitions must be owned, and loading the log must give the same
    /// state.
    fn check(&self, seed: u64) {
        let Some(group) = self.coordinator.consumer_group("g") else {
            return;
        };
        let wanted: BTreeSet<&str> = self
            .consumers
            .values()
            .flat_map(|consumer| consumer.topics.iter().copied())
            .collect();
        let image = self.coordinator.metadata.image();
        let wanted: usize = wanted
            .iter()
            .filter_map(|topic| image.topics.by_name(topic))
            .map(|topic| topic.partition_count())
            .sum();
        let owned: usize = self.consumers.values().map(|it| it.owned.len()).sum();
        assert_eq!(owned, wanted, "seed {seed}");
        assert_eq!(group.num_members(), self.consumers.len(), "seed {seed}");

        let config = Arc::clone(&self.coordinator.config);
        let mut restarted = GroupCoordinator::new(config);
        let records = self.log.iter().flat_map(|write| &write.records);
        for (offset, record) in (0..).zip(records) {
            let (key, value) = record.encode().expect("it can be said");
            restarted
                .replay(
                    Offset(offset),
                    ProducerId::NONE,
                    &key,
                    value.as_ref(),
                    self.now(),
                )
                .expect("it can be read");
        }
        let read = restarted.consumer_group("g").map(|it| format!("{it:?}"));
        assert_eq!(read, Some(format!("{group:?}")), "seed {seed}");
    }
}

#[test]
fn a_partition_has_one_owner() {
    for seed in 1..=150 {
        let mut world = World::new(seed);
        for number in 0..400 {
            world.step(number);
        }
        world.settle();
        world.check(seed);
    }
}
