//! Random requests, failures and times from a seed. Every request must be answered exactly once,
//! a coordinator that loads the log must have the committed state of the one that wrote it, and
//! members that fall silent must be removed, also if their group changes its protocol.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    ConsumerGroupHeartbeatRequest, HeartbeatRequest, LeaveGroupRequest, OffsetCommitRequest,
    SyncGroupRequest,
};
use ottla_types::{ErrorCode, Offset, ProducerEpoch, ProducerId, Timestamp};

use super::{Joining, committing, joining};
use crate::group::consumer::HeartbeatContext;
use crate::group::coordinator::Group;
use crate::group::outcome::{Outcome, ReplyId, ReplyTo, Response, TimerKey, Write};
use crate::group::{GroupCoordinator, GroupCoordinatorConfig, JoinContext, Requester};
use crate::runtime::TimerQueue;
use crate::runtime::{Coordinator, EncodeRecord, TransactionEnd, TransactionalProducer, WriteKind};

const GROUPS: [&str; 2] = ["g", "h"];
/// Of a consumer: version 0, no topics, no user data.
const ASSIGNMENT: &[u8] = &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

struct World {
    coordinator: GroupCoordinator,
    timers: TimerQueue<TimerKey>,
    now_ms: i64,
    random: u64,
    next_reply: u64,
    unanswered: BTreeSet<u64>,
    /// Writes that are not committed and have not failed yet.
    outstanding: VecDeque<Write>,
    /// The records of committed writes.
    log: Vec<Write>,
    /// Member ids, with the generations that the members know.
    members: Vec<(ByteString, ByteString, i32)>,
    events: u32,
    /// Whether members of the consumer protocol convert the groups. Then there are no static
    /// members.
    converts: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let config = GroupCoordinatorConfig {
            group_max_size: 3,
            offsets_retention_ms: 120_000,
            offsets_retention_check_interval_ms: 30_000,
            ..Default::default()
        };
        let mut world = World {
            coordinator: GroupCoordinator::new(Arc::new(config)),
            timers: TimerQueue::default(),
            now_ms: 1_000_000,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            next_reply: 0,
            unanswered: BTreeSet::new(),
            outstanding: VecDeque::new(),
            log: Vec::new(),
            members: Vec::new(),
            events: 0,
            converts: false,
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

    fn ask(&mut self) -> ReplyId {
        self.next_reply += 1;
        self.unanswered.insert(self.next_reply);
        ReplyId(self.next_reply)
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
            if let Response::JoinGroup(join) = reply.response
                && !join.member_id.is_empty()
            {
                for group_id in GROUPS {
                    let member = (group_id.into(), join.member_id.clone(), join.generation_id);
                    self.members.push(member);
                }
                let excess = self.members.len().saturating_sub(12);
                self.members.drain(..excess);
            }
        }
        for write in outcome.writes {
            assert!(
                self.outstanding
                    .back()
                    .is_none_or(|last| last.id < write.id),
                "writes come in the order of their ids"
            );
            self.outstanding.push_back(write);
        }
    }

    /// A member id that may be outdated.
    fn any_member(&mut self) -> (ByteString, ByteString, i32) {
        if self.members.is_empty() {
            return ("g".into(), "nobody".into(), 0);
        }
        let index = self.below(self.members.len() as u64) as usize;
        self.members[index].clone()
    }

    fn step(&mut self) {
        self.events += 1;
        let now = Timestamp(self.now_ms);
        let is_conversion = self.converts && self.below(5) == 0;
        let outcome = match self.below(16) {
            _ if is_conversion => self.beat(),
            0 | 1 => self.join(true),
            2..=4 => self.join(false),
            5 | 6 => self.sync(),
            7 => {
                let (group_id, member_id, generation_id) = self.any_member();
                let to = self.ask();
                let request = HeartbeatRequest {
                    group_id,
                    member_id,
                    generation_id,
                    ..Default::default()
                };
                self.coordinator
                    .handle_heartbeat(ReplyTo::new(to), request, now)
            }
            8 => {
                let (group_id, member_id, _) = self.any_member();
                let to = self.ask();
                let members = vec![MemberIdentity {
                    member_id,
                    ..Default::default()
                }];
                let request = LeaveGroupRequest {
                    group_id,
                    members,
                    ..Default::default()
                };
                self.coordinator
                    .handle_leave(ReplyTo::new(to), request, now)
            }
            9 => {
                let (group_id, member_id, generation_id) = self.any_member();
                let is_simple = self.below(2) == 0;
                let mut request = committing("", -1, self.events.into());
                request.group_id = group_id;
                if !is_simple {
                    request.member_id = member_id;
                    request.generation_id_or_member_epoch = generation_id;
                }
                request.topics[0].partitions[0].partition_index = self.below(3) as i32;
                let to = self.ask();
                self.coordinator
                    .handle_offset_commit(ReplyTo::new(to), request, true, now)
            }
            10 => {
                let to = self.ask();
                let (group_id, _, _) = self.any_member();
                if self.below(2) == 0 {
                    self.coordinator
                        .handle_delete_groups(ReplyTo::new(to), &[group_id], now)
                } else {
                    let request = OffsetFetchRequestGroup {
                        group_id,
                        topics: None,
                        ..Default::default()
                    };
                    self.coordinator
                        .handle_offset_fetch(ReplyTo::new(to), &request, true)
                }
            }
            13 => self.commit_in_transaction(),
            14 => self.end_transaction(),
            11 => return self.commit(),
            12 => return self.fail_or_delay(),
            _ => return self.pass(),
        };
        self.take(outcome);
    }

