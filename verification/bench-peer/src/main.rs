//! Ottla measured beside another broker on one machine, interleaved: the commands of `cargo xtask` that measure.
//! `cargo xtask NAME` starts this program. Nothing in here is linked into the product.

mod bench_peer;
mod compare_cleaning;

use clap::Parser;

/// Measurements of Ottla beside another broker.
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
    /// Have Kafka's own cleaner and Ottla's compact the same logs, compare what they leave, and measure both.
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
