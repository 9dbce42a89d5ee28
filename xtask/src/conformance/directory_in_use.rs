//! A data directory belongs to one process: each broker is started on the directory that the other one holds, and has
//! to refuse.

use std::path::Path;

use anyhow::Result;

use super::Side;
use crate::peer::NodeOptions;
use crate::report::Tally;

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
            features: Vec::new(),
        });
        let what = format!(
            "{} on the directory of a running {}",
            intruder.label, holder.label
        );
        let passed = match result {
            Ok((status, output)) => {
                // Both name the lock; what else they print is theirs.
                let names_it = output.contains("lock") || output.contains("in use");
                let verdict = if !status.success() && names_it {
                    "ok  "
                } else {
                    "FAIL"
                };
                let said = output
                    .lines()
                    .find(|line| line.contains("lock") || line.contains("in use"));
                println!(
                    "{verdict} {what}: {status}, {}",
                    said.unwrap_or("no word of the lock").trim()
                );
                !status.success() && names_it
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
