//! What `ottla preflight` says of a directory that Kafka has just left: that a take-over is possible, what node it is,
//! and everything that Kafka served there and Ottla would not.
//!
//! The run's own configuration lets all of that pass, or no take-over would be shown; so each finding of the kind must
//! be there as a warning, with what lets it pass.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::endings::Ending;
use crate::peer::InstalledPeer;
use crate::process;

/// What a picture's names begin with, and the finding's place and what it is about.
const IN_USE: [(&str, &str, &str); 2] = [
    ("group share", "__consumer_offsets", "groups"),
    ("share offset ", "__share_group_state", "groups"),
];

/// Runs it on the stopped node, whose directory the broker of this name made (`Apache Kafka 3.9.2`), and gives back what
/// it got wrong.
pub fn look(
    ottla: &InstalledPeer,
    properties: &Path,
    picture: &BTreeMap<String, String>,
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
    // 3.9.2 made it with metadata.version 3.9-IV0, and nobody finalizes a newer one.
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
    for (prefix, place, subject) in IN_USE {
        let is_in_use = picture.keys().any(|name| name.starts_with(prefix));
        let findings = answer["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let is_named = findings.iter().any(|finding| {
            finding["place"] == place
                && finding["subject"] == subject
                && finding["severity"] == "warns"
                && finding["accept"].is_string()
        });
        expect(
            &format!("{subject} in {place} are in use, and are named"),
            is_named || !is_in_use,
        );
    }
    let (succeeded, strict) = run(&["--override", "ottla.accept.unserved="])?;
    let is_in_use =
        |(prefix, ..): &(&str, &str, &str)| picture.keys().any(|name| name.starts_with(prefix));
    let refuses = strict["possible"] == false && !succeeded;
    if IN_USE.iter().any(is_in_use) && !refuses {
        wrong.push(format!(
            "preflight: without ottla.accept.unserved it refuses: {strict}"
        ));
    }
    Ok(wrong)
}
