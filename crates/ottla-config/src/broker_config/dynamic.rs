//! Dynamic settings (KIP-226): overlays the settings of the cluster and of this broker on the file,
//! and validates changes.
//!
//! Kafka: `DynamicBrokerConfig`.

mod change;
mod listeners;

use std::collections::BTreeMap;

use super::{BrokerConfig, ConfigError, Values, Warning};
use crate::config_def::UpdateMode;
use crate::properties::Properties;
use crate::tables::broker_config;

/// Settings that can change at runtime only with the prefix of a listener
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

/// Settings with the prefix of a listener that can be set for all brokers
/// (`CLUSTER_LEVEL_LISTENER_CONFIGS`).
const CLUSTER_WIDE_OF_LISTENERS: &[&str] = &[
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
];

/// The setting that a key refers to, and whether the key has the prefix of a listener.
fn base_of(key: &str) -> (&str, bool) {
    let of_listener = key.strip_prefix("listener.name.");
    match of_listener.and_then(|rest| rest.split_once('.')) {
        Some((_, base)) => (base, true),
        None => (key, false),
    }
}

impl BrokerConfig {
    /// Overlays dynamic settings on the file, first the settings of the cluster, then those of this
    /// broker. An invalid dynamic value is ignored and reported, as in Kafka, because a running
    /// broker must not stop because of a setting that was changed elsewhere.
    pub fn with_dynamic(
        &self,
        cluster: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> (BrokerConfig, Vec<Warning>) {
        let are_all_good = |settings: &BTreeMap<String, String>, cluster_wide| {
            let mut settings = settings.iter();
            settings.all(|(key, value)| self.check_dynamic(key, value, cluster_wide).is_ok())
        };
        // Settings are checked one by one only if they are not valid together, because their number
        // is unbounded.
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
            // A dynamic `log.retention.ms` takes precedence over a static `log.retention.hours`.
            // This follows from the order of the synonyms.
        }
        let mut config = BrokerConfig::build(&Values::new(&properties))?;
        config.static_settings = self.static_settings.clone();
        [config.dynamic_default_settings, config.dynamic_settings] = dynamic.clone();
        Ok(config)
    }

    /// Whether a key has the prefix of a listener and is a setting that an open listener keeps: one
    /// of TLS or logins, other than key stores and trust stores. It takes effect when the listener
    /// is added.
    pub fn is_fixed_of_listener(key: &str) -> bool {
        let (base, is_of_listener) = base_of(key);
        let is_of_security = base.starts_with("ssl.")
            || base.contains("sasl.")
            || base.ends_with("connections.max.reauth.ms")
            || base == "principal.builder.class";
        is_of_listener && is_of_security && !LISTENERS_ONLY.contains(&base)
    }

    /// Validates one dynamic setting before it is stored. The message is for the client. Unknown
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
        // Kafka checks the types only of settings that can change at runtime.
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
