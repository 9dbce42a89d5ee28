//! The one binary: the server, Kafka's command line tools, and the benchmark.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use scripts::{Called, environment};

mod preflight;
mod scripts;
mod server;
mod stop_signals;
mod tools;

/// Without huge pages (`no_thp`): with them, the heap of an idle broker grows 2 MiB at a time and holds ten megabytes
/// of zeros; producing is not measurably slower without them (`docs/benchmarks.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Ottla, a drop-in replacement for the Apache Kafka broker.
#[derive(Parser, Debug)]
#[command(
    name = "ottla",
    version,
    arg_required_else_help = true,
    infer_long_args = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a broker; without a file, on 127.0.0.1:9092 with its data in ./ottla-data.
    Server(server::ServerArgs),
    /// Check whether Ottla can take over a node of Apache Kafka. Changes nothing.
    Preflight(preflight::PreflightArgs),
    #[command(flatten)]
    Tool(tools::Tool),
    Bench(Box<ottla_bench::command::BenchArgs>),
    ServerStart(scripts::server_start::ServerStartArgs),
    ServerStop(scripts::server_stop::ServerStopArgs),
    InstallScripts(scripts::install::InstallScriptsArgs),
}

/// The Kafka release that `--version` of the tools reports.
const KAFKA_VERSION: &str = "4.3.1";

fn main() -> ExitCode {
    let arguments = match scripts::called(std::env::args().collect()) {
        Called::As(arguments) => arguments,
        Called::NotServed(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::FAILURE;
        }
    };
    let command = arguments.get(1).map_or("", String::as_str);
    let rest = arguments.get(2..).unwrap_or_default();
    if !command.starts_with('-') && rest.iter().any(|argument| argument == "--version") {
        println!("{KAFKA_VERSION}");
        return ExitCode::SUCCESS;
    }
    if let Some(advice) = tools::advice_for_retired_flags(command, rest) {
        eprintln!("{advice}");
        return ExitCode::FAILURE;
    }
    let is_preflight = command == "preflight";
    let arguments = match command {
        "server-start" => scripts::server_start::with_two_hyphens(arguments),
        _ => arguments,
    };
    match Cli::try_parse_from(&arguments) {
        Ok(Cli { command }) => run(command, &arguments),
        Err(error) => {
            print_parse_error(&error, &arguments);
            // Kafka's tools exit with 1 on invalid arguments.
            if !error.use_stderr() {
                ExitCode::SUCCESS
            } else if is_preflight {
                ExitCode::from(preflight::UNREADABLE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Prints the help, or the error in the arguments. If the binary was called as a script, the text shows the
/// script's name alone: `kafka-topics.sh`, not `kafka-topics.sh topics`.
fn print_parse_error(error: &clap::Error, arguments: &[String]) {
    let called = arguments.first().map_or("", String::as_str);
    let script = called.rsplit('/').next().unwrap_or_default();
    if !scripts::is_script(script) {
        let _ = error.print();
        return;
    }
    let command = arguments.get(1).map_or("", String::as_str);
    let text = error.render().to_string();
    let text = text.replace(&format!("{script} {command}"), script);
    if error.use_stderr() {
        eprint!("{text}")
    } else {
        print!("{text}")
    }
}

fn run(command: Command, command_line: &[String]) -> ExitCode {
    let note = |line: String| eprintln!("ottla: {line}");
    match &command {
        Command::Server(_) | Command::ServerStart(_) => {
            environment::notes_for_server(environment::variable)
                .into_iter()
                .for_each(note);
        }
        Command::Tool(_) => environment::note_for_tool(environment::variable)
            .into_iter()
            .for_each(note),
        Command::Bench(_)
        | Command::Preflight(_)
        | Command::ServerStop(_)
        | Command::InstallScripts(_) => {}
    }
    match command {
        Command::Server(args) => server::run(args),
        Command::Preflight(args) => preflight::run(args),
        Command::Tool(tool) => tools::run(tool, command_line.len() > 2),
        Command::Bench(args) => ottla_bench::command::run(*args),
        Command::ServerStart(args) => scripts::server_start::run(args, command_line),
        Command::ServerStop(args) => scripts::server_stop::run(&args),
        Command::InstallScripts(args) => scripts::install::run(&args),
    }
}
