//! The environment of a test step: the API, and the cluster of the console.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ottla_workspace::process::OwnedChild;
use serde_json::Value;

use super::http::Http;

/// How long the cluster may take to show a change.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The environment of a step.
pub struct Stage {
    pub http: Http,
    pub binary: PathBuf,
    pub bootstrap: String,
    pub dir: PathBuf,
}

impl Stage {
    /// The output of a tool about the cluster. Invalid UTF-8 is replaced.
    pub fn tool(&self, arguments: &[&str]) -> Result<String> {
        self.run(arguments, Stdio::null())
    }

    /// Waits until a tool prints something as wanted. It may fail until then: a broker of Kafka answers before it
    /// knows a topic that it has created.
    pub fn tool_shows(&self, arguments: &[&str], wanted: &[&str]) -> Result<String> {
        let began = Instant::now();
        loop {
            let outcome = self.tool(arguments);
            let has_ended_well = outcome.is_ok();
            let printed = outcome.unwrap_or_else(|error| format!("{error:#}"));
            if has_ended_well && wanted.iter().all(|it| printed.contains(it)) {
                return Ok(printed);
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{arguments:?} does not show {wanted:?}:\n{printed}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the API answers as wanted.
    pub fn shows(&self, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let began = Instant::now();
        loop {
            let found = self.http.get(path)?;
            if is_wanted(&found) {
                return Ok(found);
            }
            ensure!(began.elapsed() < PATIENCE, "GET {path} stays {found}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.http.json("POST", path, Some(body))
    }

    /// Runs a tool that reads standard input from a file.
    pub fn tool_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let path = self.dir.join("input");
        std::fs::write(&path, input)?;
        self.run(arguments, File::open(path)?.into())
    }

    fn run(&self, arguments: &[&str], input: Stdio) -> Result<String> {
        let (first, rest) = arguments.split_first().context("no tool is named")?;
        let bootstrap = ["--bootstrap-server", &self.bootstrap];
        let mut command = Command::new(&self.binary);
        command.arg(first).stdin(input);
        // Some of Kafka's tools have the option before their subcommand, and some after it.
        match *first {
            "cluster" => command.args(rest).args(bootstrap),
            _ => command.args(bootstrap).args(rest),
        };
        let output = command.output()?;
        ensure!(
            output.status.success(),
            "{arguments:?} ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The setting of this name; `null` if it is not listed.
pub fn setting<'a>(settings: &'a Value, name: &str) -> &'a Value {
    let mut items = settings["items"].as_array().into_iter().flatten();
    items.find(|it| it["name"] == name).unwrap_or(&Value::Null)
}

/// Starts a console, and returns its address as soon as it has printed it.
pub fn start_console(command: &mut Command) -> Result<(OwnedChild, String)> {
    let (console, _input, output) = OwnedChild::converse(command)?;
    let mut line = String::new();
    let mut output = BufReader::new(output);
    output.read_line(&mut line)?;
    let address = line
        .trim()
        .rsplit_once("http://")
        .map(|(_, it)| it.to_owned());
    let address = address.with_context(|| format!("the console said {line:?}"))?;
    // It must not find its output closed.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    Ok((console, address))
}
