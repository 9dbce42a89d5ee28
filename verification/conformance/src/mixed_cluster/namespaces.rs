//! A network namespace per broker with two virtual cables: one to clients, which is never
//! disturbed, and one to a bridge with the other brokers and the controllers, which is.
//!
//! The driver runs in its own namespace, where it may create all of this and which disappears with
//! it. Clients keep using 127.0.0.1 and the broker's port; a proxy forwards them to the broker's
//! end of the first cable.
//!
//! ```text
//! clients -- 127.0.0.1:port -- proxy -- 10.178.N.1 ==== 10.178.N.2 \
//!                                                                    broker N
//! controllers -- 10.177.0.1 (bridge) ================== 10.177.1.N /
//! ```

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_testkit::StallingProxy;

use ottla_peers::{Cluster, Member};
use ottla_workspace::process::{self, OwnedChild};
use ottla_workspace::toolchain;

/// Set in the process that has its own network.
const INSIDE: &str = "OTTLA_OWN_NETWORK";
const BRIDGE: &str = "between";
const CONTROLLERS: &str = "10.177.0.1";
/// The prefix length of the bridge network; the brokers are the subnet [`BROKERS`].
const EVERYBODY: &str = "16";
const BROKERS: &str = "10.177.1.0/24";
/// The broker's ends of its two cables, in its namespace.
const TO_CLIENTS: &str = "clients";
const TO_OTHERS: &str = "others";
const PATIENCE: Duration = Duration::from_secs(60);
/// A bad network loses all packets for the first of these times, and none for the second,
/// alternately.
const LOST: Duration = Duration::from_millis(150);
const PASSED: Duration = Duration::from_millis(100);

/// Whether this process may create networks.
pub fn has_own_network() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// A command that runs this program with its own network. The caller adds the arguments.
pub fn this_program_with_own_network() -> Result<Command> {
    toolchain::require(&toolchain::IP)?;
    ensure!(
        process::is_on_path("unshare") && process::is_on_path("nsenter"),
        "--namespaces needs `unshare` and `nsenter` of util-linux"
    );
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--net", "--mount"])
        .arg(std::env::current_exe()?)
        .env(INSIDE, "1");
    Ok(command)
}

/// Places each broker of a cluster that was not started yet in a namespace.
pub fn put_apart(cluster: &mut Cluster) -> Result<Vec<Namespace>> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", BRIDGE, "type", "bridge"])?;
    ip(&[
        "addr",
        "add",
        &format!("{CONTROLLERS}/{EVERYBODY}"),
        "dev",
        BRIDGE,
    ])?;
    ip(&["link", "set", BRIDGE, "up"])?;
    let voters = cluster.controllers.iter();
    let voters = voters.map(|it| format!("{}@{CONTROLLERS}:{}", it.node_id, it.port));
    let voters = voters.collect::<Vec<_>>().join(",");
    for controller in &mut cluster.controllers {
        let port = controller.port;
        controller.set(&[
            ("listeners", format!("CONTROLLER://0.0.0.0:{port}")),
            (
                "advertised.listeners",
                format!("CONTROLLER://{CONTROLLERS}:{port}"),
            ),
            ("controller.quorum.voters", voters.clone()),
        ]);
    }
    let brokers = cluster.brokers.iter_mut();
    brokers
        .map(|broker| Namespace::of(broker, &voters))
        .collect()
}

/// The namespace of one broker, removed on drop.
pub struct Namespace {
    /// An idle process that keeps the namespace alive while the broker is down.
    holder: OwnedChild,
    /// The driver's end of the cable that is disturbed.
    cable: String,
    _clients: StallingProxy,
    losing: Option<Losing>,
}

