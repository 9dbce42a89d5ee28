//! Transcripts: single events with their exact records, replies and timers, as text.
//!
//! [`Script`] sends requests to a coordinator and renders the results. Member ids end in random
//! numbers; a transcript shows the member with the number 3 as `c#3`.

mod consumer;
mod consumer_text;
mod errors;
mod expiry;
mod join;
mod offsets;
mod random;
mod rebalance;
mod replay;
mod share;
mod share_text;
mod static_members;
mod streams;
mod streams_text;
mod transactional_offsets;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::coordinator_records::{GroupRecordKey, GroupRecordValue};
use ottla_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use ottla_protocol::messages::leave_group_request::MemberIdentity;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use ottla_protocol::messages::{
    HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, OffsetCommitRequest, SyncGroupRequest,
};
use ottla_types::{ErrorCode, Offset, ProducerId, Timestamp, TopicId, Uuid};

use super::coordinator::Group;
use super::outcome::{
    Command, Outcome, ReplyId, ReplyTo, Response, TimerChange, TimerKey, WriteId,
};
use super::{
    ComputeTarget, CoordinatorRecord, GroupCoordinator, GroupCoordinatorConfig, JoinContext,
    Requester,
};
use crate::runtime::TimerQueue;
use crate::runtime::{Coordinator, EncodeRecord, WriteKind};

pub(super) struct Script {
    pub(super) coordinator: GroupCoordinator,
    pub(super) config: GroupCoordinatorConfig,
    pub(super) now_ms: i64,
    timers: TimerQueue<TimerKey>,
    next_reply: u64,
    next_random: u8,
    /// Whether each write is committed at once, as on a broker without followers.
    pub(super) commits_at_once: bool,
    /// Target assignments that the shell must compute.
    pub(super) computing: VecDeque<Box<ComputeTarget>>,
    written: Option<WriteId>,
    /// All written records in log order.
    pub(super) log: Vec<(Bytes, Option<Bytes>)>,
}

/// A JoinGroup, built in a readable way.
#[derive(Clone)]
pub(super) struct Joining {
    pub(super) request: JoinGroupRequest,
    pub(super) requires_known_member_id: bool,
    pub(super) supports_skipping_assignment: bool,
}

/// A consumer that joins `g` with the protocols `range` and `sticky`.
pub(super) fn joining(member_id: &str) -> Joining {
    Joining {
        request: JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            member_id: member_id.to_owned().into(),
            protocol_type: "consumer".into(),
            protocols: vec![protocol("range", "t"), protocol("sticky", "t")],
            ..Default::default()
        },
        requires_known_member_id: true,
        supports_skipping_assignment: true,
    }
}

impl Joining {
    pub(super) fn group(mut self, group_id: &'static str) -> Self {
        self.request.group_id = group_id.into();
        self
    }

    pub(super) fn instance(mut self, instance_id: &'static str) -> Self {
        self.request.group_instance_id = Some(instance_id.into());
        self
    }

    pub(super) fn protocols(mut self, protocols: &[(&'static str, &'static str)]) -> Self {
        let protocols = protocols.iter().map(|(name, topic)| protocol(name, topic));
        self.request.protocols = protocols.collect();
        self
    }

    pub(super) fn of_an_old_client(mut self) -> Self {
        self.requires_known_member_id = false;
        self.supports_skipping_assignment = false;
        self
    }
}

/// A protocol with a consumer's subscription to one topic, in version 1.
pub(super) fn protocol(name: &'static str, topic: &'static str) -> JoinGroupRequestProtocol {
    let mut subscription = vec![0, 1, 0, 0, 0, 1, 0, topic.len() as u8];
    subscription.extend(topic.as_bytes());
    subscription.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    JoinGroupRequestProtocol {
        name: name.into(),
        metadata: subscription.into(),
        ..Default::default()
    }
}

impl Script {
    pub(super) fn new() -> Self {
        Self::with_config(GroupCoordinatorConfig::default())
    }

    pub(super) fn with_config(config: GroupCoordinatorConfig) -> Self {
        Self {
            coordinator: GroupCoordinator::new(Arc::new(config.clone())),
            config,
            now_ms: 1_000_000,
            timers: TimerQueue::default(),
            next_reply: 1,
            next_random: 1,
            commits_at_once: true,
            computing: VecDeque::new(),
            written: None,
            log: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.now_ms)
    }

    fn reply_to<T>(&mut self) -> ReplyTo<T> {
        self.next_reply += 1;
        ReplyTo::new(ReplyId(self.next_reply - 1))
    }

