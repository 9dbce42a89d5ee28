//! The command lines of `ottla bench`, and what it prints.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::config::MeasureConfig;
use crate::problem::Problem;

/// For commands that measure nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// What is kept of their output.
const MOST_OUTPUT: usize = 4 << 20;

/// A scenario that `ottla bench` ships.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    title: String,
}

/// The run that somebody wants.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) scenario: String,
    /// Without it, as published.
    #[serde(default)]
    is_small: bool,
    replicas: Option<u32>,
    repetitions: Option<u32>,
    seconds: Option<u32>,
}

/// Each number that a form can set, with its flag and its largest value.
const REPLICAS: (&str, u32) = ("replicas", 9);
const REPETITIONS: (&str, u32) = ("repetitions", 100);
const SECONDS: (&str, u32) = ("seconds", 24 * 60 * 60);

/// The arguments of a run, after `ottla bench`.
pub(super) fn of_run(
    wanted: &Wanted,
    scenarios: &[Scenario],
    bootstrap_servers: &str,
    config: &MeasureConfig,
) -> Result<Vec<OsString>, Problem> {
    let known = scenarios.iter().find(|it| it.name == wanted.scenario);
    let known = known.ok_or_else(|| {
        Problem::invalid(
            "scenario",
            format!(
                "{}: no such scenario; `ottla bench list` lists them",
                wanted.scenario
            ),
        )
    })?;
    let mut arguments: Vec<OsString> = vec!["run".into(), known.name.clone().into()];
    let mut option = |flag: &str, value: OsString| {
        arguments.push(flag.into());
        arguments.push(value);
    };
    option("--bootstrap-server", bootstrap_servers.into());
    if let Some(file) = &config.command_config {
        option("--command-config", file.into());
    }
    option("--out", config.dir.clone().into());
    if wanted.is_small {
        option("--scale", "small".into());
    }
    if let Some(replicas) = bounded(REPLICAS, wanted.replicas)? {
        option("--replicas", replicas.to_string().into());
    }
    if let Some(repetitions) = bounded(REPETITIONS, wanted.repetitions)? {
        option("--repetitions", repetitions.to_string().into());
    }
    if let Some(seconds) = bounded(SECONDS, wanted.seconds)? {
        option("--time", format!("{seconds}s").into());
    }
    arguments.push("--progress-lines".into());
    Ok(arguments)
}

fn bounded((field, most): (&'static str, u32), value: Option<u32>) -> Result<Option<u32>, Problem> {
    match value {
        Some(value) if !(1..=most).contains(&value) => Err(Problem::invalid(
            field,
            format!("{field}={value}: give 1 to {most}, or nothing for the scenario's"),
        )),
        value => Ok(value),
    }
}

/// The scenarios in the output of `ottla bench list`: a name and its title in each indented line.
pub(super) fn scenarios_in(text: &str) -> Vec<Scenario> {
    let indented = text.lines().filter_map(|line| line.strip_prefix("  "));
    let named = indented.filter_map(|line| line.trim().split_once(' '));
    named
        .map(|(name, title)| Scenario {
            name: name.to_owned(),
            title: title.trim().to_owned(),
        })
        .collect()
}

/// `ottla bench` with these arguments, in a process group of its own: Ctrl-C in the terminal of the
/// console, and the console's request to stop, would together end it at once.
pub(super) fn bench(program: &Path, arguments: Vec<OsString>) -> Command {
    let mut command = Command::new(program);
    command
        .arg("bench")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

/// What `ottla bench` prints, if it succeeds.
pub(super) async fn output(program: &Path, arguments: Vec<OsString>) -> Result<String, Problem> {
    let mut command = bench(program, arguments);
    command.kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output
        .map_err(|_| {
            Problem::timed_out(format!(
                "ottla bench did not end within {} s",
                PATIENCE.as_secs()
            ))
        })?
        .map_err(|error| cannot_start(program, &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Problem::conflict(said.trim().to_owned()));
    }
    let end = output.stdout.len().min(MOST_OUTPUT);
    Ok(String::from_utf8_lossy(&output.stdout[..end]).into_owned())
}

pub(super) fn cannot_start(program: &Path, error: &std::io::Error) -> Problem {
    Problem::internal(format!("{} cannot be started: {error}", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> MeasureConfig {
        MeasureConfig {
            program: "ottla".into(),
            dir: "a dir; rm -rf".into(),
            command_config: Some("client.properties".into()),
        }
    }

    fn scenarios() -> Vec<Scenario> {
        scenarios_in("rate-ladder\n  rate-ladder/write       Delay at each rate\nRun one\n")
    }

    fn wanted(scenario: &str) -> Wanted {
        Wanted {
            scenario: scenario.to_owned(),
            is_small: true,
            replicas: Some(1),
            repetitions: None,
            seconds: Some(30),
        }
    }

    #[test]
    fn every_value_is_an_argument_of_its_own() {
        let arguments = of_run(
            &wanted("rate-ladder/write"),
            &scenarios(),
            "a:1,b:2",
            &config(),
        );
        let expected = [
            "run",
            "rate-ladder/write",
            "--bootstrap-server",
            "a:1,b:2",
            "--command-config",
            "client.properties",
            "--out",
            "a dir; rm -rf",
            "--scale",
            "small",
            "--replicas",
            "1",
            "--time",
            "30s",
            "--progress-lines",
        ];
        assert_eq!(arguments.unwrap(), expected);
    }

    #[test]
    fn only_what_is_shipped_is_run() {
        for other in ["", "--help", "/etc/passwd.toml", "rate-ladder", "../x.toml"] {
            let refused = of_run(&wanted(other), &scenarios(), "a:1", &config()).unwrap_err();
            assert_eq!(refused.status(), 422, "{other}");
        }
        let mut many = wanted("rate-ladder/write");
        many.seconds = Some(0);
        let refused = of_run(&many, &scenarios(), "a:1", &config()).unwrap_err();
        assert!(refused.detail().starts_with("seconds=0: give 1 to 86400"));
    }

    #[test]
    fn the_scenarios_are_those_that_are_listed() {
        let all = scenarios();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].name, "rate-ladder/write");
        assert_eq!(all[0].title, "Delay at each rate");
    }
}
