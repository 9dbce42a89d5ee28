//! Collects findings, and formats lists and numbers for them.

use ottla_config::BrokerConfig;

use super::finding::{Facts, Finding, Severity};

/// The findings so far.
#[derive(Default)]
pub(super) struct Look {
    pub(super) facts: Facts,
    pub(super) findings: Vec<Finding>,
}

impl Look {
    pub(super) fn refuse(
        &mut self,
        subject: &'static str,
        place: &str,
        what: String,
        change: &str,
    ) {
        self.add(Severity::Refuses, subject, place, what, change);
    }

    /// Adds what another thread has found in the metadata log.
    pub(super) fn add_metadata(&mut self, of_metadata: Look) {
        let Look { facts, findings } = of_metadata;
        self.findings.extend(findings);
        self.facts.metadata_version = facts.metadata_version;
        self.facts.topics = facts.topics;
        self.facts.partitions = facts.partitions;
    }

    pub(super) fn warn(&mut self, subject: &'static str, place: &str, what: String, change: &str) {
        self.add(Severity::Warns, subject, place, what, change);
    }

    pub(super) fn note(&mut self, subject: &'static str, place: &str, what: String, change: &str) {
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

    /// Dynamic settings that Kafka enforces and Ottla does not: a refusal until the operator accepts
    /// it.
    pub(super) fn unserved_settings(
        &mut self,
        config: &BrokerConfig,
        place: &str,
        what: String,
        change: &str,
    ) {
        let name = "settings";
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
            subject: "dynamic settings",
            place: place.to_owned(),
            what,
            change: Some(change),
            accept: Some(name),
        });
    }
}

/// `1 topic`, `2 topics`.
pub(super) fn count(number: usize, singular: &str, plural: &str) -> String {
    match number {
        1 => format!("1 {singular}"),
        _ => format!("{number} {plural}"),
    }
}

/// The first items of a list, and how many more there are.
pub(super) fn some_of<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    const SHOWN: usize = 5;
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.len().checked_sub(SHOWN) {
        None | Some(0) => items.join(", "),
        Some(more) => format!("{} and {more} more", items[..SHOWN].join(", ")),
    }
}
