//! Runs of the native load generator, `ottla-load`, against one broker.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use ottla_peers::Node;
use ottla_workspace::process;

/// `line` is a command of the load generator with its arguments. Returns its report.
pub fn run(load_generator: &Path, node: &Node, line: &str) -> Result<Value> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(load_generator);
    command
        .args(words.next())
        .args(["--bootstrap", &node.bootstrap(), "--json"])
        .args(words);
    let printed = process::output_of(&mut command)?;
    serde_json::from_str(&printed).with_context(|| format!("not JSON: {printed}"))
}

pub fn number_at(value: &Value, pointer: &str) -> Result<f64> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.with_context(|| format!("the load generator's report has no {pointer}: {value}"))
}
