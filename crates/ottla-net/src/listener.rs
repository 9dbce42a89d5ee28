//! Binds listeners and accepts connections.
//!
//! A listener holds back the connection that it has accepted, and accepts no other, at
//! `max.connections`, while the process has no file handle for another connection, and while
//! connections arrive faster than `max.connection.creation.rate`. Other clients wait in the
//! kernel's backlog, as with Kafka. A connection from an address that already has
//! `max.connections.per.ip` connections is closed at once.
//!
//! Kafka: `SocketServer.Acceptor`, `ConnectionQuotas`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::{BrokerConfig, Listener, parse_host_port};
use ottla_sync::net::{self, BoundSocket, ListenOptions, TcpListener, TcpStream};
use ottla_types::shell_word;

use super::connection;
use crate::connections::{Limits, ListenerInfo, Refusal};
use crate::network::Network;
use crate::service::Service;
use ottla_metrics::Metric;

/// The pause after the kernel has refused a connection for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a full listener checks whether its limit was raised.
const LIMITS_CHECK: Duration = Duration::from_secs(1);

/// A listener that has its address. Connections are refused until it listens, so that a health check
/// of the port fails as long as the node cannot serve.
#[derive(Debug)]
pub struct BoundListener {
    pub info: Arc<ListenerInfo>,
    socket: BoundSocket,
}

/// A listener whose connections wait to be accepted.
#[derive(Debug)]
pub struct ListeningListener {
    pub info: Arc<ListenerInfo>,
    socket: TcpListener,
}

/// When a listener is bound, for the way out that an error names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BoundAt {
    /// With the settings of the file and the command line.
    Start,
    /// With a dynamic setting.
    Runtime,
}

impl BoundListener {
    /// Binds a listener. The error is for people.
    pub fn bind(
        config: &BrokerConfig,
        listener: &Listener,
        bound_at: BoundAt,
    ) -> Result<Self, String> {
        let name = &listener.name;
        let port = listener.port;
        let host = match &listener.host {
            Some(host) => host,
            None => every_address(),
        };
        // In the spelling of the settings.
        let written = listener.host.as_deref().unwrap_or("");
        let address = net::resolve(host, port)
            .map_err(|error| error.to_string())
            .and_then(|all| all.first().copied().ok_or_else(|| "it has no address".to_owned()))
            .map_err(|reason| {
                format!("listeners={name}://{written}:{port}: cannot resolve {host:?}: {reason}; give an address of this machine")
            })?;
        let socket = open(config, address).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse if bound_at == BoundAt::Runtime => format!(
                "listeners={name}://{written}:{port}: port {port} is in use; give another port"
            ),
            io::ErrorKind::AddrInUse => in_use(config, listener),
            io::ErrorKind::AddrNotAvailable => format!(
                "listeners={name}://{written}:{port}: {host} is not an address of this machine; give one that is"
            ),
            io::ErrorKind::PermissionDenied => format!(
                "listeners={name}://{written}:{port}: not allowed to listen on port {port}; give one above 1023"
            ),
            _ => format!("listeners={name}://{written}:{port}: {error}"),
        })?;
        let local_addr = socket.local_addr().map_err(|error| error.to_string())?;
        Ok(BoundListener {
            info: Arc::new(ListenerInfo {
                name: name.clone(),
                protocol: listener.protocol,
                local_addr,
                is_controller: listener.is_controller,
            }),
            socket,
        })
    }

    /// Starts to listen. The error is for people.
    pub fn listen(self) -> Result<ListeningListener, String> {
        let BoundListener { info, socket } = self;
        let (name, address) = (&info.name, info.local_addr);
        let socket = socket.listen().map_err(|error| match error.kind() {
            // On old kernels, another process may have bound it as well, and was first to listen.
            io::ErrorKind::AddrInUse => {
                format!("listener {name}: {address} is in use by another process; stop that process, or give another port")
            }
            _ => format!("listener {name}: cannot listen on {address}: {error}"),
        })?;
        Ok(ListeningListener { info, socket })
    }
}

