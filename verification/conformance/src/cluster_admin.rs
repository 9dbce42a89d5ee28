//! `cargo xtask cluster-admin`: what an administrator does to a cluster of several brokers, with Kafka's tools and with
//! ours, each the same on topics of its own. What they print and how they end must be alike line by line, and what they
//! have done is looked at in the brokers' answers and in their directories.
//!
//! Replicas are moved, slowly and at once, moves are called off, leaders are elected, partitions lose all their replicas
//! in sync, and a broker is taken out of the cluster and comes back. Only names of topics differ between the two, so that
//! a command of the one finds what its own commands have left.

mod desk;
mod elections;
mod membership;
mod reassignments;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::conformance::comparison::{self, KnownDifferences};
use desk::{Desk, LARGEST_FETCH};
use ottla_peers::{Cluster, Peer};
use ottla_workspace::report::Tally;
use ottla_workspace::workspace;

#[derive(clap::Args)]
pub struct Options {
    /// The three brokers, by the names of files in peers/.
    #[arg(long, value_delimiter = ',', default_value = "ottla,ottla,ottla")]
    brokers: Vec<String>,
    /// The controllers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "kafka")]
    controllers: Vec<String>,
    /// Only this part; may be repeated or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Where the run's folder is made, in place of the target directory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the folder of a run that found nothing too.
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Moves of replicas between brokers and directories, throttled, called off and finished.
    Reassignments,
    /// Elections of preferred leaders, and of replicas that are not in sync.
    Elections,
    /// The quorum, racks, and a broker that is taken out and comes back.
    Membership,
}

const ALL: [Part; 3] = [Part::Reassignments, Part::Elections, Part::Membership];

/// The rack of each broker.
const RACKS: [&str; 3] = ["a", "a", "b"];

/// The name under which `known-differences.toml` has these steps.
const CLIENT: &str = "cluster-admin";

pub fn run(options: &Options) -> Result<()> {
    if options.brokers.len() != RACKS.len() {
        bail!("--brokers needs {} names", RACKS.len());
    }
    let target = workspace::target_dir().join("cluster-admin");
    let dir = options.dir.clone().unwrap_or(target);
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    let mut cluster = plan(options, &dir)?;
    cluster.start()?;
    println!(
        "brokers {}, controllers {}",
        options.brokers.join(", "),
        options.controllers.join(", ")
    );
    let kafka = Peer::load("kafka")?.install()?;
    let ottla = Peer::load("ottla")?.install()?;
    let mut desk = Desk::new(cluster, [kafka, ottla], &dir)?;
    // In this order: replicas that a later one has placed by chance would stand in what an earlier one lists.
    let is_asked_for = |part: &&Part| options.only.is_empty() || options.only.contains(part);
    let parts = ALL.iter().filter(is_asked_for);
    let mut tally = Tally::default();
    for part in parts {
        let began = Instant::now();
        let outcome = match part {
            Part::Reassignments => reassignments::run(&mut desk),
            Part::Elections => elections::run(&mut desk),
            Part::Membership => membership::run(&mut desk),
        };
        match &outcome {
            Ok(()) => println!("ok   {part:?} ({:.0?})", began.elapsed()),
            Err(error) => println!("FAIL {part:?}: {error:#}"),
        }
        tally.add(Tally::of(outcome.is_ok()));
        // Each goes on with what the one before left.
        if outcome.is_err() {
            break;
        }
    }
    for (name, status) in desk.cluster.stop()? {
        // The Java virtual machine ends with 128 + SIGTERM after an orderly stop.
        if !status.success() && status.code() != Some(143) {
            println!("FAIL {name} ended with {status}");
            tally.failed += 1;
        }
    }
    tally.add(compare(&desk));
    tally.conclude(&dir, options.keep)
}

fn plan(options: &Options, dir: &std::path::Path) -> Result<Cluster> {
    let settings = [
        ("broker.session.timeout.ms", "3000".to_owned()),
        ("broker.heartbeat.interval.ms", "500".to_owned()),
        // Leaders stay where elections leave them.
        ("auto.leader.rebalance.enable", "false".to_owned()),
        ("log.segment.delete.delay.ms", "500".to_owned()),
        // A throttle lets a whole fetch through at a time, and has to be felt where it is lower than that.
        ("replica.fetch.max.bytes", LARGEST_FETCH.to_string()),
    ];
    let mut cluster = Cluster::plan(&options.brokers, &options.controllers, dir, &settings)?;
    for (broker, rack) in cluster.brokers.iter_mut().zip(RACKS) {
        let data = broker.options.dir.join("data");
        let second = broker.options.dir.join("second");
        let dirs = format!("{},{}", data.display(), second.display());
        broker.set(&[("broker.rack", rack.to_owned()), ("log.dirs", dirs)]);
        // What is looked for in what they print.
        let log_level = ("OTTLA_LOG".to_owned(), "info".to_owned());
        broker.options.environment.push(log_level);
    }
    Ok(cluster)
}

/// Compares what the tools have printed.
fn compare(desk: &Desk) -> Tally {
    let [theirs, ours] = desk.printed();
    let known = KnownDifferences::default();
    let outcome = comparison::compare(CLIENT, theirs, ours, &known);
    if outcome.unknown.is_empty() {
        println!(
            "ok   {} commands of Kafka's tools and ours are alike",
            outcome.alike
        )
    } else {
        println!("FAIL Kafka's tools (-) and ours (+) differ:");
        for difference in &outcome.unknown {
            println!("    {difference}");
        }
    }
    Tally {
        passed: outcome.alike,
        failed: outcome.unknown.len(),
    }
}
