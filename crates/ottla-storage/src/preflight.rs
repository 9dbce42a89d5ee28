//! Checks whether Ottla can take a node over from Apache Kafka, and if not, why.
//!
//! Examines the properties file and the directories it names, and finds everything that Ottla would
//! refuse or do differently from Kafka. `ottla preflight` shows the findings; `ottla server` runs
//! the same checks first and refuses with the same sentences.
//!
//! Changes nothing: files are opened for reading, the lock of a directory is tested and not taken,
//! and nothing is created. A running Kafka may write at the same time; that is reported, and the
//! state read may be slightly old.

mod directories;
mod finding;
mod listeners;
mod log_files;
mod log_scan;
mod look;
mod metadata;
mod recovery;
mod settings;
#[cfg(test)]
mod tests;

use ottla_config::{BrokerConfig, Examined, Origin, Properties, Property, broker_config};
use ottla_types::shell_word;

use crate::format::THIS_FILE;
use look::Look;

pub use directories::Unformatted;
pub use finding::{Facts, Finding, Severity, TLS};

/// The result of the checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preflight {
    pub facts: Facts,
    /// Refusals first.
    pub findings: Vec<Finding>,
}

impl Preflight {
    /// Examines a node. Blocks: reads the metadata log.
    pub fn of(properties: &Properties, unformatted: Unformatted) -> Preflight {
        let Examined {
            config,
            problems,
            warnings,
        } = BrokerConfig::examine(properties);
        let mut look = Look::default();
        settings::examine(properties, config.as_ref(), &problems, &warnings, &mut look);
        if let Some(config) = &config
            && names_directories(properties)
        {
            directories::examine(config, unformatted, &mut look);
        }
        Preflight::new(look, properties)
    }

    /// Examines the checkpoints and the small files of every log as well, and measures the logs. `ottla
    /// server` does not, because its start reads them itself. Blocks.
    pub fn with_log_files(self, properties: &Properties) -> Preflight {
        let mut look = Look {
            facts: self.facts,
            findings: self.findings,
        };
        if let Some(config) = &BrokerConfig::examine(properties).config
            && names_directories(properties)
        {
            directories::checkpoints(config, &mut look);
            log_files::examine(config, &mut look);
            directories::measure(config, &mut look);
        }
        Preflight::new(look, properties)
    }

    fn new(mut look: Look, properties: &Properties) -> Preflight {
        let changes = look.findings.iter_mut().filter_map(|it| it.change.as_mut());
        for change in changes.filter(|change| change.contains(THIS_FILE)) {
            let name = shell_word(properties.file_name());
            let file = format!("{name}{}", overridden(properties));
            *change = change.replace(THIS_FILE, &file);
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

    /// The findings that prevent a take-over.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        let is_refusal = |finding: &&Finding| finding.severity == Severity::Refuses;
        self.findings.iter().filter(is_refusal)
    }
}

/// Whether the settings of the directories are valid. Otherwise the configuration has other
/// directories than the user named.
fn names_directories(properties: &Properties) -> bool {
    let is_valid = |key: &&str| {
        let (given, def) = (properties.value(key), broker_config(key));
        given
            .zip(def)
            .is_none_or(|(value, def)| def.parse(value).is_ok())
    };
    ["log.dirs", "log.dir", "metadata.log.dir"]
        .iter()
        .all(is_valid)
}

/// The options with which `ottla storage format` has the settings that it needs from the command line
/// of the server.
fn overridden(properties: &Properties) -> String {
    let keys = [
        "log.dirs",
        "log.dir",
        "metadata.log.dir",
        "node.id",
        "process.roles",
        "controller.quorum.voters",
    ];
    let given = keys.iter().filter_map(|key| properties.get(key));
    let overrides = given.filter(|property| property.origin == Origin::Override);
    // Quoted with its variables, which a shell would expand.
    let word = |property: &Property| {
        let setting = format!("{}={}", property.key, property.value);
        shell_word(&properties.with_variables(&setting))
    };
    overrides
        .map(|property| format!(" --override {}", word(property)))
        .collect()
}
