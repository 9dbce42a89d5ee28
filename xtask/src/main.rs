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

use clap::Parser;

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
    /// Compare record batches with Kafka's Java classes: written, read and validated on both sides.
    #[command(disable_help_flag = true)]
    GoldenRecords(Handed),
    /// Regenerate the schema files of ottla-protocol from Kafka's jars.
    #[command(disable_help_flag = true)]
    Codegen(Handed),
    /// Compare the bytes of every message and version with the bytes of Kafka's own classes, in
    /// both directions.
    #[command(disable_help_flag = true)]
    Golden(Handed),
    /// Run real clients' scripts against Ottla and Apache Kafka and report every difference.
    #[command(disable_help_flag = true)]
    Conformance(Handed),
    /// Run the native client's tests against Apache Kafka and against Ottla.
    #[command(disable_help_flag = true)]
    Client(Handed),
    /// Compact the same logs with Kafka's cleaner and Ottla's, compare the results, and measure
    /// both.
    #[command(disable_help_flag = true)]
    CompareCleaning(Handed),
    /// Let Kafka and Ottla take over one directory from each other repeatedly under load, and
    /// compare everything in it.
    #[command(disable_help_flag = true)]
    TakeOver(Handed),
    /// Stop and kill brokers of both kinds in one cluster under load, and compare the data of
    /// clients and replicas.
    #[command(disable_help_flag = true)]
    MixedCluster(Handed),
    /// Kill brokers of both kinds that keep segments of one topic in one store, and compare the
    /// records read from it.
    #[command(disable_help_flag = true)]
    MixedTiered(Handed),
    /// Log in with Kerberos to Ottla and Apache Kafka, with the clients of both.
    #[command(disable_help_flag = true)]
    Kerberos(Handed),
    /// Let Debian's kernel encrypt for TLS connections of a broker in a virtual machine, and measure
    /// it.
    #[command(disable_help_flag = true)]
    KernelTls(Handed),
    /// Go from PLAINTEXT to SASL_SSL and ACLs without a stop, following the runbook, with nodes of
    /// both kinds under load.
    #[command(disable_help_flag = true)]
    RollingSecurity(Handed),
    /// Add, remove, kill and pause controllers of both kinds in one quorum, with brokers of both
    /// under load.
    #[command(disable_help_flag = true)]
    ChangingQuorum(Handed),
    /// Raise `kraft.version` in quorums of Kafka's and Ottla's controllers, and compare the tools'
    /// output.
    #[command(disable_help_flag = true)]
    RaisedQuorum(Handed),
    /// Kill brokers and transactional applications, and check that everything was processed exactly
    /// once.
    #[command(disable_help_flag = true)]
    ExactlyOnce(Handed),
    /// Administer a cluster with Kafka's tools and with Ottla's, and compare their output.
    #[command(disable_help_flag = true)]
    ClusterAdmin(Handed),
    /// Simulate whole clusters: one seed with its log, or new seeds for a while on all cores.
    Sim(sim::Options),
    /// Run an Ottla broker with one of Kafka's controllers, and exercise it with Kafka's tools,
    /// step by step.
    #[command(disable_help_flag = true)]
    UnderControllers(Handed),
    /// Measure Ottla and a peer on this machine, interleaved, under the same clients.
    #[command(disable_help_flag = true)]
    BenchPeer(Handed),
    /// Measure the cost of single operations at N, 10 N and 100 N of quantities that they must not
    /// depend on.
    #[command(disable_help_flag = true)]
    Growth(Handed),
    /// Run `ottla bench` at small scale, open its report in headless Chromium, and check its plots.
    #[command(disable_help_flag = true)]
    Report(Handed),
    /// Build the console page into the committed files, or check that they are up to date.
    Console(console::Options),
    /// Test the console page in headless Chromium.
    #[command(disable_help_flag = true)]
    ConsolePage(Handed),
    /// Measure the console against its goals: pages, tables, live tails, searches, memory, size.
    #[command(disable_help_flag = true)]
    ConsoleSpeed(Handed),
    /// Do everything that the console's API offers to Ottla and Apache Kafka, and check the result
    /// with the tools.
    #[command(disable_help_flag = true)]
    ConsoleApi(Handed),
    /// Have Kafka keep segments in remote storage, and let `ottla tier` show and check them.
    #[command(disable_help_flag = true)]
    Tiered(Handed),
    /// Start a broker that is described in peers/, to try things out or to compare by hand.
    #[command(disable_help_flag = true)]
    Peer(Handed),
    /// Write packages into target/packages: .deb and .rpm.
    #[command(disable_help_flag = true)]
    Package(Handed),
    /// Build the packages of a binary, unpack and install them below a directory, and start a node
    /// from them.
    #[command(disable_help_flag = true)]
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
struct Handed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

