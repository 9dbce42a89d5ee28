//! `ottla doctor`: checks this machine, a node's directories and ports, or a running cluster, and
//! gives a command to fix each problem.
//!
//! Exit status: 0 if nothing is wrong (warnings included), 1 if something is, 2 if the check itself
//! fails: an unreadable file, or a cluster that does not answer. It changes nothing, except that a
//! disk probe writes a file and removes it.

mod check;
mod cluster;
mod machine;
mod node;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ottla_config::BrokerConfig;
use ottla_storage::preflight::Unformatted;
use serde_json::{Value, json};

use crate::counted::counted;
use crate::paragraphs::wrap;
use crate::{colours, server};
use check::{Level, Section};

/// Exit status when the check itself fails.
const UNREADABLE: u8 = 2;
/// Of the lines below the first of a check.
const INDENT: &str = "           ";

/// Check this machine, a node's disks and ports, or a running cluster, and show how to fix each
/// problem.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// Configuration file of the node whose disks, ports and names are checked.
    #[arg(value_name = "SERVER.PROPERTIES", conflicts_with = "bootstrap_server")]
    properties: Option<PathBuf>,
    /// A setting that overrides the file; repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE", requires = "properties")]
    overrides: Vec<String>,
    /// Check the cluster of these brokers instead: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE", requires = "bootstrap_server")]
    command_config: Option<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &DoctorArgs) -> ExitCode {
    let sections = match look(args) {
        Ok(sections) => sections,
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            return ExitCode::from(UNREADABLE);
        }
    };
    let text = if args.json {
        format!("{:#}\n", to_json(&sections))
    } else {
        let has_colours = std::io::stdout().is_terminal() && colours::are_allowed();
        to_text(&sections, has_colours)
    };
    // The reader may have closed the pipe; the exit status still carries the result.
    let _ = std::io::stdout().write_all(text.as_bytes());
    match worst(&sections) {
        Level::Problem => ExitCode::FAILURE,
        Level::Good | Level::Warning => ExitCode::SUCCESS,
    }
}

fn look(args: &DoctorArgs) -> Result<Vec<Section>, String> {
    if let Some(servers) = &args.bootstrap_server {
        return cluster::look(servers, args.command_config.as_deref());
    }
    // Raise the limit as the server does, so that the checks see the server's limit.
    server::raise_open_files_limit();
    let properties = server::read_properties(args.properties.as_deref(), &args.overrides)?;
    let preflight =
        server::examine(&properties, Unformatted::Formatted).with_log_files(&properties);
    // Without valid settings nothing can be checked; all that is wrong with them is told at once.
    if BrokerConfig::examine(&properties).config.is_none()
        && let Some(refusals) = server::refusals(&preflight)
    {
        return Err(refusals);
    }
    Ok(vec![
        ("This machine", machine::look(&properties)?),
        ("This node", node::look(&properties, &preflight)?),
    ])
}

fn worst(sections: &[Section]) -> Level {
    let checks = sections.iter().flat_map(|(_, checks)| checks);
    checks.map(|check| check.level).max().unwrap_or(Level::Good)
}

fn to_json(sections: &[Section]) -> Value {
    let checks = sections.iter().flat_map(|(title, checks)| {
        checks.iter().map(move |check| {
            json!({
                "section": title,
                "level": check.level.name(),
                "subject": check.subject,
                "what": check.what,
                "remedy": check.remedy,
            })
        })
    });
    json!({
        "worst": worst(sections).name(),
        "checks": checks.collect::<Vec<_>>(),
    })
}

fn to_text(sections: &[Section], has_colours: bool) -> String {
    let style = |code: &str, words: &str| match has_colours {
        true => format!("\x1b[{code}m{words}\x1b[0m"),
        false => words.to_owned(),
    };
    let mut text = String::new();
    for (title, checks) in sections {
        let _ = writeln!(text, "{}", style("1", title));
        for check in checks {
            let level = format!("{:<7}", check.level.name());
            let mut lines = String::new();
            let what = format!("{}: {}", check.subject, check.what);
            wrap(&mut lines, &format!("  {level}  "), INDENT, &what);
            // Codes of colours have no width, so they come after wrapping.
            let styled = style(check.level.colour(), &level);
            text.push_str(&lines.replacen(&level, &styled, 1));
            if let Some(remedy) = &check.remedy {
                let (first, others) = (format!("{INDENT}-> "), format!("{INDENT}   "));
                wrap(&mut text, &first, &others, remedy);
            }
        }
        text.push('\n');
    }
    let count = |level| {
        let checks = sections.iter().flat_map(|(_, checks)| checks);
        checks.filter(|check| check.level == level).count()
    };
    let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
    let answer = format!(
        "{}, {}.",
        counted(problems, "problem"),
        counted(warnings, "warning")
    );
    let _ = writeln!(text, "{}", style(worst(sections).colour(), &answer));
    text
}

#[cfg(test)]
mod tests {
    use super::check::Check;
    use super::*;

    fn sections() -> Vec<Section> {
        vec![(
            "This machine",
            vec![
                Check::good("memory", "2.0 GB available"),
                Check::warning("swap", "is on", "swapoff -a"),
                Check::problem("open files", "at most 1024", "ulimit -n 1048576"),
            ],
        )]
    }

    #[test]
    fn the_text_has_problems_and_remedies() {
        assert_eq!(
            to_text(&sections(), false),
            "This machine\n  ok       memory: 2.0 GB available\n  warning  swap: is on\n           -> swapoff -a\n  \
             problem  open files: at most 1024\n           -> ulimit -n 1048576\n\n1 problem, 1 warning.\n"
        );
        assert!(to_text(&sections(), true).contains("\x1b[1;31mproblem\x1b[0m"));
    }

    #[test]
    fn lines_fit_a_narrow_terminal() {
        let long = "one of many words ".repeat(10);
        let checks = vec![Check::problem("disk", long.trim(), long.trim())];
        let plain = to_text(&[("This machine", checks.clone())], false);
        assert!(plain.lines().all(|line| line.len() <= 80), "{plain}");
        assert!(plain.contains("\n           -> one of"), "{plain}");
        assert!(plain.contains("\n              "), "{plain}");
        let coloured = to_text(&[("This machine", checks)], true);
        assert_eq!(coloured.lines().count(), plain.lines().count());
    }

    #[test]
    fn the_json_has_the_same_findings() {
        let value = to_json(&sections());
        assert_eq!(value["worst"], "problem");
        assert_eq!(value["checks"][1]["remedy"], "swapoff -a");
        assert_eq!(value["checks"][0]["remedy"], Value::Null);
        assert_eq!(worst(&[]), Level::Good);
    }
}
