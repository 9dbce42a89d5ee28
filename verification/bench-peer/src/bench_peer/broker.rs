//! A broker under measurement.

use anyhow::{Result, ensure};
use ottla_peers::Node;

/// Stops a broker; one that had ended, or that ends with a failure, is an error.
pub fn stop(node: &mut Node) -> Result<()> {
    if let Some(status) = node.ended()? {
        anyhow::bail!(
            "the broker had ended by itself ({status}):\n{}",
            node.output_tail()
        );
    }
    let status = node.stop()?;
    // The Java virtual machine ends with 128 + SIGTERM after an orderly stop.
    ensure!(
        status.success() || status.code() == Some(143),
        "asked to stop, the broker ended with {status}:\n{}",
        node.output_tail()
    );
    Ok(())
}
