//! How long `ottla cluster start` takes until three brokers serve clients, with `--secure` and without,
//! in new directories: from the start of the command, so the authority, certificates and passwords
//! count too.
//!
//! Measured on the real binary, when nothing else runs; both alternate, and the median counts. The goal
//! is that of a release build:
//! `cargo test --release -p ottla --test measured_cluster_start -- --nocapture`. A debug build computes
//! several times as long, and has a bound that a start exceeds if a step of it waits for a timeout.

use std::time::{Duration, Instant};

use ottla_bench::machine::Machine;
use ottla_testkit::RunningTool;

const ROUNDS: usize = 5;
const GOAL: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(10),
    false => Duration::from_secs(2),
};

/// The time until the cluster is up, which is then stopped.
fn start(arguments: &[&str]) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().join("cluster");
    let began = Instant::now();
    let mut cluster = RunningTool::start_cluster(&dir, arguments);
    cluster.until(" is up (");
    let took = began.elapsed();
    let status = cluster.interrupt();
    assert!(status.success(), "{status}:\n{}", cluster.printed());
    took
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_secure_cluster_starts_in_time() {
    let folder = tempfile::tempdir().expect("a folder");
    println!("{}", Machine::measure(folder.path()).expect("a machine"));
    // Builds the binary, and reads it into the page cache.
    start(&["--port", "0"]);
    let (mut plain, mut secure) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(start(&["--port", "0"]));
        secure.push(start(&["--port", "0", "--secure"]));
    }
    let ratios: Vec<f64> = secure
        .iter()
        .zip(&plain)
        .map(|(secure, plain)| secure.as_secs_f64() / plain.as_secs_f64())
        .collect();
    println!("three brokers are up after, per round:");
    println!(
        "  without security {plain:.2?}\n  --secure         {secure:.2?}\n  ratio            {ratios:.2?}"
    );
    let (plain, secure) = (median(&mut plain), median(&mut secure));
    println!("median: {plain:.2?} without security, {secure:.2?} with --secure, at most {GOAL:?}");
    assert!(secure <= GOAL, "{secure:.2?}, and the goal is {GOAL:?}");
}