/// The error for a port in use at start. The overrides that it suggests replace whole settings, so
/// they have all listeners, with other ports for those in use, also where clients and other nodes get
/// these ports from. Listeners before this one are bound.
fn in_use(config: &BrokerConfig, listener: &Listener) -> String {
    let place = match listener.host.as_deref() {
        None | Some("") => format!("port {}", listener.port),
        Some(host) => format!("{host}:{}", listener.port),
    };
    let mut is_before = true;
    let mut listeners = Vec::new();
    let mut moved = Vec::new();
    for each in &config.listeners {
        is_before &= each.name != listener.name;
        let mut free = each.clone();
        if each.name == listener.name || (!is_before && is_in_use(config, each)) {
            free.port = each.port.wrapping_add(10);
            moved.push((each, free.port));
        }
        listeners.push(free.to_string());
    }
    let overrides = [
        Some(override_option("listeners", &listeners)),
        with_ports(config, "advertised.listeners", |item| {
            let (name, _) = item.split_once("://")?;
            let mut moved = moved.iter();
            let (from, port) = moved.find(|(from, _)| from.name.eq_ignore_ascii_case(name))?;
            Some((from.port, *port))
        }),
        with_ports(config, "controller.quorum.voters", |item| {
            let (id, _) = item.split_once('@')?;
            let mut moved = moved.iter();
            let (from, port) = moved.find(|(from, _)| from.is_controller)?;
            (id.parse::<i32>().ok() == Some(config.node_id)).then_some((from.port, *port))
        }),
        with_ports(config, "controller.quorum.bootstrap.servers", |item| {
            let (host, port) = parse_host_port(item)?;
            let mut moved = moved.iter();
            let (from, moved_port) =
                moved.find(|(from, _)| from.is_controller && from.port == port)?;
            is_reached_at(config, from, &host).then_some((port, *moved_port))
        }),
    ];
    let overrides: Vec<String> = overrides.into_iter().flatten().collect();
    format!(
        "{place} is in use by another process; stop that process, or give another port with {}",
        overrides.join(" ")
    )
}

/// The override of this list of addresses if ports in it have moved. `moved` returns the old and the
/// new port for an item; another port in it is mapped to the old one outside of this node.
fn with_ports(
    config: &BrokerConfig,
    key: &str,
    moved: impl Fn(&str) -> Option<(u16, u16)>,
) -> Option<String> {
    let given = config.static_settings().get(key)?;
    let item = |item: &str| {
        let changed = moved(item).and_then(|(from, to)| {
            let address = item.strip_suffix(&format!(":{from}"))?;
            Some(format!("{address}:{to}"))
        });
        changed.unwrap_or_else(|| item.to_owned())
    };
    let items: Vec<&str> = given.split(',').map(str::trim).collect();
    let changed: Vec<String> = items.iter().copied().map(item).collect();
    (changed != items).then(|| override_option(key, &changed))
}

/// The option for a shell.
fn override_option(key: &str, items: &[String]) -> String {
    let setting = format!("{key}={}", items.join(","));
    format!("--override {}", shell_word(&setting))
}

/// Whether others reach this controller listener at a host: the one that it advertises, or an address
/// that it is bound to. Unlike a voter, a bootstrap server has no node ID, and controllers on other
/// machines often have the same port.
fn is_reached_at(config: &BrokerConfig, listener: &Listener, host: &str) -> bool {
    let mut advertised = config.advertised_controller_listeners.iter();
    if advertised.any(|it| it.name == listener.name && it.host.as_deref() == Some(host)) {
        return true;
    }
    let addresses = |host: &str| net::resolve(host, 0).unwrap_or_default();
    let bound = addresses(listener.host.as_deref().unwrap_or(every_address()));
    let is_bound = |address: &SocketAddr| {
        // Only an address of this machine can be bound.
        let is_of_machine = || open(config, *address).is_ok();
        let mut bound = bound.iter().map(SocketAddr::ip);
        bound.any(|ip| ip == address.ip() || (ip.is_unspecified() && is_of_machine()))
    };
    addresses(host).iter().any(is_bound)
}

fn is_in_use(config: &BrokerConfig, listener: &Listener) -> bool {
    let host = listener.host.as_deref().unwrap_or(every_address());
    let address = net::resolve(host, listener.port).ok();
    let address = address.and_then(|all| all.first().copied());
    let opened = address.map(|address| open(config, address));
    opened.is_some_and(|it| it.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse))
}

/// Kafka's default. Its `server.properties` contains it explicitly, and so do nearly all files.
const KAFKA_DEFAULT_RECEIVE_BUFFER_BYTES: i32 = 102_400;

/// The address of a listener without a host: all IPv4 and IPv6 addresses, as in Java, or only IPv4
/// if the machine has no IPv6.
fn every_address() -> &'static str {
    if net::has_ipv6() { "::" } else { "0.0.0.0" }
}

