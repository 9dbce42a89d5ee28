//! The registry of open connections: their identities, limits on their number, and idle expiry.
//!
//! Kafka: `kafka.network.ConnectionQuotas`, and the idle expiry of
//! `org.apache.kafka.common.network.Selector`.

use ottla_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::{BrokerConfig, SecurityProtocol};
use ottla_security::Principal;
use ottla_security::quota::{Rate, Windows};
use ottla_sync::{ArcSwap, Mutex, Notify};
use ottla_types::{BrokerEpoch, BrokerId};

use crate::client_identity::ClientIdentity;
use crate::creation_rate::delay;
use crate::movable_task::Move;

/// A listener, as its connections and requests see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenerInfo {
    /// Upper case: `PLAINTEXT`.
    pub name: String,
    pub protocol: SecurityProtocol,
    /// The bound address. The port is the actual one if the configuration says 0.
    pub local_addr: SocketAddr,
    /// Whether this is a listener for controllers and brokers rather than clients.
    pub is_controller: bool,
}

/// The maximum number of characters that are kept of the name of a client's software, and of its version.
/// Clients choose them, and have not logged in when they send them.
const LONGEST_SOFTWARE_NAME: usize = 256;

const OPEN: u8 = 0;
const DRAINING: u8 = 1;
const CLOSED: u8 = 2;

/// One connection, as seen from outside its task.
#[derive(Debug)]
pub struct Connection {
    pub id: u64,
    pub listener: Arc<ListenerInfo>,
    pub peer_addr: SocketAddr,
    /// The identity of the client; anonymous until TLS or SASL authenticates it.
    identity: ArcSwap<ClientIdentity>,
    /// Name and version of the client, from its ApiVersions request (KIP-511).
    client_software: Mutex<Option<(ByteString, ByteString)>>,
    /// The broker ID and epoch in the last heartbeat that was accepted on this connection.
    heard_broker: Mutex<Option<(BrokerId, BrokerEpoch)>>,
    state: AtomicU8,
    /// When the last bytes were received or sent, in milliseconds of the node's clock.
    last_active_ms: AtomicU64,
    /// The connection is not read until then, in milliseconds of the node's clock, because its
    /// client exceeds a quota.
    muted_until_ms: AtomicU64,
    /// No bytes have moved for a while. The connection releases memory that it does not need.
    is_quiet: AtomicBool,
    /// Notified when a response has become ready or the state has changed.
    signal: Notify,
    /// Notified when the connection must close at once.
    closed: Notify,
    /// The threads on which the task of the connection continues.
    pub(crate) next_threads: Move,
}

impl Connection {
    pub fn new(id: u64, listener: Arc<ListenerInfo>, peer_addr: SocketAddr, now_ms: u64) -> Self {
        Connection {
            id,
            listener,
            peer_addr,
            identity: ArcSwap::from_pointee(ClientIdentity::new(
                Principal::anonymous(),
                peer_addr.ip(),
            )),
            client_software: Mutex::new(None),
            heard_broker: Mutex::new(None),
            state: AtomicU8::new(OPEN),
            last_active_ms: AtomicU64::new(now_ms),
            muted_until_ms: AtomicU64::new(0),
            is_quiet: AtomicBool::new(false),
            signal: Notify::new(),
            closed: Notify::new(),
            next_threads: Move::default(),
        }
    }

    /// The identity of the client.
    pub fn identity(&self) -> Arc<ClientIdentity> {
        self.identity.load_full()
    }

    /// Sets the principal after authentication. Requests that were read before keep their identity.
    pub fn set_principal(&self, principal: Principal) {
        let identity = ClientIdentity::new(principal, self.peer_addr.ip());
        self.identity.store(Arc::new(identity));
    }

    /// The name of the connection in Kafka's log format: both addresses and a number.
    pub fn channel_id(&self) -> String {
        format!(
            "{}-{}-{}",
            self.listener.local_addr, self.peer_addr, self.id
        )
    }

    /// Name and version of the client, if it has sent them.
    pub fn client_software(&self) -> Option<(ByteString, ByteString)> {
        self.client_software.lock().clone()
    }

    pub fn set_client_software(&self, name: ByteString, version: ByteString) {
        let kept = |text: ByteString| match text.len() <= LONGEST_SOFTWARE_NAME {
            true => text,
            false => text
                .chars()
                .take(LONGEST_SOFTWARE_NAME)
                .collect::<String>()
                .into(),
        };
        *self.client_software.lock() = Some((kept(name), kept(version)));
    }

    /// The controller has accepted a heartbeat of this broker registration.
    pub fn on_heartbeat(&self, of: (BrokerId, BrokerEpoch)) {
        *self.heard_broker.lock() = Some(of);
    }

