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
mod look;
mod metadata;
mod recovery;
mod settings;
#[cfg(test)]
mod tests;

use ottla_config::{BrokerConfig, Examined, Properties};

use look::Look;

pub use directories::Unformatted;
pub use finding::{Facts, Finding, Severity, Unserved};

/// What a look at a node comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preflight {
    pub facts: Facts,
    /// What stands in the way first.
    pub findings: Vec<Finding>,
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
