//! One side of the comparison: a node of one broker. Also formats differences.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;

use anyhow::{Result, bail};
use ottla_peers::{InstalledPeer, Node, NodeOptions};

/// One side of the comparison.
pub struct Side {
    /// `kafka` or `ottla`, with `-again` appended if one broker is compared with itself.
    pub(super) label: String,
    pub(super) peer: InstalledPeer,
    pub(super) node: Node,
    /// Additional arguments of its scripts, after the address.
    pub(super) arguments: Vec<String>,
    /// How tools log in, if they must.
    pub(super) logins: Option<Logins>,
    /// The ports of all client listeners, the plaintext one first.
    pub(super) ports: Vec<u16>,
}

/// How tools log in on a side.
pub(super) struct Logins {
    pub bootstrap: String,
    /// Holds `USER.properties`.
    pub dir: PathBuf,
}

impl Logins {
    /// The `--command-config` of a user.
    pub fn of(&self, user: &str) -> PathBuf {
        self.dir.join(user).with_extension("properties")
    }
}

/// The settings of every node of a comparison.
#[rustfmt::skip]
pub(super) const OVERRIDES: &[(&str, &str)] = &[
    // Groups start soon, and the join of a second member is not delayed by three seconds.
    ("group.initial.rebalance.delay.ms", "500"),
    // Members of the consumer protocol learn of a new assignment with their next heartbeat.
    ("group.consumer.min.heartbeat.interval.ms", "300"),
    ("group.consumer.heartbeat.interval.ms", "300"),
    ("group.streams.min.heartbeat.interval.ms", "300"),
    ("group.streams.heartbeat.interval.ms", "300"),
    // Members of the groups that the tools inspect later must not time out before that.
    ("group.streams.max.session.timeout.ms", "600000"),
    ("auto.create.topics.enable", "true"),
    // The scripts' records have old timestamps. Retention, which starts half a minute after the
    // broker, would delete them in auto-created topics before a slow script has read them.
    ("log.initial.task.delay.ms", "3600000"),
];

pub(super) fn stop(sides: &mut [Side; 2]) -> Result<()> {
    for side in sides {
        if let Some(status) = side.node.ended()? {
            bail!(
                "{} ended by itself ({status}):\n{}",
                side.label,
                side.node.output_tail()
            );
        }
        let status = side.node.stop()?;
        println!("{} stopped: {status}", side.label);
    }
    Ok(())
}

pub(super) fn start_with(
    peer: &InstalledPeer,
    label: &str,
    dir: PathBuf,
    settings: &[(&str, String)],
) -> Result<Side> {
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    let common = OVERRIDES
        .iter()
        .map(|(key, value)| (*key, (*value).to_owned()));
    let overrides = common
        .chain(settings.iter().cloned())
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let node = peer.start(NodeOptions {
        dir,
        port: None,
        overrides,
        ..NodeOptions::default()
    })?;
    Ok(Side {
        label: label.to_owned(),
        peer: peer.clone(),
        ports: vec![node.port()],
        node,
        arguments: Vec::new(),
        logins: None,
    })
}

/// Formats a list of differences under a heading.
pub(super) fn shown(heading: &str, lines: &[impl Display]) -> String {
    let mut text = format!("{heading}\n");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    text
}
