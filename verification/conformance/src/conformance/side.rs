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
}

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
    let overrides = [
        // Groups begin soon, and a second member's join is not held back for three seconds.
        ("group.initial.rebalance.delay.ms", "500".to_owned()),
        // Members of the consumer protocol hear of a new assignment with their next heartbeat.
        ("group.consumer.min.heartbeat.interval.ms", "300".to_owned()),
        ("group.consumer.heartbeat.interval.ms", "300".to_owned()),
        ("group.streams.min.heartbeat.interval.ms", "300".to_owned()),
        ("group.streams.heartbeat.interval.ms", "300".to_owned()),
        // Groups that are left to the comparison of the tools keep their members for so long.
        ("group.streams.max.session.timeout.ms", "600000".to_owned()),
        ("auto.create.topics.enable", "true".to_owned()),
        // The scripts' records are from long ago: retention, which begins half a minute after the start, would delete those
        // in topics that were made by asking for them, in slow runs before a script has looked.
        ("log.initial.task.delay.ms", "3600000".to_owned()),
    ];
    let overrides = overrides
        .iter()
        .chain(settings)
        .map(|(key, value)| ((*key).to_owned(), value.clone()))
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
        node,
        arguments: Vec::new(),
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
