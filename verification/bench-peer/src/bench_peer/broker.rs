//! A broker under measurement.

use anyhow::{Result, ensure};
use ottla_peers::Node;

/// Stops a broker. It is an error if the broker had already exited or exits with a failure.
pub fn stop(node: &mut Node) -> Result<()> {
    if let Some(status) = node.ended()? {
        anyhow::bail!(
            "the broker had ended by itself ({status}):\n{}",
            node.output_tail()
        );
    }
    let status = node.stop()?;
    // An orderly stop of a JVM exits with 128 + SIGTERM.
    ensure!(
        status.success() || status.code() == Some(143),
        "asked to stop, the broker ended with {status}:\n{}",
        node.output_tail()
    );
    Ok(())
}
