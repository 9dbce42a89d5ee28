//! The command line: the commands, in the groups in which `ottla --help` shows them, and error
//! messages about invalid arguments.

mod usage;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::num::{IntErrorKind, ParseIntError};

use clap::builder::Styles;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::{
    colours, completions, console, container, doctor, preflight, scripts, server, tls, tools,
    version,
};

/// Ottla, a drop-in replacement for the Apache Kafka broker.
#[derive(Parser, Debug)]
#[command(
    name = "ottla",
    version,
    arg_required_else_help = true,
    infer_long_args = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a broker; without a file, on 127.0.0.1:9092 with its data in ./ottla-data.
    Server(server::ServerArgs),
    /// Check whether Ottla can take over a node of Apache Kafka. Changes nothing.
    Preflight(preflight::PreflightArgs),
    Doctor(doctor::DoctorArgs),
    Tls(tls::TlsArgs),
    #[command(flatten)]
    Tool(tools::Tool),
    Console(console::ConsoleArgs),
    Bench(Box<ottla_bench::command::BenchArgs>),
    ServerStart(scripts::server_start::ServerStartArgs),
    ServerStop(scripts::server_stop::ServerStopArgs),
    InstallScripts(scripts::install::InstallScriptsArgs),
    Completions(completions::CompletionsArgs),
    ManPages(completions::ManPagesArgs),
    Version(version::VersionArgs),
    #[command(hide = true)]
    ContainerRun(container::ContainerRunArgs),
}

/// The groups in the help text, with the names of their commands. Ottla's own commands come first;
/// all others have the name of one of Kafka's scripts.
const GROUPS: &[(&str, &str)] = &[
    (
        "Ottla",
        "server console cluster rebalance tls preflight doctor tier bench",
    ),
    (
        "Server, as Kafka's scripts run it",
        "server-start server-stop storage",
    ),
    (
        "Topics and records",
        "topics console-producer console-consumer console-share-consumer get-offsets \
         delete-records dump-log",
    ),
    (
        "Groups and transactions",
        "groups consumer-groups share-groups streams-groups transactions",
    ),
    (
        "Cluster",
        "acls broker-api-versions client-metrics configs delegation-tokens features \
         leader-election log-dirs metadata-quorum reassign-partitions replica-verification",
    ),
    (
        "Measuring",
        "producer-perf-test consumer-perf-test share-consumer-perf-test e2e-latency \
         verifiable-share-consumer",
    ),
    (
        "Installation",
        "install-scripts completions man-pages version",
    ),
];

/// Maximum line width of the help.
const WIDTH: usize = 80;

/// The definition of the command line, for parsing, help, completions and manual pages.
pub fn definition() -> clap::Command {
    let command = with_negative_numbers(Cli::command());
    let list = command_list(&command, command.get_styles());
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}\n\nEach command shows its \
         options with --help; Kafka's tools have those of Kafka.\n"
    );
    command.help_template(template).max_term_width(WIDTH)
}

/// Lets every option take a negative number, as those of Kafka's tools do. The message is then about
/// the number, and not about an unexpected argument `-1`.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(
            |arg| match arg.get_action().takes_values() && !arg.is_positional() {
                true => arg.allow_negative_numbers(true),
                false => arg,
            },
        )
        .mut_subcommands(with_negative_numbers)
}

/// Parses a command line.
pub fn parse(arguments: &[String]) -> Result<Cli, clap::Error> {
    let mut definition = definition();
    let matches = definition.try_get_matches_from_mut(arguments)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))
}

/// The groups, each command with the first sentence of its description.
fn command_list(command: &clap::Command, styles: &Styles) -> String {
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{header}{title}:{header:#}");
        let width = names.split(' ').map(str::len).max().unwrap_or(0);
        for name in names.split(' ') {
            let about = command
                .find_subcommand(name)
                .and_then(|found| found.get_about())
                .map(ToString::to_string)
                .unwrap_or_default();
            let about = about.split_once(". ").map_or(&*about, |(first, _)| first);
            let indent = 2 + width + 2;
            let _ = write!(text, "  {literal}{name:<width$}{literal:#}  ");
            let _ = writeln!(text, "{}", wrapped(about.trim_end_matches('.'), indent));
        }
        text.push('\n');
    }
    text
}

/// Wraps words at the width, with a hanging indent.
fn wrapped(words: &str, indent: usize) -> String {
    let mut text = String::new();
    let mut column = indent;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            let _ = write!(text, "\n{:indent$}", "");
            column = indent;
        }
        if column > indent {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text
}

/// Prints the help, or the error in the arguments. If the binary was called as a script, the text shows the
/// script's name alone: `kafka-topics.sh`, not `kafka-topics.sh topics`.
pub fn print_error(mut error: clap::Error, arguments: &[String]) {
    // Kafka's tools accept no values of this form, so an unknown flag is a misspelt one.
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
    }
    let called = arguments.first().map_or("", String::as_str);
    let script = called.rsplit('/').next().unwrap_or_default();
    let is_script = scripts::is_script(script);
    let is_terminal = match error.use_stderr() {
        true => std::io::stderr().is_terminal(),
        false => std::io::stdout().is_terminal(),
    };
    let has_colours = is_terminal && !is_script && colours::are_allowed();
    let mut text = match has_colours {
        true => error.render().ansi().to_string(),
        false => error.render().to_string(),
    };
    if let Some((rusts, ours)) = plain_reason(&error) {
        text = text.replace(&rusts, &ours);
    }
    if is_script {
        let command = arguments.get(1).map_or("", String::as_str);
        text = text.replace(&format!("{script} {command}"), script);
    }
    let text = usage::wrap(&text, WIDTH);
    if error.use_stderr() {
        eprint!("{text}")
    } else {
        print!("{text}")
    }
}

