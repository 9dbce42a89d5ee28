//! Builds a Produce request from batches, and passes its response back to them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::ApiKey;
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_protocol::messages::produce_response::{PartitionProduceResponse, ProduceResponse};
use ottla_sync::collections::HashMap;
use ottla_types::{ErrorCode, Uuid};

use super::{Event, InFlight, Sender};
use crate::connection::Connection;
use crate::error::ClientError;
use crate::metadata::{BrokerNode, NamedLeader};
use crate::producer::batch::ProducerBatch;
use crate::producer::delivery::Written;
use crate::producer::topics::PartitionQueue;
use crate::producer::transaction::LAST_PRODUCE_VERSION_BEFORE_V2;

/// The first version that identifies topics only by their ids.
const FIRST_VERSION_WITH_TOPIC_IDS: i16 = 13;

impl Sender {
    pub(super) fn send(
        &mut self,
        node: i32,
        connection: Arc<Connection>,
        mut batches: Vec<(Arc<PartitionQueue>, ProducerBatch)>,
        now: Instant,
    ) {
        let shared = self.shared.clone();
        let mut version = connection.version(ApiKey::Produce);
        if shared.transaction.is_some() && !shared.is_transaction_v2() {
            version = version.map(|version| version.min(LAST_PRODUCE_VERSION_BEFORE_V2));
        }
        let metadata = shared.client.metadata();
        let mut topics: Vec<TopicProduceData> = Vec::new();
        for (queue, batch) in &mut batches {
            let known = metadata.partition(&queue.topic, queue.partition);
            // Another broker may have become the leader since the node was chosen. This one will
            // refuse the batch, which then need not wait.
            let known = known.filter(|known| known.leader == node);
            batch.leader_epoch = known.map_or(-1, |known| known.leader_epoch);
            let data = PartitionProduceData {
                index: queue.partition,
                records: Some(batch.records().clone().into()),
                ..Default::default()
            };
            match topics.last_mut() {
                Some(topic) if *topic.name == *queue.topic => topic.partition_data.push(data),
                _ => topics.push(TopicProduceData {
                    name: queue.topic.to_string().into(),
                    topic_id: metadata.topic_id(&queue.topic),
                    partition_data: vec![data],
                    ..Default::default()
                }),
            }
        }
        let in_flight = self.in_flight.len() + 1;
        shared.sensors.on_request(&batches, in_flight, now);
        let id = self.next_request;
        self.next_request += 1;
        let events = self.event_sender.clone();
        let version = match version {
            // A topic with an unknown id must be identified by name.
            Ok(version) if topics.iter().any(|topic| topic.topic_id == Uuid::ZERO) => {
                version.min(FIRST_VERSION_WITH_TOPIC_IDS - 1)
            }
            Ok(version) => version,
            Err(error) => {
                let _ = events.send(Event::Answered(id, Err(error)));
                0
            }
        };
        let request = ProduceRequest {
            transactional_id: shared.config.transactional_id.clone().map(Into::into),
            acks: shared.config.acks,
            timeout_ms: shared.client.config().request_timeout.as_millis() as i32,
            topic_data: topics,
            ..Default::default()
        };
        self.in_flight.insert(
            id,
            InFlight {
                node,
                connection: connection.clone(),
                sent: now,
                version,
                batches,
            },
        );
        match (version, shared.config.acks) {
            (0, _) => {}
            (_, 0) => connection.start_unanswered(&request, version, move |written| {
                let _ = events.send(Event::Answered(id, written.map(|()| None)));
            }),
            _ => connection.start(&request, version, move |answer| {
                let _ = events.send(Event::Answered(id, answer.map(Some)));
            }),
        }
    }

    pub(super) fn on_answered(
        &mut self,
        id: u64,
        answer: Result<Option<ProduceResponse>, ClientError>,
    ) {
        let Some(request) = self.in_flight.remove(&id) else {
            return;
        };
        let now = ottla_sync::time::now();
        let throttle = match &answer {
            Ok(Some(response)) => u64::try_from(response.throttle_time_ms).ok(),
            _ => None,
        };
        let throttle = throttle.map(Duration::from_millis);
        let in_flight = self.in_flight.len();
        // There is no latency without a response: with acks=0, and when the connection breaks.
        let latency = matches!(&answer, Ok(Some(_))).then(|| now - request.sent);
        self.shared
            .sensors
            .on_answered(latency, throttle, in_flight);
        if let Some(node) = self.nodes.get_mut(&request.node) {
            node.in_flight -= 1;
            if let Some(throttle) = throttle {
                node.throttled_until = now + throttle;
            }
        }
        let response = match answer {
            Ok(Some(response)) => response,
            Ok(None) => {
                let unknown = Written {
                    base_offset: -1,
                    log_append_time: -1,
                };
                for (queue, batch) in request.batches {
                    self.settle(&queue, batch, Ok(unknown));
                }
                return;
            }
            Err(error) => {
                // In reverse order, so that batches without sequence numbers also keep their order.
                for (queue, batch) in request.batches.into_iter().rev() {
                    self.settle(&queue, batch, Err(error.clone()));
                }
                return;
            }
        };
        let metadata = self.shared.client.metadata();
        let mut found: HashMap<(&str, i32), &PartitionProduceResponse> = HashMap::default();
        let mut leaders = Vec::new();
        for topic in &response.responses {
            let name = match request.version >= FIRST_VERSION_WITH_TOPIC_IDS {
                true => metadata.topic_name(topic.topic_id).unwrap_or_default(),
                false => &*topic.name,
            };
            for partition in &topic.partition_responses {
                found.insert((name, partition.index), partition);
                if partition.error_code != ErrorCode::None.code() {
                    leaders.push(NamedLeader {
                        topic: name,
                        partition: partition.index,
                        leader: partition.current_leader.leader_id,
                        leader_epoch: partition.current_leader.leader_epoch,
                    });
                }
            }
        }
        let nodes = response
            .node_endpoints
            .iter()
            .map(|node| BrokerNode::new(node.node_id, &node.host, node.port, node.rack.as_deref()));
        // Before the batches are put back, so that they go to the new leader at once.
        self.shared.client.learn_leaders(&leaders, nodes);
        for (queue, mut batch) in request.batches {
            let what = || format!("producing to {}-{}", queue.topic, queue.partition);
            let result = match found.get(&(&*queue.topic, queue.partition)) {
                Some(answer) => {
                    let known = answer.current_leader.leader_epoch;
                    batch.is_broker_behind = answer.error_code
                        == ErrorCode::NotLeaderOrFollower.code()
                        && (0..batch.leader_epoch).contains(&known);
                    let message = answer.error_message.as_ref();
                    let record = answer.record_errors.first();
                    let message =
                        message.or(record.and_then(|it| it.batch_index_error_message.as_ref()));
                    ClientError::check(what(), answer.error_code, message).map(|()| Written {
                        base_offset: answer.base_offset,
                        log_append_time: answer.log_append_time_ms,
                    })
                }
                None => Err(ClientError::broker(
                    what(),
                    ErrorCode::UnknownServerError.code(),
                    Some("the answer does not mention it"),
                )),
            };
            self.settle(&queue, batch, result);
        }
    }
}
