//! Compares the lines that a client printed against one broker with those against the other.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result};
use serde_json::Value;

use ottla_peers::reference;
use ottla_workspace::workspace;

/// A step of a script.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
pub struct Line {
    pub step: String,
    pub outcome: Value,
}

/// The contents of `conformance/known-differences.toml`.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownDifferences {
    #[serde(default)]
    difference: Vec<KnownDifference>,
}

/// A step that may differ, with the phrase of `COMPATIBILITY.md` that explains it.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDifference {
    client: String,
    step: String,
    /// JSON pointers to the places in the outcome that may differ; without any, the whole outcome
    /// may.
    #[serde(default)]
    at: Vec<String>,
    /// The reference with which it differs (`kafka` or `kafka44`); without it, each does.
    reference: Option<String>,
    reason: String,
}

/// The comparison of one client's lines.
#[derive(Debug, Default)]
pub struct Outcome {
    pub alike: usize,
    pub known: usize,
    pub unknown: Vec<Difference>,
}

/// An unlisted difference: a step with different outcomes, or a step that a run lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub step: String,
    /// The difference at one place, in readable form.
    text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", self.step, self.text)
    }
}

impl Outcome {
    fn differs(&mut self, step: &str, text: String) {
        self.unknown.push(Difference {
            step: step.to_owned(),
            text,
        });
    }
}

impl KnownDifferences {
    /// Loads the file's entries for the reference; empty if a broker is compared with itself.
    pub fn load(compares_two_brokers: bool) -> Result<KnownDifferences> {
        if !compares_two_brokers {
            return Ok(KnownDifferences::default());
        }
        let file = workspace::root().join("conformance/known-differences.toml");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let all: KnownDifferences =
            toml::from_str(&text).with_context(|| file.display().to_string())?;
        Ok(all.with(reference::chosen()))
    }

    /// The entries for this reference.
    fn with(mut self, reference: &str) -> KnownDifferences {
        let applies = |known: &KnownDifference| {
            let of = known.reference.as_deref();
            of.is_none_or(|of| of == reference)
        };
        self.difference.retain(applies);
        self
    }

    /// The JSON pointers at which this step of this client may differ; an empty pointer means the
    /// whole outcome.
    fn places(&self, client: &str, step: &str) -> Vec<&str> {
        let mut places = Vec::new();
        for known in &self.difference {
            if known.client == client && known.step == step {
                if known.at.is_empty() {
                    places.push("");
                }
                places.extend(known.at.iter().map(String::as_str));
            }
        }
        places
    }
}

/// Parses a script's output. The broker's ports, which differ between runs, are replaced with a
/// placeholder.
pub fn parse(printed: &str, ports: &[u16]) -> Result<Vec<Line>> {
    printed
        .lines()
        .map(|line| {
            let mut text = line.to_owned();
            for port in ports {
                for value in [format!("\"port\":{port}"), format!("\"port\": {port}")] {
                    text = text.replace(&value, "\"port\":0");
                }
                text = text.replace(&format!(":{port}"), ":PORT");
            }
            serde_json::from_str(&text).with_context(|| format!("not a step: {}", shortened(&text)))
        })
        .collect()
}

/// Compares step by step. The order of steps matters, because each depends on the state that
/// earlier ones left.
pub fn compare(client: &str, left: &[Line], right: &[Line], known: &KnownDifferences) -> Outcome {
    let mut outcome = Outcome::default();
    let right_by_step: BTreeMap<&str, &Value> = right
        .iter()
        .map(|line| (line.step.as_str(), &line.outcome))
        .collect();
    let left_steps: BTreeSet<&str> = left.iter().map(|line| line.step.as_str()).collect();
    for line in left {
        let Some(other) = right_by_step.get(line.step.as_str()) else {
            outcome.differs(
                &line.step,
                ": only the first broker's run has this step".to_owned(),
            );
            continue;
        };
        let places = known.places(client, &line.step);
        let mut found = Vec::new();
        differences("", &line.outcome, other, &mut found);
        // Below an object key, the script determines the shape, so a prefix match is safe. Within
        // an array, one shifted element would change every later place.
        let is_known = |place: &str| {
            places.iter().any(|allowed| {
                place == *allowed
                    || place
                        .strip_prefix(allowed)
                        .is_some_and(|rest| rest.starts_with('/'))
            })
        };
        let unknown: Vec<&(String, String)> =
            found.iter().filter(|(place, _)| !is_known(place)).collect();
        for place in &places {
            let occurs = found.iter().any(|(at, _)| {
                at == place
                    || at
                        .strip_prefix(place)
                        .is_some_and(|rest| rest.starts_with('/'))
            });
            if !occurs {
                let place = at(place);
                let text = format!(
                    "{place}: is named in known-differences.toml and does not differ any more"
                );
                outcome.differs(&line.step, text);
            }
        }
        if !unknown.is_empty() {
            for (place, text) in unknown {
                outcome.differs(&line.step, format!("{}:{text}", at(place)));
            }
        } else if found.is_empty() {
            outcome.alike += 1;
        } else {
            outcome.known += 1;
        }
    }
    for line in right {
        if !left_steps.contains(line.step.as_str()) {
            outcome.differs(
                &line.step,
                ": only the second broker's run has this step".to_owned(),
            );
        }
    }
    for entry in &known.difference {
        if entry.client == client && !left_steps.contains(entry.step.as_str()) {
            let text = format!(
                ": known-differences.toml names this step, which the script does not have ({})",
                entry.reason
            );
            outcome.differs(&entry.step, text);
        }
    }
    outcome
}

