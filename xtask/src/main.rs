//! Development commands, started with `cargo xtask COMMAND`: one file per command.
//!
//! A command of this program is a module with an `Options` struct (derived with clap) and `pub fn
//! run(options) -> anyhow::Result<()>`. Comparing, measuring and packaging commands are separate
//! programs (`verification/`, `packaging/`), so that `tidy` does not wait for their build; their
//! arguments are forwarded. The product does not link any of this.

mod client_versions;
mod console;
mod docs;
mod programs;
mod sim;
mod test;
mod tidy;
mod toolchains;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser};

use programs::{BENCH_PEER, CONFORMANCE, GROWTH, PACKAGING};

/// Development commands of the Ottla workspace.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_version_flag = true
)]
enum Command {
    /// Run all tests; continuous integration runs only this.
    Test(test::Options),
    /// Run the test programs of the workspace, several at a time; the suite `unit` of `test`.
    TestPrograms(test::programs::Options),
    /// Report the warnings of builds that lint (`RUSTC_WORKSPACE_WRAPPER=clippy-driver`); the suite
    /// `clippy` of such a run of `test`.
    Lints,
    /// Compare record batches with Kafka's Java classes: written, read and validated on both sides.
    GoldenRecords(Handed),
    /// Regenerate the schema files of ottla-protocol from Kafka's jars.
    Codegen(Handed),
    /// Compare the bytes of every message and version with the bytes of Kafka's own classes, in
    /// both directions.
    Golden(Handed),
    /// Run real clients' scripts against Ottla and Apache Kafka and report every difference.
    Conformance(Handed),
    /// Run the native client's tests against Apache Kafka and against Ottla.
    Client(Handed),
    /// Compact the same logs with Kafka's cleaner and Ottla's, compare the results, and measure
    /// both.
    CompareCleaning(Handed),
    /// Let Kafka and Ottla take over one directory from each other repeatedly under load, and
    /// compare everything in it.
    TakeOver(Handed),
    /// Stop and kill brokers of both kinds in one cluster under load, and compare the data of
    /// clients and replicas.
    MixedCluster(Handed),
    /// Kill brokers of both kinds that keep segments of one topic in one store, and compare the
    /// records read from it.
    MixedTiered(Handed),
    /// Log in with Kerberos to Ottla and Apache Kafka, with the clients of both.
    Kerberos(Handed),
    /// Let Debian's kernel encrypt for TLS connections of a broker in a virtual machine, and measure
    /// it.
    KernelTls(Handed),
    /// Go from PLAINTEXT to SASL_SSL and ACLs without a stop, following the runbook, with nodes of
    /// both kinds under load.
    RollingSecurity(Handed),
    /// Add, remove, kill and pause controllers of both kinds in one quorum, with brokers of both
    /// under load.
    ChangingQuorum(Handed),
    /// Raise `kraft.version` in quorums of Kafka's and Ottla's controllers, and compare the tools'
    /// output.
    RaisedQuorum(Handed),
    /// Kill brokers and transactional applications, and check that everything was processed exactly
    /// once.
    ExactlyOnce(Handed),
    /// Administer a cluster with Kafka's tools and with Ottla's, and compare their output.
    ClusterAdmin(Handed),
    /// Simulate whole clusters: one seed with its log, or new seeds for a while on all cores.
    Sim(sim::Options),
    /// Run an Ottla broker with one of Kafka's controllers, and exercise it with Kafka's tools,
    /// step by step.
    UnderControllers(Handed),
    /// Measure Ottla and a peer on this machine, interleaved, under the same clients.
    BenchPeer(Handed),
    /// Measure the cost of single operations at N, 10 N and 100 N of quantities that they must not
    /// depend on.
    Growth(Handed),
    /// Run `ottla bench` at small scale, open its report in headless Chromium, and check its plots.
    Report(Handed),
    /// Build the console page into the committed files, or check that they are up to date.
    Console(console::Options),
    /// Test the console page in headless Chromium.
    ConsolePage(Handed),
    /// Measure the console against its goals: pages, tables, live tails, searches, memory, size.
    ConsoleSpeed(Handed),
    /// Do everything that the console's API offers to Ottla and Apache Kafka, and check the result
    /// with the tools.
    ConsoleApi(Handed),
    /// Have Kafka keep segments in remote storage, and let `ottla tier` show and check them.
    Tiered(Handed),
    /// Start a broker that is described in peers/, to try things out or to compare by hand.
    Peer(Handed),
    /// Write packages into target/packages: .deb and .rpm.
    Package(Handed),
    /// Build the packages of a binary, unpack and install them below a directory, and start a node
    /// from them.
    CheckPackages(Handed),
    /// Build the documentation site with mdBook, and check its links.
    Docs(docs::Options),
    /// Check that ottla-client compiles with the oldest dependencies that its manifests allow.
    ClientVersions(client_versions::Options),
    /// Check crate dependencies, file lengths, names, licences and the client's public API, which
    /// neither the compiler nor clippy checks.
    Tidy(tidy::Options),
    /// Show which programs of other languages the suites need, and install missing ones.
    Toolchains(toolchains::Options),
}

/// The arguments for the program that this command starts, `--help` included.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
struct Handed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

fn main() {
    let given = Command::command().get_matches();
    let command = Command::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let name = given.subcommand_name().unwrap_or_default();
    let outcome = match command {
        Command::Test(options) => test::run(&options),
        Command::TestPrograms(options) => test::programs::run(&options),
        Command::Lints => test::lints::run(),
        Command::Sim(options) => sim::run(&options),
        Command::Console(options) => console::run(&options),
        Command::Docs(options) => docs::run(&options),
        Command::ClientVersions(options) => client_versions::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Toolchains(options) => toolchains::run(&options),
        Command::GoldenRecords(handed)
        | Command::Codegen(handed)
        | Command::Golden(handed)
        | Command::Conformance(handed)
        | Command::KernelTls(handed)
        | Command::Kerberos(handed)
        | Command::Tiered(handed)
        | Command::Client(handed)
        | Command::TakeOver(handed)
        | Command::MixedCluster(handed)
        | Command::MixedTiered(handed)
        | Command::RollingSecurity(handed)
        | Command::ChangingQuorum(handed)
        | Command::RaisedQuorum(handed)
        | Command::ExactlyOnce(handed)
        | Command::ClusterAdmin(handed)
        | Command::UnderControllers(handed)
        | Command::Report(handed)
        | Command::ConsoleApi(handed)
        | Command::ConsolePage(handed)
        | Command::ConsoleSpeed(handed)
        | Command::Peer(handed) => programs::become_one(CONFORMANCE, name, &handed.arguments),
        Command::CompareCleaning(handed) | Command::BenchPeer(handed) => {
            programs::become_one(BENCH_PEER, name, &handed.arguments)
        }
        Command::Growth(handed) => programs::become_measuring(GROWTH, &handed.arguments),
        Command::Package(handed) | Command::CheckPackages(handed) => {
            programs::become_one(PACKAGING, name, &handed.arguments)
        }
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