    /// The broker whose heartbeats arrive on this connection.
    pub fn heard_broker(&self) -> Option<(BrokerId, BrokerEpoch)> {
        *self.heard_broker.lock()
    }

    /// Bytes were received or sent. So a large request or response on a slow line does not count as
    /// idle.
    pub fn on_active(&self, now_ms: u64) {
        self.last_active_ms.store(now_ms, Ordering::Relaxed);
        if self.is_quiet.load(Ordering::Relaxed) {
            self.is_quiet.store(false, Ordering::Relaxed);
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// Delays further requests until then (KIP-219). Responses are still sent.
    pub fn mute_until(&self, until_ms: u64) {
        self.muted_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// How long no further request is read. The clock is not read for a connection that was never
    /// muted.
    pub fn muted_for(&self, now_ms: impl FnOnce() -> u64) -> Duration {
        match self.muted_until_ms.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            until_ms => Duration::from_millis(until_ms.saturating_sub(now_ms())),
        }
    }

    /// A response that the connection's task may be waiting for is ready.
    pub fn wake(&self) {
        self.signal.notify_one();
    }

    pub async fn woken(&self) {
        self.signal.notified().await;
    }

    /// Accepts no more requests, answers the accepted ones, and closes.
    pub fn drain(&self) {
        self.state.fetch_max(DRAINING, Ordering::AcqRel);
        self.signal.notify_one();
    }

    pub fn is_draining(&self) -> bool {
        self.state.load(Ordering::Acquire) >= DRAINING
    }

    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Closes at once.
    pub fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
        self.closed.notify_one();
        self.signal.notify_one();
    }

    /// Completes when the connection must close at once.
    pub async fn closed(&self) {
        while !self.is_closed() {
            self.closed.notified().await;
        }
    }
}

impl AsRef<Move> for Connection {
    fn as_ref(&self) -> &Move {
        &self.next_threads
    }
}

/// All open connections of a broker.
#[derive(Debug, Default)]
pub struct Connections {
    next_id: AtomicU64,
    open: Mutex<Open>,
    /// Notified when a connection has closed.
    room: Notify,
}

/// The counts that admission depends on. Broker and controller listeners are counted separately, as
/// they belong to separate servers in Kafka.
#[derive(Debug, Default)]
struct Open {
    by_id: BTreeMap<u64, Arc<Connection>>,
    /// Indexed by whether the listener is a controller listener.
    totals: [usize; 2],
    per_listener: HashMap<String, usize>,
    per_ip: HashMap<(bool, IpAddr), usize>,
    rates: [Rate; 2],
    rate_per_listener: HashMap<String, Rate>,
}

/// The limits of one listener. Read from the configuration for each connection, because they may
/// change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `max.connections`.
    pub in_all: usize,
    /// `max.connections` of the listener.
    pub of_listener: usize,
    /// `max.connection.creation.rate`.
    pub rate: i32,
    pub listener_rate: i32,
    /// `quota.window.*`: the windows over which rates are measured.
    pub windows: Windows,
    pub per_ip: usize,
    /// Whether this is the inter-broker listener and not the only one. It accepts connections at
    /// `max.connections` too; another connection is then closed.
    pub is_protected: bool,
}

impl Limits {
    /// `of_address` overrides `max.connections.per.ip` for the peer.
    pub fn of(config: &BrokerConfig, listener: &ListenerInfo, of_address: Option<i32>) -> Limits {
        let prefix = format!("listener.name.{}.", listener.name.to_lowercase());
        let of_listener = |key: &str, broker: i32| {
            let text = config.setting(&format!("{prefix}{key}"));
            text.and_then(|text| text.trim().parse().ok())
                .unwrap_or(broker)
        };
        let size = |limit: i32| usize::try_from(limit).unwrap_or(0);
        let others = config
            .listeners
            .iter()
            .filter(|other| other.is_controller == listener.is_controller);
        Limits {
            in_all: size(config.max_connections),
            of_listener: size(of_listener("max.connections", config.max_connections)),
            rate: config.max_connection_creation_rate,
            listener_rate: of_listener(
                "max.connection.creation.rate",
                config.max_connection_creation_rate,
            ),
            windows: Windows::new(config.quota_window_num, config.quota_window_size_seconds),
            per_ip: size(of_address.unwrap_or(config.max_connections_per_ip)),
            is_protected: listener.name == config.inter_broker_listener_name && others.count() > 1,
        }
    }
}

/// Why a connection is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It can be admitted once another connection has closed.
    #[error("there are as many connections as max.connections allows")]
    NoRoom,
    #[error("{ip} already has {limit} connections, which is what max.connections.per.ip allows")]
    TooManyOfAddress { ip: IpAddr, limit: usize },
}

