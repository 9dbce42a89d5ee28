//! Shared connections to the other brokers of the cluster: one per broker, opened when it is first
//! needed, and reopened after it has ended.
//!
//! Replication has separate connections, because its responses take long.

use std::sync::Arc;
use std::time::Duration;

use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::BrokerId;

use ottla_context::NodeContext;

use crate::peer_connection::{PeerConnection, PeerError, PeerFailure, PeerSettings};
use crate::peer_security::PeerSecurity;

type ConnectionSlot = Arc<ottla_sync::async_lock::Mutex<Option<Arc<PeerConnection>>>>;

#[derive(Debug, Default)]
pub struct BrokerPeers {
    slots: Mutex<HashMap<BrokerId, ConnectionSlot>>,
}

impl BrokerPeers {
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
