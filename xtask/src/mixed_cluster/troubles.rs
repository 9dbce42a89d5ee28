//! What happens to a broker while clients work, and how it ends.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ottla_testkit::StallingProxy;

use crate::peer::{Cluster, Member};
use crate::seeded::Seeded;

/// What happens to a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Trouble {
    /// SIGTERM; it is started again.
    Stopped,
    /// SIGKILL; it is started again.
    Killed,
    /// SIGSTOP, and SIGCONT: it wakes up in a cluster that has gone on without it.
    Paused,
    /// The other brokers do not reach it; clients and controllers do.
    Unreachable,
    /// It reaches neither controllers nor is it reached by other brokers, and clients still reach it.
    Isolated,
    /// What other brokers and controllers have to do with it is late.
    Slowed,
    /// One of its two log directories is deleted while it runs; later it is killed and started with an empty one.
    Bereft,
    /// One of its two log directories is full for a time. The directories are small file systems then, for which root or a
    /// user namespace is needed.
    Full,
}

/// Those that everybody may make.
pub const USUAL: [Trouble; 7] = [
    Trouble::Stopped,
    Trouble::Killed,
    Trouble::Paused,
    Trouble::Unreachable,
    Trouble::Isolated,
    Trouble::Slowed,
    Trouble::Bereft,
];

/// Those that everybody may make where brokers are controllers as well: there is no network between them to be harmed.
pub const WITHOUT_NETWORK: [Trouble; 4] = [
    Trouble::Stopped,
    Trouble::Killed,
    Trouble::Paused,
    Trouble::Bereft,
];

/// The size of a log directory that may become full.
pub const SMALL_MEBIBYTES: u32 = 96;

impl Trouble {
    pub fn needs_network(self) -> bool {
        matches!(
            self,
            Trouble::Unreachable | Trouble::Isolated | Trouble::Slowed
        )
    }

    /// How long it lasts: long enough now and then for a session to end, or for a follower to leave the ISR.
    pub fn duration(self, random: &mut Seeded) -> Duration {
        let longest = match self {
            Trouble::Stopped | Trouble::Killed => 6000,
            Trouble::Slowed => 8000,
            _ => 12_000,
        };
        Duration::from_millis(random.below(longest))
    }
}

/// A broker's network: who connects to it for replication, and its own way to each controller, go through proxies.
/// Clients reach it without one.
pub struct Links {
    /// `None` where brokers are controllers as well.
    replication: Option<StallingProxy>,
    controllers: Vec<StallingProxy>,
}

impl Links {
    /// Changes the properties of a broker that was not started yet.
    pub fn between(cluster: &mut Cluster) -> Vec<Links> {
        let controllers: Vec<(i32, u16)> = cluster
            .controllers
            .iter()
            .map(|controller| (controller.node_id, controller.port))
            .collect();
        if controllers.is_empty() {
            let none = || Links {
                replication: None,
                controllers: Vec::new(),
            };
            return std::iter::repeat_with(none)
                .take(cluster.brokers.len())
                .collect();
        }
        let brokers = cluster.brokers.iter_mut();
        brokers
            .map(|broker| Links::of(broker, &controllers))
            .collect()
    }

    fn of(broker: &mut Member, controllers: &[(i32, u16)]) -> Links {
        // The second of the two neighbouring ports that were found free.
        let own = broker.port + 1;
        let mut replication = StallingProxy::bind();
        replication.pass_to(&format!("127.0.0.1:{own}"));
        let to_controllers = controllers.iter().map(|(id, port)| {
            let mut proxy = StallingProxy::bind();
            proxy.pass_to(&format!("127.0.0.1:{port}"));
            (format!("{id}@{}", proxy.bootstrap()), proxy)
        });
        let (voters, to_controllers): (Vec<String>, Vec<StallingProxy>) = to_controllers.unzip();
        let clients = format!("PLAINTEXT://127.0.0.1:{}", broker.port);
        broker.set(&[
            (
                "listeners",
                format!("{clients},REPLICATION://127.0.0.1:{own}"),
            ),
            (
                "advertised.listeners",
                format!("{clients},REPLICATION://{}", replication.bootstrap()),
            ),
            (
                "listener.security.protocol.map",
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT".to_owned(),
            ),
            ("inter.broker.listener.name", "REPLICATION".to_owned()),
            ("controller.quorum.voters", voters.join(",")),
        ]);
        Links {
            replication: Some(replication),
            controllers: to_controllers,
        }
    }

    fn all(&self) -> impl Iterator<Item = &StallingProxy> {
        self.replication.iter().chain(&self.controllers)
    }
}

/// Has it begin.
pub fn begin(trouble: Trouble, broker: &mut Member, links: &Links) -> Result<()> {
    match trouble {
        Trouble::Stopped => {
            broker.take()?.stop()?;
        }
        Trouble::Killed => broker.take()?.kill()?,
        Trouble::Paused => running(broker)?.pause()?,
        Trouble::Unreachable => links.replication.iter().for_each(StallingProxy::cut),
        Trouble::Isolated => links.all().for_each(StallingProxy::cut),
        Trouble::Slowed => links.all().for_each(|link| link.slow(LATE)),
        Trouble::Bereft => std::fs::remove_dir_all(second_dir(broker))?,
        Trouble::Full => fill(broker)?,
    }
    Ok(())
}

/// Has it end; the broker runs afterwards.
pub fn end(trouble: Trouble, broker: &mut Member, links: &Links) -> Result<()> {
    match trouble {
        Trouble::Stopped | Trouble::Killed => broker.start(),
        Trouble::Paused => running(broker)?.resume(),
        Trouble::Unreachable | Trouble::Isolated | Trouble::Slowed => {
            links.all().for_each(StallingProxy::mend);
            Ok(())
        }
        Trouble::Bereft => {
            broker.take()?.kill()?;
            broker.start()
        }
        Trouble::Full => {
            std::fs::remove_file(ballast(broker))?;
            // A directory that was full is offline with Kafka until it is started again.
            if broker.peer.id() != "ottla" {
                broker.take()?.kill()?;
                broker.start()?;
            }
            Ok(())
        }
    }
}

/// How late everything is on a slow network: several round trips make a heartbeat.
const LATE: Duration = Duration::from_millis(150);

fn running(broker: &mut Member) -> Result<&mut crate::peer::Node> {
    let name = broker.name();
    let node = broker.node.as_mut();
    let node = node.with_context(|| format!("{name} does not run"))?;
    ensure!(node.ended()?.is_none(), "{name} has ended by itself");
    Ok(node)
}

/// The log directory that comes to harm. The other one has the metadata log.
pub fn second_dir(broker: &Member) -> PathBuf {
    broker.options.dir.join("second")
}

fn ballast(broker: &Member) -> PathBuf {
    second_dir(broker).join("ballast")
}

/// Takes all the room that is left.
fn fill(broker: &Member) -> Result<()> {
    let mut file = File::create(ballast(broker))?;
    for size in [1 << 20, 4096, 1] {
        let piece = vec![0; size];
        while file.write_all(&piece).is_ok() {}
    }
    Ok(())
}