/// Removes the connection from the registry when its task ends, for any reason.
#[derive(Debug)]
pub struct Registered {
    connections: Arc<Connections>,
    pub connection: Arc<Connection>,
}

impl Connections {
    /// Counts a new connection, and returns how long it must wait.
    pub fn delay(&self, listener: &ListenerInfo, limits: &Limits, now_ms: u64) -> Duration {
        let mut open = self.open.lock();
        let of_all = if limits.is_protected {
            Duration::ZERO
        } else {
            let of_all = &mut open.rates[usize::from(listener.is_controller)];
            delay(of_all, limits.windows, limits.rate, now_ms)
        };
        let name = listener.name.clone();
        let of_listener = open.rate_per_listener.entry(name).or_default();
        of_all.max(delay(
            of_listener,
            limits.windows,
            limits.listener_rate,
            now_ms,
        ))
    }

    /// Removes a connection from the rates because it was rejected by the quota of its address.
    pub fn take_back(&self, listener: &ListenerInfo, limits: &Limits, now_ms: u64) {
        let mut open = self.open.lock();
        if !limits.is_protected {
            open.rates[usize::from(listener.is_controller)].record(limits.windows, -1.0, now_ms);
        }
        if let Some(of_listener) = open.rate_per_listener.get_mut(&listener.name) {
            of_listener.record(limits.windows, -1.0, now_ms);
        }
    }

    /// Admits a connection if the limits permit it.
    pub fn register(
        self: &Arc<Self>,
        listener: Arc<ListenerInfo>,
        peer_addr: SocketAddr,
        limits: &Limits,
        now_ms: u64,
    ) -> Result<Registered, Refusal> {
        let ip = peer_addr.ip();
        let mut open = self.open.lock();
        let is_controller = listener.is_controller;
        let of_listener = open.per_listener.get(&listener.name);
        if of_listener.is_some_and(|&count| count >= limits.of_listener) || limits.of_listener == 0
        {
            return Err(Refusal::NoRoom);
        }
        let is_full = open.totals[usize::from(is_controller)] >= limits.in_all;
        if is_full && !limits.is_protected {
            return Err(Refusal::NoRoom);
        }
        // No entry is created for a rejected address. Otherwise each address that tries would use
        // memory.
        let of_ip = open.per_ip.get(&(is_controller, ip)).copied();
        if of_ip.unwrap_or(0) >= limits.per_ip {
            let limit = limits.per_ip;
            return Err(Refusal::TooManyOfAddress { ip, limit });
        }
        *open.per_ip.entry((is_controller, ip)).or_default() += 1;
        if is_full {
            open.close_longest_idle(&listener);
        }
        open.totals[usize::from(is_controller)] += 1;
        *open.per_listener.entry(listener.name.clone()).or_default() += 1;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(id, listener, peer_addr, now_ms));
        open.by_id.insert(id, Arc::clone(&connection));
        Ok(Registered {
            connections: Arc::clone(self),
            connection,
        })
    }

    /// The number of open connections.
    pub fn count(&self) -> usize {
        self.open.lock().totals.iter().sum()
    }

    /// Completes when a connection closes after this call.
    pub fn closing(&self) -> impl Future<Output = ()> {
        let mut closing = Box::pin(self.room.notified());
        // Registers now, not when the future is first polled.
        closing.as_mut().enable();
        closing
    }

    /// Completes when no connection to controller listeners, or to broker listeners, is open.
    pub async fn none_left(&self, to_controller: bool) {
        loop {
            let closing = self.closing();
            if self.open.lock().totals[usize::from(to_controller)] == 0 {
                return;
            }
            closing.await;
        }
    }

    pub fn for_each(&self, mut act: impl FnMut(&Connection)) {
        for connection in self.open.lock().by_id.values() {
            act(connection);
        }
    }

    /// Closes connections that have been idle since before `since_ms`. Returns their number.
    pub fn close_idle(&self, since_ms: u64) -> usize {
        let mut closed = 0;
        self.for_each(|connection| {
            if connection.last_active_ms.load(Ordering::Relaxed) < since_ms {
                connection.close();
                closed += 1;
            }
        });
        closed
    }

    /// Makes connections that have been idle since before `since_ms` release memory that they do
    /// not need.
    pub fn quieten(&self, since_ms: u64) {
        self.for_each(|connection| {
            if connection.last_active_ms.load(Ordering::Relaxed) < since_ms
                && !connection.is_quiet.swap(true, Ordering::Relaxed)
            {
                connection.wake();
            }
        });
    }
}

