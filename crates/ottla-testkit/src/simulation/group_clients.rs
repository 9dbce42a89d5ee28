//! Clients that share the work of a group: movers (`movers`), readers that read what movers wrote, `read_committed`, and commit
//! how far they are, and the members of a share group (`sharers`).
//!
//! A client has one request of a kind under way: for metadata, a heartbeat, and one for its work. When one is not answered, it
//! opens new connections.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_coordinator::{LogEntry, partition_for};
use ottla_protocol::messages::OffsetCommitRequest;
use ottla_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_records::RecordBatch;
use ottla_types::{BrokerId, Offset, ProducerId, TopicIdPartition};

use super::checkers::Checkers;
use super::clients::Asked;
use super::coordinator_shell::{OFFSETS_TOPIC, TRANSACTION_TOPIC, for_each_entry};
use super::membership::{Heard, Member};
use super::message::{
    ClientRequest, ClientResponse, CommittedFetch, LedPartition, ShareAcknowledge, ShareFetch,
};
use super::movers::Mover;
use super::random::Random;
use super::sharers::Sharer;

/// What movers read, and what they write.
pub(crate) const INPUT_TOPIC: &str = "t";
pub(crate) const OUTPUT_TOPIC: &str = "out";
pub(crate) const MOVERS: &str = "movers";
pub(crate) const READERS: &str = "readers";
pub(crate) const SHARERS: &str = "sharers";

const REQUEST_TIMEOUT_MS: u64 = 1_500;
const RETRY_BACKOFF_MS: u64 = 100;

pub(crate) struct GroupClient {
    id: i32,
    brokers: Vec<i32>,
    cluster: Option<Vec<LedPartition>>,
    pub connection: u64,
    next_correlation_id: u64,
    /// What is under way, and since when.
    metadata: Option<(u64, u64)>,
    heartbeat: Option<(u64, u64)>,
    work: Option<(u64, u64)>,
    /// In which epoch of the group that was asked for.
    work_epoch: i32,
    not_before_ms: u64,
    /// How often it was started.
    instance: u32,
    pub is_stopped: bool,
    pub member: Member,
    pub role: Role,
}

pub(crate) enum Role {
    Mover(Mover),
    Reader(Reader),
    Sharer(Sharer),
}

#[derive(Default)]
pub(crate) struct Reader {
    /// How far it has committed.
    committed: BTreeMap<i32, Offset>,
    /// What it asks about, and the offset that it commits.
    source: i32,
    committing: Offset,
}

/// What a client does about an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Then {
    Go,
    /// It tries again a moment later.
    Wait,
    /// It looks for whoever leads, and tries again.
    Trouble,
    /// The group goes on without it: it joins as somebody else.
    Rejoin,
    /// This instance is at its end.
    Restart,
}

impl Then {
    pub(crate) fn of(heard: Heard) -> Then {
        match heard {
            Heard::Fine => Then::Go,
            Heard::Trouble => Then::Trouble,
            Heard::Fenced => Then::Rejoin,
        }
    }
}

impl GroupClient {
    pub(crate) fn new(id: i32, brokers: Vec<i32>, role: Role) -> GroupClient {
        let (group, topic) = match &role {
            Role::Mover(_) => (MOVERS, INPUT_TOPIC),
            Role::Reader(_) => (READERS, OUTPUT_TOPIC),
            Role::Sharer(_) => (SHARERS, INPUT_TOPIC),
        };
        let (group, topic) = (ByteString::from(group), ByteString::from(topic));
        GroupClient {
            id,
            brokers,
            cluster: None,
            connection: 0,
            next_correlation_id: 0,
            metadata: None,
            heartbeat: None,
            work: None,
            work_epoch: 0,
            not_before_ms: 0,
            instance: 0,
            is_stopped: false,
            member: Member::new(&group, &topic, format!("{id}-0")),
            role,
        }
    }

    /// The process ends, and another is started in its place.
    pub(crate) fn restart(&mut self, at_ms: u64) {
        self.join_anew();
        match &mut self.role {
            Role::Mover(mover) => mover.restart(),
            Role::Reader(reader) => *reader = Reader::default(),
            Role::Sharer(_) => {}
        }
        self.open_new_connections();
        self.not_before_ms = at_ms;
    }

