//! A member of a consumer group (KIP-848), as a client keeps it: what it has of the group's partitions, and up to where it is in
//! each. Of a share group (KIP-932) too, whose members have no positions.
//!
//! Kafka: `ConsumerHeartbeatRequestManager`, `ConsumerMembershipManager`, without the callbacks.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;
use ottla_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use ottla_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse, consumer_group_heartbeat_request,
};
use ottla_types::{ErrorCode, Offset, TopicId};

const HEARTBEAT_INTERVAL_MS: u64 = 400;

pub(crate) struct Member {
    pub group_id: ByteString,
    /// The one topic that it reads.
    pub topic: ByteString,
    pub id: ByteString,
    /// 0 before it has joined.
    pub epoch: i32,
    /// What the coordinator says it is to have.
    target: BTreeSet<i32>,
    /// What it has, and where it goes on in each: not known before it has asked.
    pub positions: BTreeMap<i32, Option<Offset>>,
    pub next_heartbeat_ms: u64,
}

/// What is to be done about what a coordinator of groups said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Fine,
    /// The coordinator is elsewhere, or not there yet.
    Trouble,
    /// The group goes on without this member, which has lost its partitions.
    Fenced,
}

impl Member {
    pub(crate) fn new(group_id: &ByteString, topic: &ByteString, id: String) -> Member {
        Member {
            group_id: group_id.clone(),
            topic: topic.clone(),
            id: id.into(),
            epoch: 0,
            target: BTreeSet::new(),
            positions: BTreeMap::new(),
            next_heartbeat_ms: 0,
        }
    }

    /// Says everything each time, so that an answer that was lost does no harm.
    pub(crate) fn heartbeat(&self, topic_id: TopicId) -> ConsumerGroupHeartbeatRequest {
        let owned = consumer_group_heartbeat_request::TopicPartitions {
            topic_id,
            partitions: self.positions.keys().copied().collect(),
            ..Default::default()
        };
        ConsumerGroupHeartbeatRequest {
            group_id: self.group_id.clone(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: 3_000,
            subscribed_topic_names: Some(vec![self.topic.clone()]),
            topic_partitions: Some(match self.positions.is_empty() {
                true => Vec::new(),
                false => vec![owned],
            }),
            ..Default::default()
        }
    }

    /// `busy` is a partition that it cannot give up yet.
    pub(crate) fn on_heartbeat(
        &mut self,
        response: &ConsumerGroupHeartbeatResponse,
        busy: Option<i32>,
        now_ms: u64,
    ) -> Heard {
        self.next_heartbeat_ms = now_ms + HEARTBEAT_INTERVAL_MS;
        match heard(ErrorCode::from_code(response.error_code)) {
            Heard::Fine => {}
            other => return other,
        }
        self.epoch = response.member_epoch;
        if let Some(assignment) = &response.assignment {
            let topics = assignment.topic_partitions.iter();
            let partitions = topics.flat_map(|topic| topic.partitions.iter().copied());
            self.target = partitions.collect();
            for partition in &self.target {
                self.positions.entry(*partition).or_default();
            }
        }
        self.give_up(busy, now_ms);
        Heard::Fine
    }

    /// The same in a share group.
    pub(crate) fn share_heartbeat(&self) -> ShareGroupHeartbeatRequest {
        ShareGroupHeartbeatRequest {
            group_id: self.group_id.clone(),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            subscribed_topic_names: Some(vec![self.topic.clone()]),
            ..Default::default()
        }
    }

    /// The same in a share group, where nobody waits for anybody to give up what it has.
    pub(crate) fn on_share_heartbeat(
        &mut self,
        response: &ShareGroupHeartbeatResponse,
        now_ms: u64,
    ) -> Heard {
        self.next_heartbeat_ms = now_ms + HEARTBEAT_INTERVAL_MS;
        match heard(ErrorCode::from_code(response.error_code)) {
            Heard::Fine => {}
            other => return other,
        }
        self.epoch = response.member_epoch;
        if let Some(assignment) = &response.assignment {
            let topics = assignment.topic_partitions.iter();
            let partitions = topics.flat_map(|topic| topic.partitions.iter().copied());
            self.target = partitions.collect();
            self.positions = self.target.iter().map(|it| (*it, None)).collect();
        }
        Heard::Fine
    }

    /// Gives up what it is not to have any more, and says so soon.
    pub(crate) fn give_up(&mut self, busy: Option<i32>, now_ms: u64) {
        let before = self.positions.len();
        let target = &self.target;
        self.positions
            .retain(|partition, _| target.contains(partition) || Some(*partition) == busy);
        if self.positions.len() < before {
            self.next_heartbeat_ms = now_ms;
        }
    }

    pub(crate) fn fetch_offset(&self, partition: i32) -> OffsetFetchRequestGroup {
        OffsetFetchRequestGroup {
            group_id: self.group_id.clone(),
            member_id: Some(self.id.clone()),
            member_epoch: self.epoch,
            topics: Some(vec![OffsetFetchRequestTopics {
                name: self.topic.clone(),
                partition_indexes: vec![partition],
                ..Default::default()
            }]),
            ..Default::default()
        }
    }

    /// Where it goes on, if it was told that. A transaction that is about to move the offset has to end first.
    pub(crate) fn on_offset(
        &mut self,
        response: &OffsetFetchResponseGroup,
    ) -> (Heard, Option<(i32, Offset)>) {
        let heard = heard(ErrorCode::from_code(response.error_code));
        let mut partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let Some(found) = partitions.next().filter(|_| heard == Heard::Fine) else {
            return (heard, None);
        };
        if ErrorCode::from_code(found.error_code) != ErrorCode::None {
            return (Heard::Fine, None);
        }
        let offset = Offset(found.committed_offset.max(0));
        let Some(position) = self.positions.get_mut(&found.partition_index) else {
            return (Heard::Fine, None);
        };
        *position = Some(offset);
        (Heard::Fine, Some((found.partition_index, offset)))
    }

    /// Whether it has settled in its group.
    pub(crate) fn is_settled(&self) -> bool {
        self.epoch > 0 && self.positions.keys().eq(&self.target)
    }
}

/// What an error of a coordinator of groups means to a member.
pub(crate) fn heard(error: ErrorCode) -> Heard {
    match error {
        ErrorCode::None => Heard::Fine,
        ErrorCode::UnknownMemberId
        | ErrorCode::FencedMemberEpoch
        | ErrorCode::StaleMemberEpoch
        | ErrorCode::IllegalGeneration => Heard::Fenced,
        _ => Heard::Trouble,
    }
}
