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
        // Groups start soon, and the join of a second member is not delayed by three seconds.
        ("group.initial.rebalance.delay.ms", "500".to_owned()),
        // Members of the consumer protocol learn of a new assignment with their next heartbeat.
        ("group.consumer.min.heartbeat.interval.ms", "300".to_owned()),
        ("group.consumer.heartbeat.interval.ms", "300".to_owned()),
        ("group.streams.min.heartbeat.interval.ms", "300".to_owned()),
        ("group.streams.heartbeat.interval.ms", "300".to_owned()),
        // Members of the groups that the tools inspect later must not time out before that.
        ("group.streams.max.session.timeout.ms", "600000".to_owned()),
        ("auto.create.topics.enable", "true".to_owned()),
        // The scripts' records have old timestamps. Retention, which starts half a minute after the
        // broker, would delete them in auto-created topics before a slow script has read them.
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

/// Formats a list of differences under a heading.
pub(super) fn shown(heading: &str, lines: &[impl Display]) -> String {
    let mut text = format!("{heading}\n");
    for line in lines {
        let _ = writeln!(text, "    {line}");
    }
    text
}
