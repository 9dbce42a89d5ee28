//! Clusters of three brokers and a controller: all of them Apache Kafka's, and all of them Ottla's, in turn.
//!
//! A turn starts a cluster on empty directories and goes through its parts in the order of [`Part`], so that everything that
//! a part measures it measures of brokers that have already worked. The topics of a part are deleted before the
//! next, and its files are gone then.

mod bench;
mod latency;
mod many_partitions;
mod producers;

use anyhow::Result;

use bench::Bench;

use super::disk::Scratch;
use super::setting::{BROKERS, Options, Part, STORED_BYTES, Setting};
use super::table::Results;

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let options = setting.options;
    // Deleted when all has been measured: for minutes after a hundred thousand files were deleted, ext4 looks at each of
    // them whenever it makes a new one, and the next turn would pay for the files of the last.
    let mut done = Vec::new();
    setting.alternate(results, |side, round, results| {
        let scratch = Scratch::new(&format!("cluster-{round}-{side}"), disk_of(options))?;
        let mut bench = Bench::start(setting, side, scratch)?;
        for part in options.parts() {
            // What the last part wrote is on the disk: who has written more of it in less time does not pay for that now.
            rustix::fs::sync();
            match part {
                Part::Producers => producers::measure(&mut bench)?,
                Part::Latency => latency::measure(&mut bench)?,
                Part::ManyPartitions => many_partitions::measure(&mut bench)?,
            }
        }
        bench.cluster.stop()?;
        for (measure, value) in bench.measured {
            results.add(side, round, format!("cluster: {measure}"), value);
        }
        done.push(bench.scratch);
        Ok(())
    })
}

pub fn settings_in_words(options: &Options) -> String {
    let mut parts = Vec::new();
    for part in options.parts() {
        parts.push(match part {
            Part::Producers => producers::settings_in_words(options),
            Part::Latency => latency::settings_in_words(options),
            Part::ManyPartitions => many_partitions::settings_in_words(options),
        });
    }
    format!(
        "{BROKERS} brokers and one controller, each a process; {}",
        parts.join("; ")
    )
}

/// The most that lies on the disk at once.
fn disk_of(options: &Options) -> u64 {
    let replicas = BROKERS as u64;
    let of_records = options.cluster_records() * STORED_BYTES * replicas;
    let partitions = options.cluster_partitions() as u64 * options.replicas as u64;
    let of_part = |part: &Part| match part {
        Part::Producers => of_records,
        Part::Latency => options.latency_seconds * latency::RATE * STORED_BYTES * replicas,
        // Kafka's indexes are as large as they may become, and have blocks where something was written.
        Part::ManyPartitions => partitions * (32 << 10),
    };
    options.parts().iter().map(of_part).max().unwrap_or(0) + 1_000_000_000
}
