//! Whether a node can be taken over from Apache Kafka, and if not exactly why.
//!
//! Looks at the properties file and at the directories that it names, and finds whatever Ottla would have to
//! refuse, or would do otherwise than Kafka did. `ottla preflight` shows all of it; `ottla server` looks first,
//! and refuses on the same grounds with the same sentences.
//!
//! Never touches anything: files are opened for reading, the lock of a directory is asked for and not taken, and
//! nothing is created. What it reads may be written at the same time by the Kafka that it finds running; it then
//! says so, and what it reads may be a moment old.

mod directories;
mod finding;
mod log_scan;
mod metadata;
mod recovery;
mod settings;
#[cfg(test)]
mod tests;

use ottla_config::{BrokerConfig, Examined, Properties};

pub use finding::{Facts, Finding, Severity, Unserved};

/// What a look at a node comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preflight {
    pub facts: Facts,
    /// What stands in the way first.
    pub findings: Vec<Finding>,
}

/// What to make of directories that hold nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unformatted {
    /// There is nothing to take over, and nothing to start.
    Refused,
    /// They are going to be formatted.
    Formatted,
}

impl Preflight {
    /// Looks at a node. Blocks: reads the metadata log.
    pub fn of(properties: &Properties, unformatted: Unformatted) -> Preflight {
        let Examined {
            config,
            problems,
            warnings,
        } = BrokerConfig::examine(properties);
        let mut look = Look::default();
        settings::examine(properties, config.as_ref(), &problems, &warnings, &mut look);
        if let Some(config) = &config {
            directories::examine(config, unformatted, &mut look);
        }
        look.findings.sort_by_key(|finding| finding.severity);
        Preflight {
            facts: look.facts,
            findings: look.findings,
        }
    }

    pub fn is_possible(&self) -> bool {
        self.refusals().next().is_none()
    }

    /// What stands in the way.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        let is_refusal = |finding: &&Finding| finding.severity == Severity::Refuses;
        self.findings.iter().filter(is_refusal)
    }
}

/// What has been found so far.
#[derive(Default)]
struct Look {
    facts: Facts,
    findings: Vec<Finding>,
}

impl Look {
    fn refuse(&mut self, subject: &'static str, place: &str, what: String, change: &str) {
        self.add(Severity::Refuses, subject, place, what, change);
    }

    fn warn(&mut self, subject: &'static str, place: &str, what: String, change: &str) {
        self.add(Severity::Warns, subject, place, what, change);
    }

    fn note(&mut self, subject: &'static str, place: &str, what: String, change: &str) {
        self.add(Severity::Notes, subject, place, what, change);
    }

    fn add(
        &mut self,
        severity: Severity,
        subject: &'static str,
        place: &str,
        what: String,
        change: &str,
    ) {
        self.findings.push(Finding {
            severity,
            subject,
            place: place.to_owned(),
            what,
            change: (!change.is_empty()).then(|| change.to_owned()),
            accept: None,
        });
    }

    /// Something that would stop to hold: it stands in the way until whoever starts the node says that it may.
    fn unserved(
        &mut self,
        config: &BrokerConfig,
        unserved: Unserved,
        place: &str,
        what: String,
        change: &str,
    ) {
        let name = unserved.name();
        let is_accepted = config.accepts_unserved(name);
        let severity = match is_accepted {
            true => Severity::Warns,
            false => Severity::Refuses,
        };
        let change = match is_accepted {
            true => "ottla.accept.unserved lets that pass".to_owned(),
            false => format!("{change}, or accept this with ottla.accept.unserved={name}"),
        };
        self.findings.push(Finding {
            severity,
            subject: unserved.subject(),
            place: place.to_owned(),
            what,
            change: Some(change),
            accept: Some(unserved),
        });
    }
}

/// `1 topic`, `2 topics`.
fn count(number: usize, singular: &str, plural: &str) -> String {
    match number {
        1 => format!("1 {singular}"),
        _ => format!("{number} {plural}"),
    }
}

/// The first few of a list, and how many more there are.
fn some_of<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 5;
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.len().checked_sub(SHOWN) {
        None | Some(0) => items.join(", "),
        Some(more) => format!("{} and {more} more", items[..SHOWN].join(", ")),
    }
}
