//! Clusters of three brokers and a controller: all Apache Kafka, and all Ottla, in turn.
//!
//! A turn starts a cluster on empty directories and runs its parts in the order of [`Part`], so
//! each part measures brokers that have already worked. The topics of a part are deleted, files
//! included, before the next.

mod bench;
mod first_second;
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
    // Deleted after all measurements: for minutes after a hundred thousand files were deleted, ext4
    // inspects each of them when it creates a file, which the next turn would pay for.
    let mut done = Vec::new();
    setting.alternate(results, |side, round, results| {
        let scratch = Scratch::new(&format!("cluster-{round}-{side}"), disk_of(options))?;
        let mut bench = Bench::start(setting, side, scratch)?;
        for part in options.parts() {
            // Flushes the writes of the last part. Otherwise a broker that writes more in less time
            // would pay for it in the next part.
            rustix::fs::sync();
            match part {
                Part::Producers => producers::measure(&mut bench)?,
                Part::Latency => latency::measure(&mut bench)?,
                Part::FirstSecond => first_second::measure(&mut bench)?,
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
            Part::FirstSecond => first_second::settings_in_words(),
            Part::ManyPartitions => many_partitions::settings_in_words(options),
        });
    }
    format!(
        "{BROKERS} brokers and one controller, each a process; {}",
        parts.join("; ")
    )
}

/// The maximum disk usage, in bytes.
fn disk_of(options: &Options) -> u64 {
    let replicas = BROKERS as u64;
    let of_records = options.cluster_records() * STORED_BYTES * replicas;
    let partitions = options.cluster_partitions() as u64 * options.replicas as u64;
    let of_part = |part: &Part| match part {
        Part::Producers => of_records,
        Part::Latency => options.latency_seconds * latency::RATE * STORED_BYTES * replicas,
        // One second each.
        Part::FirstSecond => 0,
        // Kafka preallocates indexes sparsely, so they take blocks only where something was
        // written.
        Part::ManyPartitions => partitions * (32 << 10),
    };
    options.parts().iter().map(of_part).max().unwrap_or(0) + 1_000_000_000
}