fn at(place: &str) -> String {
    if place.is_empty() {
        String::new()
    } else {
        format!(" at {place}")
    }
}

/// The places at which two values differ. Objects are compared by key, all other values as a whole.
fn differences(place: &str, left: &Value, right: &Value, found: &mut Vec<(String, String)>) {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                let place = format!("{place}/{key}");
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => differences(&place, left, right, found),
                    (left, right) => {
                        let show = |value: Option<&Value>| match value {
                            Some(value) => shortened(&value.to_string()),
                            None => "nothing".to_owned(),
                        };
                        found.push((place, sides(&show(left), &show(right))));
                    }
                }
            }
        }
        (left, right) if left == right => {}
        (left, right) => {
            let (left, right) = (left.to_string(), right.to_string());
            let (left, right) = around_the_difference(&left, &right);
            found.push((place.to_owned(), sides(&left, &right)));
        }
    }
}

fn sides(left: &str, right: &str) -> String {
    format!("\n        - {left}\n        + {right}")
}

/// Cuts long texts to the part around the first difference.
fn around_the_difference(left: &str, right: &str) -> (String, String) {
    let same = left
        .chars()
        .zip(right.chars())
        .take_while(|(a, b)| a == b)
        .count();
    let from = same.saturating_sub(60);
    let cut = |text: &str| {
        let rest: String = text.chars().skip(from).collect();
        let lead = if from > 0 { "…" } else { "" };
        format!("{lead}{}", shortened(&rest))
    };
    (cut(left), cut(right))
}

/// Cuts a text to a few terminal lines.
pub fn shortened(text: &str) -> String {
    const LONGEST: usize = 320;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let beginning: String = text.chars().take(LONGEST).collect();
    format!("{beginning}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Line> {
        parse(text, &[9092]).unwrap()
    }

    fn known(text: &str) -> KnownDifferences {
        toml::from_str(text).unwrap()
    }

    const LEFT: &str = r#"{"step":"a","outcome":[1,2]}
{"step":"b","outcome":{"x":1,"y":{"z":"at 127.0.0.1:9092"}}}"#;

    #[test]
    fn equal_lines_match_with_different_ports() {
        let right = parse(&LEFT.replace("9092", "9999"), &[9999]).unwrap();
        let outcome = compare("c", &lines(LEFT), &right, &KnownDifferences::default());
        assert_eq!((outcome.alike, outcome.unknown.len()), (2, 0));
    }

    #[test]
    fn a_number_without_a_host_is_not_a_port() {
        let lines = parse(
            "{\"step\":\"s\",\"outcome\":{\"port\":9092,\"at\":\"h:9092\"}}",
            &[9092],
        )
        .unwrap();
        assert_eq!(
            lines[0].outcome.to_string(),
            "{\"port\":0,\"at\":\"h:PORT\"}"
        );
    }

    #[test]
    fn a_difference_is_reported_with_its_position() {
        let right = lines(&LEFT.replace("127.0.0.1", "localhost"));
        let outcome = compare("c", &lines(LEFT), &right, &KnownDifferences::default());
        assert_eq!(outcome.alike, 1);
        assert!(
            outcome.unknown[0].to_string().starts_with("b at /y/z:"),
            "{:?}",
            outcome.unknown
        );
    }

    #[test]
    fn a_missing_step_is_a_difference_on_either_side() {
        let short = lines(LEFT.lines().next().unwrap());
        let long = lines(LEFT);
        for (left, right) in [(&short, &long), (&long, &short)] {
            let outcome = compare("c", left, right, &KnownDifferences::default());
            assert_eq!(outcome.unknown.len(), 1);
        }
    }

    #[test]
    fn a_known_difference_counts_only_at_its_step() {
        let right = lines(&LEFT.replace("\"x\":1", "\"x\":5"));
        let known = known("[[difference]]\nclient='c'\nstep='b'\nat=['/x']\nreason='r'");
        let outcome = compare("c", &lines(LEFT), &right, &known);
        assert_eq!(
            (outcome.alike, outcome.known, outcome.unknown.len()),
            (1, 1, 0)
        );

        let right = lines(&LEFT.replace("\"x\":1", "\"x\":5").replace("127", "128"));
        assert_eq!(compare("c", &lines(LEFT), &right, &known).unknown.len(), 1);
    }

    #[test]
    fn a_known_difference_that_does_not_occur_is_an_error() {
        let known = known("[[difference]]\nclient='c'\nstep='a'\nreason='r'");
        let outcome = compare("c", &lines(LEFT), &lines(LEFT), &known);
        assert!(
            outcome.unknown[0]
                .to_string()
                .contains("does not differ any more"),
            "{:?}",
            outcome.unknown
        );
    }

    #[test]
    fn a_known_difference_applies_to_its_reference_only() {
        let entries = "[[difference]]\nclient='c'\nstep='b'\nreference='kafka44'\nreason='r'\n\
                       [[difference]]\nclient='c'\nstep='a'\nreason='r'";
        let left_with = |reference| known(entries).with(reference).difference.len();
        assert_eq!((left_with("kafka44"), left_with("kafka")), (2, 1));
    }

    #[test]
    fn a_line_that_is_no_step_is_refused() {
        assert!(parse("Exception in thread main", &[1]).is_err());
    }
}
