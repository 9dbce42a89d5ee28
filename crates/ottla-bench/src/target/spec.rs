//! What the command line names as a target.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::metrics_endpoint::MetricsEndpoint;

/// A target, as the command line names it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetSpec {
    /// The brokers at these addresses.
    Remote {
        bootstrap: String,
        /// Where its brokers say what they use.
        metrics: Vec<MetricsEndpoint>,
        /// Of every client that talks to it: how to connect, and who one is.
        settings: BTreeMap<String, String>,
    },
    /// This binary, started as broker.
    Ottla { binary: PathBuf },
    /// Apache Kafka from its artefacts, or from KAFKA_HOME.
    Kafka,
}

impl TargetSpec {
    /// As results name it.
    pub fn name(&self) -> String {
        match self {
            TargetSpec::Remote { bootstrap, .. } => bootstrap.clone(),
            TargetSpec::Ottla { .. } => "ottla".to_owned(),
            TargetSpec::Kafka => "kafka".to_owned(),
        }
    }

    /// For the heads of columns: of several addresses the first, and how many more there are.
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
