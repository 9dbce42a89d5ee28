//! `cargo xtask growth`: the cost of single operations at N, 10 N and 100 N of quantities that they
//! must not depend on, as a table for `docs/benchmarks.md`.
//!
//! One file per part of the broker. A row builds a state of a size and measures one operation on
//! it. The slope is the exponent of the growth between N and 100 N: 0 is flat, 1 is linear. A
//! logarithm lies between 0 and 0.2, and so do caches that a larger state no longer fits into.
//! `large-cluster` is different: it has absolute goals, and a separate table.

mod acl_decisions;
mod assignors;
mod broker_events;
mod fetch_sessions;
mod group_offsets;
mod large_cluster;
mod led_share_partitions;
mod local_replicas;
mod measure;
mod parked_acks;
mod remote_segments;
mod secrets;
mod transaction_index;
mod transaction_markers;
mod waiting_fetches;

use std::process::ExitCode;

use clap::Parser;
use rustix::process::{Resource, getrlimit, setrlimit};

use measure::{Row, slope, written};

/// The cost of single operations at N, 10 N and 100 N.
#[derive(Parser)]
#[command(
    name = "cargo xtask growth",
    bin_name = "cargo xtask growth",
    version,
    disable_version_flag = true
)]
struct Options {
    /// Only these rows, by name.
    #[arg(value_name = "ROW")]
    rows: Vec<String>,
    /// Print the names of all rows.
    #[arg(long)]
    list: bool,
}

/// From the append to the cluster.
const ROWS: &[Row] = &[
    parked_acks::ROW,
    transaction_index::BY_TRANSACTIONS,
    transaction_index::BY_SEGMENTS,
    fetch_sessions::ROW,
    waiting_fetches::BY_WAITERS,
    waiting_fetches::BY_PARTITIONS,
    local_replicas::BY_TOPICS,
    local_replicas::BY_LEADERS,
    broker_events::ROW,
    broker_events::APPLIED,
    group_offsets::DELETION,
    group_offsets::EXPIRATION,
    assignors::SAME_TOPICS,
    assignors::OTHER_TOPICS,
    transaction_markers::ROW,
    led_share_partitions::ROW,
    acl_decisions::OF_ONE_CLIENT,
    acl_decisions::OF_ANY_CLIENT,
    secrets::ROW,
    remote_segments::ROW,
];

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        for row in ROWS {
            println!("{:<30} {}", row.name, row.operation);
        }
        println!("{:<30} {}", large_cluster::NAME, large_cluster::OPERATION);
        return ExitCode::SUCCESS;
    }
    let is_known =
        |name: &&String| **name == large_cluster::NAME || ROWS.iter().any(|row| row.name == **name);
    if let Some(unknown) = options.rows.iter().find(|name| !is_known(name)) {
        eprintln!("error: there is no row {unknown}; --list shows all of them");
        return ExitCode::FAILURE;
    }
    // Each log of a broker may hold a file.
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, files) {
        eprintln!("the limit of open files stays as it is: {error}");
    }
    let is_wanted =
        |name: &str| options.rows.is_empty() || options.rows.iter().any(|wanted| wanted == name);
    let rows: Vec<&Row> = ROWS.iter().filter(|row| is_wanted(row.name)).collect();
    // First, because memory that other rows leave allocated counts.
    if is_wanted(large_cluster::NAME) {
        large_cluster::print();
    }
    if rows.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("\n| operation | N counts | N | at N | at 10 N | at 100 N | slope |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for row in rows {
        let times = [1, 10, 100].map(|times| (row.measure)(row.smallest * times));
        println!(
            "| {} | {} | {} | {} | {} | {} | {:.2} |",
            row.operation,
            row.counted,
            row.smallest,
            written(times[0]),
            written(times[1]),
            written(times[2]),
            slope(times[0], times[2]),
        );
    }
    ExitCode::SUCCESS
}
