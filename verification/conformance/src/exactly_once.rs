//! `cargo xtask exactly-once`: applications that read, work and write in transactions, while brokers and they themselves are
//! killed (`kill -9`) and started again; in the end each record must have been worked on once.
//!
//! `copies` are three processes that copy a topic record by record, as Kafka's own TransactionalMessageCopier does: the
//! copies must hold each number once, in order. `streams` is a Kafka Streams application with joins, windows and state
//! stores, whose output must be that of a run without faults; `streams-group` is the same in a group of KIP-1071.
//! `histories` are clients of ours that do this and that, and `ottla_testkit::client_histories` says what may not be in
//! what they were told. All read only what is committed. With several brokers, coordinators fail over and markers go from
//! broker to broker. A run that finds something keeps its folder.

mod application;
mod copies;
mod histories;
mod stage;
mod streams;

use std::path::Path;

use anyhow::{Context, Result, ensure};

pub use stage::Options;
use stage::{PARTITIONS, Stage, Work};

use crate::seeded::{self, Seeded};
use ottla_workspace::workspace;

pub fn run(options: &Options) -> Result<()> {
    ensure!(!options.brokers.is_empty(), "--brokers needs a name");
    let seed = options.seed.unwrap_or_else(seeded::chance);
    let dir = workspace::target_dir()
        .join("exactly-once")
        .join(format!("seed-{seed}"));
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    println!(
        "brokers {}, {} kills, seed {seed}",
        options.brokers.join(", "),
        options.kills
    );
    let folder = dir.display();
    let wrong = tell(options, &mut Seeded::new(seed), &dir)
        .with_context(|| format!("with --seed {seed}; outputs in {folder}"))?;
    seeded::conclude(&wrong, seed, &dir, options.keep)
}

/// All that happens between the start and the end; gives what is wrong.
fn tell(options: &Options, random: &mut Seeded, dir: &Path) -> Result<Vec<String>> {
    let mut stage = Stage::begin(options, dir)?;
    let mut wrong = match options.work {
        Work::Copies => copies::run(&mut stage, options.kills, random)?,
        Work::Streams => streams::run(&mut stage, options.kills, random, "classic")?,
        Work::StreamsGroup => streams::run(&mut stage, options.kills, random, "streams")?,
        Work::Histories => histories::run(&mut stage, options.kills, random)?,
    };
    for (name, status) in stage.cluster.stop()? {
        // The Java virtual machine ends with 128 + SIGTERM after an orderly stop.
        if !status.success() && status.code() != Some(143) {
            wrong.push(format!("{name} ended with {status}"));
        }
    }
    Ok(wrong)
}
