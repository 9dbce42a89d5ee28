//! The measures of one node on an empty directory, in the order of [`Row`].
//!
//! A start takes milliseconds, so other activity of the machine dominates a bad sample. A turn
//! therefore begins with several starts, each on a fresh directory with no pending writes; the
//! median counts and the maximum is shown.

use std::path::Path;

use anyhow::Result;

use super::broker;
use super::disk::Scratch;
use super::rows::{Bench, Row};
use super::setting::Setting;
use super::table::{Results, median};
use ottla_peers::{InstalledPeer, Node, NodeOptions};

/// A deleted topic's files are removed soon, so that their space is free for the next row.
pub const DELETE_SOON: (&str, &str) = ("log.segment.delete.delay.ms", "1000");

const STARTS: usize = 5;

const AT_ONCE: [(&str, &str); 2] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.consumer.assignment.interval.ms", "0"),
];

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let options = setting.options;
    let gigabytes = options.gigabytes_or(10.0);
    let rows = match options.rows.as_slice() {
        [] => Row::ALL.to_vec(),
        some => some.to_vec(),
    };
    setting.alternate(results, |side, round, results| {
        let broker = setting.sides[side];
        let scratch = Scratch::new(
            broker.id(),
            disk_of(&rows, options.node_records(), gigabytes),
        )?;
        let mut overrides = vec![(DELETE_SOON.0.to_owned(), DELETE_SOON.1.to_owned())];
        overrides.extend(options.overrides.iter().cloned());
        if rows.contains(&Row::Startup) {
            let mut times = start_times(broker, &overrides)?;
            times.sort_by(f64::total_cmp);
            let mut add =
                |measure: &str, value| results.add(side, round, measure.to_owned(), value);
            add("start-up: exec to first answer, ms", median(&times));
            add(
                &format!("start-up: the longest of {STARTS}, ms"),
                times[STARTS - 1],
            );
        }
        if rows.contains(&Row::Groups) {
            // Configured delays are not measured.
            overrides.extend(AT_ONCE.map(|(key, value)| (key.to_owned(), value.to_owned())));
        }
        let start_again = || start(broker, scratch.path(), &overrides);
        let mut bench = Bench {
            node: start_again()?,
            start_again: &start_again,
            kafka: setting.kafka,
            load_generator: setting.load_generator()?,
            records: options.node_records(),
            gigabytes,
            measured: Vec::new(),
        };
        for row in &rows {
            bench.run(*row)?;
        }
        broker::stop(&mut bench.node)?;
        for (measure, value) in bench.measured {
            results.add(side, round, measure, value);
        }
        Ok(())
    })
}

fn start(broker: &InstalledPeer, dir: &Path, overrides: &[(String, String)]) -> Result<Node> {
    broker.start(NodeOptions {
        dir: dir.to_path_buf(),
        overrides: overrides.to_vec(),
        ..NodeOptions::default()
    })
}

/// Milliseconds from exec to the first response, for starts on fresh directories.
fn start_times(broker: &InstalledPeer, overrides: &[(String, String)]) -> Result<Vec<f64>> {
    let one = |_| {
        let scratch = Scratch::new(&format!("{}-start", broker.id()), 100_000_000)?;
        rustix::fs::sync();
        let mut node = start(broker, scratch.path(), overrides)?;
        let time = node.time_to_first_answer().as_secs_f64() * 1e3;
        broker::stop(&mut node)?;
        Ok(time)
    };
    (0..STARTS).map(one).collect()
}

/// The maximum disk usage of these rows, in bytes; each row deletes data that the next does not
/// read.
fn disk_of(rows: &[Row], records: u64, gigabytes: f64) -> u64 {
    let of_row = |row: &Row| match row {
        Row::Producer | Row::Consumer => records * 110,
        Row::SmallBatches => (gigabytes * 0.25e9) as u64 + 200_000_000,
        // Of both sizes of frames, before their processes end.
        Row::BareLoop => 2 * ((gigabytes * 0.25e9) as u64 + 200_000_000),
        Row::LargeBatches | Row::Fetch => (gigabytes * 1e9) as u64 + 500_000_000,
        _ => 0,
    };
    rows.iter().map(of_row).max().unwrap_or(0) + 300_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_row_gives_the_required_disk_space() {
        assert_eq!(disk_of(&Row::ALL, 10_000_000, 10.0), 10_800_000_000);
        assert!(disk_of(&[Row::Startup], 10_000_000, 10.0) < 1 << 30);
        assert_eq!(disk_of(&[Row::BareLoop], 10_000_000, 10.0), 5_700_000_000);
    }
}