impl Open {
    /// Closes the connection that has been idle longest on the other listeners.
    fn close_longest_idle(&self, protected: &ListenerInfo) {
        let others = self.by_id.values().filter(|connection| {
            let listener = &connection.listener;
            listener.is_controller == protected.is_controller && listener.name != protected.name
        });
        let open = others.filter(|connection| !connection.is_draining());
        if let Some(longest) = open.min_by_key(|open| open.last_active_ms.load(Ordering::Relaxed)) {
            longest.close();
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.by_id.remove(&self.connection.id);
        let listener = &self.connection.listener;
        open.totals[usize::from(listener.is_controller)] -= 1;
        if let Some(of_listener) = open.per_listener.get_mut(&listener.name) {
            *of_listener -= 1;
        }
        let address = (listener.is_controller, self.connection.peer_addr.ip());
        if let Some(of_ip) = open.per_ip.get_mut(&address) {
            *of_ip -= 1;
            if *of_ip == 0 {
                open.per_ip.remove(&address);
            }
        }
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

    fn limits() -> Limits {
        Limits {
            in_all: 9,
            of_listener: 9,
            rate: i32::MAX,
            listener_rate: i32::MAX,
            windows: Windows::new(11, 1),
            per_ip: 9,
            is_protected: false,
        }
    }

    fn other_listener() -> Arc<ListenerInfo> {
        Arc::new(ListenerInfo {
            name: "BROKERS".into(),
            ..ListenerInfo::clone(&listener())
        })
    }

    #[test]
    fn a_long_name_of_a_client_is_cut() {
        let connection = Connection::new(1, listener(), peer(1, 1), 0);
        connection.set_client_software("x".repeat(30_000).into(), "1.2".into());
        let (name, version) = connection.client_software().unwrap();
        assert_eq!((name.len(), &*version), (LONGEST_SOFTWARE_NAME, "1.2"));
    }

    #[test]
    fn connections_per_address_are_limited() {
        let connections = Arc::new(Connections::default());
        let limits = Limits {
            per_ip: 2,
            ..limits()
        };
        let register = |last, port| connections.register(listener(), peer(last, port), &limits, 0);
        let first = register(1, 1).unwrap();
        let _second = register(1, 2).unwrap();
        let expected = Refusal::TooManyOfAddress {
            ip: peer(1, 0).ip(),
            limit: 2,
        };
        assert_eq!(register(1, 3).unwrap_err(), expected);
        let _other = register(2, 1).unwrap();
        assert_eq!(connections.count(), 3);
        drop(first);
        assert_eq!(connections.count(), 2);
        register(1, 3).unwrap();
    }

    #[test]
    fn a_rejected_address_leaves_no_entry() {
        let connections = Arc::new(Connections::default());
        let limits = Limits {
            per_ip: 0,
            ..limits()
        };
        for last in 1..9 {
            let refused = connections.register(listener(), peer(last, 1), &limits, 0);
            refused.unwrap_err();
        }
        assert_eq!(connections.open.lock().per_ip.len(), 0);
    }

    #[test]
    fn connections_are_limited_per_listener_and_in_total() {
        let connections = Arc::new(Connections::default());
        let limits = Limits {
            in_all: 3,
            of_listener: 2,
            ..limits()
        };
        let register = |listener| connections.register(listener, peer(1, 1), &limits, 0);
        let _first = register(listener()).unwrap();
        let _second = register(listener()).unwrap();
        assert_eq!(register(listener()).unwrap_err(), Refusal::NoRoom);
        let third = register(other_listener()).unwrap();
        assert_eq!(register(other_listener()).unwrap_err(), Refusal::NoRoom);
        drop(third);
        register(other_listener()).unwrap();
    }

    #[test]
    fn the_inter_broker_listener_closes_idle_connections_of_other_listeners() {
        let connections = Arc::new(Connections::default());
        let limits = Limits {
            in_all: 2,
            ..limits()
        };
        let busy = connections
            .register(listener(), peer(1, 1), &limits, 5)
            .unwrap();
        let idle = connections
            .register(listener(), peer(1, 2), &limits, 1)
            .unwrap();
        let protected = Limits {
            is_protected: true,
            ..limits
        };
        let _broker = connections
            .register(other_listener(), peer(2, 1), &protected, 6)
            .unwrap();
        assert!(idle.connection.is_closed() && !busy.connection.is_closed());
    }

    #[tokio::test]
    async fn only_idle_connections_are_closed() {
        let connections = Arc::new(Connections::default());
        let idle = connections
            .register(listener(), peer(1, 1), &limits(), 100)
            .unwrap();
        let busy = connections
            .register(listener(), peer(1, 2), &limits(), 100)
            .unwrap();
        busy.connection.on_active(5_000);
        assert_eq!(connections.close_idle(1_000), 1);
        idle.connection.closed().await;
        assert!(!busy.connection.is_draining());
    }
}