    pub(super) fn join(&mut self, joining: Joining) -> String {
        let to = self.reply_to();
        let context = JoinContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
            requires_known_member_id: joining.requires_known_member_id,
            supports_skipping_assignment: joining.supports_skipping_assignment,
            random: [self.next_random; 16],
            requester: Requester::none(),
        };
        if joining.request.member_id.is_empty() {
            self.next_random += 1;
        }
        let now = self.now();
        let request = JoinGroupRequest {
            member_id: full(&joining.request.member_id),
            ..joining.request
        };
        let outcome = self.coordinator.handle_join(to, request, context, now);
        self.render(outcome)
    }

    /// Joins twice, as a client without a member id does.
    pub(super) fn join_new(&mut self, joining: Joining) -> String {
        let random = self.next_random;
        self.join(joining.clone());
        let member_id = format!("c#{random}");
        let request = JoinGroupRequest {
            member_id: member_id.into(),
            ..joining.request
        };
        self.join(Joining { request, ..joining })
    }

    pub(super) fn sync(
        &mut self,
        member_id: &str,
        generation_id: i32,
        assignments: &[(&str, &'static str)],
    ) -> String {
        let request = SyncGroupRequest {
            group_id: "g".into(),
            generation_id,
            member_id: full(member_id),
            protocol_type: Some("consumer".into()),
            assignments: assignments
                .iter()
                .map(|(member_id, assignment)| SyncGroupRequestAssignment {
                    member_id: full(member_id),
                    assignment: Bytes::from_static(assignment.as_bytes()),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        };
        self.sync_request(request)
    }

    pub(super) fn sync_request(&mut self, request: SyncGroupRequest) -> String {
        let to = self.reply_to();
        let now = self.now();
        let outcome = self.coordinator.handle_sync(to, request, now);
        self.render(outcome)
    }

    pub(super) fn heartbeat(&mut self, member_id: &str, generation_id: i32) -> String {
        self.heartbeat_request(HeartbeatRequest {
            group_id: "g".into(),
            generation_id,
            member_id: full(member_id),
            ..Default::default()
        })
    }

    pub(super) fn heartbeat_request(&mut self, request: HeartbeatRequest) -> String {
        let to = self.reply_to();
        let now = self.now();
        let outcome = self.coordinator.handle_heartbeat(to, request, now);
        self.render(outcome)
    }

    /// Each member is given by its id, or by `@` and its instance id.
    pub(super) fn leave(&mut self, members: &[&str]) -> String {
        let members = members.iter().map(|member| match member.strip_prefix('@') {
            Some(instance_id) => MemberIdentity {
                group_instance_id: Some(instance_id.to_owned().into()),
                ..Default::default()
            },
            None => MemberIdentity {
                member_id: full(member),
                ..Default::default()
            },
        });
        let request = LeaveGroupRequest {
            group_id: "g".into(),
            members: members.collect(),
            ..Default::default()
        };
        self.leave_request(request)
    }

    pub(super) fn leave_request(&mut self, request: LeaveGroupRequest) -> String {
        let to = self.reply_to();
        let now = self.now();
        let outcome = self.coordinator.handle_leave(to, request, now);
        self.render(outcome)
    }

    pub(super) fn commit_offset(&mut self, request: OffsetCommitRequest) -> String {
        let to = self.reply_to();
        let now = self.now();
        let outcome = self
            .coordinator
            .handle_offset_commit(to, request, true, now);
        self.render(outcome)
    }

    pub(super) fn fetch_offset(&mut self, request: &OffsetFetchRequestGroup) -> String {
        let to = self.reply_to();
        let outcome = self.coordinator.handle_offset_fetch(to, request, false);
        self.render(outcome)
    }

    pub(super) fn fetch_stable_offset(&mut self, request: &OffsetFetchRequestGroup) -> String {
        let to = self.reply_to();
        let outcome = self.coordinator.handle_offset_fetch(to, request, true);
        self.render(outcome)
    }

    pub(super) fn delete_groups(&mut self, group_ids: &[&'static str]) -> String {
        let to = self.reply_to();
        let now = self.now();
        let group_ids: Vec<ByteString> = group_ids.iter().map(|id| ByteString::from(*id)).collect();
        let outcome = self.coordinator.handle_delete_groups(to, &group_ids, now);
        self.render(outcome)
    }

    /// A reply id for a request that the script has no method for; see [`Script::render`].
    pub(super) fn next_reply_to<T>(&mut self) -> ReplyTo<T> {
        self.reply_to()
    }

    /// Commits all writes so far.
    pub(super) fn commit(&mut self) -> String {
        let write = self.written.take().expect("something was written");
        let now = self.now();
        let outcome = self.coordinator.on_records_committed(write, now);
        self.render(outcome)
    }

    /// Fails the oldest uncommitted write.
    pub(super) fn fail(&mut self, write: u64, error: ErrorCode) -> String {
        let now = self.now();
        self.written = None;
        let outcome = self.coordinator.on_write_failed(WriteId(write), error, now);
        self.render(outcome)
    }

    /// Advances the time, and fires the timers that are due.
    pub(super) fn pass(&mut self, ms: i64) -> String {
        let until = self.now_ms + ms;
        let mut text = String::new();
        while let Some(deadline) = self.timers.next_deadline_ms() {
            if deadline > until as u64 {
                break;
            }
            self.now_ms = deadline as i64;
            let key = self
                .timers
                .pop_due(deadline)
                .expect("the next timer is due");
            let outcome = self.coordinator.on_timer(key, self.now());
            text += &self.render(outcome);
        }
        self.now_ms = until;
        text
    }

    /// Lets time pass until the next timer, and fires it alone.
    pub(super) fn fire_next_timer(&mut self) -> String {
        let deadline = self.timers.next_deadline_ms().expect("a timer");
        self.now_ms = deadline as i64;
        let key = self.timers.pop_due(deadline).expect("it is due");
        let outcome = self.coordinator.on_timer(key, self.now());
        self.render(outcome)
    }

    /// Two members, the leader `c#1` and `c#2`, in generation 1, stable.
    pub(super) fn stable_group_of_two() -> Self {
        let mut script = Script::new();
        script.join_new(joining(""));
        script.join_new(joining(""));
        script.pass(6_000);
        script.sync("c#2", 1, &[]);
        script.sync("c#1", 1, &[("c#1", "t-0"), ("c#2", "t-1")]);
        assert_eq!(script.state("g"), "Stable");
        script
    }

    pub(super) fn state(&self, group_id: &str) -> &'static str {
        self.coordinator
            .group(group_id)
            .map_or("-", |group| match group {
                Group::Classic(group) => group.state().name(),
                Group::Consumer(group) => group.state().name(),
                Group::Share(group) => group.state_name(),
                Group::Streams(group) => group.state().name(),
            })
    }

    pub(super) fn render(&mut self, outcome: Outcome) -> String {
        let mut text = String::new();
        for change in outcome.timers {
            writeln!(text, "{}", describe_timer(&change)).unwrap();
            self.timers.apply(change, self.now_ms as u64);
        }
        for reply in outcome.replies {
            writeln!(
                text,
                "reply {}: {}",
                reply.to.0,
                describe_reply(&reply.response)
            )
            .unwrap();
        }
        for command in &outcome.commands {
            if let Command::InitializeShareState(command) = command {
                writeln!(text, "{}", share_text::initialize(command)).unwrap();
            }
        }
        for write in outcome.writes {
            let kind = describe_kind(&write.kind);
            if write.records.is_empty() {
                writeln!(text, "write {}{kind}", write.id.0).unwrap();
            }
            for record in &write.records {
                writeln!(
                    text,
                    "write {}{kind}: {}",
                    write.id.0,
                    describe_record(record)
                )
                .unwrap();
                self.log
                    .push(record.encode().expect("a written record can be encoded"));
            }
            self.written = Some(write.id);
        }
        text = short(&text);
        if self.commits_at_once && self.written.is_some() {
            text += &self.commit();
        }
        text
    }

    /// A new coordinator that has loaded the log of this one.
    pub(super) fn restart(&self) -> (Script, String) {
        let mut script = Script::with_config(self.config.clone());
        script.now_ms = self.now_ms;
        script.next_random = self.next_random;
        for (offset, (key, value)) in (0..).zip(&self.log) {
            let now = script.now();
            script
                .coordinator
                .replay(Offset(offset), ProducerId::NONE, key, value.as_ref(), now)
                .expect("a written record can be read");
        }
        script.log = self.log.clone();
        let outcome = script.coordinator.on_loaded(script.now());
        let text = script.render(outcome);
        (script, text)
    }
}

/// Compares a transcript. The indentation of the expected lines is ignored.
#[track_caller]
pub(super) fn check(actual: String, expected: &str) {
    let expected: Vec<&str> = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(actual.lines().collect::<Vec<_>>(), expected, "\n{actual}");
}

pub(super) const TOPIC_ID: TopicId = Uuid::from_u128(0x7);

/// A commit of `offset` for partition 0 of `t`.
pub(super) fn committing(member_id: &str, generation_id: i32, offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: generation_id,
        member_id: full(member_id),
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            topic_id: TOPIC_ID,
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: 0,
                committed_offset: offset,
                committed_leader_epoch: 5,
                committed_metadata: Some("m".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The offsets of partitions 0 and 1 of `t`.
pub(super) fn fetching() -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup {
        group_id: "g".into(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: "t".into(),
            topic_id: TOPIC_ID,
            partition_indexes: vec![0, 1],
            ..Default::default()
        }]),
        ..Default::default()
    }
}

/// The full member id that a transcript shows as `c#3`.
pub(super) fn full(name: &str) -> ByteString {
    match name.split_once('#') {
        Some((prefix, number)) => {
            let number: u8 = number.parse().expect("a number follows #");
            format!("{prefix}-{}", uuid_of(number)).into()
        }
        None => name.to_owned().into(),
    }
}

fn short(text: &str) -> String {
    (1..=20).fold(text.to_owned(), |text, number| {
        text.replace(&format!("-{}", uuid_of(number)), &format!("#{number}"))
    })
}

/// A version 4 UUID of 16 equal bytes.
fn uuid_of(number: u8) -> String {
    let byte = format!("{number:02x}");
    let version = format!("4{}", &byte[1..]);
    let variant = format!("{:02x}", (number & 0x3f) | 0x80);
    let b = &byte;
    format!("{b}{b}{b}{b}-{b}{b}-{version}{b}-{variant}{b}-{b}{b}{b}{b}{b}{b}")
}

fn describe_timer(change: &TimerChange) -> String {
    let name = |key: &TimerKey| match key {
        TimerKey::Session {
            group_id,
            member_id,
        } => format!("session {group_id}/{member_id}"),
        TimerKey::InitialRebalance { group_id } => format!("initial rebalance {group_id}"),
        TimerKey::Join { group_id } => format!("join {group_id}"),
        TimerKey::Sync { group_id } => format!("sync {group_id}"),
        TimerKey::Revocation {
            group_id,
            member_id,
            member_epoch,
        } => format!("revocation {group_id}/{member_id}@{member_epoch}"),
        TimerKey::Rejoin {
            group_id,
            member_id,
        } => format!("rejoin {group_id}/{member_id}"),
        TimerKey::MemberSync {
            group_id,
            member_id,
        } => format!("member sync {group_id}/{member_id}"),
        TimerKey::Expiration => "expiration".to_owned(),
    };
    match change {
        TimerChange::Set { key, after_ms } => format!("timer {} in {after_ms}", name(key)),
        TimerChange::SetIfAbsent { key, after_ms } => {
            format!("timer {} in {after_ms} if absent", name(key))
        }
        TimerChange::Cancel { key } => format!("cancel {}", name(key)),
    }
}

fn describe_kind(kind: &WriteKind) -> String {
    match kind {
        WriteKind::Plain => String::new(),
        WriteKind::Transactional { producer, guard } => {
            format!(" of {}:{} guard {guard:?}", producer.id, producer.epoch)
        }
        WriteKind::EndTransaction { producer, marker } => {
            let result = if marker.is_commit { "commit" } else { "abort" };
            let version = marker.transaction_version;
            format!(" {result} {}:{} v{version}", producer.id, producer.epoch)
        }
    }
}

fn describe_reply(response: &Response) -> String {
    let error = |code: i16| ErrorCode::from_code(code).name();
    match response {
        Response::JoinGroup(join) if join.error_code != 0 => {
            format!("join {} member={}", error(join.error_code), join.member_id)
        }
        Response::JoinGroup(join) => {
            let members: Vec<&str> = join
                .members
                .iter()
                .map(|member| &*member.member_id)
                .collect();
            format!(
                "join generation={} protocol={} leader={} member={} members=[{}]{}",
                join.generation_id,
                join.protocol_name.as_deref().unwrap_or("-"),
                join.leader,
                join.member_id,
                members.join(", "),
                if join.skip_assignment { " skip" } else { "" },
            )
        }
        Response::SyncGroup(sync) if sync.error_code != 0 => {
            format!("sync {}", error(sync.error_code))
        }
        Response::SyncGroup(sync) => format!(
            "sync protocol={} assignment={}",
            sync.protocol_name.as_deref().unwrap_or("-"),
            text(&sync.assignment)
        ),
        Response::Heartbeat(heartbeat) => format!("heartbeat {}", error(heartbeat.error_code)),
        Response::ConsumerGroupHeartbeat(heartbeat) => consumer_text::heartbeat(heartbeat),
        Response::ShareGroupHeartbeat(heartbeat) => share_text::heartbeat(heartbeat),
        Response::StreamsGroupHeartbeat(heartbeat) => {
            streams_text::heartbeat(&heartbeat.response, &heartbeat.topics_to_create)
        }
        Response::LeaveGroup(leave) => {
            let members = leave.members.iter().map(|member| {
                let instance_id = member.group_instance_id.as_deref().unwrap_or("");
                format!(
                    " {}{instance_id}={}",
                    member.member_id,
                    error(member.error_code)
                )
            });
            format!(
                "leave {}{}",
                error(leave.error_code),
                members.collect::<String>()
            )
        }
        Response::OffsetCommit(commit) => {
            let partitions = commit.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    let error = error(partition.error_code);
                    format!(" {}-{}={error}", topic.name, partition.partition_index)
                })
            });
            format!("commit{}", partitions.collect::<String>())
        }
        Response::TransactionEnd(error) => format!("transaction end {}", error.name()),
        Response::OffsetFetch(fetch) => {
            let partitions = fetch.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    let value = if partition.error_code != 0 {
                        error(partition.error_code).to_owned()
                    } else {
                        let metadata = partition.metadata.as_deref().unwrap_or("-");
                        let epoch = partition.committed_leader_epoch;
                        format!("{}@{epoch}'{metadata}'", partition.committed_offset)
                    };
                    format!(" {}-{}={value}", topic.name, partition.partition_index)
                })
            });
            format!(
                "fetch {}{}",
                error(fetch.error_code),
                partitions.collect::<String>()
            )
        }
        Response::OffsetDelete(delete) => {
            let partitions = delete.topics.iter().flat_map(|topic| {
                topic.partitions.iter().map(|partition| {
                    let error = error(partition.error_code);
                    format!(" {}-{}={error}", topic.name, partition.partition_index)
                })
            });
            format!(
                "delete {}{}",
                error(delete.error_code),
                partitions.collect::<String>()
            )
        }
        Response::DeleteGroups(results) => {
            let results = results
                .iter()
                .map(|result| format!(" {}={}", result.group_id, error(result.error_code)));
            format!("delete groups{}", results.collect::<String>())
        }
        Response::AlterShareGroupOffsets(altered) => {
            share_text::alter_offsets(&altered.response, &altered.initialize)
        }
        Response::DeleteShareGroupOffsets(deleted) => {
            share_text::delete_offsets(&deleted.response, &deleted.delete)
        }
        Response::DeleteShareGroups(groups) => share_text::delete_groups(groups),
    }
}

