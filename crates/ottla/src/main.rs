//! The binary: the server, Kafka's command-line tools, and the benchmark.

use std::ffi::OsString;
use std::process::ExitCode;

use command_line::{Cli, Command};
use output_lines::print_error_line;
use scripts::{Called, environment};

mod broken_pipe;
mod colours;
mod columns;
mod command_line;
mod completions;
mod config_providers;
mod console;
mod container;
mod core_dumps;
mod counted;
mod doctor;
mod heap;
mod logging;
mod low_priority;
mod node_properties;
mod output_lines;
mod owner_file;
mod paragraphs;
mod port_user;
mod preflight;
mod scripts;
mod server;
mod stop_signals;
mod terminal;
mod tls;
mod tools;
mod version;

fn main() -> ExitCode {
    let arguments = match arguments(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            return ExitCode::FAILURE;
        }
    };
    let arguments = match scripts::called(arguments) {
        Called::As(arguments) => arguments,
        Called::NotServed(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::FAILURE;
        }
    };
    let command = arguments.get(1).map_or("", String::as_str);
    let rest = arguments.get(2..).unwrap_or_default();
    if !command.starts_with('-') && rest.iter().any(|argument| argument == "--version") {
        broken_pipe::end_with_it();
        println!("{}", version::KAFKA_VERSION);
        return ExitCode::SUCCESS;
    }
    if let Some(advice) = tools::advice_for_retired_flags(command, rest) {
        eprintln!("{advice}");
        return ExitCode::FAILURE;
    }
    // Commands whose exit status 1 is an answer.
    let unreadable = match command {
        "preflight" => Some(preflight::UNREADABLE),
        "acls"
            if rest
                .first()
                .is_some_and(|word| word == "explain" || word == "unused") =>
        {
            Some(tools::UNKNOWN)
        }
        _ => None,
    };
    let arguments = match command {
        "server-start" => scripts::server_start::with_two_hyphens(arguments),
        _ => arguments,
    };
    match command_line::parse(&arguments) {
        Ok(Cli { command }) => run(command, &arguments),
        Err(error) => {
            let is_help = !error.use_stderr();
            broken_pipe::end_with_it();
            command_line::print_error(error, &arguments);
            // Kafka's tools exit with 1 on invalid arguments.
            match unreadable {
                _ if is_help => ExitCode::SUCCESS,
                Some(status) => ExitCode::from(status),
                None => ExitCode::FAILURE,
            }
        }
    }
}

/// The arguments as text. The error names the first that is not UTF-8.
fn arguments(given: impl Iterator<Item = OsString>) -> Result<Vec<String>, String> {
    let text = |(index, argument): (usize, OsString)| {
        argument.into_string().map_err(|argument| {
            format!(
                "argument {index}, {}: not UTF-8; for a file with such a name, give a link to it",
                argument.display()
            )
        })
    };
    given.enumerate().map(text).collect()
}

fn run(command: Command, command_line: &[String]) -> ExitCode {
    let note = |line: String| print_error_line(format_args!("ottla: {line}"));
    match &command {
        Command::Server(_) | Command::ServerStart(_) | Command::ContainerRun(_) => {
            environment::notes_for_server(environment::variable)
                .into_iter()
                .for_each(note);
        }
        Command::Tool(_) => environment::note_for_tool(environment::variable)
            .into_iter()
            .for_each(note),
        Command::Preflight(_)
        | Command::Doctor(_)
        | Command::Tls(_)
        | Command::ServerStop(_)
        | Command::InstallScripts(_)
        | Command::Completions(_)
        | Command::ManPages(_)
        | Command::Version(_) => broken_pipe::end_with_it(),
        // A benchmark must stop its brokers, and the console keeps running.
        Command::Bench(_) | Command::Console(_) => {}
    }
    match command {
        Command::Server(args) => server::run(args),
        Command::Preflight(args) => preflight::run(args),
        Command::Tool(tool) => tools::run(tool, command_line.len() > 2),
        Command::Console(args) => console::run(&args),
        Command::Bench(args) => ottla_bench::command::run(*args),
        Command::ServerStart(args) => scripts::server_start::run(args, command_line),
        Command::ServerStop(args) => scripts::server_stop::run(&args),
        Command::InstallScripts(args) => scripts::install::run(&args),
        Command::ContainerRun(args) => container::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tls(args) => tls::run(args),
        Command::Completions(args) => completions::run(&args, command_line::definition()),
        Command::ManPages(args) => completions::write_man_pages(&args, command_line::definition()),
        Command::Version(args) => version::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::arguments;

    #[test]
    fn the_error_names_an_argument_that_is_not_text() {
        let given = |words: [&[u8]; 3]| words.map(|word| OsString::from_vec(word.to_vec()));
        let good = given([b"ottla", b"server", "caf\u{e9}.properties".as_bytes()]);
        let read = arguments(good.into_iter());
        assert_eq!(read.unwrap(), ["ottla", "server", "caf\u{e9}.properties"]);
        let bad = given([b"ottla", b"server", b"caf\xe9.properties"]);
        let refused = arguments(bad.into_iter()).unwrap_err();
        assert!(
            refused.starts_with("argument 2, caf\u{fffd}.properties: not UTF-8"),
            "{refused}"
        );
    }
}
