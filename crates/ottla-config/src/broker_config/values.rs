//! Typed access to the values of a properties file. Each setting has been validated.

use std::collections::{BTreeMap, BTreeSet};

use super::ConfigError;
use crate::config_def::{ConfigDef, ConfigValue};
use crate::from_value::FromValue;
use crate::properties::{JaasSource, Properties, Variables};
use crate::synonyms::{broker_config_synonyms, broker_synonym_of_topic_config};
use crate::tables::{TOPIC_CONFIGS, broker_config};
use crate::topic_config::TopicConfig;

/// The broker settings of a properties file. `broker.id` and `node.id` are synonyms
/// (`AbstractKafkaConfig.populateSynonyms`).
pub(crate) struct Values<'a> {
    properties: &'a Properties,
    settings: BTreeMap<&'a str, &'a str>,
}

impl<'a> Values<'a> {
    pub(crate) fn new(properties: &'a Properties) -> Values<'a> {
        Values::without(properties, &BTreeSet::new())
    }

    /// The values of all lines except those with these keys.
    pub(crate) fn without(properties: &'a Properties, left_out: &BTreeSet<&str>) -> Values<'a> {
        let mut settings: BTreeMap<&str, &str> = properties
            .effective()
            .filter(|property| !left_out.contains(property.key.as_str()))
            .map(|property| (property.key.as_str(), property.value.as_str()))
            .collect();
        for (given, missing) in [("node.id", "broker.id"), ("broker.id", "node.id")] {
            if let Some(&value) = settings.get(given) {
                settings.entry(missing).or_insert(value);
            }
        }
        Values {
            properties,
            settings,
        }
    }

    fn value(&self, key: &str) -> (Option<ConfigValue>, &'static ConfigDef) {
        let def = broker_config(key).unwrap_or_else(|| panic!("{key} is not in the tables"));
        let value = match self.settings.get(key) {
            Some(text) => Some(def.parse(text).expect("every setting has been checked")),
            None => def.default_value(),
        };
        (value, def)
    }

    pub(crate) fn get<T: FromValue>(&self, key: &str) -> T {
        let (value, def) = self.value(key);
        T::from_value(value, def)
    }

    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        self.get(key)
    }

    /// A list; `None` if the setting has neither a value nor a default.
    pub(crate) fn optional_list(&self, key: &str) -> Option<Vec<String>> {
        let (value, def) = self.value(key);
        value.map(|value| Vec::from_value(Some(value), def))
    }

    pub(crate) fn optional_text(&self, key: &str) -> Option<String> {
        self.get::<Option<String>>(key)
            .filter(|text| !text.is_empty())
    }

    /// Whether the file gives the setting.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.settings.contains_key(key)
    }

    /// The text of a setting in the file. The key may have the prefix of a listener.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(key).copied()
    }

    /// All keys of the file.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.settings.keys().copied()
    }

    pub(crate) fn jaas_file(&self) -> Option<&'a JaasSource> {
        self.properties.jaas_file.as_ref()
    }

    pub(crate) fn variables(&self) -> Option<&'a Variables> {
        self.properties.variables.as_ref()
    }

    pub(crate) fn ignores_logins(&self) -> bool {
        self.properties.ignores_logins
    }

    pub(crate) fn file_name(&self) -> &str {
        self.properties.file_name()
    }

    pub(crate) fn static_settings(&self) -> BTreeMap<String, String> {
        self.settings
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).trim().into()))
            .collect()
    }

    /// An error that involves several values. `key` determines its place.
    pub(crate) fn conflict(&self, key: &str, message: &str) -> ConfigError {
        let place = self.properties.place(key);
        ConfigError::Conflict {
            place,
            message: message.to_owned(),
        }
    }

    /// `max.connections.per.ip.overrides`: `host:count` pairs.
    pub(crate) fn connection_overrides(&self) -> Result<BTreeMap<String, i32>, ConfigError> {
        let key = "max.connections.per.ip.overrides";
        let mut overrides = BTreeMap::new();
        for item in crate::config_def::split_list(&self.get::<String>(key)) {
            let pair = item.rsplit_once(':').and_then(|(host, count)| {
                let is_host = !host.is_empty()
                    && host
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"-%._:[]".contains(&byte));
                Some((host, count.trim().parse::<i32>().ok()?)).filter(|_| is_host)
            });
            let Some((host, count)) = pair else {
                return Err(self.conflict(
                    key,
                    &format!(
                        "{key}: {item} is not a limit; give host:count pairs, separated by commas"
                    ),
                ));
            };
            overrides.insert(host.to_owned(), count);
        }
        Ok(overrides)
    }

    /// The value of a setting, in milliseconds if it is a time in minutes or hours.
    fn in_milliseconds(&self, key: &str) -> Option<ConfigValue> {
        let factor = match key.rsplit('.').next() {
            Some("minutes") => 60_000,
            Some("hours") => 3_600_000,
            _ => 1,
        };
        Some(match self.value(key).0? {
            ConfigValue::Integer(number) => ConfigValue::Integer(number.saturating_mul(factor)),
            other => other,
        })
    }

    /// The defaults for topics (`KafkaConfig.extractLogConfigMap`).
    pub(crate) fn topic_defaults(&self) -> TopicConfig {
        let mut config = TopicConfig::default();
        for def in TOPIC_CONFIGS {
            let Some(name) = broker_synonym_of_topic_config(def.name) else {
                continue;
            };
            let mut names = broker_config_synonyms(name).into_iter();
            let value = names.find_map(|name| self.in_milliseconds(name));
            config.set(def, value.expect("the last of the synonyms has a default"));
        }
        // Any negative number means no limit; Kafka makes it -1 here.
        config.retention_ms = config.retention_ms.max(-1);
        config
    }
}

pub(in crate::broker_config) fn require(
    values: &Values<'_>,
    holds: bool,
    key: &str,
    message: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    if holds {
        Ok(())
    } else {
        Err(values.conflict(key, &message()))
    }
}
