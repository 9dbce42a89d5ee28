//! Dynamic settings (KIP-226): how the cluster's and this broker's override the file's, and the checks before
//! they are stored.
//!
//! Where Kafka does the same: `DynamicBrokerConfig`.

mod change;

use std::collections::BTreeMap;

use super::{BrokerConfig, ConfigError, Values, Warning};
use crate::config_def::UpdateMode;
use crate::properties::Properties;
use crate::tables::broker_config;

/// Settings that change while the broker runs for a listener and never for all
/// (`SslConfigs.RECONFIGURABLE_CONFIGS`).
const LISTENERS_ONLY: &[&str] = &[
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// Settings of a listener that all brokers can share (`CLUSTER_LEVEL_LISTENER_CONFIGS`).
const CLUSTER_WIDE_OF_LISTENERS: &[&str] = &[
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
];

/// The setting that a key is about, and whether it is for one listener.
fn base_of(key: &str) -> (&str, bool) {
    let of_listener = key.strip_prefix("listener.name.");
    match of_listener.and_then(|rest| rest.split_once('.')) {
        Some((_, base)) => (base, true),
        None => (key, false),
    }
}

impl BrokerConfig {
    /// This configuration with dynamic settings laid over the file's: the cluster's, then this
    /// broker's. An invalid dynamic value is ignored and reported, as in Kafka, because a running
    /// broker must not stop over a setting that was changed elsewhere.
    pub fn with_dynamic(
        &self,
        cluster: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> (BrokerConfig, Vec<Warning>) {
        let are_all_good = |settings: &BTreeMap<String, String>, cluster_wide| {
            let mut settings = settings.iter();
            settings.all(|(key, value)| self.check_dynamic(key, value, cluster_wide).is_ok())
        };
        // Checked one by one only if they are not valid together, because their number is
        // unbounded.
        if are_all_good(cluster, true)
            && are_all_good(broker, false)
            && let Ok(config) = self.rebuild(&[cluster.clone(), broker.clone()])
        {
            return (config, Vec::new());
        }
        let mut warnings = Vec::new();
        let mut accepted = [BTreeMap::new(), BTreeMap::new()];
        let mut result = None;
        let places = [
            "the cluster's dynamic settings",
            "this broker's dynamic settings",
        ];
        for (index, settings) in [cluster, broker].into_iter().enumerate() {
            for (key, value) in settings {
                let mut attempt = accepted.clone();
                attempt[index].insert(key.clone(), value.clone());
                match self.check_dynamic(key, value, index == 0) {
                    Ok(()) => {}
                    Err(message) => {
                        warnings.push(Warning {
                            place: places[index].into(),
                            message,
                        });
                        continue;
                    }
                }
                match self.rebuild(&attempt) {
                    Ok(config) => {
                        accepted = attempt;
                        result = Some(config);
                    }
                    Err(error) => warnings.push(Warning {
                        place: places[index].into(),
                        message: error.to_string(),
                    }),
                }
            }
        }
        let config = result.or_else(|| self.rebuild(&accepted).ok());
        (config.unwrap_or_else(|| self.clone()), warnings)
    }

    fn rebuild(
        &self,
        dynamic: &[BTreeMap<String, String>; 2],
    ) -> Result<BrokerConfig, ConfigError> {
        let mut properties = Properties::new(&self.file_name);
        properties.jaas_file = self.jaas_file.clone();
        for (key, value) in &self.static_settings {
            properties.set(key, value);
        }
        for (key, value) in dynamic.iter().flatten() {
            properties.set(key, value);
            // A dynamic `log.retention.ms` also goes before a static `log.retention.hours`, which the
            // order of the synonyms gives by itself.
        }
        let mut config = BrokerConfig::build(&Values::new(&properties))?;
        config.static_settings = self.static_settings.clone();
        [config.dynamic_default_settings, config.dynamic_settings] = dynamic.clone();
        Ok(config)
    }

    /// Whether a dynamic setting is one of a listener that is not followed while the broker runs: all but the
    /// limits of its connections, and what it shows and trusts over TLS. Those of the properties file are meant to be the only ones.
    pub fn is_unserved_of_listener(key: &str) -> bool {
        let (base, is_of_listener) = base_of(key);
        is_of_listener
            && broker_config(base).is_some()
            && !CLUSTER_WIDE_OF_LISTENERS.contains(&base)
            && !LISTENERS_ONLY.contains(&base)
    }

    /// Checks one dynamic setting before it is stored; the message is for the client. Unknown
    /// settings are stored, as in Kafka.
    pub fn check_dynamic(&self, key: &str, value: &str, cluster_wide: bool) -> Result<(), String> {
        let (base, is_of_listener) = base_of(key);
        let def = broker_config(base);
        if !is_of_listener {
            if def.is_some_and(|def| def.update_mode == UpdateMode::ReadOnly) {
                return Err(format!("Cannot update these configs dynamically: [{key}]"));
            }
            if LISTENERS_ONLY.contains(&key) {
                return Err(format!(
                    "These security configs can be dynamically updated only per-listener using the listener \
                     prefix: [{key}]"
                ));
            }
        }
        // Kafka knows the types of what changes while it runs, and no others.
        if let Some(def) = def.filter(|def| def.update_mode != UpdateMode::ReadOnly) {
            def.parse(value).map_err(|error| error.kafka_message())?;
        }
        let is_per_broker = if is_of_listener {
            !CLUSTER_WIDE_OF_LISTENERS.contains(&base)
        } else {
            def.is_some_and(|def| def.update_mode == UpdateMode::PerBroker)
        };
        if is_per_broker && cluster_wide {
            return Err(format!(
                "Cannot update these configs at default cluster level, broker id must be specified: [{key}]"
            ));
        }
        let Some(def) = def else {
            return Ok(());
        };
        if let Some(reason) = def.refusal(value) {
            return Err(format!(
                "Invalid value {value} for configuration {key}: {reason}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
