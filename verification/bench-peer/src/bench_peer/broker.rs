//! A broker under measurement.

use anyhow::{Result, ensure};
use ottla_peers::{Node, is_orderly};

/// Stops a broker. It is an error if the broker had already exited or exits with a failure.
pub fn stop(node: &mut Node) -> Result<()> {
    if let Some(status) = node.ended()? {
        anyhow::bail!(
            "the broker had ended by itself ({status}):\n{}",
            node.output_tail()
        );
    }
    let status = node.stop()?;
    ensure!(
        is_orderly(status),
        "asked to stop, the broker ended with {status}:\n{}",
        node.output_tail()
    );
    Ok(())
}
