//! All open connections: who they are, how many there may be, and which have been idle too long.
//!
//! Kafka does the same in `kafka.network.ConnectionQuotas` and in the idle expiry of
//! `org.apache.kafka.common.network.Selector`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use bytestring::ByteString;
use ottla_config::SecurityProtocol;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What is known of a listener by everything behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerInfo {
    /// Upper case: `PLAINTEXT`.
    pub name: String,
    pub protocol: SecurityProtocol,
    /// Where it is bound; the port is the real one where the configuration says 0.
    pub local_addr: SocketAddr,
    /// Whether controllers and brokers talk here rather than clients.
    pub is_controller: bool,
}

const OPEN: u8 = 0;
const DRAINING: u8 = 1;
const CLOSED: u8 = 2;

/// One connection, as seen from outside its task.
#[derive(Debug)]
pub struct Connection {
    pub id: u64,
    pub listener: Arc<ListenerInfo>,
    pub peer_addr: SocketAddr,
    /// Name and version of the client, from its ApiVersions request (KIP-511).
    client_software: Mutex<Option<(ByteString, ByteString)>>,
    state: AtomicU8,
    /// When the last request came, on the broker's own clock.
    last_active_ms: AtomicU64,
    /// Raised when an answer became ready, or the state changed.
    signal: Notify,
    /// Raised when the connection has to close now.
    closed: Notify,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        listener: Arc<ListenerInfo>,
        peer_addr: SocketAddr,
        now_ms: u64,
    ) -> Self {
        Connection {
            id,
            listener,
            peer_addr,
            client_software: Mutex::new(None),
            state: AtomicU8::new(OPEN),
            last_active_ms: AtomicU64::new(now_ms),
            signal: Notify::new(),
            closed: Notify::new(),
        }
    }

    /// Name and version of the client, where it has said them.
    pub fn client_software(&self) -> Option<(ByteString, ByteString)> {
        self.client_software.lock().clone()
    }

    pub(crate) fn set_client_software(&self, name: ByteString, version: ByteString) {
        *self.client_software.lock() = Some((name, version));
    }

    /// Bytes came in or went out: a large request or answer on a slow line is not idle.
    pub(crate) fn on_active(&self, now_ms: u64) {
        self.last_active_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Says that an answer which the connection's task may wait for is ready.
    pub(crate) fn wake(&self) {
        self.signal.notify_one();
    }

    pub(crate) async fn woken(&self) {
        self.signal.notified().await;
    }

    /// Takes no more requests, answers those that it has taken, and closes.
    pub(crate) fn drain(&self) {
        self.state.fetch_max(DRAINING, Ordering::AcqRel);
        self.signal.notify_one();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.state.load(Ordering::Acquire) >= DRAINING
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Closes at once.
    pub(crate) fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
        self.closed.notify_one();
        self.signal.notify_one();
    }

    /// Ends when the connection has to close at once.
    pub(crate) async fn closed(&self) {
        while !self.is_closed() {
            self.closed.notified().await;
        }
    }
}

/// All open connections of a broker.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    next_id: AtomicU64,
    count: AtomicUsize,
    open: Mutex<Open>,
    /// Raised when a connection has closed.
    room: Notify,
}

#[derive(Debug, Default)]
struct Open {
    by_id: HashMap<u64, Arc<Connection>>,
    per_ip: HashMap<IpAddr, usize>,
}

/// Why a connection was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{ip} already has {limit} connections, which is what max.connections.per.ip allows")]
pub(crate) struct TooManyConnections {
    pub(crate) ip: IpAddr,
    pub(crate) limit: usize,
}

/// Takes the connection out of the registry when its task ends, however that is.
#[derive(Debug)]
pub(crate) struct Registered {
    connections: Arc<Connections>,
    pub(crate) connection: Arc<Connection>,
}

impl Connections {
    /// Lets a connection in, unless its address has as many as it may have.
    pub(crate) fn register(
        self: &Arc<Self>,
        listener: Arc<ListenerInfo>,
        peer_addr: SocketAddr,
        limit_per_ip: usize,
        now_ms: u64,
    ) -> Result<Registered, TooManyConnections> {
        let ip = peer_addr.ip();
        let mut open = self.open.lock();
        let of_ip = open.per_ip.entry(ip).or_default();
        if *of_ip >= limit_per_ip {
            return Err(TooManyConnections {
                ip,
                limit: limit_per_ip,
            });
        }
        *of_ip += 1;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, listener, peer_addr, now_ms));
        open.by_id.insert(id, Arc::clone(&connection));
        self.count.fetch_add(1, Ordering::AcqRel);
        Ok(Registered {
            connections: Arc::clone(self),
            connection,
        })
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Ends when fewer than `max` connections are open.
    pub(crate) async fn room_below(&self, max: usize) {
        loop {
            let room = self.room.notified();
            if self.count() < max {
                return;
            }
            room.await;
        }
    }

    pub(crate) fn for_each(&self, mut act: impl FnMut(&Connection)) {
        for connection in self.open.lock().by_id.values() {
            act(connection);
        }
    }

    /// Closes what has been idle since before `since_ms`; returns how many those were.
    pub(crate) fn close_idle(&self, since_ms: u64) -> usize {
        let mut closed = 0;
        self.for_each(|connection| {
            if connection.last_active_ms.load(Ordering::Relaxed) < since_ms {
                connection.close();
                closed += 1;
            }
        });
        closed
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.by_id.remove(&self.connection.id);
        let ip = self.connection.peer_addr.ip();
        if let Some(of_ip) = open.per_ip.get_mut(&ip) {
            *of_ip -= 1;
            if *of_ip == 0 {
                open.per_ip.remove(&ip);
            }
        }
        self.connections.count.fetch_sub(1, Ordering::AcqRel);
        drop(open);
        self.connections.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> Arc<ListenerInfo> {
        Arc::new(ListenerInfo {
            name: "PLAINTEXT".into(),
            protocol: SecurityProtocol::Plaintext,
            local_addr: "127.0.0.1:9092".parse().unwrap(),
            is_controller: false,
        })
    }

    fn peer(last: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], port))
    }

    #[test]
    fn an_address_gets_no_more_than_its_share() {
        let connections = Arc::new(Connections::default());
        let first = connections.register(listener(), peer(1, 1), 2, 0).unwrap();
        let _second = connections.register(listener(), peer(1, 2), 2, 0).unwrap();
        let refused = connections.register(listener(), peer(1, 3), 2, 0);
        assert_eq!(
            refused.unwrap_err(),
            TooManyConnections {
                ip: peer(1, 0).ip(),
                limit: 2
            }
        );
        let _other = connections.register(listener(), peer(2, 1), 2, 0).unwrap();
        assert_eq!(connections.count(), 3);
        drop(first);
        assert_eq!(connections.count(), 2);
        connections.register(listener(), peer(1, 3), 2, 0).unwrap();
    }

    #[tokio::test]
    async fn only_idle_connections_are_closed() {
        let connections = Arc::new(Connections::default());
        let idle = connections
            .register(listener(), peer(1, 1), 9, 100)
            .unwrap();
        let busy = connections
            .register(listener(), peer(1, 2), 9, 100)
            .unwrap();
        busy.connection.on_active(5_000);
        assert_eq!(connections.close_idle(1_000), 1);
        idle.connection.closed().await;
        assert!(!busy.connection.is_draining());
    }
}
