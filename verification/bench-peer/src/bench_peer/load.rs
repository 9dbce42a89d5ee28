//! Runs of the native load generator against one broker of this machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use ottla_workspace::process;

/// The load generator, aimed at a broker.
pub struct Load<'a> {
    pub generator: &'a Path,
    pub bootstrap: String,
    pub broker_pid: u32,
    /// The client properties of its connections.
    pub command_config: Option<PathBuf>,
    /// A program with arguments that executes the generator.
    pub launcher: Vec<String>,
}

impl Load<'_> {
    /// `line` is a command of the load generator with its arguments. Returns its report.
    pub fn run(&self, line: &str) -> Result<Value> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(self.generator);
        command
            .args(words.next())
            .args(["--bootstrap", &self.bootstrap, "--json"]);
        command.args(["--broker-pid", &self.broker_pid.to_string()]);
        if let Some(file) = &self.command_config {
            command.arg("--command-config").arg(file);
        }
        command.args(words);
        let printed = process::output_of(&mut process::started_by(&self.launcher, command))?;
        serde_json::from_str(&printed).with_context(|| format!("not JSON: {printed}"))
    }
}

pub fn number_at(value: &Value, pointer: &str) -> Result<f64> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.with_context(|| format!("the load generator's report has no {pointer}: {value}"))
}
