//! The file of a plan, as `kafka-reassign-partitions.sh` takes it.

use anyhow::{Context, anyhow, bail};

use crate::tools::reassign_partitions::assignment_file::{Assignment, parse_assignment, shown};

/// Reads a plan file.
pub(super) fn read(path: &str) -> anyhow::Result<Assignment> {
    let read = || -> anyhow::Result<Assignment> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow!("cannot be read: {error}; check the path"))?;
        let assignment = parse_assignment(&text)?;
        assignment.checked()?;
        if let Some(((broker, partition), _)) = assignment.log_dirs.first_key_value() {
            bail!(
                "names a log directory for {} on broker {broker}; remove \"log_dirs\", or use ottla reassign-partitions",
                shown(partition)
            );
        }
        Ok(assignment)
    };
    read().with_context(|| format!("--plan {path}"))
}