    /// A member of the consumer protocol joins or leaves.
    fn beat(&mut self) -> Outcome {
        let request = ConsumerGroupHeartbeatRequest {
            group_id: GROUPS[self.below(2) as usize].into(),
            member_id: format!("m{}", self.below(3)).into(),
            member_epoch: if self.below(3) == 0 { -1 } else { 0 },
            rebalance_timeout_ms: 30_000,
            subscribed_topic_names: Some(vec!["t".into()]),
            topic_partitions: Some(Vec::new()),
            ..Default::default()
        };
        let context = HeartbeatContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
            new_member_id: "given".into(),
            requester: Requester::none(),
        };
        let to = self.ask();
        let now = Timestamp(self.now_ms);
        self.coordinator
            .handle_consumer_group_heartbeat(ReplyTo::new(to), request, context, now)
    }

    fn commit_in_transaction(&mut self) -> Outcome {
        let group_id = GROUPS[self.below(2) as usize].into();
        let producer = TransactionalProducer {
            id: ProducerId(self.below(3) as i64),
            epoch: ProducerEpoch(0),
        };
        let request = OffsetCommitRequest {
            group_id,
            topics: vec![OffsetCommitRequestTopic {
                name: "t".into(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: self.below(3) as i32,
                    committed_offset: self.events.into(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let to = self.ask();
        let now = Timestamp(self.now_ms);
        self.coordinator.handle_txn_offset_commit(
            ReplyTo::new(to),
            &request,
            producer,
            None,
            false,
            now,
        )
    }

    fn end_transaction(&mut self) -> Outcome {
        let producer = TransactionalProducer {
            id: ProducerId(self.below(3) as i64),
            epoch: ProducerEpoch(0),
        };
        let end = TransactionEnd {
            is_commit: self.below(3) > 0,
            coordinator_epoch: 0,
            transaction_version: 2,
        };
        let to = self.ask();
        self.coordinator
            .handle_transaction_end(ReplyTo::new(to), producer, end)
    }

    fn join(&mut self, is_new: bool) -> Outcome {
        let (group_id, member_id, _) = self.any_member();
        let mut joining: Joining = joining("");
        joining.request.group_id = if is_new {
            GROUPS[self.below(2) as usize].into()
        } else {
            group_id
        };
        if !is_new {
            joining.request.member_id = member_id;
        }
        joining.request.group_instance_id = match self.below(4) {
            0 if !self.converts => Some("static".into()),
            _ => None,
        };
        if self.below(4) == 0 {
            joining = joining.protocols(&[("sticky", "u"), ("range", "t")]);
        }
        let context = JoinContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
            requires_known_member_id: self.below(3) > 0,
            supports_skipping_assignment: self.below(2) == 0,
            random: [0; 16].map(|_: u8| self.below(256) as u8),
            requester: Requester::none(),
        };
        let to = self.ask();
        let now = Timestamp(self.now_ms);
        self.coordinator
            .handle_join(ReplyTo::new(to), joining.request, context, now)
    }

    fn sync(&mut self) -> Outcome {
        let (group_id, member_id, generation_id) = self.any_member();
        let assignments = vec![SyncGroupRequestAssignment {
            member_id: member_id.clone(),
            assignment: Bytes::from_static(ASSIGNMENT),
            ..Default::default()
        }];
        let to = self.ask();
        let request = SyncGroupRequest {
            group_id,
            member_id,
            generation_id,
            assignments,
            ..Default::default()
        };
        self.coordinator
            .handle_sync(ReplyTo::new(to), request, Timestamp(self.now_ms))
    }

    fn commit(&mut self) {
        if self.outstanding.is_empty() {
            return;
        }
        let count = 1 + self.below(self.outstanding.len() as u64) as usize;
        self.commit_first(count);
    }

    fn commit_first(&mut self, count: usize) {
        let last = self.outstanding[count - 1].id;
        self.log.extend(self.outstanding.drain(..count));
        let outcome = self
            .coordinator
            .on_records_committed(last, Timestamp(self.now_ms));
        self.take(outcome);
    }

    fn fail_or_delay(&mut self) {
        if self.outstanding.is_empty() {
            return;
        }
        let index = self.below(self.outstanding.len() as u64) as usize;
        let id = self.outstanding[index].id;
        let now = Timestamp(self.now_ms);
        let outcome = if self.below(2) == 0 {
            self.coordinator.on_write_timed_out(id, now)
        } else {
            self.outstanding.truncate(index);
            self.coordinator
                .on_write_failed(id, ErrorCode::KafkaStorageError, now)
        };
        self.take(outcome);
    }

    fn pass(&mut self) {
        let limit = if self.below(10) == 0 { 100_000 } else { 4_000 };
        let until = self.now_ms + self.below(limit) as i64;
        self.pass_until(until);
    }

    fn pass_until(&mut self, until: i64) {
        while let Some(deadline) = self.timers.next_deadline_ms() {
            if deadline > until as u64 {
                break;
            }
            self.now_ms = deadline as i64;
            let key = self
                .timers
                .pop_due(deadline)
                .expect("the next timer is due");
            let outcome = self.coordinator.on_timer(key, Timestamp(self.now_ms));
            self.take(outcome);
        }
        self.now_ms = until;
    }

    /// All clients are gone, and the log takes everything.
    fn fall_silent(&mut self) {
        for _ in 0..100 {
            if !self.outstanding.is_empty() {
                self.commit_first(self.outstanding.len());
            }
            self.pass_until(self.now_ms + 20_000);
        }
    }

    fn has_classic_members(&self, group_id: &str) -> bool {
        let group = self.coordinator.classic_group(group_id);
        group.is_some_and(|group| group.num_members() > 0)
    }

    /// All committed groups and offsets.
    fn committed(coordinator: &mut GroupCoordinator) -> Vec<String> {
        let mut seen = Vec::new();
        for group_id in GROUPS {
            let exists = !coordinator
                .describe_group(&group_id.into(), true)
                .group_state
                .is_empty()
                && coordinator
                    .describe_group(&group_id.into(), true)
                    .error_code
                    == 0;
            seen.push(format!("{group_id} exists: {exists}"));
            let request = OffsetFetchRequestGroup {
                group_id: group_id.into(),
                topics: None,
                ..Default::default()
            };
            let outcome =
                coordinator.handle_offset_fetch(ReplyTo::new(ReplyId(u64::MAX)), &request, false);
            let Response::OffsetFetch(fetched) = &outcome.replies[0].response else {
                panic!("an OffsetFetch is answered with offsets");
            };
            for partition in fetched.topics.iter().flat_map(|topic| &topic.partitions) {
                let (index, offset) = (partition.partition_index, partition.committed_offset);
                seen.push(format!("{group_id} {index}: {offset}"));
            }
        }
        seen
    }

    fn read_back(&self) -> GroupCoordinator {
        let config = Arc::new(GroupCoordinatorConfig::default());
        let mut coordinator = GroupCoordinator::new(config);
        let mut offset = 0;
        for write in &self.log {
            let producer_id = match write.kind {
                WriteKind::Plain => ProducerId::NONE,
                WriteKind::Transactional { producer, .. } => producer.id,
                WriteKind::EndTransaction { producer, marker } => {
                    coordinator.replay_end_transaction_marker(producer.id, marker.is_commit);
                    offset += 1;
                    continue;
                }
            };
            for record in &write.records {
                let (key, value) = record.encode().expect("a written record can be encoded");
                let now = Timestamp(self.now_ms);
                coordinator
                    .replay(Offset(offset), producer_id, &key, value.as_ref(), now)
                    .expect("a written record can be read");
                offset += 1;
            }
        }
        coordinator
    }
}

#[test]
fn every_request_is_answered_once_and_the_log_tells_all() {
    let (mut generations, mut writes) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.step();
            if !world.events.is_multiple_of(10) {
                continue;
            }
            let known = World::committed(&mut world.coordinator);
            let read = World::committed(&mut world.read_back());
            assert_eq!(known, read, "seed {seed}, event {}", world.events);
        }
        writes += world.log.len();
        generations += world
            .members
            .iter()
            .map(|(_, _, generation)| *generation)
            .max()
            .unwrap_or(0);
        let outcome = world.coordinator.on_unloaded();
        world.take(outcome);
        assert_eq!(world.unanswered, BTreeSet::new(), "seed {seed}");
    }
    // The run must include rebalances and records.
    assert!(
        generations > 200 && writes > 1_000,
        "{generations} {writes}"
    );
}

#[test]
fn silent_members_are_removed_also_after_conversions() {
    let (mut upgrades, mut restored) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.converts = true;
        for _ in 0..300 {
            let before = GROUPS.map(|group_id| world.has_classic_members(group_id));
            let had = GROUPS.map(|group_id| world.coordinator.consumer_group(group_id).is_some());
            world.step();
            for (index, group_id) in GROUPS.into_iter().enumerate() {
                let has = world.coordinator.consumer_group(group_id).is_some();
                upgrades += usize::from(before[index] && has);
                restored += usize::from(had[index] && world.has_classic_members(group_id));
            }
        }
        world.fall_silent();
        for group_id in GROUPS {
            let members = match world.coordinator.group(group_id) {
                Some(Group::Classic(group)) => group.num_members(),
                Some(Group::Consumer(group)) => group.num_members(),
                _ => 0,
            };
            assert_eq!(members, 0, "seed {seed}: {group_id}");
        }
    }
    // The run must include both directions.
    assert!(upgrades > 0 && restored > 0, "{upgrades} {restored}");
}