fn main() {
    let outcome = match Command::parse() {
        Command::Test(options) => test::run(&options),
        Command::TestPrograms(options) => test::programs::run(&options),
        Command::GoldenRecords(handed) => {
            programs::become_one(CONFORMANCE, "golden-records", &handed.arguments)
        }
        Command::Codegen(handed) => programs::become_one(CONFORMANCE, "codegen", &handed.arguments),
        Command::Golden(handed) => programs::become_one(CONFORMANCE, "golden", &handed.arguments),
        Command::Conformance(handed) => {
            programs::become_one(CONFORMANCE, "conformance", &handed.arguments)
        }
        Command::KernelTls(handed) => {
            programs::become_one(CONFORMANCE, "kernel-tls", &handed.arguments)
        }
        Command::Kerberos(handed) => {
            programs::become_one(CONFORMANCE, "kerberos", &handed.arguments)
        }
        Command::Tiered(handed) => programs::become_one(CONFORMANCE, "tiered", &handed.arguments),
        Command::Client(handed) => programs::become_one(CONFORMANCE, "client", &handed.arguments),
        Command::CompareCleaning(handed) => {
            programs::become_one(BENCH_PEER, "compare-cleaning", &handed.arguments)
        }
        Command::TakeOver(handed) => {
            programs::become_one(CONFORMANCE, "take-over", &handed.arguments)
        }
        Command::MixedCluster(handed) => {
            programs::become_one(CONFORMANCE, "mixed-cluster", &handed.arguments)
        }
        Command::MixedTiered(handed) => {
            programs::become_one(CONFORMANCE, "mixed-tiered", &handed.arguments)
        }
        Command::RollingSecurity(handed) => {
            programs::become_one(CONFORMANCE, "rolling-security", &handed.arguments)
        }
        Command::ChangingQuorum(handed) => {
            programs::become_one(CONFORMANCE, "changing-quorum", &handed.arguments)
        }
        Command::RaisedQuorum(handed) => {
            programs::become_one(CONFORMANCE, "raised-quorum", &handed.arguments)
        }
        Command::ExactlyOnce(handed) => {
            programs::become_one(CONFORMANCE, "exactly-once", &handed.arguments)
        }
        Command::ClusterAdmin(handed) => {
            programs::become_one(CONFORMANCE, "cluster-admin", &handed.arguments)
        }
        Command::Sim(options) => sim::run(&options),
        Command::UnderControllers(handed) => {
            programs::become_one(CONFORMANCE, "under-controllers", &handed.arguments)
        }
        Command::BenchPeer(handed) => {
            programs::become_one(BENCH_PEER, "bench-peer", &handed.arguments)
        }
        Command::Growth(handed) => programs::become_measuring(GROWTH, &handed.arguments),
        Command::Report(handed) => programs::become_one(CONFORMANCE, "report", &handed.arguments),
        Command::Console(options) => console::run(&options),
        Command::ConsoleApi(handed) => {
            programs::become_one(CONFORMANCE, "console-api", &handed.arguments)
        }
        Command::ConsolePage(handed) => {
            programs::become_one(CONFORMANCE, "console-page", &handed.arguments)
        }
        Command::ConsoleSpeed(handed) => {
            programs::become_one(CONFORMANCE, "console-speed", &handed.arguments)
        }
        Command::Peer(handed) => programs::become_one(CONFORMANCE, "peer", &handed.arguments),
        Command::Package(handed) => programs::become_one(PACKAGING, "package", &handed.arguments),
        Command::CheckPackages(handed) => {
            programs::become_one(PACKAGING, "check-packages", &handed.arguments)
        }
        Command::Docs(options) => docs::run(&options),
        Command::ClientVersions(options) => client_versions::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Toolchains(options) => toolchains::run(&options),
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
