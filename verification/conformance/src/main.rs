//! Compares Ottla with Apache Kafka and tests their interoperation. Each command of `cargo xtask`
//! that does so is a module with an `Options` struct (derived with clap) and `pub fn run(options)
//! -> anyhow::Result<()>`. `cargo xtask NAME` starts this program. The product does not link any of
//! this.

mod changing_quorum;
mod client;
mod cluster_admin;
mod codegen;
mod conformance;
mod exactly_once;
mod golden;
mod golden_records;
mod mixed_cluster;
mod peer;
mod raised_quorum;
mod report_in_browser;
mod seeded;
mod take_over;
mod under_controllers;

use clap::Parser;

/// Comparisons of Ottla with Apache Kafka.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_version_flag = true
)]
enum Command {
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
    /// Put a broker of Ottla's under one of Kafka's controllers, and work on it with Kafka's tools, step by step.
    UnderControllers(under_controllers::Options),
    /// Run `ottla bench` small, open its report in headless Chromium, and count what its plots have drawn.
    Report(report_in_browser::Options),
    /// Start a broker that is described in peers/, for trying things out and for comparison.
    Peer(peer::Options),
}

fn main() {
    let outcome = match Command::parse() {
        Command::GoldenRecords(options) => golden_records::run(&options),
        Command::Codegen(options) => codegen::run(&options),
        Command::Golden(options) => golden::run(&options),
        Command::Conformance(options) => conformance::run(&options),
        Command::Client(options) => client::run(&options),
        Command::TakeOver(options) => take_over::run(&options),
        Command::MixedCluster(options) => mixed_cluster::run(&options),
        Command::ChangingQuorum(options) => changing_quorum::run(&options),
        Command::RaisedQuorum(options) => raised_quorum::run(&options),
        Command::ExactlyOnce(options) => exactly_once::run(&options),
        Command::ClusterAdmin(options) => cluster_admin::run(&options),
        Command::UnderControllers(options) => under_controllers::run(&options),
        Command::Report(options) => report_in_browser::run(&options),
        Command::Peer(options) => peer::run(&options),
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