    /// Joins as a member that nobody has heard of.
    fn join_anew(&mut self) {
        self.instance += 1;
        let id = format!("{}-{}", self.id, self.instance);
        if let Role::Sharer(sharer) = &mut self.role {
            sharer.leave(&self.member);
        }
        self.member = Member::new(&self.member.group_id, &self.member.topic, id);
        self.heartbeat = None;
        // Answers to the former member are of no use to this one.
        self.work = None;
        match &mut self.role {
            Role::Mover(mover) => mover.give_up(),
            Role::Reader(reader) => *reader = Reader::default(),
            Role::Sharer(_) => {}
        }
    }

    fn open_new_connections(&mut self) {
        self.cluster = None;
        self.connection += 1;
        self.metadata = None;
        self.heartbeat = None;
    }

    /// Whether it has done all that there is to do, as far as it knows.
    pub(crate) fn is_done(&self) -> bool {
        let is_idle = match &self.role {
            Role::Mover(mover) => mover.is_idle(),
            Role::Reader(_) => true,
            Role::Sharer(sharer) => sharer.is_idle(),
        };
        self.is_stopped || is_idle && self.member.is_settled()
    }

    /// What is due.
    pub(crate) fn tick(&mut self, now_ms: u64, random: &mut Random) -> Vec<Asked> {
        if self.is_stopped || now_ms < self.not_before_ms {
            return Vec::new();
        }
        let is_late = |it: &(u64, u64)| now_ms >= it.1 + REQUEST_TIMEOUT_MS;
        let under_way = [self.metadata, self.heartbeat, self.work];
        if under_way.iter().flatten().any(is_late) {
            self.open_new_connections();
            self.work = None;
        }
        let Some(cluster) = self.cluster.clone() else {
            let broker = random
                .pick(&self.brokers)
                .filter(|_| self.metadata.is_none());
            let asked = broker.map(|broker| self.ask(broker, ClientRequest::Metadata));
            if let Some(asked) = &asked {
                self.metadata = Some((asked.correlation_id, now_ms));
            }
            return asked.into_iter().collect();
        };
        let mut asked = Vec::new();
        let is_topic = |led: &&LedPartition| *led.topic == *self.member.topic;
        let topic_id = cluster
            .iter()
            .find(is_topic)
            .map(|led| led.partition.topic_id);
        let Some(topic_id) = topic_id else {
            // It is not created yet.
            self.cluster = None;
            self.not_before_ms = now_ms + RETRY_BACKOFF_MS;
            return asked;
        };
        if self.heartbeat.is_none() && now_ms >= self.member.next_heartbeat_ms {
            let request = match &self.role {
                Role::Sharer(_) => ClientRequest::ShareHeartbeat(self.member.share_heartbeat()),
                _ => ClientRequest::GroupHeartbeat(self.member.heartbeat(topic_id)),
            };
            self.heartbeat = self.send(request, &cluster, now_ms, &mut asked);
        }
        if let Role::Sharer(sharer) = &mut self.role
            && let Some((member_id, partitions)) = sharer.former.take()
        {
            self.say_goodbye(&member_id, &partitions, &cluster, &mut asked);
        }
        if self.work.is_none() && self.member.epoch > 0 {
            let key_of = |partition: i32| {
                let of_topic = |led: &&LedPartition| {
                    *led.topic == *self.member.topic && led.partition.partition.0 == partition
                };
                Some(cluster.iter().find(of_topic)?.partition)
            };
            let request = match &mut self.role {
                Role::Mover(mover) => mover.next_request(&self.member, key_of, random),
                Role::Reader(reader) => reader.next_request(&self.member, key_of, random),
                Role::Sharer(sharer) => sharer.next_request(&self.member, key_of, random),
            };
            if let Some(request) = request {
                self.work_epoch = self.member.epoch;
                self.work = self.send(request, &cluster, now_ms, &mut asked);
            }
        }
        asked
    }

    /// Brokers find that the connections of a former member are closed. Nobody waits for an answer.
    fn say_goodbye(
        &mut self,
        member_id: &ByteString,
        partitions: &BTreeSet<i32>,
        cluster: &[LedPartition],
        asked: &mut Vec<Asked>,
    ) {
        let of_topic = cluster
            .iter()
            .filter(|led| *led.topic == *self.member.topic);
        let had = of_topic.filter(|led| partitions.contains(&led.partition.partition.0));
        let leaders: BTreeSet<i32> = had.map(|led| led.leader.value()).collect();
        for leader in leaders.into_iter().filter(|leader| *leader >= 0) {
            let request = ClientRequest::ShareMemberGone {
                group_id: self.member.group_id.clone(),
                member_id: member_id.clone(),
            };
            asked.push(self.ask(leader, request));
        }
    }

