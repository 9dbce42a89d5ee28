//! Compares Ottla with Apache Kafka and tests their interoperation. Each command of `cargo xtask`
//! that does so is a module with an `Options` struct (derived with clap) and `pub fn run(options)
//! -> anyhow::Result<()>`. `cargo xtask NAME` starts this program. The product does not link any of
//! this.

mod browser;
mod changing_quorum;
mod client;
mod cluster_admin;
mod codegen;
mod conformance;
mod console_api;
mod console_page;
mod console_speed;
mod exactly_once;
mod golden;
mod golden_records;
mod kerberos;
mod kernel_tls;
mod mixed_cluster;
mod mixed_tiered;
mod peer;
mod raised_quorum;
mod report_in_browser;
mod rolling_security;
mod run_dir;
mod seeded;
mod take_over;
mod tiered;
mod under_controllers;

use clap::Parser;
use ottla_peers::{Peer, reference};

/// Comparisons of Ottla with Apache Kafka.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_version_flag = true
)]
struct Arguments {
    /// The version of Apache Kafka to compare with: the name of a file in peers/. Where another
    /// option names the peer `kafka`, it means this one. Kafka's tools and the Java clients are of
    /// this version too.
    #[arg(long, global = true, value_name = "PEER", default_value = reference::KAFKA)]
    reference: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Compare record batches with Kafka's Java classes: written, read and validated on both sides.
    GoldenRecords(golden_records::Options),
    /// Regenerate the schema files of ottla-protocol from Kafka's jars.
    Codegen(codegen::Options),
    /// Compare the bytes of every message and version with the bytes of Kafka's own classes, in
    /// both directions.
    Golden(golden::Options),
    /// Run real clients' scripts against Ottla and Apache Kafka and report every difference.
    Conformance(conformance::Options),
    /// Run the native client's tests against Apache Kafka and against Ottla.
    Client(client::Options),
    /// Let Kafka and Ottla take over one directory from each other repeatedly under load, and
    /// compare everything in it.
    TakeOver(take_over::Options),
    /// Stop and kill brokers of both kinds in one cluster under load, and compare the data of
    /// clients and replicas.
    MixedCluster(mixed_cluster::Options),
    /// Kill brokers of both kinds that keep segments of one topic in one store, and compare the
    /// records read from it.
    MixedTiered(mixed_tiered::Options),
    /// Go from PLAINTEXT to SASL_SSL and ACLs without a stop, following the runbook, with nodes of
    /// both kinds under load.
    RollingSecurity(rolling_security::Options),
    /// Add, remove, kill and pause controllers of both kinds in one quorum, with brokers of both
    /// under load.
    ChangingQuorum(changing_quorum::Options),
    /// Raise `kraft.version` in quorums of Kafka's and Ottla's controllers, and compare the tools'
    /// output.
    RaisedQuorum(raised_quorum::Options),
    /// Kill brokers and transactional applications, and check that everything was processed exactly
    /// once.
    ExactlyOnce(exactly_once::Options),
    /// Administer a cluster with Kafka's tools and with Ottla's, and compare their output.
    ClusterAdmin(cluster_admin::Options),
    /// Run an Ottla broker with one of Kafka's controllers, and exercise it with Kafka's tools,
    /// step by step.
    UnderControllers(under_controllers::Options),
    /// Run `ottla bench` at small scale, open its report in headless Chromium, and check its plots.
    Report(report_in_browser::Options),
    /// Do everything that the console's API offers to Ottla and Apache Kafka, and check the result
    /// with the tools.
    ConsoleApi(console_api::Options),
    /// Test the console page in headless Chromium.
    ConsolePage(console_page::Options),
    /// Measure the console against its goals: pages, tables, live tails, searches, memory, size.
    ConsoleSpeed(console_speed::Options),
    /// Log in with Kerberos to Ottla and Apache Kafka, with the clients of both.
    Kerberos(kerberos::Options),
    /// Let Debian's kernel encrypt for TLS connections of a broker in a virtual machine, and measure
    /// it.
    KernelTls(kernel_tls::Options),
    /// Have Kafka keep segments in remote storage, and let `ottla tier` show and check them.
    Tiered(tiered::Options),
    /// Start a broker that is described in peers/, to try things out or to compare by hand.
    Peer(peer::Options),
}

fn main() {
    let arguments = Arguments::parse();
    let chosen = Peer::choose_as_reference(&arguments.reference);
    let outcome = chosen.and_then(|()| run(&arguments.command));
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::GoldenRecords(options) => golden_records::run(options),
        Command::Codegen(options) => codegen::run(options),
        Command::Golden(options) => golden::run(options),
        Command::Conformance(options) => conformance::run(options),
        Command::Client(options) => client::run(options),
        Command::TakeOver(options) => take_over::run(options),
        Command::MixedCluster(options) => mixed_cluster::run(options),
        Command::MixedTiered(options) => mixed_tiered::run(options),
        Command::RollingSecurity(options) => rolling_security::run(options),
        Command::ChangingQuorum(options) => changing_quorum::run(options),
        Command::RaisedQuorum(options) => raised_quorum::run(options),
        Command::ExactlyOnce(options) => exactly_once::run(options),
        Command::ClusterAdmin(options) => cluster_admin::run(options),
        Command::UnderControllers(options) => under_controllers::run(options),
        Command::Report(options) => report_in_browser::run(options),
        Command::ConsoleApi(options) => console_api::run(options),
        Command::ConsolePage(options) => console_page::run(options),
        Command::ConsoleSpeed(options) => console_speed::run(options),
        Command::Kerberos(options) => kerberos::run(options),
        Command::KernelTls(options) => kernel_tls::run(options),
        Command::Tiered(options) => tiered::run(options),
        Command::Peer(options) => peer::run(options),
    }
}
