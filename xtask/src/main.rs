//! The project's own chores, started with `cargo xtask COMMAND`: one file per command.
//!
//! A command is a module with an `Options` struct (clap's derive) and `pub fn run(options) -> anyhow::Result<()>`.
//! What several commands share stands below them in modules named after the thing: the workspace's places, child
//! processes, toolchains and peers. Nothing in here is linked into the product.

mod bench_peer;
mod changing_quorum;
mod client;
mod cluster_admin;
mod codegen;
mod compare_cleaning;
mod conformance;
mod exactly_once;
mod golden;
mod golden_records;
mod mixed_cluster;
mod peer;
mod raised_quorum;
mod report_in_browser;
mod sim;
mod take_over;
mod test;
mod tidy;
mod toolchains;

mod java;
mod process;
mod report;
mod seeded;
mod toolchain;
mod under_controllers;
mod workspace;

use clap::Parser;

/// Chores of the Ottla workspace.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_version_flag = true
)]
enum Command {
    /// Run every test there is; continuous integration runs this and nothing else.
    Test(test::Options),
    /// Compare record batches with Kafka's Java classes: written, read and validated on both sides.
    GoldenRecords(golden_records::Options),
    /// Make the schema files of ottla-protocol anew from Kafka's jars.
    Codegen(codegen::Options),
    /// Compare the bytes of every message and version with those of Kafka's own classes, both ways.
    Golden(golden::Options),
    /// Run real clients' scripts against Ottla and Apache Kafka and report every difference.
    Conformance(conformance::Options),
    /// Run the native client's tests against Apache Kafka and against Ottla.
    Client(client::Options),
    /// Have Kafka's own cleaner and Ottla's compact the same logs, compare what they leave, and measure both.
    CompareCleaning(compare_cleaning::Options),
    /// Have Kafka and Ottla take one directory over from each other, many times, under load, and compare all that it holds.
    TakeOver(take_over::Options),
    /// Stop and kill brokers of Kafka's and Ottla's in one cluster under load, and compare what clients and replicas have.
    MixedCluster(mixed_cluster::Options),
    /// Add, remove, kill and pause controllers of Kafka's and Ottla's in one quorum, with brokers of both under load.
    ChangingQuorum(changing_quorum::Options),
    /// Raise `kraft.version` in quorums of Kafka's and Ottla's controllers, and compare what the tools print.
    RaisedQuorum(raised_quorum::Options),
    /// Kill brokers and applications that work in transactions, and see that everything was worked on once.
    ExactlyOnce(exactly_once::Options),
    /// Do to a cluster what administrators do, with Kafka's tools and with Ottla's, and compare what they print.
    ClusterAdmin(cluster_admin::Options),
    /// Run a whole cluster in one thread, simulated: a seed with its history, or new seeds for a while.
    Sim(sim::Options),
    /// Put a broker of Ottla's under one of Kafka's controllers, and work on it with Kafka's tools, step by step.
    UnderControllers(under_controllers::Options),
    /// Measure Ottla and a peer on this machine, interleaved, under the same clients.
    BenchPeer(bench_peer::Options),
    /// Run `ottla bench` small, open its report in headless Chromium, and count what its plots have drawn.
    Report(report_in_browser::Options),
    /// Start a broker that is described in peers/, for trying things out and for comparison.
    Peer(peer::Options),
    /// Check what neither the compiler nor clippy checks: crate dependencies, file lengths, names, licence.
    Tidy(tidy::Options),
    /// Show which programs of other languages the suites need, and install those that are missing.
    Toolchains(toolchains::Options),
}

fn main() {
    let outcome = match Command::parse() {
        Command::Test(options) => test::run(&options),
        Command::GoldenRecords(options) => golden_records::run(&options),
        Command::Codegen(options) => codegen::run(&options),
        Command::Golden(options) => golden::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Client(options) => client::run(&options),
        Command::CompareCleaning(options) => compare_cleaning::run(&options),
        Command::TakeOver(options) => take_over::run(&options),
        Command::MixedCluster(options) => mixed_cluster::run(&options),
        Command::ChangingQuorum(options) => changing_quorum::run(&options),
        Command::RaisedQuorum(options) => raised_quorum::run(&options),
        Command::ExactlyOnce(options) => exactly_once::run(&options),
        Command::ClusterAdmin(options) => cluster_admin::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::UnderControllers(options) => under_controllers::run(&options),
        Command::BenchPeer(options) => bench_peer::run(&options),
        Command::Report(options) => report_in_browser::run(&options),
        Command::Peer(options) => peer::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Toolchains(options) => toolchains::run(&options),
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