    /// Sends a request to whoever leads the partition that it goes to.
    fn send(
        &mut self,
        request: ClientRequest,
        cluster: &[LedPartition],
        now_ms: u64,
        asked: &mut Vec<Asked>,
    ) -> Option<(u64, u64)> {
        let coordinator = |topic: &str, id: &str| {
            let count = cluster.iter().filter(|led| *led.topic == *topic).count();
            let index = partition_for(id, (count as i32).max(1));
            let is_it =
                |led: &&LedPartition| *led.topic == *topic && led.partition.partition.0 == index;
            cluster.iter().find(is_it)
        };
        let led = match &request {
            ClientRequest::Produce { partition, .. }
            | ClientRequest::FetchCommitted { partition, .. }
            | ClientRequest::ShareFetch(ShareFetch { partition, .. })
            | ClientRequest::ShareAcknowledge(ShareAcknowledge { partition, .. }) => {
                cluster.iter().find(|led| led.partition == *partition)
            }
            ClientRequest::InitTransactions {
                transactional_id, ..
            } => coordinator(TRANSACTION_TOPIC, transactional_id),
            ClientRequest::EndTransaction(request) => {
                coordinator(TRANSACTION_TOPIC, &request.transactional_id)
            }
            _ => coordinator(OFFSETS_TOPIC, &self.member.group_id),
        };
        let leader = led.map(|led| led.leader);
        let Some(leader) = leader.filter(|leader| *leader != BrokerId::NONE) else {
            self.cluster = None;
            self.not_before_ms = now_ms + RETRY_BACKOFF_MS;
            return None;
        };
        let sent = self.ask(leader.value(), request);
        let under_way = (sent.correlation_id, now_ms);
        asked.push(sent);
        Some(under_way)
    }

    fn ask(&mut self, to: i32, request: ClientRequest) -> Asked {
        self.next_correlation_id += 1;
        Asked {
            to,
            connection: self.connection,
            correlation_id: self.next_correlation_id,
            request,
        }
    }

    /// A broker answered.
    pub(crate) fn receive(
        &mut self,
        correlation_id: u64,
        response: ClientResponse,
        now_ms: u64,
        random: &mut Random,
        checkers: &mut Checkers,
    ) {
        let is_of = |it: Option<(u64, u64)>| it.is_some_and(|it| it.0 == correlation_id);
        let then = if is_of(self.metadata) {
            self.metadata = None;
            match response {
                ClientResponse::Metadata(partitions) => {
                    self.cluster = Some(partitions);
                    Then::Go
                }
                _ => Then::Trouble,
            }
        } else if is_of(self.heartbeat) {
            self.heartbeat = None;
            let busy = match &self.role {
                Role::Mover(mover) => mover.busy(),
                Role::Reader(_) | Role::Sharer(_) => None,
            };
            match response {
                ClientResponse::ShareHeard(response) => {
                    Then::of(self.member.on_share_heartbeat(&response, now_ms))
                }
                ClientResponse::Heard(response) => {
                    Then::of(self.member.on_heartbeat(&response, busy, now_ms))
                }
                _ => Then::Trouble,
            }
        } else if is_of(self.work) {
            self.work = None;
            let partitions_of = |topic: &str| -> Vec<TopicIdPartition> {
                let cluster = self.cluster.iter().flatten();
                let of_topic = cluster.filter(|led| *led.topic == *topic);
                of_topic.map(|led| led.partition).collect()
            };
            let (inputs, outputs) = (partitions_of(INPUT_TOPIC), partitions_of(OUTPUT_TOPIC));
            let is_of_before = self.work_epoch != self.member.epoch;
            let member = &mut self.member;
            match &mut self.role {
                // The partition may have been somebody else's meanwhile.
                _ if is_of_before && matches!(response, ClientResponse::OffsetsFetched(_)) => {
                    Then::Wait
                }
                Role::Mover(mover) => {
                    let topics = (&inputs[..], &outputs[..]);
                    mover.receive(response, member, topics, now_ms, random, checkers)
                }
                Role::Reader(reader) => {
                    reader.receive(self.id, response, member, &outputs, checkers)
                }
                Role::Sharer(sharer) => sharer.receive(response),
            }
        } else {
            return;
        };
        match then {
            Then::Go => {}
            Then::Wait => self.not_before_ms = now_ms + 20,
            Then::Trouble => {
                self.cluster = None;
                self.not_before_ms = now_ms + RETRY_BACKOFF_MS;
            }
            Then::Rejoin => self.join_anew(),
            Then::Restart => self.restart(now_ms + 300 + random.below(2_000)),
        }
    }
}

