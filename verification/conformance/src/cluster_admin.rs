//! `cargo xtask cluster-admin`: runs the same administration commands with Kafka's tools and with
//! Ottla's on a cluster of several brokers, each on its own topics. Output and exit status must
//! agree line by line, and the effects are checked in the brokers' responses and log directories.
//!
//! Replicas are moved with and without throttle, reassignments are cancelled, leaders are elected,
//! partitions lose all their in-sync replicas, and a broker is removed from the cluster and
//! returns. The two differ only in topic names, so that each tool's commands find the topics of its
//! earlier commands.

mod desk;
mod elections;
mod membership;
mod reassignments;

use std::time::Instant;

use anyhow::{Result, bail};

use crate::conformance::comparison::{self, KnownDifferences};
use crate::run_dir::RunDir;
use desk::{Desk, LARGEST_FETCH};
use ottla_peers::{Cluster, Peer};
use ottla_workspace::report::Tally;

#[derive(clap::Args)]
pub struct Options {
    /// The three brokers, by the names of files in peers/.
    #[arg(long, value_delimiter = ',', default_value = "ottla,ottla,ottla")]
    brokers: Vec<String>,
    /// The controllers, likewise.
    #[arg(long, value_delimiter = ',', default_value = "kafka")]
    controllers: Vec<String>,
    /// Only this part; repeatable, or separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    #[command(flatten)]
    run_dir: RunDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Moves of replicas between brokers and directories: throttled, cancelled and completed.
    Reassignments,
    /// Elections of preferred leaders, and of replicas that are not in sync.
    Elections,
    /// The quorum, racks, and a broker that is unregistered and returns.
    Membership,
}

const ALL: [Part; 3] = [Part::Reassignments, Part::Elections, Part::Membership];

/// The rack of each broker.
const RACKS: [&str; 3] = ["a", "a", "b"];

/// The name of these steps in `known-differences.toml`.
const CLIENT: &str = "cluster-admin";

pub fn run(options: &Options) -> Result<()> {
    if options.brokers.len() != RACKS.len() {
        bail!("--brokers needs {} names", RACKS.len());
    }
    let dir = options.run_dir.make("cluster-admin")?;
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
    // In this order: otherwise the result of an earlier part would list replicas placed at random
    // by a later one.
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
        let took = outcome.map(|()| format!("{:.0?}", began.elapsed()));
        // Each part continues from the state that the previous one left.
        if !tally.check(&format!("{part:?}"), took) {
            break;
        }
    }
    for wrong in desk.cluster.stop()? {
        println!("FAIL {wrong}");
        tally.failed += 1;
    }
    tally.add(compare(&desk));
    tally.conclude(&dir, options.run_dir.keep)
}

fn plan(options: &Options, dir: &std::path::Path) -> Result<Cluster> {
    let settings = [
        // A broker that a busy machine holds up for seconds must not be fenced. One is killed, and
        // the others leave when they are stopped.
        ("broker.session.timeout.ms", "9000".to_owned()),
        ("broker.heartbeat.interval.ms", "500".to_owned()),
        // Leaders stay where elections place them.
        ("auto.leader.rebalance.enable", "false".to_owned()),
        ("log.segment.delete.delay.ms", "500".to_owned()),
        // A throttle admits one whole fetch at a time, so the fetch size must be small for a low
        // throttle to take effect.
        ("replica.fetch.max.bytes", LARGEST_FETCH.to_string()),
    ];
    let mut cluster = Cluster::plan(&options.brokers, &options.controllers, dir, &settings)?;
    for (broker, rack) in cluster.brokers.iter_mut().zip(RACKS) {
        let data = broker.options.dir.join("data");
        let second = broker.options.dir.join("second");
        let dirs = format!("{},{}", data.display(), second.display());
        broker.set(&[("broker.rack", rack.to_owned()), ("log.dirs", dirs)]);
        // The checks search the brokers' logs.
        let log_level = ("OTTLA_LOG".to_owned(), "info".to_owned());
        broker.options.environment.push(log_level);
    }
    Ok(cluster)
}

/// Compares the output of both tools.
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
