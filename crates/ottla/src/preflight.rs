//! `ottla preflight`: checks whether Ottla can take over a node of Apache Kafka, and if not, why.
//!
//! Exit status: 0 if it can, 1 if it cannot, 2 if the check itself fails: an invalid argument, or an
//! unreadable file.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ottla_storage::preflight::{Facts, Finding, Preflight, Severity, Unformatted};
use serde_json::{Value, json};

use crate::counted::counted;
use crate::paragraphs::wrap;
use crate::{colours, server};

/// Exit status when the check itself fails.
pub const UNREADABLE: u8 = 2;

#[derive(Args, Debug)]
pub struct PreflightArgs {
    /// Kafka's configuration file of the node.
    #[arg(value_name = "SERVER.PROPERTIES")]
    properties: PathBuf,
    /// A setting that overrides the file; repeatable.
    #[arg(long = "override", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub fn run(args: PreflightArgs) -> ExitCode {
    let properties = match server::read_properties(Some(&args.properties), &args.overrides) {
        Ok(properties) => properties,
        Err(sentence) => {
            eprintln!("ottla: {sentence}");
            return ExitCode::from(UNREADABLE);
        }
    };
    let preflight = server::examine(&properties, Unformatted::Refused).with_log_files(&properties);
    let text = if args.json {
        format!("{:#}\n", to_json(&preflight))
    } else {
        let has_colours = std::io::stdout().is_terminal() && colours::are_allowed();
        to_text(&preflight, has_colours)
    };
    // The reader may have closed the pipe; the exit status still carries the result.
    let _ = std::io::stdout().write_all(text.as_bytes());
    if preflight.is_possible() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn to_json(preflight: &Preflight) -> Value {
    let Facts {
        node_id,
        cluster_id,
        metadata_version,
        topics,
        partitions,
        size_bytes,
        directories,
        stopped_cleanly,
        recovery_bytes,
    } = &preflight.facts;
    let finding = |finding: &Finding| {
        json!({
            "severity": finding.severity.name(),
            "subject": finding.subject,
            "place": finding.place,
            "what": finding.what,
            "change": finding.change,
            "accept": finding.accept,
        })
    };
    json!({
        "possible": preflight.is_possible(),
        "node": {
            "node.id": node_id,
            "cluster.id": cluster_id,
            "metadata.version": metadata_version,
            "topics": topics,
            "partitions": partitions,
            "bytes": size_bytes,
            "directories": directories,
            "stopped_cleanly": stopped_cleanly,
            "recovery_bytes": recovery_bytes,
        },
        "findings": preflight.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// Readable text: the node in one line, the findings (refusals first), and the result.
fn to_text(preflight: &Preflight, with_colours: bool) -> String {
    let mut text = String::new();
    let style = |code: &str, words: &str| {
        if with_colours {
            format!("\x1b[{code}m{words}\x1b[0m")
        } else {
            words.to_owned()
        }
    };
    let facts = describe(&preflight.facts);
    if !facts.is_empty() {
        let _ = writeln!(text, "{facts}\n");
    }
    let of = |severity| move |finding: &&Finding| finding.severity == severity;
    for (severity, colour, title) in [
        (Severity::Refuses, "1;31", "Problems"),
        (Severity::Warns, "1;33", "Will differ"),
        (Severity::Notes, "1", "Good to know"),
    ] {
        let mut findings = preflight.findings.iter().filter(of(severity)).peekable();
        if findings.peek().is_none() {
            continue;
        }
        let _ = writeln!(text, "{}", style(colour, title));
        let mut place = "";
        for finding in findings {
            // Findings about all directories have no place.
            let heading: &str = match finding.place.is_empty() {
                true => finding.subject,
                false => &finding.place,
            };
            if heading != place {
                place = heading;
                let _ = writeln!(text, "  {}", style("2", place));
            }
            wrap(&mut text, "  - ", "    ", &finding.what);
            if let Some(change) = &finding.change {
                wrap(&mut text, "    -> ", "       ", change);
            }
        }
        text.push('\n');
    }
    let refusals = preflight.refusals().count();
    let answer = match refusals {
        0 => style("1;32", "Ottla can take this node over."),
        _ => style(
            "1;31",
            &format!(
                "Ottla cannot take this node over: {}.",
                counted(refusals, "problem")
            ),
        ),
    };
    let _ = writeln!(text, "{answer}");
    text
}

/// The node in one or two sentences.
fn describe(facts: &Facts) -> String {
    let mut text = String::new();
    if let Some(node_id) = facts.node_id {
        let _ = write!(text, "Node {node_id}");
        if let Some(cluster_id) = &facts.cluster_id {
            let _ = write!(text, " of cluster {cluster_id}");
        }
        if let Some(version) = &facts.metadata_version {
            let _ = write!(text, ", metadata.version {version}");
        }
        // Empty if their settings are invalid.
        if !facts.directories.is_empty() {
            let _ = write!(text, ", in {}", facts.directories.join(", "));
        }
        text.push('.');
    }
    if facts.metadata_version.is_some() {
        let _ = write!(
            text,
            "\n{} with {}, {:.1} MiB",
            counted(facts.topics, "topic"),
            counted(facts.partitions, "partition"),
            facts.size_bytes as f64 / f64::from(1024 * 1024)
        );
        text.push_str(match facts.stopped_cleanly {
            Some(true) => ", stopped cleanly.",
            // A directory that was formatted and never started has no clean shutdown marker.
            Some(false) if facts.partitions > 0 => ", not stopped cleanly.",
            Some(false) | None => ".",
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, place: &str, what: &str, change: Option<&str>) -> Finding {
        Finding {
            severity,
            subject: "settings",
            place: place.to_owned(),
            what: what.to_owned(),
            change: change.map(str::to_owned),
            accept: None,
        }
    }

    fn preflight(findings: Vec<Finding>) -> Preflight {
        Preflight {
            facts: Facts {
                node_id: Some(1),
                cluster_id: Some("abc".to_owned()),
                metadata_version: Some("4.3-IV0".to_owned()),
                topics: 1,
                partitions: 2,
                size_bytes: 1024 * 1024 / 2,
                directories: vec!["/data".to_owned()],
                stopped_cleanly: Some(true),
                recovery_bytes: 0,
            },
            findings,
        }
    }

    #[test]
    fn the_text_starts_with_refusals_and_ends_with_the_result() {
        let long = "word ".repeat(30);
        let text = to_text(
            &preflight(vec![
                finding(
                    Severity::Refuses,
                    "a.properties line 3",
                    "it is so",
                    Some("do that"),
                ),
                finding(Severity::Refuses, "a.properties line 3", long.trim(), None),
                finding(Severity::Notes, "/data", "it was so", None),
            ]),
            false,
        );
        let expected = format!(
            "Node 1 of cluster abc, metadata.version 4.3-IV0, in /data.\n\
             1 topic with 2 partitions, 0.5 MiB, stopped cleanly.\n\n\
             Problems\n  a.properties line 3\n  - it is so\n    -> do that\n  - {}\n    {}\n\n\
             Good to know\n  /data\n  - it was so\n\n\
             Ottla cannot take this node over: 2 problems.\n",
            "word ".repeat(15).trim(),
            "word ".repeat(15).trim()
        );
        assert_eq!(text, expected);
        let text = to_text(&preflight(Vec::new()), true);
        assert!(
            text.ends_with("\x1b[1;32mOttla can take this node over.\x1b[0m\n"),
            "{text}"
        );
    }

    #[test]
    fn a_finding_without_a_place_is_listed_under_its_subject() {
        let findings = vec![
            finding(Severity::Refuses, "a.properties line 3", "is so", None),
            finding(Severity::Refuses, "", "not formatted", None),
        ];
        let text = to_text(&preflight(findings), false);
        let expected = "  a.properties line 3\n  - is so\n  settings\n  - not formatted\n\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_caret_stays_below_its_column() {
        let entry = format!("    {}requird", "word ".repeat(20));
        let what = format!(
            "not so (column 101)\n{entry}\n    {:100}^\n  probably meant:",
            ""
        );
        let text = to_text(
            &preflight(vec![finding(
                Severity::Refuses,
                "a.properties line 3",
                &what,
                None,
            )]),
            false,
        );
        let expected = format!(
            "  - not so (column 101)\n    {entry}\n    {:104}^\n    probably meant:\n",
            ""
        );
        assert!(text.contains(&expected), "{text}");
    }

    #[test]
    fn the_json_has_all_findings() {
        let value = to_json(&preflight(vec![finding(
            Severity::Warns,
            "here",
            "so",
            Some("that"),
        )]));
        assert_eq!(value["possible"], true);
        assert_eq!(value["node"]["metadata.version"], "4.3-IV0");
        assert_eq!(value["findings"][0]["severity"], "warns");
        assert_eq!(value["findings"][0]["change"], "that");
        assert_eq!(value["findings"][0]["accept"], Value::Null);
    }
}
