//! Sends the requests of the quorum to the other nodes, and returns the responses to the quorum
//! thread.
//!
//! There is one connection per node, opened when there is something to send. Each request is a task
//! that ends with a response or a failure, so the state machine gets exactly one outcome per
//! request, unless it has timed the request out. After a failed connection attempt, a node is not
//! tried again for an exponentially growing backoff, as in Kafka's client: the state machine's own
//! backoff of 20 ms is meant for error responses, and would try 50 times a second.
//!
//! This module does not touch the log or the state machine, and does not decide when to ask which
//! node.
//!
//! In Kafka: `KafkaNetworkChannel`, `InterBrokerSendThread`, `NetworkClient`'s reconnect back-off.

use ottla_sync::thread_channel;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_raft::wire::{WireRequest, WireResponse};
use ottla_raft::{Node, Request};
use ottla_sync::async_lock::Mutex;
use ottla_types::ErrorCode;

use super::work::{Answered, Failure, Work};
use ottla_net::{PeerConnection, PeerError, PeerFailure, PeerSecurity, PeerSettings};

/// The defaults of `reconnect.backoff.ms` and `reconnect.backoff.max.ms` for Kafka's channel
/// between the nodes of a quorum.
const RECONNECT_BACKOFF: Duration = Duration::from_millis(50);
const RECONNECT_BACKOFF_MAX: Duration = Duration::from_millis(500);
/// The maximum size of a response. The limit in a request can be exceeded by one whole batch.
const RECEIVE_LIMIT: usize = 100 * 1024 * 1024;
/// The maximum number of addresses. They come from the network, and unused ones are removed first.
const MAX_PEERS: usize = 64;

pub struct QuorumNetwork {
    /// The channel to the quorum thread. Weak, because the thread ends when no other sender is
    /// left.
    work: Weak<thread_channel::Sender<Work>>,
    runtime: ottla_sync::task::Handle,
    settings: PeerSettings,
    cluster_id: ByteString,
    peers: BTreeMap<(ByteString, u16), Arc<Peer>>,
}

/// The state of one address.
struct Peer {
    host: ByteString,
    port: u16,
    settings: PeerSettings,
    link: Mutex<Link>,
}

#[derive(Default)]
struct Link {
    connection: Option<Arc<PeerConnection>>,
    /// Set after a failed attempt to connect: the error, when the next attempt may be made, and the
    /// current backoff.
    failed: Option<(String, Instant, Duration)>,
}

impl QuorumNetwork {
    /// Must be called within the runtime in which the connections run.
    pub fn new(
        config: &BrokerConfig,
        security: PeerSecurity,
        cluster_id: &str,
        work: &Arc<thread_channel::Sender<Work>>,
    ) -> QuorumNetwork {
        let request_timeout = positive_ms(config.controller_quorum_request_timeout_ms);
        QuorumNetwork {
            work: Arc::downgrade(work),
            runtime: ottla_sync::task::Handle::current(),
            settings: PeerSettings {
                client_id: ByteString::from(format!("raft-client-{}", config.node_id)),
                request_timeout,
                security,
                // The state machine has timed out the request by then.
                connection_setup_timeout: request_timeout,
                receive_limit: RECEIVE_LIMIT,
            },
            cluster_id: ByteString::from(cluster_id),
            peers: BTreeMap::new(),
        }
    }

    /// Sends a request. Its outcome arrives as `Work::Answered`.
    pub fn send(&mut self, to: Node, correlation_id: u64, request: Request) {
        let request = WireRequest::new(request, &self.cluster_id);
        let peer = self.peer(&to);
        let work = Weak::clone(&self.work);
        self.runtime.spawn(async move {
            let outcome = peer.exchange(&request).await;
            if let Some(work) = work.upgrade() {
                // The thread may have ended.
                let _ = work.send(Work::Answered(Answered {
                    from: to,
                    correlation_id,
                    outcome,
                }));
            }
        });
    }

    fn peer(&mut self, node: &Node) -> Arc<Peer> {
        let key = (node.host.clone(), node.port);
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&key) {
            self.peers.retain(|_, peer| Arc::strong_count(peer) > 1);
        }
        let peer = self.peers.entry(key).or_insert_with(|| {
            Arc::new(Peer {
                host: node.host.clone(),
                port: node.port,
                settings: self.settings.clone(),
                link: Mutex::default(),
            })
        });
        Arc::clone(peer)
    }
}

fn positive_ms(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or_default().max(1))
}

impl Peer {
    async fn exchange(&self, request: &WireRequest) -> Result<WireResponse, Failure> {
        let connection = self.connection().await?;
        macro_rules! sent {
            ($kind:ident, $request:expr) => {
                connection.send($request).await.map(WireResponse::$kind)
            };
        }
        let answer = match request {
            WireRequest::Vote(request) => sent!(Vote, request),
            WireRequest::BeginQuorumEpoch(request) => sent!(BeginQuorumEpoch, request),
            WireRequest::EndQuorumEpoch(request) => sent!(EndQuorumEpoch, request),
            WireRequest::Fetch(request) => sent!(Fetch, request),
            WireRequest::FetchSnapshot(request) => sent!(FetchSnapshot, request),
            WireRequest::UpdateVoter(request) => sent!(UpdateVoter, request),
            WireRequest::AddVoter(request) => sent!(AddVoter, request),
            WireRequest::RemoveVoter(request) => sent!(RemoveVoter, request),
            WireRequest::ApiVersions(request) => sent!(ApiVersions, request),
        };
        answer.map_err(|error| Failure::from(&error))
    }

    /// The connection; opens one if there is none, or if it is broken.
    async fn connection(&self) -> Result<Arc<PeerConnection>, Failure> {
        let mut link = self.link.lock().await;
        if let Some(connection) = &link.connection
            && !connection.is_closed()
        {
            return Ok(Arc::clone(connection));
        }
        link.connection = None;
        if let Some((reason, retry_at, _)) = &link.failed
            && ottla_sync::time::now() < *retry_at
        {
            return Err(Failure {
                error: ErrorCode::BrokerNotAvailable,
                reason: reason.clone(),
            });
        }
        match PeerConnection::open(&self.host, self.port, &self.settings).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *link = Link {
                    connection: Some(Arc::clone(&connection)),
                    failed: None,
                };
                Ok(connection)
            }
            Err(error) => {
                let backoff = match &link.failed {
                    Some((_, _, before)) => (*before * 2).min(RECONNECT_BACKOFF_MAX),
                    None => RECONNECT_BACKOFF,
                };
                link.failed = Some((
                    error.to_string(),
                    ottla_sync::time::now() + backoff,
                    backoff,
                ));
                Err(Failure::from(&error))
            }
        }
    }
}

impl From<&PeerError> for Failure {
    fn from(error: &PeerError) -> Failure {
        let code = match &error.failure {
            PeerFailure::Unsupported { .. } => ErrorCode::UnsupportedVersion,
            PeerFailure::Unreachable(_)
            | PeerFailure::Closed(_)
            | PeerFailure::LoginRejected { .. }
            | PeerFailure::TimedOut { .. }
            | PeerFailure::Unreadable(_)
            | PeerFailure::Unsendable { .. } => ErrorCode::BrokerNotAvailable,
        };
        Failure {
            error: code,
            reason: error.to_string(),
        }
    }
}
