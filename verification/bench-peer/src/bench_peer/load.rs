//! Runs of the native load generator, `ottla-load`, against one broker of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use ottla_peers::Node;
use ottla_workspace::process;

/// The load generator, aimed at a broker.
pub struct Load<'a> {
    pub generator: &'a Path,
    pub bootstrap: String,
    /// For the modes that report the broker's CPU time.
    pub broker_pid: Option<u32>,
    /// The client properties of its connections.
    pub command_config: Option<PathBuf>,
    /// A program with arguments that executes the generator.
    pub launcher: Vec<String>,
}

impl<'a> Load<'a> {
    /// Plain connections to this node, whose process is measured.
    pub fn on(generator: &'a Path, node: &Node) -> Load<'a> {
        Load {
            generator,
            bootstrap: node.bootstrap(),
            broker_pid: Some(node.pid()),
            command_config: None,
            launcher: Vec::new(),
        }
    }

    /// `line` is a command of the load generator with its arguments. Returns its report.
    pub fn run(&self, line: &str) -> Result<Value> {
        report(&process::output_of(&mut self.command(line))?)
    }

    /// The same, to be started by the caller.
    pub fn command(&self, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let mut command = Command::new(self.generator);
        command
            .args(words.next())
            .args(["--bootstrap", &self.bootstrap, "--json"]);
        if let Some(pid) = self.broker_pid {
            command.args(["--broker-pid", &pid.to_string()]);
        }
        if let Some(file) = &self.command_config {
            command.arg("--command-config").arg(file);
        }
        command.args(words);
        process::started_by(&self.launcher, command)
    }
}

/// Parses the output of the load generator.
pub fn report(printed: &str) -> Result<Value> {
    serde_json::from_str(printed).with_context(|| format!("not JSON: {printed}"))
}

pub fn number_at(value: &Value, pointer: &str) -> Result<f64> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.with_context(|| format!("the load generator's report has no {pointer}: {value}"))
}
