//! The measuring commands of `cargo xtask`: Ottla and another broker on one machine, interleaved.
//! `cargo xtask NAME` starts this program. The product does not link any of this.

mod bench_peer;
mod compare_cleaning;

use clap::Parser;

/// Benchmarks of Ottla and another broker.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_version_flag = true
)]
enum Command {
    /// Measure Ottla and a peer on this machine, interleaved, under the same clients.
    BenchPeer(Box<bench_peer::Options>),
    /// Compact the same logs with Kafka's cleaner and Ottla's, compare the results, and measure
    /// both.
    CompareCleaning(compare_cleaning::Options),
}

fn main() {
    let outcome = match Command::parse() {
        Command::BenchPeer(options) => bench_peer::run(&options),
        Command::CompareCleaning(options) => compare_cleaning::run(&options),
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