impl Reader {
    fn next_request(
        &mut self,
        member: &Member,
        key_of: impl Fn(i32) -> Option<TopicIdPartition>,
        random: &mut Random,
    ) -> Option<ClientRequest> {
        let sources: Vec<i32> = member.positions.keys().copied().collect();
        self.source = random.pick(&sources)?;
        let Some(position) = member.positions[&self.source] else {
            return Some(ClientRequest::FetchOffsets(
                member.fetch_offset(self.source),
            ));
        };
        let committed = self.committed.get(&self.source);
        if committed.is_none_or(|committed| *committed < position) && random.per_mille(300) {
            self.committing = position;
            return Some(ClientRequest::CommitOffsets(OffsetCommitRequest {
                group_id: member.group_id.clone(),
                generation_id_or_member_epoch: member.epoch,
                member_id: member.id.clone(),
                topics: vec![OffsetCommitRequestTopic {
                    name: member.topic.clone(),
                    partitions: vec![OffsetCommitRequestPartition {
                        partition_index: self.source,
                        committed_offset: position.0,
                        committed_leader_epoch: -1,
                        ..Default::default()
                    }],
                    ..Default::default()
                }],
                ..Default::default()
            }));
        }
        Some(ClientRequest::FetchCommitted {
            partition: key_of(self.source)?,
            offset: position,
        })
    }

    fn receive(
        &mut self,
        id: i32,
        response: ClientResponse,
        member: &mut Member,
        outputs: &[TopicIdPartition],
        checkers: &mut Checkers,
    ) -> Then {
        match response {
            ClientResponse::OffsetsFetched(response) => match member.on_offset(&response) {
                (Heard::Fine, None) => Then::Wait,
                (heard, _) => Then::of(heard),
            },
            ClientResponse::OffsetsCommitted(error) => {
                let heard = super::membership::heard(error);
                if heard == Heard::Fine && member.positions.contains_key(&self.source) {
                    self.committed.insert(self.source, self.committing);
                }
                Then::of(heard)
            }
            ClientResponse::FetchedCommitted(Ok(fetched)) => {
                let key = outputs.iter().find(|it| it.partition.0 == self.source);
                let at = member.positions.get(&self.source).copied().flatten();
                let last = fetched.batches.last().map(|last| last.header.next_offset());
                let (Some(key), Some(at), Some(next)) = (key, at, last) else {
                    return Then::Wait;
                };
                // It may have been given the partition anew meanwhile.
                if fetched.batches[0].header.base_offset != at {
                    return Then::Wait;
                }
                checkers.on_read_committed(id, *key, at, next, &delivered(&fetched));
                member.positions.insert(self.source, Some(next));
                Then::Go
            }
            _ => Then::Trouble,
        }
    }
}

/// What of a fetch a `read_committed` consumer hands on: neither markers nor what was aborted. Kafka: `CompletedFetch`.
pub(crate) fn delivered(fetched: &CommittedFetch) -> Vec<RecordBatch> {
    let mut aborted = fetched.aborted.clone();
    aborted.sort_by_key(|(_, first)| std::cmp::Reverse(*first));
    let mut open: BTreeSet<ProducerId> = BTreeSet::new();
    let mut delivered = Vec::new();
    for batch in &fetched.batches {
        let header = &batch.header;
        while let Some((producer_id, _)) =
            aborted.pop_if(|(_, first)| *first < header.next_offset())
        {
            open.insert(producer_id);
        }
        if header.is_control() {
            for_each_entry(batch, |entry| {
                if let LogEntry::EndTransaction {
                    producer_id,
                    is_commit: false,
                } = entry
                {
                    open.remove(&producer_id);
                }
            });
        } else if !header.is_transactional() || !open.contains(&header.producer_id) {
            delivered.push(batch.clone());
        }
    }
    delivered
}
