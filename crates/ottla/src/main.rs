//! The one binary: the server, Kafka's command line tools, and the benchmark.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod server;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ottla, a drop-in replacement for the Apache Kafka broker.
#[derive(Parser, Debug)]
#[command(name = "ottla", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a broker; without a file on 127.0.0.1:9092 with its data in ./ottla-data.
    Server(server::ServerArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Server(args) => server::run(args),
    }
}
