//! The one binary: the server, Kafka's command line tools, and the benchmark.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod server;
mod tools;

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
    /// Run a broker; without a file on 127.0.0.1:9092 with its data in ./ottla-data.
    Server(server::ServerArgs),
    #[command(flatten)]
    Tool(tools::Tool),
}

fn main() -> ExitCode {
    let arguments = arguments(std::env::args().collect());
    let tool = arguments.get(1).map_or("", String::as_str);
    if let Some(advice) =
        tools::advice_for_retired_flags(tool, arguments.get(2..).unwrap_or_default())
    {
        eprintln!("{advice}");
        return ExitCode::FAILURE;
    }
    match Cli::try_parse_from(arguments) {
        Ok(Cli {
            command: Command::Server(args),
        }) => server::run(args),
        Ok(Cli {
            command: Command::Tool(tool),
        }) => tools::run(tool),
        Err(error) => {
            let _ = error.print();
            // Kafka's tools end with 1 where they cannot make sense of their arguments.
            match error.use_stderr() {
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            }
        }
    }
}

/// The command line, with the tool named where the binary is called by the name of one of Kafka's
/// scripts: a link `kafka-topics.sh` runs `ottla topics`.
fn arguments(mut arguments: Vec<String>) -> Vec<String> {
    let called = arguments.first().map(String::as_str).unwrap_or_default();
    let called = called.rsplit('/').next().unwrap_or_default();
    let name = called.strip_suffix(".sh").unwrap_or(called);
    if let Some(tool) = name.strip_prefix("kafka-")
        && tools::TOOL_NAMES.contains(&tool)
    {
        let tool = tool.to_owned();
        arguments.insert(1, tool);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::arguments;

    #[test]
    fn a_link_with_a_scripts_name_runs_the_tool() {
        let run = |line: &[&str]| arguments(line.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(
            run(&["/opt/bin/kafka-topics.sh", "--list"]),
            ["/opt/bin/kafka-topics.sh", "topics", "--list"]
        );
        assert_eq!(run(&["ottla", "topics"]), ["ottla", "topics"]);
        assert_eq!(run(&["kafka-unknown"]), ["kafka-unknown"]);
    }
}
