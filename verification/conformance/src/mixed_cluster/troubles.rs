//! The failures that a broker is subjected to, and how each ends.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::links::Links;
use crate::seeded::Seeded;
use anyhow::{Context, Result, ensure};
use ottla_peers::Member;
use ottla_types::Uuid;

/// A fault of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Trouble {
    /// SIGTERM, then a restart.
    Stopped,
    /// SIGKILL, then a restart.
    Killed,
    /// SIGSTOP, then SIGCONT: the broker wakes up in a cluster that has moved on.
    Paused,
    /// Other brokers cannot reach it; clients and controllers can.
    Unreachable,
    /// It reaches no controller and no broker reaches it; clients can still reach it.
    Isolated,
    /// Its traffic with other brokers and controllers is delayed.
    Slowed,
    /// One of its two log directories is deleted while it runs; later it is killed and restarted
    /// with an empty one.
    Bereft,
    /// One of its two log directories is full for a while. The directories are then small file
    /// systems, which needs root or a user namespace.
    Full,
}

/// The kinds that need no privileges.
pub const USUAL: [Trouble; 7] = [
    Trouble::Stopped,
    Trouble::Killed,
    Trouble::Paused,
    Trouble::Unreachable,
    Trouble::Isolated,
    Trouble::Slowed,
    Trouble::Bereft,
];

/// The kinds that need no privileges for combined nodes, which have no separate network links.
pub const WITHOUT_NETWORK: [Trouble; 4] = [
    Trouble::Stopped,
    Trouble::Killed,
    Trouble::Paused,
    Trouble::Bereft,
];

/// The size of a log directory that may become full, in MiB.
pub const SMALL_MEBIBYTES: u32 = 96;

impl Trouble {
    pub fn needs_network(self) -> bool {
        matches!(
            self,
            Trouble::Unreachable | Trouble::Isolated | Trouble::Slowed
        )
    }

    /// A random duration, sometimes long enough for a session timeout or for a follower to leave
    /// the ISR.
    pub fn duration(self, random: &mut Seeded) -> Duration {
        let longest = match self {
            Trouble::Stopped | Trouble::Killed => 6000,
            Trouble::Slowed => 8000,
            _ => 12_000,
        };
        Duration::from_millis(random.below(longest))
    }
}

/// Starts the failure.
pub fn begin(trouble: Trouble, broker: &mut Member, links: &mut Links) -> Result<()> {
    match trouble {
        Trouble::Stopped => {
            broker.take()?.stop()?;
        }
        Trouble::Killed => broker.take()?.kill()?,
        Trouble::Paused => running(broker)?.pause()?,
        Trouble::Unreachable => links.cut_from_brokers()?,
        Trouble::Isolated => links.cut()?,
        Trouble::Slowed => links.slow()?,
        Trouble::Bereft => delete(&second_dir(broker))?,
        Trouble::Full => fill(broker)?,
    }
    Ok(())
}

/// Ends the failure; the broker is running afterwards.
pub fn end(trouble: Trouble, broker: &mut Member, links: &mut Links) -> Result<()> {
    match trouble {
        Trouble::Stopped | Trouble::Killed => broker.start(),
        Trouble::Paused => running(broker)?.resume(),
        Trouble::Unreachable | Trouble::Isolated | Trouble::Slowed => links.mend(),
        Trouble::Bereft => {
            broker.take()?.kill()?;
            if broker.peer.id() != "ottla" {
                format(broker)?;
            }
            broker.start()
        }
        Trouble::Full => {
            std::fs::remove_file(ballast(broker))?;
            // A full log directory stays offline on Kafka until a restart.
            if broker.peer.id() != "ottla" {
                broker.take()?.kill()?;
                broker.start()?;
            }
            Ok(())
        }
    }
}

fn running(broker: &mut Member) -> Result<&mut ottla_peers::Node> {
    let name = broker.name();
    let node = broker.node.as_mut();
    let node = node.with_context(|| format!("{name} does not run"))?;
    ensure!(node.ended()?.is_none(), "{name} has ended by itself");
    Ok(node)
}

/// The log directory that is disturbed. The other one holds the metadata log.
pub fn second_dir(broker: &Member) -> PathBuf {
    broker.options.dir.join("second")
}

/// Deletes the directory, or all its contents if it is a mount point.
fn delete(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(()),
        outcome => outcome.with_context(|| format!("cannot delete {}", dir.display())),
    }
}

/// Formats an empty directory for this broker. Kafka leaves this to its administrators.
fn format(broker: &Member) -> Result<()> {
    let own = std::fs::read_to_string(broker.options.dir.join("data/meta.properties"))?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let directory_id = Uuid::from_u128(since_epoch.as_nanos() << 32);
    let others = own
        .lines()
        .filter(|line| !line.starts_with("directory.id="));
    let mut text = others.collect::<Vec<_>>().join("\n");
    writeln!(text, "\ndirectory.id={directory_id}")?;
    std::fs::create_dir_all(second_dir(broker))?;
    std::fs::write(second_dir(broker).join("meta.properties"), text)?;
    Ok(())
}

fn ballast(broker: &Member) -> PathBuf {
    second_dir(broker).join("ballast")
}

/// Fills the file system.
fn fill(broker: &Member) -> Result<()> {
    let mut file = File::create(ballast(broker))?;
    for size in [1 << 20, 4096, 1] {
        let piece = vec![0; size];
        while file.write_all(&piece).is_ok() {}
    }
    Ok(())
}
