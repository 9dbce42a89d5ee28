//! Checks `ottla preflight` on a directory that Kafka has just left: it must report that a
//! take-over is possible, also when unserved settings are not accepted, and describe the node
//! correctly.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::endings::Ending;
use ottla_peers::InstalledPeer;
use ottla_workspace::process;

/// Runs preflight on the stopped node, whose directory was formatted by this broker (`Apache Kafka
/// 3.9.2`), and returns its errors.
pub fn look(
    ottla: &InstalledPeer,
    properties: &Path,
    ending: Ending,
    formatted_by: &str,
) -> Result<Vec<String>> {
    let run = |more: &[&str]| -> Result<(bool, Value)> {
        let mut command = ottla.tool("preflight");
        command.arg("--json").args(more).arg(properties);
        let output = process::run_captured(&mut command)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let answer = serde_json::from_str(&printed)
            .with_context(|| format!("preflight printed no JSON but `{printed}`"))?;
        Ok((output.status.success(), answer))
    };
    let (succeeded, answer) = run(&[])?;
    let mut wrong = Vec::new();
    let mut expect = |what: &str, is_so: bool| {
        if !is_so {
            wrong.push(format!("preflight: {what}: {answer}"));
        }
    };
    expect(
        "a take-over is possible, and the exit status says so",
        answer["possible"] == true && succeeded,
    );
    let node = &answer["node"];
    expect("the node is 1", node["node.id"] == 1);
    expect(
        "whether the stop was clean",
        node["stopped_cleanly"] == !ending.is_kill(),
    );
    // 3.9.2 formats with metadata.version 3.9-IV0, and nothing upgrades it.
    let release: Vec<&str> = formatted_by
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .split('.')
        .take(2)
        .collect();
    expect(
        "the metadata version is that of the broker that made the directory",
        node["metadata.version"]
            .as_str()
            .is_some_and(|version| version.starts_with(&format!("{}-", release.join(".")))),
    );
    let (succeeded, strict) = run(&["--override", "ottla.accept.unserved="])?;
    if strict["possible"] != true || !succeeded {
        wrong.push(format!(
            "preflight: without ottla.accept.unserved a take-over is possible too: {strict}"
        ));
    }
    Ok(wrong)
}
