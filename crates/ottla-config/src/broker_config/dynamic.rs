//! Dynamic settings (KIP-226): overlays the settings of the cluster and of this broker on the file,
//! and validates changes.
//!
//! Kafka: `DynamicBrokerConfig`.

mod change;
mod listeners;

use std::collections::{BTreeMap, BTreeSet};

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

/// Where a dynamic setting is stored, for messages.
const PLACES: [&str; 2] = [
    "the cluster's dynamic settings",
    "this broker's dynamic settings",
];

/// Dynamic settings of the cluster and of a broker, and the values of those that have variables.
#[derive(Clone, Default)]
struct Dynamic {
    written: [BTreeMap<String, String>; 2],
    replaced: [BTreeMap<String, String>; 2],
}

impl BrokerConfig {
    /// Overlays dynamic settings on the file, first the settings of the cluster, then those of this
    /// broker. An invalid dynamic value is ignored and reported, as in Kafka, because a running
    /// broker must not stop because of a setting that was changed elsewhere.
    ///
    /// A variable that has no value leaves the setting at the value that it has in `self`, and is
    /// reported.
    pub fn with_dynamic(
        &self,
        cluster: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> (BrokerConfig, Vec<Warning>) {
        let mut warnings = Vec::new();
        let mut all = Dynamic::default();
        for (index, settings) in [cluster, broker].into_iter().enumerate() {
            for (key, value) in settings {
                if let Err(message) = self.replace_variables(index, key, value, &mut all) {
                    let then = match all.written[index].contains_key(key) {
                        true => "the setting keeps its value",
                        false => "the setting has no effect",
                    };
                    warnings.push(Warning {
                        place: PLACES[index].into(),
                        message: format!("{message}; {then}"),
                    });
                }
            }
        }
        let are_all_good = |index: usize| {
            let mut keys = all.written[index].keys();
            keys.all(|key| self.check_replaced(index, key, &all).is_ok())
        };
        // Settings are checked one by one only if they are not valid together, because their number
        // is unbounded.
        if are_all_good(0)
            && are_all_good(1)
            && let Ok(config) = self.rebuild(&all)
        {
            return (config, warnings);
        }
        let mut accepted = Dynamic::default();
        let mut result = None;
        for (index, place) in PLACES.into_iter().enumerate() {
            for (key, value) in &all.written[index] {
                let mut warn = |message| {
                    warnings.push(Warning {
                        place: place.into(),
                        message,
                    });
                };
                if let Err(message) = self.check_replaced(index, key, &all) {
                    warn(message);
                    continue;
                }
                let replaced = all.replaced[index].get(key);
                let mut attempt = accepted.clone();
                attempt.written[index].insert(key.clone(), value.clone());
                attempt.replaced[index].extend(replaced.map(|it| (key.clone(), it.clone())));
                match self.rebuild(&attempt) {
                    Ok(config) => {
                        accepted = attempt;
                        result = Some(config);
                    }
                    Err(_) if replaced.is_some() => warn(invalid_variables(key)),
                    Err(error) => warn(error.to_string()),
                }
            }
        }
        let config = result.or_else(|| self.rebuild(&accepted).ok());
        (config.unwrap_or_else(|| self.clone()), warnings)
    }

    /// Adds a setting with its value. If there is none for a variable, the setting is added with the
    /// value that it has in `self`, or is left out, and the error names the variable.
    fn replace_variables(
        &self,
        index: usize,
        key: &str,
        value: &str,
        to: &mut Dynamic,
    ) -> Result<(), String> {
        let variables = self.variables.as_ref();
        let (replaced, result) = match variables.map(|it| it.replace(value)) {
            None | Some(Ok(None)) => (None, Ok(())),
            Some(Ok(Some(replaced))) => (Some(replaced), Ok(())),
            Some(Err(reason)) => {
                let written = [&self.dynamic_default_settings, &self.dynamic_settings][index];
                let present = self.replaced_settings[index].get(key);
                let message = format!("{key}: {reason}");
                match present.or_else(|| written.get(key)) {
                    Some(present) => (Some(present.clone()), Err(message)),
                    None => return Err(message),
                }
            }
        };
        to.written[index].insert(key.to_owned(), value.to_owned());
        to.replaced[index].extend(replaced.map(|it| (key.to_owned(), it)));
        result
    }

    /// Validates one setting, as it is written, and then the value that it has. The message does not
    /// contain what a variable stands for.
    fn check_replaced(&self, index: usize, key: &str, all: &Dynamic) -> Result<(), String> {
        let cluster_wide = index == 0;
        if let Some(value) = all.written[index].get(key) {
            self.check_dynamic(key, value, cluster_wide)?;
        }
        if let Some(value) = all.replaced[index].get(key) {
            let checked = self.check_dynamic(key, value, cluster_wide);
            checked.map_err(|_| invalid_variables(key))?;
        }
        Ok(())
    }

    /// What a client may see of a message about this configuration. If dynamic settings have
    /// variables, it is replaced, because it may contain what these stand for.
    pub fn message_for_clients(&self, message: String) -> String {
        without_values(message, &self.replaced_settings)
    }

    fn rebuild(&self, dynamic: &Dynamic) -> Result<BrokerConfig, ConfigError> {
        let mut properties = Properties::new(&self.file_name);
        properties.jaas_file = self.jaas_file.clone();
        properties.variables = self.variables.clone();
        for (key, value) in &self.static_settings {
            properties.set(key, value);
        }
        for (written, replaced) in dynamic.written.iter().zip(&dynamic.replaced) {
            for (key, value) in written {
                properties.set(key, replaced.get(key).unwrap_or(value));
                // A dynamic `log.retention.ms` takes precedence over a static
                // `log.retention.hours`. This follows from the order of the synonyms.
            }
        }
        let mut config = BrokerConfig::build(&Values::new(&properties))?;
        config.static_settings = self.static_settings.clone();
        let Dynamic { written, replaced } = dynamic.clone();
        [config.dynamic_default_settings, config.dynamic_settings] = written;
        config.replaced_settings = replaced;
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

/// The message about a setting whose variables stand for a wrong value, without that value.
fn invalid_variables(key: &str) -> String {
    format!("{key}: the value that its variables stand for is not valid")
}

/// A message about settings that cannot be used together. It may contain a part of what variables
/// stand for, so it only names the settings that have some.
fn without_values(message: String, replaced: &[BTreeMap<String, String>; 2]) -> String {
    let keys: BTreeSet<&String> = replaced.iter().flat_map(BTreeMap::keys).collect();
    if keys.is_empty() {
        return message;
    }
    let keys: Vec<&str> = keys.into_iter().map(String::as_str).collect();
    format!(
        "the settings cannot be used with the values that the variables of {} stand for",
        keys.join(", ")
    )
}

#[cfg(test)]
mod tests;
