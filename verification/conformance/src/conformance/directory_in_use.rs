//! A data directory belongs to one process: each broker is started on the directory that the other
//! one holds, and must refuse to start.

use std::path::Path;

use anyhow::Result;

use super::Side;
use ottla_peers::NodeOptions;
use ottla_workspace::report::Tally;

pub fn check(sides: &[Side; 2], out: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    for (holder, intruder) in [(0, 1), (1, 0)] {
        let (holder, intruder) = (&sides[holder], &sides[intruder]);
        let dir = out.join(format!("{}-on-{}", intruder.label, holder.label));
        let held = holder.node.data_dir();
        let result = intruder.peer.start_refused(NodeOptions {
            dir,
            port: None,
            overrides: vec![("log.dirs".to_owned(), held.display().to_string())],
            ..NodeOptions::default()
        });
        let what = format!(
            "{} on the directory of a running {}",
            intruder.label, holder.label
        );
        let passed = match result {
            Ok((status, output)) => {
                let said = output.lines().find(|line| names_the_lock(line));
                let is_refused = !status.success() && said.is_some();
                let verdict = if is_refused { "ok  " } else { "FAIL" };
                let said = said.unwrap_or("no word of the lock").trim();
                println!("{verdict} {what}: {status}, {said}");
                is_refused
            }
            Err(error) => {
                println!("FAIL {what}: {error:#}");
                false
            }
        };
        tally.add(Tally::of(passed));
    }
    Ok(tally)
}

/// Matches Kafka's message, or Ottla's.
fn names_the_lock(line: &str) -> bool {
    line.contains("Failed to acquire lock on file") || line.contains("is in use by another")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_about_the_directorys_lock_counts() {
        assert!(names_the_lock(
            "ottla: log directory /x is in use by another Ottla or Kafka process"
        ));
        assert!(names_the_lock(
            "KafkaException: Failed to acquire lock on file .lock in /x."
        ));
        assert!(!names_the_lock(
            "\tgroup.share.max.partition.max.record.locks = 4000"
        ));
    }
}
