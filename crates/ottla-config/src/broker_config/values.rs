//! Typed access to the values of a properties file. Each setting has been validated.

use std::collections::{BTreeMap, BTreeSet};

use super::ConfigError;
use crate::config_def::{ConfigDef, ConfigValue};
use crate::properties::{JaasSource, Properties, Variables};
use crate::tables::broker_config;
use crate::topic_config::TopicConfig;

/// The broker settings of a properties file. `broker.id` and `node.id` are synonyms
/// (`AbstractKafkaConfig.populateSynonyms`).
pub(crate) struct Values<'a> {
    properties: &'a Properties,
    settings: BTreeMap<&'a str, &'a str>,
}

/// A Rust type for the value of a setting.
pub(crate) trait FromValue {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self;
}

fn integer(value: Option<ConfigValue>, def: &ConfigDef) -> i64 {
    match value {
        Some(ConfigValue::Integer(number)) => number,
        other => panic!("{} is not an integer setting: {other:?}", def.name),
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl FromValue for $type {
            fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
                integer(value, def).try_into().expect("the type's range has been checked")
            }
        }
        impl FromValue for Option<$type> {
            fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
                value.map(|value| <$type>::from_value(Some(value), def))
            }
        }
    )*};
}
integers!(i16, i32, i64);

impl FromValue for bool {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::Boolean(value)) => value,
            other => panic!("{} is not a boolean setting: {other:?}", def.name),
        }
    }
}

impl FromValue for f64 {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::Double(value)) => value,
            other => panic!("{} is not a setting with a fraction: {other:?}", def.name),
        }
    }
}

impl FromValue for String {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::Text(text)) => text,
            other => panic!("{} is not a text setting: {other:?}", def.name),
        }
    }
}

impl FromValue for Option<String> {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        value.map(|value| String::from_value(Some(value), def))
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::List(items)) => items,
            None => Vec::new(),
            other => panic!("{} is not a list setting: {other:?}", def.name),
        }
    }
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

    /// The value in milliseconds of the first setting that is given. The last one has a default.
    fn milliseconds(&self, synonyms: &[(&str, i64)]) -> i64 {
        for (key, factor) in synonyms {
            if let Some(number) = self.value(key).0 {
                let ConfigValue::Integer(number) = number else {
                    unreachable!("{key}")
                };
                return number.saturating_mul(*factor);
            }
        }
        unreachable!("the last of the synonyms has a default")
    }

    /// The defaults for topics (`KafkaConfig.extractLogConfigMap`).
    pub(crate) fn topic_defaults(&self) -> TopicConfig {
        const MINUTE: i64 = 60_000;
        const HOUR: i64 = 60 * MINUTE;
        let kafka = TopicConfig::default();
        let retention_ms = self.milliseconds(&[
            ("log.retention.ms", 1),
            ("log.retention.minutes", MINUTE),
            ("log.retention.hours", HOUR),
        ]);
        TopicConfig {
            cleanup_policy: self.list("log.cleanup.policy").as_slice().into(),
            compression_gzip_level: self.get("compression.gzip.level"),
            compression_lz4_level: self.get("compression.lz4.level"),
            compression_type: self.get::<String>("compression.type").as_str().into(),
            compression_zstd_level: self.get("compression.zstd.level"),
            delete_retention_ms: self.get("log.cleaner.delete.retention.ms"),
            file_delete_delay_ms: self.get("log.segment.delete.delay.ms"),
            flush_messages: self.get("log.flush.interval.messages"),
            flush_ms: self.milliseconds(&[
                ("log.flush.interval.ms", 1),
                ("log.flush.scheduler.interval.ms", 1),
            ]),
            index_interval_bytes: self.get("log.index.interval.bytes"),
            local_retention_bytes: self.get("log.local.retention.bytes"),
            local_retention_ms: self.get("log.local.retention.ms"),
            max_compaction_lag_ms: self.get("log.cleaner.max.compaction.lag.ms"),
            max_decompressed_message_bytes: self.get("max.decompressed.message.bytes"),
            max_message_bytes: self.get("message.max.bytes"),
            message_timestamp_after_max_ms: self.get("log.message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms: self.get("log.message.timestamp.before.max.ms"),
            message_timestamp_type: self
                .get::<String>("log.message.timestamp.type")
                .as_str()
                .into(),
            min_cleanable_dirty_ratio: self.get("log.cleaner.min.cleanable.ratio"),
            min_compaction_lag_ms: self.get("log.cleaner.min.compaction.lag.ms"),
            min_insync_replicas: self.get("min.insync.replicas"),
            preallocate: self.get("log.preallocate"),
            remote_copy_lag_bytes: self.get("log.remote.copy.lag.bytes"),
            remote_copy_lag_ms: self.get("log.remote.copy.lag.ms"),
            retention_bytes: self.get("log.retention.bytes"),
            // Any negative number means no limit; Kafka makes it -1 here.
            retention_ms: retention_ms.max(-1),
            segment_bytes: self.get("log.segment.bytes"),
            segment_index_bytes: self.get("log.index.size.max.bytes"),
            segment_jitter_ms: self
                .milliseconds(&[("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR)]),
            segment_ms: self.milliseconds(&[("log.roll.ms", 1), ("log.roll.hours", HOUR)]),
            unclean_leader_election_enable: self.get("unclean.leader.election.enable"),
            // These have no corresponding broker setting.
            errors_deadletterqueue_group_enable: kafka.errors_deadletterqueue_group_enable,
            follower_replication_throttled_replicas: kafka.follower_replication_throttled_replicas,
            internal_segment_bytes: kafka.internal_segment_bytes,
            leader_replication_throttled_replicas: kafka.leader_replication_throttled_replicas,
            remote_log_copy_disable: kafka.remote_log_copy_disable,
            remote_log_delete_on_disable: kafka.remote_log_delete_on_disable,
            remote_storage_enable: kafka.remote_storage_enable,
        }
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
