//! The administrator of a run: creates the topics, and now and then has preferred leaders elected and replicas moved.

use bytestring::ByteString;
use ottla_protocol::messages::create_topics_request::CreatableTopic;
use ottla_protocol::messages::{
    AlterPartitionReassignmentsRequest, CreateTopicsRequest, ElectLeadersRequest,
    alter_partition_reassignments_request as reassignments,
};
use ottla_types::ErrorCode;

use super::message::{Body, ControllerRequest, ControllerResponse};
use super::random::Random;
use super::setup::Setup;

pub(crate) struct Admin {
    controllers: Vec<i32>,
    brokers: Vec<i32>,
    /// Topics, with the number of their partitions.
    topics: Vec<(&'static str, i32)>,
    replicas: i16,
    is_created: bool,
    next_correlation_id: u64,
}

impl Admin {
    pub(crate) fn new(setup: &Setup) -> Admin {
        Admin {
            controllers: setup.controller_ids(),
            brokers: setup.broker_ids(),
            topics: setup.topics(),
            replicas: setup.replicas,
            is_created: false,
            next_correlation_id: 0,
        }
    }

    pub(crate) fn tick(&mut self, is_calm: bool, random: &mut Random) -> Vec<(i32, Body)> {
        let request = if !self.is_created {
            let topics = self.topics.iter().map(|(name, partitions)| CreatableTopic {
                name: ByteString::from_static(name),
                num_partitions: *partitions,
                replication_factor: self.replicas,
                ..Default::default()
            });
            ControllerRequest::CreateTopics(CreateTopicsRequest {
                topics: topics.collect(),
                timeout_ms: 10_000,
                ..Default::default()
            })
        } else if random.per_mille(60) {
            ControllerRequest::ElectLeaders(ElectLeadersRequest {
                election_type: 0,
                topic_partitions: None,
                timeout_ms: 10_000,
                ..Default::default()
            })
        } else if !is_calm && random.per_mille(40) {
            ControllerRequest::Reassign(self.reassignment(random))
        } else {
            return Vec::new();
        };
        // It does not know who leads, and asks everybody.
        self.next_correlation_id += 1;
        let body = |_| Body::Ask {
            correlation_id: self.next_correlation_id,
            request: request.clone(),
        };
        let controllers = self.controllers.iter();
        controllers.map(|&to| (to, body(to))).collect()
    }

    fn reassignment(&self, random: &mut Random) -> AlterPartitionReassignmentsRequest {
        let mut brokers = self.brokers.clone();
        let mut replicas = Vec::new();
        while replicas.len() < self.replicas as usize {
            let at = random.below(brokers.len() as u64) as usize;
            replicas.push(brokers.swap_remove(at));
        }
        let topic = random.pick(&self.topics);
        let (name, partitions) = topic.expect("there are topics");
        AlterPartitionReassignmentsRequest {
            timeout_ms: 10_000,
            topics: vec![reassignments::ReassignableTopic {
                name: ByteString::from_static(name),
                partitions: vec![reassignments::ReassignablePartition {
                    partition_index: random.below(partitions as u64) as i32,
                    replicas: (random.below(4) != 0).then_some(replicas),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    pub(crate) fn receive(&mut self, response: Result<ControllerResponse, ErrorCode>) {
        if let Ok(ControllerResponse::TopicsCreated(response)) = response {
            let created = [ErrorCode::None, ErrorCode::TopicAlreadyExists];
            self.is_created |= response
                .topics
                .iter()
                .all(|topic| created.contains(&ErrorCode::from_code(topic.error_code)));
        }
    }
}