impl Namespace {
    fn of(broker: &mut Member, voters: &str) -> Result<Namespace> {
        let (number, port) = (broker.node_id, broker.port);
        let mut holder = Command::new("unshare");
        holder
            .args(["--net", "sleep", "infinity"])
            .stdout(Stdio::null());
        let holder = OwnedChild::start(&mut holder)?;
        wait_until_apart(holder.id())?;
        let (own, others) = (format!("10.178.{number}.2"), format!("10.177.1.{number}"));
        let to_clients = format!("clients{number}");
        let namespace = Namespace {
            cable: format!("broker{number}"),
            holder,
            _clients: proxy(port, &own)?,
            losing: None,
        };
        namespace.lay(&to_clients, TO_CLIENTS)?;
        namespace.lay(&namespace.cable, TO_OTHERS)?;
        let gateway = format!("10.178.{number}.1/30");
        ip(&["addr", "add", &gateway, "dev", &to_clients])?;
        ip(&["link", "set", &namespace.cable, "master", BRIDGE])?;
        namespace.inside(&["link", "set", "lo", "up"])?;
        namespace.inside(&["addr", "add", &format!("{own}/30"), "dev", TO_CLIENTS])?;
        namespace.inside(&[
            "addr",
            "add",
            &format!("{others}/{EVERYBODY}"),
            "dev",
            TO_OTHERS,
        ])?;
        let replication = port + 1;
        replicate_apart(
            broker,
            format!("PLAINTEXT://0.0.0.0:{port},REPLICATION://{others}:{replication}"),
            format!("PLAINTEXT://127.0.0.1:{port},REPLICATION://{others}:{replication}"),
            voters.to_owned(),
        );
        broker.options.launcher = vec!["nsenter".to_owned(), namespace.net_flag()];
        Ok(namespace)
    }

    fn net_flag(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.id())
    }

    /// Creates a cable from here into the namespace; both ends are up afterwards.
    fn lay(&self, here: &str, there: &str) -> Result<()> {
        let holder = self.holder.id().to_string();
        ip(&[
            "link", "add", here, "type", "veth", "peer", "name", there, "netns", &holder,
        ])?;
        ip(&["link", "set", here, "up"])?;
        self.inside(&["link", "set", there, "up"])
    }

    fn inside(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.arg(self.net_flag()).arg("ip").args(arguments);
        process::output_of(&mut command).map(drop)
    }

    pub fn cut(&self) -> Result<()> {
        ip(&["link", "set", &self.cable, "down"])
    }

    /// Drops packets to other brokers.
    pub fn cut_from_brokers(&self) -> Result<()> {
        self.inside(&["route", "replace", "blackhole", BROKERS])
    }

    pub fn lose_much(&mut self) -> Result<()> {
        self.losing = Some(Losing::start(self.cable.clone()));
        Ok(())
    }

    pub fn mend(&mut self) -> Result<()> {
        if let Some(losing) = self.losing.take() {
            losing.end()?;
        }
        // The route exists only if the broker was cut off from other brokers.
        let mut remove = Command::new("nsenter");
        remove.args([&self.net_flag(), "ip", "route", "del", "blackhole", BROKERS]);
        process::run_captured(&mut remove)?;
        ip(&["link", "set", &self.cable, "up"])
    }
}

/// Makes a cable lose its packets periodically.
struct Losing {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Losing {
    fn start(cable: String) -> Losing {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_over_there = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !is_over_there.load(Ordering::Relaxed) {
                for (state, lasting) in [("down", LOST), ("up", PASSED)] {
                    ip(&["link", "set", &cable, state])?;
                    std::thread::sleep(lasting);
                }
            }
            Ok(())
        });
        Losing { is_over, thread }
    }

    fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let outcome = self.thread.join();
        outcome.unwrap_or_else(|_| bail!("the thread that loses packets panicked"))
    }
}

/// Forwards connections on the broker's original port to the broker.
fn proxy(port: u16, address: &str) -> Result<StallingProxy> {
    let mut proxy = StallingProxy::bind_to(port);
    proxy.pass_to(&format!("{address}:{port}"));
    Ok(proxy)
}

/// A process enters its namespace shortly after it starts.
fn wait_until_apart(pid: u32) -> Result<()> {
    let namespace_of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net"));
    let (own, began) = (namespace_of("self")?, Instant::now());
    while began.elapsed() < PATIENCE {
        let theirs = namespace_of(&pid.to_string());
        if theirs.context("unshare has ended: network namespaces cannot be made here")? != own {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    bail!("process {pid} gets no network namespace of its own");
}

fn ip(arguments: &[&str]) -> Result<()> {
    process::output_of(Command::new("ip").args(arguments)).map(drop)
}

/// Gives a broker a separate listener for other brokers.
pub fn replicate_apart(broker: &mut Member, listeners: String, advertised: String, voters: String) {
    broker.set(&[
        ("listeners", listeners),
        ("advertised.listeners", advertised),
        (
            "listener.security.protocol.map",
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT".to_owned(),
        ),
        ("inter.broker.listener.name", "REPLICATION".to_owned()),
        ("controller.quorum.voters", voters),
    ]);
}
