//! The context of a request: everything that a handler knows about it except its body.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytestring::ByteString;
use ottla_protocol::ApiKey;
use ottla_security::Principal;
use ottla_security::quota::MutationQuota;
use ottla_sync::{Mutex, OwnedSemaphorePermit};

use crate::client_identity::ClientIdentity;
use crate::connections::{Connection, ListenerInfo};
use crate::decoded_memory::DecodedPart;

/// The context of one request. Kafka: `RequestContext`.
#[derive(Clone, Debug)]
pub struct RequestContext {
    pub api_key: ApiKey,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<ByteString>,
    pub connection: Arc<Connection>,
    /// The client: the peer of the connection, or the client whose request a broker has forwarded.
    pub identity: Arc<ClientIdentity>,
    /// Whether a broker has forwarded the request. If so, the connection is not the client's, and
    /// is not throttled.
    pub is_forwarded: bool,
    /// The length of the request, including its header.
    pub request_bytes: usize,
    /// The quota that this request's changes to topics are charged to, if the client has one.
    pub mutation_quota: Option<Arc<dyn MutationQuota>>,
    /// When the request was read, in milliseconds of the node's clock (`NodeContext::now_ms`).
    pub received_at_ms: u64,
    /// The part of the budget for decoded requests that this request holds; `None` if it is small.
    pub decoded: Option<Arc<DecodedPart>>,
    /// How long the handler has waited, as opposed to working.
    pub waited: WaitedTime,
    /// What the handler has put into the response from remote storage.
    pub remote_memory: RemoteMemory,
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
        format!("/{}", self.identity.host())
    }

    /// The client ID, or an empty string if there is none.
    pub fn client_id(&self) -> ByteString {
        self.client_id.clone().unwrap_or_default()
    }

    pub fn principal(&self) -> &Principal {
        &self.identity.principal
    }

    /// How long a handler has worked since it began, without the time that it has waited.
    pub fn worked_since(&self, began: Option<Instant>) -> Option<Duration> {
        let elapsed = ottla_sync::time::elapsed(began?);
        Some(elapsed.saturating_sub(self.waited.total()))
    }

    /// Returns the memory of the decoded request. For handlers that keep nothing of it, and then wait
    /// for other clients; otherwise the connection would be closed when memory is scarce.
    pub fn release_decoded(&self) {
        if let Some(part) = &self.decoded {
            part.release();
        }
    }

    /// The entity whose quotas apply: the user's name and the client ID, empty if there is none.
    pub fn quota_entity(&self) -> (&str, &str) {
        let client_id = self.client_id.as_deref().unwrap_or_default();
        (self.identity.principal.name(), client_id)
    }
}

/// The part of the budget for remote reads that a response holds until it is sent or counts as unsent.
/// A response that holds some is sent by the threads of the store (`Network::set_store_threads`).
#[derive(Debug, Default)]
pub struct RemoteMemory(Mutex<Vec<OwnedSemaphorePermit>>);

impl RemoteMemory {
    pub fn keep(&self, permits: Vec<OwnedSemaphorePermit>) {
        if !permits.is_empty() {
            self.0.lock().extend(permits);
        }
    }

    pub(crate) fn take(&mut self) -> Vec<OwnedSemaphorePermit> {
        std::mem::take(self.0.get_mut())
    }
}

impl Clone for RemoteMemory {
    /// Memory is held once, by the context of the connection.
    fn clone(&self) -> Self {
        RemoteMemory::default()
    }
}

/// Sums the times that a handler waits within one request.
#[derive(Debug, Default)]
pub struct WaitedTime(AtomicU64);

impl WaitedTime {
    /// Starts to wait. The wait ends when the returned guard is dropped.
    pub fn begin(&self) -> Waiting<'_> {
        Waiting {
            time: self,
            since: ottla_sync::time::now(),
        }
    }

    pub fn total(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

impl Clone for WaitedTime {
    fn clone(&self) -> Self {
        WaitedTime(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

pub struct Waiting<'a> {
    time: &'a WaitedTime,
    since: Instant,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let micros = ottla_sync::time::elapsed(self.since).as_micros() as u64;
        self.time.0.fetch_add(micros, Ordering::Relaxed);
    }
}
