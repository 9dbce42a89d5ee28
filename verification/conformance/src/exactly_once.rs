//! `cargo xtask exactly-once`: applications read, process and write in transactions, while brokers
//! and the applications are killed (`kill -9`) and restarted. At the end each record must have been
//! processed exactly once.
//!
//! `copies` runs three processes that copy a topic record by record, like Kafka's
//! TransactionalMessageCopier; the copies must contain each number once, in order. `streams` runs a
//! Kafka Streams application with joins, windows and state stores, whose output must equal that of
//! a run without faults; `streams-group` does the same in a streams group (KIP-1071). `histories`
//! runs random operations of Ottla's client and checks the results with
//! `ottla_testkit::client_histories`. All consumers use `read_committed`. With several brokers,
//! coordinators fail over and markers are sent between brokers. The folder of a failed run is kept.

mod application;
mod copies;
mod histories;
mod stage;
mod streams;

use std::path::Path;

use anyhow::{Result, ensure};

pub use stage::Options;
use stage::{PARTITIONS, Stage, Work};

use crate::seeded::{self, Seeded};

pub fn run(options: &Options) -> Result<()> {
    ensure!(!options.brokers.is_empty(), "--brokers needs a name");
    let seed = options.run.seed();
    let dir = options.run.make("exactly-once", seed)?;
    println!(
        "brokers {}, {} kills, seed {seed}",
        options.brokers.join(", "),
        options.kills
    );
    let outcome = tell(options, &mut Seeded::new(seed), &dir);
    seeded::conclude(outcome, seed, &dir, options.run.run_dir.keep)
}

/// Runs the whole scenario and returns the violations.
fn tell(options: &Options, random: &mut Seeded, dir: &Path) -> Result<Vec<String>> {
    let mut stage = Stage::begin(options, dir)?;
    let mut wrong = match options.work {
        Work::Copies => copies::run(&mut stage, options.kills, random)?,
        Work::Streams => streams::run(&mut stage, options.kills, random, "classic")?,
        Work::StreamsGroup => streams::run(&mut stage, options.kills, random, "streams")?,
        Work::Histories => histories::run(&mut stage, options.kills, random)?,
    };
    wrong.extend(stage.cluster.stop()?);
    Ok(wrong)
}
