//! Shared connections to the other brokers of the cluster: one per broker, opened when it is first
//! needed, and reopened after it has ended.
//!
//! Replication has separate connections, because its responses take long.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::ProduceRequest;
use ottla_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::produce_response::PartitionProduceResponse;
use ottla_protocol::{ErrorResponse, Records};
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::{BrokerId, ErrorCode, TopicId};

use ottla_context::NodeContext;

use crate::peer_connection::{PeerConnection, PeerError, PeerFailure, PeerSettings};
use crate::peer_security::PeerSecurity;

/// How long the leader of a partition waits for its replicas.
const PRODUCE_TIMEOUT: Duration = Duration::from_secs(30);
/// When the connection is given up: after the leader should have answered.
const PRODUCE_REQUEST_TIMEOUT: Duration = Duration::from_secs(35);

type ConnectionSlot = Arc<ottla_sync::async_lock::Mutex<Option<Arc<PeerConnection>>>>;

#[derive(Debug, Default)]
pub struct BrokerPeers {
    slots: Mutex<HashMap<BrokerId, ConnectionSlot>>,
}

/// A partition to write to.
#[derive(Clone, Debug)]
pub struct ProduceTo {
    pub leader: BrokerId,
    pub topic: ByteString,
    pub topic_id: TopicId,
    pub partition: i32,
}

impl BrokerPeers {
    /// Writes a batch as a client does, also if this broker is the leader: the batch is authorised,
    /// validated, and acknowledged by all in-sync replicas.
    pub async fn produce(
        &self,
        context: &NodeContext,
        to: ProduceTo,
        records: Bytes,
    ) -> Result<PartitionProduceResponse, PeerError> {
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: PRODUCE_TIMEOUT.as_millis() as i32,
            topic_data: vec![TopicProduceData {
                name: to.topic,
                topic_id: to.topic_id,
                partition_data: vec![PartitionProduceData {
                    index: to.partition,
                    records: Some(Records::Bytes(records)),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let connection = self
            .connection(context, to.leader, PRODUCE_REQUEST_TIMEOUT)
            .await?;
        let response = connection.send(&request).await?;
        let topics = response.responses.into_iter();
        let mut partitions = topics.flat_map(|topic| topic.partition_responses);
        Ok(partitions
            .next()
            .unwrap_or_else(|| PartitionProduceResponse::of_error(ErrorCode::UnknownServerError)))
    }

    /// Returns the connection to a broker. The first caller opens it, and concurrent callers wait;
    /// if it fails, the next caller tries again.
    pub async fn connection(
        &self,
        context: &NodeContext,
        id: BrokerId,
        request_timeout: Duration,
    ) -> Result<Arc<PeerConnection>, PeerError> {
        let place = Arc::clone(self.slots.lock().entry(id).or_default());
        let mut place = place.lock().await;
        if let Some(open) = place.as_ref().filter(|open| !open.is_closed()) {
            return Ok(Arc::clone(open));
        }
        let (config, image) = (context.config().clone(), context.metadata().clone());
        let listener = &config.inter_broker_listener_name;
        let registration = image.cluster.broker(id);
        let endpoint = registration.and_then(|registration| registration.listener(listener));
        let endpoint = endpoint.ok_or_else(|| PeerError {
            address: format!("broker {id}").into(),
            failure: PeerFailure::Unreachable(format!("it has no listener {listener}")),
        })?;
        let settings = PeerSettings {
            client_id: format!("broker-{}-to-{id}", context.broker_id()).into(),
            request_timeout,
            security: PeerSecurity::at_brokers(context, &config, listener),
            connection_setup_timeout: Duration::from_millis(
                config.socket_connection_setup_timeout_ms.max(1) as u64,
            ),
            receive_limit: config.socket_request_max_bytes.max(0) as usize,
        };
        let opened = PeerConnection::open(&endpoint.host, endpoint.port, &settings).await?;
        Ok(Arc::clone(place.insert(Arc::new(opened))))
    }
}
