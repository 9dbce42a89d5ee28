//! Development commands, started with `cargo xtask COMMAND`: one file per command.
//!
//! A command of this program is a module with an `Options` struct (derived with clap) and `pub fn
//! run(options) -> anyhow::Result<()>`. Comparing, measuring and packaging commands are separate
//! programs (`verification/`, `packaging/`), so that `tidy` does not wait for their build; their
//! arguments are forwarded. The product does not link any of this.

mod docs;
mod programs;
mod sim;
mod test;
mod tidy;
mod toolchains;

use std::ffi::OsString;

use clap::Parser;

use programs::{BENCH_PEER, CONFORMANCE, PACKAGING};

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
    /// Run the test programs of the workspace, several at once; the suite `unit` of `test`.
    TestPrograms(test::programs::Options),
    /// Compare record batches with Kafka's Java classes: written, read and validated on both sides.
    #[command(disable_help_flag = true)]
    GoldenRecords(Handed),
    /// Make the schema files of ottla-protocol anew from Kafka's jars.
    #[command(disable_help_flag = true)]
    Codegen(Handed),
    /// Compare the bytes of every message and version with those of Kafka's own classes, both ways.
    #[command(disable_help_flag = true)]
    Golden(Handed),
    /// Run real clients' scripts against Ottla and Apache Kafka and report every difference.
    #[command(disable_help_flag = true)]
    Conformance(Handed),
    /// Run the native client's tests against Apache Kafka and against Ottla.
    #[command(disable_help_flag = true)]
    Client(Handed),
    /// Have Kafka's own cleaner and Ottla's compact the same logs, compare what they leave, and measure both.
    #[command(disable_help_flag = true)]
    CompareCleaning(Handed),
    /// Have Kafka and Ottla take one directory over from each other, many times, under load, and compare all that it holds.
    #[command(disable_help_flag = true)]
    TakeOver(Handed),
    /// Stop and kill brokers of Kafka's and Ottla's in one cluster under load, and compare what clients and replicas have.
    #[command(disable_help_flag = true)]
    MixedCluster(Handed),
    /// Add, remove, kill and pause controllers of Kafka's and Ottla's in one quorum, with brokers of both under load.
    #[command(disable_help_flag = true)]
    ChangingQuorum(Handed),
    /// Raise `kraft.version` in quorums of Kafka's and Ottla's controllers, and compare what the tools print.
    #[command(disable_help_flag = true)]
    RaisedQuorum(Handed),
    /// Kill brokers and applications that work in transactions, and see that everything was worked on once.
    #[command(disable_help_flag = true)]
    ExactlyOnce(Handed),
    /// Do to a cluster what administrators do, with Kafka's tools and with Ottla's, and compare what they print.
    #[command(disable_help_flag = true)]
    ClusterAdmin(Handed),
    /// Run a whole cluster in one thread, simulated: a seed with its history, or new seeds for a while.
    Sim(sim::Options),
    /// Put a broker of Ottla's under one of Kafka's controllers, and work on it with Kafka's tools, step by step.
    #[command(disable_help_flag = true)]
    UnderControllers(Handed),
    /// Measure Ottla and a peer on this machine, interleaved, under the same clients.
    #[command(disable_help_flag = true)]
    BenchPeer(Handed),
    /// Run `ottla bench` small, open its report in headless Chromium, and count what its plots have drawn.
    #[command(disable_help_flag = true)]
    Report(Handed),
    /// Start a broker that is described in peers/, for trying things out and for comparison.
    #[command(disable_help_flag = true)]
    Peer(Handed),
    /// Write packages into target/packages: .deb and .rpm.
    #[command(disable_help_flag = true)]
    Package(Handed),
    /// Make the packages of a binary, unpack and install them below a directory, and start what is in them.
    #[command(disable_help_flag = true)]
    CheckPackages(Handed),
    /// Build the site of the documentation with mdBook, and follow its links.
    Docs(docs::Options),
    /// Check what neither the compiler nor clippy checks: crate dependencies, file lengths, names, licence.
    Tidy(tidy::Options),
    /// Show which programs of other languages the suites need, and install those that are missing.
    Toolchains(toolchains::Options),
}

/// What another program reads, `--help` included.
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
        Command::Report(handed) => programs::become_one(CONFORMANCE, "report", &handed.arguments),
        Command::Peer(handed) => programs::become_one(CONFORMANCE, "peer", &handed.arguments),
        Command::Package(handed) => programs::become_one(PACKAGING, "package", &handed.arguments),
        Command::CheckPackages(handed) => {
            programs::become_one(PACKAGING, "check-packages", &handed.arguments)
        }
        Command::Docs(options) => docs::run(&options),
        Command::Tidy(options) => tidy::run(&options),
        Command::Toolchains(options) => toolchains::run(&options),
    };
    if let Err(error) = outcome {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}
