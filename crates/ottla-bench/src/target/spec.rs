//! Targets as given on the command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::metrics_endpoint::MetricsEndpoint;

/// A target, as given on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetSpec {
    /// The brokers at these addresses.
    Remote {
        bootstrap: String,
        /// Metrics endpoints of its brokers.
        metrics: Vec<MetricsEndpoint>,
        /// Settings of every client that connects to it, such as security settings.
        settings: BTreeMap<String, String>,
    },
    /// This binary, started as broker.
    Ottla { binary: PathBuf },
    /// Apache Kafka from its artefacts, or from KAFKA_HOME.
    Kafka,
}

impl TargetSpec {
    /// The name in results.
    pub fn name(&self) -> String {
        match self {
            TargetSpec::Remote { bootstrap, .. } => bootstrap.clone(),
            TargetSpec::Ottla { .. } => "ottla".to_owned(),
            TargetSpec::Kafka => "kafka".to_owned(),
        }
    }

    /// For column headings: the first of several addresses, and how many more there are.
    pub fn short_name(name: &str) -> String {
        let mut addresses = name.split(',');
        let first = addresses.next().unwrap_or_default();
        match addresses.count() {
            0 => first.to_owned(),
            others => format!("{first} +{others}"),
        }
    }

    pub fn is_local(&self) -> bool {
        !matches!(self, TargetSpec::Remote { .. })
    }
}
