//! Who asks, for what, and since when: what handlers know of a request besides its body.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_protocol::ApiKey;

use crate::net::{Connection, ListenerInfo};

/// The circumstances of one request. Kafka: `RequestContext`.
#[derive(Clone, Debug)]
pub struct RequestContext {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<ByteString>,
    pub connection: Arc<Connection>,
    /// When the request was read, on the broker's own clock ([`Broker::now_ms`](crate::Broker::now_ms)).
    pub received_at_ms: u64,
}

impl RequestContext {
    pub fn listener(&self) -> &ListenerInfo {
        &self.connection.listener
    }

    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.peer_addr
    }

    /// The client's address as group descriptions show it: `/127.0.0.1`, with Java's slash.
    pub fn client_host(&self) -> String {
        let ip: IpAddr = self.peer_addr().ip().to_canonical();
        format!("/{ip}")
    }

    /// The client id, empty where none was given.
    pub fn client_id(&self) -> ByteString {
        self.client_id.clone().unwrap_or_default()
    }

    /// Who asks; everybody is anonymous until SASL or TLS says otherwise.
    pub fn principal(&self) -> &'static str {
        "User:ANONYMOUS"
    }
}