fn open(config: &BrokerConfig, address: SocketAddr) -> io::Result<BoundSocket> {
    let options = ListenOptions {
        receive_buffer_bytes: fixed_receive_buffer(config.socket_receive_buffer_bytes),
        backlog: config.socket_listen_backlog_size.max(1),
    };
    net::bind(address, options)
}

/// Accepts connections until the broker stops.
pub async fn accept_connections<S: Service>(
    network: Arc<Network>,
    service: Arc<S>,
    listener: ListeningListener,
) {
    let stopping = network.context.stopping();
    let accepting = async {
        loop {
            match listener.socket.accept().await {
                Ok((stream, mut peer_addr)) => {
                    // An IPv4 peer on a dual-stack socket gets its plain IPv4 address, as on other
                    // sockets.
                    peer_addr.set_ip(peer_addr.ip().to_canonical());
                    let_in(&network, &service, &listener.info, stream, peer_addr).await;
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    network.context.metrics.add(Metric::AcceptsPaused, 1);
                    network.context.complaints.say(|| {
                        tracing::warn!(listener = %listener.info.name, %error, "cannot accept a connection");
                    });
                    ottla_sync::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    ottla_sync::select! {
        () = accepting => {}
        () = stopping => {}
    }
}

/// Whether `accept` failed because the connection was closed before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Admits a connection when the limits permit it. The listener accepts no other connection until
/// then.
async fn let_in<S: Service>(
    network: &Arc<Network>,
    service: &Arc<S>,
    info: &Arc<ListenerInfo>,
    stream: TcpStream,
    peer_addr: SocketAddr,
) {
    let connections = &network.connections;
    let limits = || {
        let of_address = network.address_limits.of(peer_addr.ip());
        let mut limits = Limits::of(&network.context.config(), info, of_address);
        // Connections that the process has no handle for wait in the kernel's backlog, like those
        // above max.connections.
        limits.in_all = limits.in_all.min(network.context.handles.sockets);
        limits
    };
    let delay = connections.delay(info, &limits(), network.context.now_ms());
    if !delay.is_zero() {
        network.context.metrics.add(Metric::ConnectionsDelayed, 1);
        ottla_sync::time::sleep(delay).await;
    }
    let now_ms = network.context.now_ms();
    if let Some(delay) = network.address_quotas.record(peer_addr.ip(), now_ms) {
        connections.take_back(info, &limits(), now_ms);
        return close_later(network, stream, delay);
    }
    let registered = loop {
        let closing = connections.closing();
        let info = Arc::clone(info);
        match connections.register(info, peer_addr, &limits(), network.context.now_ms()) {
            Err(Refusal::NoRoom) => {
                network.context.metrics.add(Metric::AcceptsPaused, 1);
                // Wakes up now and then, because the limit may be raised.
                let _ = ottla_sync::time::timeout(LIMITS_CHECK, closing).await;
            }
            outcome => break outcome,
        }
    };
    match registered {
        Ok(registered) => {
            network.context.metrics.add(Metric::ConnectionsAccepted, 1);
            if let Err(error) = set_options(&network.context.config(), &stream) {
                tracing::debug!(%peer_addr, %error, "cannot set the options of a connection");
            }
            connection::start(Arc::clone(network), Arc::clone(service), stream, registered);
        }
        Err(refused) => {
            network.context.metrics.add(Metric::ConnectionsRefused, 1);
            network.context.complaints.say(|| {
                tracing::info!(%peer_addr, "connection refused: {refused}");
            });
        }
    }
}

/// Closes a connection above the quota of its address after a delay, so that the client does not
/// reconnect at once.
fn close_later(network: &Arc<Network>, stream: TcpStream, delay: Duration) {
    network.context.metrics.add(Metric::ConnectionsThrottled, 1);
    let network = Arc::clone(network);
    ottla_sync::task::spawn(async move {
        if let Some(_held) = network.address_quotas.hold() {
            ottla_sync::select! {
                () = ottla_sync::time::sleep(delay) => {}
                () = network.context.stopping() => {}
            }
        }
        drop(stream);
    });
}

/// The fixed receive buffer that `socket.receive.buffer.bytes` asks for. `None` leaves the size to
/// the kernel, which starts with about as much and grows it
/// (`docs/decisions/0017-receive-buffer.md`).
fn fixed_receive_buffer(bytes: i32) -> Option<usize> {
    match bytes {
        KAFKA_DEFAULT_RECEIVE_BUFFER_BYTES => None,
        bytes => usize::try_from(bytes).ok().filter(|&bytes| bytes > 0),
    }
}

fn set_options(config: &BrokerConfig, stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    net::set_keepalive(stream)?;
    if let Ok(bytes @ 1..) = usize::try_from(config.socket_send_buffer_bytes) {
        net::set_send_buffer_size(stream, bytes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{SocketAddr, TcpStream};
    use std::time::Duration;

    use ottla_config::{BrokerConfig, Properties};
    use socket2::SockRef;

    use super::{BoundAt, BoundListener, fixed_receive_buffer, open, set_options};

    const ANY_PORT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn config(settings: &[(&str, &str)]) -> BrokerConfig {
        let mut properties = Properties::new("the test");
        let of_every_node = [
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            (
                "listeners",
                "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            ),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.bootstrap.servers", "127.0.0.1:0"),
        ];
        for (key, value) in of_every_node.iter().chain(settings) {
            properties.set(key, value);
        }
        BrokerConfig::from_properties(&properties).unwrap().0
    }

    /// The kernel reports twice the size that was requested, because it includes its own overhead.
    #[tokio::test]
    async fn sockets_have_the_buffers_of_the_settings() {
        for bytes in [20_000, 40_000] {
            let text = bytes.to_string();
            let config = config(&[
                ("socket.receive.buffer.bytes", &text),
                ("socket.send.buffer.bytes", &text),
            ]);
            let listener = open(&config, ANY_PORT).unwrap().listen().unwrap();
            let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            set_options(&config, &accepted).unwrap();
            let socket = SockRef::from(&accepted);
            assert_eq!(socket.recv_buffer_size().unwrap(), 2 * bytes);
            assert_eq!(socket.send_buffer_size().unwrap(), 2 * bytes);
            assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        }
    }

    #[tokio::test]
    async fn a_port_refuses_connections_until_it_listens() {
        let config = config(&[]);
        let mut listener = config.listeners[0].clone();
        let bound = BoundListener::bind(&config, &listener, BoundAt::Start).unwrap();
        let address = bound.info.local_addr;
        assert_ne!(address.port(), 0);
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // Another node cannot bind it in the meantime.
        let taken = open(&config, address).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let listening = bound.listen().unwrap();
        let _peer = TcpStream::connect(address).unwrap();
        let accepted = listening.socket.accept().await.unwrap();
        // After a restart, connections of the previous process do not keep the port.
        drop(listening);
        let again = open(&config, address).unwrap();
        let _listening = again.listen().unwrap();
        drop(accepted);

        listener.port = address.port();
        for (bound_at, way_out) in [
            (BoundAt::Start, "--override listeners="),
            (BoundAt::Runtime, "is in use; give another port"),
        ] {
            let error = BoundListener::bind(&config, &listener, bound_at).unwrap_err();
            assert!(error.contains(way_out), "{error}");
            assert!(error.contains(&address.port().to_string()), "{error}");
        }
    }

    /// Binds a listener whose port is in use. In the settings and in the expected overrides, `PORT` is
    /// that port and `MOVED` the suggested one.
    #[track_caller]
    fn suggests(settings: &[(&str, &str)], expected: &str) {
        let taken = std::net::TcpListener::bind(ANY_PORT).unwrap();
        let port = taken.local_addr().unwrap().port();
        let with_ports = |text: &str| {
            text.replace("PORT", &port.to_string())
                .replace("MOVED", &port.wrapping_add(10).to_string())
        };
        let settings: Vec<(&str, String)> = settings
            .iter()
            .map(|(key, value)| (*key, with_ports(value)))
            .collect();
        let settings: Vec<(&str, &str)> = settings.iter().map(|it| (it.0, &*it.1)).collect();
        let config = config(&settings);
        let mut listeners = config.listeners.iter();
        let taken = listeners.find(|it| it.port == port).expect("a listener");
        let error = BoundListener::bind(&config, taken, BoundAt::Start).unwrap_err();
        let expected = with_ports(expected);
        assert!(
            error.ends_with(&format!(" with --override {expected}")),
            "{error}"
        );
    }

    #[tokio::test]
    async fn the_overrides_for_another_port_include_where_others_get_it_from() {
        let listeners = "PLAINTEXT://127.0.0.1:PORT,CONTROLLER://127.0.0.1:0";
        suggests(
            &[
                ("listeners", listeners),
                ("advertised.listeners", "plaintext://b.example.com:PORT"),
            ],
            "listeners=PLAINTEXT://127.0.0.1:MOVED,CONTROLLER://127.0.0.1:0 \
             --override advertised.listeners=plaintext://b.example.com:MOVED",
        );
        // Another port is mapped to that of the listener.
        suggests(
            &[
                ("listeners", listeners),
                ("advertised.listeners", "PLAINTEXT://b.example.com:9"),
            ],
            "listeners=PLAINTEXT://127.0.0.1:MOVED,CONTROLLER://127.0.0.1:0",
        );
        suggests(
            &[
                (
                    "listeners",
                    "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:PORT",
                ),
                (
                    "advertised.listeners",
                    "PLAINTEXT://h:9,CONTROLLER://h:PORT",
                ),
                ("controller.quorum.voters", "1@h:PORT,2@g:PORT"),
            ],
            "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:MOVED \
             --override advertised.listeners=PLAINTEXT://h:9,CONTROLLER://h:MOVED \
             --override controller.quorum.voters=1@h:MOVED,2@g:PORT",
        );
    }

    /// 192.0.2.1 is another machine, whose controller has the same port.
    #[tokio::test]
    async fn the_overrides_for_another_port_include_this_node_as_a_bootstrap_server() {
        let servers = "controller.quorum.bootstrap.servers";
        suggests(
            &[
                (
                    "listeners",
                    "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:PORT",
                ),
                (servers, "192.0.2.1:PORT, 127.0.0.1:PORT,127.0.0.1:1"),
            ],
            "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:MOVED \
             --override controller.quorum.bootstrap.servers=192.0.2.1:PORT,127.0.0.1:MOVED,127.0.0.1:1",
        );
        // Any address of this machine.
        suggests(
            &[
                (
                    "listeners",
                    "PLAINTEXT://127.0.0.1:0,CONTROLLER://0.0.0.0:PORT",
                ),
                (servers, "192.0.2.1:PORT,127.0.0.1:PORT"),
            ],
            "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://0.0.0.0:MOVED \
             --override controller.quorum.bootstrap.servers=192.0.2.1:PORT,127.0.0.1:MOVED",
        );
        // The advertised name.
        suggests(
            &[
                (
                    "listeners",
                    "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:PORT",
                ),
                (
                    "advertised.listeners",
                    "PLAINTEXT://h.invalid:9,CONTROLLER://h.invalid:PORT",
                ),
                (servers, "h.invalid:PORT,192.0.2.1:PORT"),
            ],
            "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:MOVED \
             --override advertised.listeners=PLAINTEXT://h.invalid:9,CONTROLLER://h.invalid:MOVED \
             --override controller.quorum.bootstrap.servers=h.invalid:MOVED,192.0.2.1:PORT",
        );
        // The port of a broker.
        suggests(
            &[
                (
                    "listeners",
                    "PLAINTEXT://127.0.0.1:PORT,CONTROLLER://127.0.0.1:0",
                ),
                (servers, "127.0.0.1:PORT"),
            ],
            "listeners=PLAINTEXT://127.0.0.1:MOVED,CONTROLLER://127.0.0.1:0",
        );
    }

    #[tokio::test]
    async fn the_overrides_for_another_port_are_words_of_a_shell() {
        suggests(
            &[(
                "listeners",
                "PLAINTEXT://127.0.0.1:PORT,CONTROLLER://[::1]:0",
            )],
            "'listeners=PLAINTEXT://127.0.0.1:MOVED,CONTROLLER://[::1]:0'",
        );
    }

    /// Linux admits one connection more than the backlog; after that, connections get no answer.
    #[tokio::test]
    async fn the_backlog_is_that_of_the_setting() {
        for backlog in [1, 4] {
            let setting = ("socket.listen.backlog.size", backlog.to_string());
            let config = config(&[(setting.0, &setting.1)]);
            let listener = open(&config, ANY_PORT).unwrap().listen().unwrap();
            let address = listener.local_addr().unwrap();
            let connect = |limit| TcpStream::connect_timeout(&address, limit);
            let admitted = |_| connect(Duration::from_secs(60)).expect("there is room");
            let waiting: Vec<_> = (0..=backlog).map(admitted).collect();
            let started = ottla_sync::time::now();
            connect(Duration::from_millis(300)).expect_err("there is no room");
            assert!(ottla_sync::time::elapsed(started) >= Duration::from_millis(300));
            drop(waiting);
        }
    }

    #[test]
    fn a_buffer_size_of_minus_one_keeps_the_default_of_the_kernel() {
        assert_eq!(fixed_receive_buffer(102_400), None);
        assert_eq!(fixed_receive_buffer(-1), None);
        assert_eq!(fixed_receive_buffer(0), None);
        assert_eq!(fixed_receive_buffer(102_401), Some(102_401));
        assert_eq!(fixed_receive_buffer(65_536), Some(65_536));
    }
}