/// The reason as Rust and clap say it, and a plain one, for a number that cannot be parsed or is out
/// of its range.
fn plain_reason(error: &clap::Error) -> Option<(String, String)> {
    let source = std::error::Error::source(error)?;
    if let Some(plain) = plain_range(&source.to_string()) {
        return Some((source.to_string(), plain));
    }
    let ours = match source.downcast_ref::<ParseIntError>() {
        Some(error) => match error.kind() {
            IntErrorKind::PosOverflow => "the number is too large",
            IntErrorKind::NegOverflow => "the number is too small",
            IntErrorKind::Empty => "a number is missing",
            _ => "not a whole number",
        },
        None => {
            source.downcast_ref::<std::num::ParseFloatError>()?;
            "not a number"
        }
    };
    Some((source.to_string(), ours.to_owned()))
}

/// `0 is not in 1..=9` as `give 1 to 9`. An open end is the largest number of the type.
fn plain_range(reason: &str) -> Option<String> {
    let (_, range) = reason.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    let is_open = |most: u64| most >= u32::MAX.into();
    match most.strip_prefix('=') {
        Some(most) if most.parse().is_ok_and(is_open) => Some(format!("give at least {least}")),
        Some(most) => Some(format!("give {least} to {most}")),
        None if most.parse().is_ok_and(is_open) => Some(format!("give at least {least}")),
        None => None,
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_of_the_help() {
        let listed: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| names.split(' '))
            .collect();
        let unique: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(listed.len(), unique.len(), "a command is listed twice");
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
        let there: BTreeSet<&str> = visible.map(clap::Command::get_name).collect();
        assert_eq!(unique, there);
    }

    #[test]
    fn the_list_fits_a_narrow_terminal_and_describes_each_command() {
        let command = Cli::command();
        let list = command_list(&command, &Styles::plain());
        for line in list.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for (_, names) in GROUPS {
            for name in names.split(' ') {
                let line = list
                    .lines()
                    .find(|it| it.trim_start().starts_with(&format!("{name} ")));
                let about = line.and_then(|it| it.trim_start().strip_prefix(name));
                assert!(
                    about.is_some_and(|it| it.trim().len() > 10),
                    "{name}: {line:?}"
                );
            }
        }
        assert!(
            list.starts_with("Ottla:\n  server     Run a broker"),
            "{list}"
        );
    }

    #[test]
    fn the_error_for_an_invalid_number_states_the_range() {
        for (arguments, says) in [
            (
                &[
                    "rebalance",
                    "plan",
                    "--bootstrap-server",
                    "b:1",
                    "--tolerance",
                    "-5",
                ][..],
                "give 0 to 100",
            ),
            (
                &["tls", "init", "--dir", "d", "--days", "0"][..],
                "give 1 to 3650",
            ),
            (
                &[
                    "rebalance",
                    "apply",
                    "--bootstrap-server",
                    "b:1",
                    "--plan",
                    "p",
                    "--max-moves-per-broker",
                    "0",
                ][..],
                "give at least 1",
            ),
        ] {
            let mut given = vec!["ottla".to_owned()];
            given.extend(arguments.iter().map(ToString::to_string));
            let error = parse(&given).expect_err("it is out of range");
            let (rusts, ours) = plain_reason(&error).expect("a reason");
            assert!(rusts.contains(" is not in "), "{rusts}");
            assert_eq!(ours, says);
        }
        assert_eq!(plain_range("something else"), None);
    }

    #[test]
    fn a_negative_number_is_a_value_and_no_unexpected_argument() {
        let accepted = "topics --bootstrap-server b:1 --create --topic t --partitions -1";
        let accepted = format!("ottla {accepted} --replication-factor -4");
        let given: Vec<String> = accepted.split(' ').map(str::to_owned).collect();
        assert!(parse(&given).is_ok());
        let given = ["ottla", "cluster", "start", "--brokers", "-1"].map(str::to_owned);
        let error = parse(&given).expect_err("out of range");
        let (_, ours) = plain_reason(&error).expect("a reason");
        assert_eq!(ours, "give 1 to 50");
    }

    #[test]
    fn the_help_of_a_command_fits_a_narrow_terminal() {
        let given = ["ottla", "topics", "--help"].map(str::to_owned);
        let help = parse(&given).expect_err("the help").render().to_string();
        for line in usage::wrap(&help, WIDTH).lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn the_usage_of_every_command_fits_a_narrow_terminal() {
        fn check(command: &mut clap::Command) {
            let text = command.render_usage().to_string();
            for line in usage::wrap(&text, WIDTH).lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
            command.get_subcommands_mut().for_each(check);
        }
        let mut definition = definition();
        definition.build();
        check(&mut definition);
    }

    #[test]
    fn the_definition_is_valid() {
        definition().debug_assert();
    }
}
