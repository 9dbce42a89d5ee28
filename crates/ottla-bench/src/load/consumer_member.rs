//! A member of a consumer group (KIP-848): its state, and the heartbeats that follow from it.

use std::collections::BTreeSet;

use bytestring::ByteString;
use ottla_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use ottla_protocol::messages::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};
use ottla_types::Uuid;

use super::topic::Topic;

/// The member epoch with which a member leaves.
const LEAVE_GROUP_EPOCH: i32 = -1;
const REBALANCE_TIMEOUT_MS: i32 = 45_000;

#[derive(Clone, Debug)]
pub struct ConsumerMember {
    pub group_id: ByteString,
    pub member_id: ByteString,
    /// 0 before the member has joined.
    pub epoch: i32,
    pub held: BTreeSet<i32>,
    /// Whether the last response changed the partitions, which the next heartbeat confirms.
    pub has_news: bool,
}

impl ConsumerMember {
    pub fn new(group_id: ByteString, member_id: ByteString) -> ConsumerMember {
        ConsumerMember {
            group_id,
            member_id,
            epoch: 0,
            held: BTreeSet::new(),
            has_news: false,
        }
    }

    /// The next heartbeat.
    pub fn heartbeat(&self, topic: &Topic) -> ConsumerGroupHeartbeatRequest {
        let mut request = self.request(self.epoch);
        if self.epoch == 0 {
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS;
            request.subscribed_topic_names = Some(vec![topic.name.clone().into()]);
            request.topic_partitions = Some(Vec::new());
        } else if self.has_news {
            request.topic_partitions = Some(owned(topic.id, &self.held));
        }
        request
    }

    /// The last heartbeat.
    pub fn leave(&self) -> ConsumerGroupHeartbeatRequest {
        self.request(LEAVE_GROUP_EPOCH)
    }

    fn request(&self, member_epoch: i32) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest {
            group_id: self.group_id.clone(),
            member_id: self.member_id.clone(),
            member_epoch,
            ..Default::default()
        }
    }

    /// Applies a response, unless it is an error. Returns whether the partitions have changed.
    pub fn on_response(&mut self, response: &ConsumerGroupHeartbeatResponse) -> bool {
        if response.error_code != 0 {
            return false;
        }
        self.epoch = response.member_epoch;
        self.has_news = response.assignment.is_some();
        if let Some(assignment) = &response.assignment {
            let topics = assignment.topic_partitions.iter();
            self.held = topics.flat_map(|topic| topic.partitions.clone()).collect();
        }
        self.has_news
    }
}

fn owned(topic_id: Uuid, held: &BTreeSet<i32>) -> Vec<TopicPartitions> {
    if held.is_empty() {
        return Vec::new();
    }
    vec![TopicPartitions {
        topic_id,
        partitions: held.iter().copied().collect(),
        ..Default::default()
    }]
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::consumer_group_heartbeat_response as response;

    use super::*;
    use crate::load::access::Access;

    #[test]
    fn a_change_of_partitions_is_confirmed_once() {
        let topic = Topic {
            access: Access::plain("127.0.0.1:9092"),
            name: "t".to_owned(),
            id: Uuid::from_u128(7),
            partitions: Vec::new(),
        };
        let mut member = ConsumerMember::new("g".into(), "m".into());
        assert_eq!(member.heartbeat(&topic).member_epoch, 0);
        let assigned = ConsumerGroupHeartbeatResponse {
            member_epoch: 3,
            assignment: Some(response::Assignment {
                topic_partitions: vec![response::TopicPartitions {
                    topic_id: topic.id,
                    partitions: vec![4, 2],
                    ..Default::default()
                }],
                ..Default::default()
            }),
            ..Default::default()
        };
        assert!(member.on_response(&assigned));
        let confirmed = member.heartbeat(&topic).topic_partitions;
        assert_eq!(confirmed, Some(owned(topic.id, &[2, 4].into())));
        let unchanged = ConsumerGroupHeartbeatResponse {
            member_epoch: 3,
            ..Default::default()
        };
        assert!(!member.on_response(&unchanged));
        assert_eq!(member.heartbeat(&topic).topic_partitions, None);
        assert_eq!(member.leave().member_epoch, LEAVE_GROUP_EPOCH);
    }
}
