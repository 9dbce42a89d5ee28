//! One side of the comparison: a node of one broker, and how what differs is shown.

use std::fmt::{Display, Write as _};
use std::path::PathBuf;

use anyhow::{Result, bail};
use ottla_peers::{InstalledPeer, Node, NodeOptions};

/// One side of the comparison.
pub struct Side {
    /// `kafka` or `ottla`; `-again` is added where one broker is compared with itself.
    pub(super) label: String,
    pub(super) peer: InstalledPeer,
    pub(super) node: Node,
    /// What its scripts are told besides its address.
    pub(super) arguments: Vec<String>,
    /// How tools log in where they have to.
    pub(super) logins: Option<Logins>,
    /// Of all listeners for clients, the plain one first.
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

/// What every node of a comparison is told.
#[rustfmt::skip]
pub(super) const OVERRIDES: &[(&str, &str)] = &[
    // Groups begin soon, and a second member's join is not held back for three seconds.
    ("group.initial.rebalance.delay.ms", "500"),
    // Members of the consumer protocol hear of a new assignment with their next heartbeat.
    ("group.consumer.min.heartbeat.interval.ms", "300"),
    ("group.consumer.heartbeat.interval.ms", "300"),
    ("group.streams.min.heartbeat.interval.ms", "300"),
    ("group.streams.heartbeat.interval.ms", "300"),
    // Groups that are left to the comparison of the tools keep their members for so long.
    ("group.streams.max.session.timeout.ms", "600000"),
    ("auto.create.topics.enable", "true"),
    // The scripts' records are from long ago: retention, which begins half a minute after the start, would delete those
    // in topics that were made by asking for them, in slow runs before a script has looked.
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

/// Shows a list of differences under a heading.
pub(super) fn shown(heading: &str, lines: &[impl Display]) -> String {
    let mut text = format!("{heading}\n");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    text
}