fn describe_record(record: &CoordinatorRecord) -> String {
    match (&record.key, &record.value) {
        (GroupRecordKey::GroupMetadata(key), Some(GroupRecordValue::GroupMetadata(value))) => {
            let members = value.members.iter().map(|member| {
                let instance_id = match &member.group_instance_id {
                    Some(instance_id) => format!("({instance_id})"),
                    None => String::new(),
                };
                let assignment = text(&member.assignment);
                format!(" {}{instance_id}={assignment}", member.member_id)
            });
            format!(
                "group {} type={} generation={} protocol={} leader={}{}",
                key.group,
                value.protocol_type,
                value.generation,
                value.protocol.as_deref().unwrap_or("-"),
                value.leader.as_deref().unwrap_or("-"),
                members.collect::<String>()
            )
        }
        (GroupRecordKey::GroupMetadata(key), None) => format!("group {} tombstone", key.group),
        (GroupRecordKey::OffsetCommit(key), Some(GroupRecordValue::OffsetCommit(value))) => {
            format!(
                "offset {} {}-{} {}@{}'{}'",
                key.group,
                key.topic,
                key.partition,
                value.offset,
                value.leader_epoch,
                value.metadata
            )
        }
        (GroupRecordKey::OffsetCommit(key), None) => {
            format!(
                "offset {} {}-{} tombstone",
                key.group, key.topic, key.partition
            )
        }
        (key, value) => share_text::record(key, value.as_ref())
            .or_else(|| streams_text::record(key, value.as_ref()))
            .unwrap_or_else(|| consumer_text::record(key, value.as_ref())),
    }
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
