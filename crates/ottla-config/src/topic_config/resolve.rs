//! Overlays the settings of one topic on the broker's defaults.
//!
//! Kafka: `LogConfig.fromProps`, `LogConfig.validate`.

use std::fmt;

use super::TopicConfig;
use crate::config_def::{ConfigValue, InvalidValue};
use crate::tables::topic_config;

/// A topic setting that is not accepted. `Display` is Kafka's message to the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InvalidTopicConfig {
    UnknownName(String),
    Value(Box<InvalidValue>),
    Refused {
        key: String,
        value: String,
        reason: &'static str,
    },
    CompactionLags {
        min: i64,
        max: i64,
    },
}

impl fmt::Display for InvalidTopicConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidTopicConfig::UnknownName(name) => write!(f, "Unknown topic config name: {name}"),
            InvalidTopicConfig::Value(error) => f.write_str(&error.kafka_message()),
            InvalidTopicConfig::Refused { key, value, reason } => {
                write!(f, "Invalid value {value} for configuration {key}: {reason}")
            }
            InvalidTopicConfig::CompactionLags { min, max } => write!(
                f,
                "conflict topic config setting min.compaction.lag.ms ({min}) > \
                 max.compaction.lag.ms ({max})"
            ),
        }
    }
}

impl std::error::Error for InvalidTopicConfig {}

impl TopicConfig {
    /// The configuration of a topic with these overrides. `defaults` are the broker's
    /// ([`crate::BrokerConfig::topic_defaults`], including dynamic settings).
    pub fn resolve<'a>(
        defaults: &TopicConfig,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<TopicConfig, InvalidTopicConfig> {
        let mut config = defaults.clone();
        for (key, text) in overrides {
            let def =
                topic_config(key).ok_or_else(|| InvalidTopicConfig::UnknownName(key.to_owned()))?;
            let value = def
                .parse(text)
                .map_err(|error| InvalidTopicConfig::Value(error.into()))?;
            if let Some(reason) = def.refusal(text) {
                let (key, value) = (key.to_owned(), text.to_owned());
                return Err(InvalidTopicConfig::Refused { key, value, reason });
            }
            config.set(key, value);
        }
        let (min, max) = (config.min_compaction_lag_ms, config.max_compaction_lag_ms);
        if min > max {
            return Err(InvalidTopicConfig::CompactionLags { min, max });
        }
        Ok(config)
    }

    /// Like [`TopicConfig::resolve`], but ignores invalid settings: those in the metadata log may come
    /// from another version of the software.
    pub fn resolve_leniently<'a>(
        defaults: &TopicConfig,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (TopicConfig, Vec<InvalidTopicConfig>) {
        let mut errors = Vec::new();
        let mut config = defaults.clone();
        for pair in overrides {
            match TopicConfig::resolve(&config, [pair]) {
                Ok(next) => config = next,
                Err(error) => errors.push(error),
            }
        }
        (config, errors)
    }

    fn set(&mut self, key: &str, value: ConfigValue) {
        macro_rules! fields {
            ($($key:literal => $field:ident: $convert:expr,)*) => {
                match key {
                    $( $key => self.$field = $convert(value), )*
                    other => unreachable!("{other} is in the table of topic settings"),
                }
            };
        }
        fields! {
            "cleanup.policy" => cleanup_policy: |value| list(value).as_slice().into(),
            "compression.gzip.level" => compression_gzip_level: int,
            "compression.lz4.level" => compression_lz4_level: int,
            "compression.type" => compression_type: |value| text(value).as_str().into(),
            "compression.zstd.level" => compression_zstd_level: int,
            "delete.retention.ms" => delete_retention_ms: long,
            "errors.deadletterqueue.group.enable" =>
                errors_deadletterqueue_group_enable: boolean,
            "file.delete.delay.ms" => file_delete_delay_ms: long,
            "flush.messages" => flush_messages: long,
            "flush.ms" => flush_ms: long,
            "follower.replication.throttled.replicas" =>
                follower_replication_throttled_replicas: list,
            "index.interval.bytes" => index_interval_bytes: int,
            "internal.segment.bytes" => internal_segment_bytes: |value| Some(int(value)),
            "leader.replication.throttled.replicas" => leader_replication_throttled_replicas: list,
            "local.retention.bytes" => local_retention_bytes: long,
            "local.retention.ms" => local_retention_ms: long,
            "max.compaction.lag.ms" => max_compaction_lag_ms: long,
            "max.decompressed.message.bytes" => max_decompressed_message_bytes: int,
            "max.message.bytes" => max_message_bytes: int,
            "message.timestamp.after.max.ms" => message_timestamp_after_max_ms: long,
            "message.timestamp.before.max.ms" => message_timestamp_before_max_ms: long,
            "message.timestamp.type" => message_timestamp_type: |value| text(value).as_str().into(),
            "min.cleanable.dirty.ratio" => min_cleanable_dirty_ratio: double,
            "min.compaction.lag.ms" => min_compaction_lag_ms: long,
            "min.insync.replicas" => min_insync_replicas: int,
            "preallocate" => preallocate: boolean,
            "remote.copy.lag.bytes" => remote_copy_lag_bytes: long,
            "remote.copy.lag.ms" => remote_copy_lag_ms: long,
            "remote.log.copy.disable" => remote_log_copy_disable: boolean,
            "remote.log.delete.on.disable" => remote_log_delete_on_disable: boolean,
            "remote.storage.enable" => remote_storage_enable: boolean,
            "retention.bytes" => retention_bytes: long,
            "retention.ms" => retention_ms: long,
            "segment.bytes" => segment_bytes: int,
            "segment.index.bytes" => segment_index_bytes: int,
            "segment.jitter.ms" => segment_jitter_ms: long,
            "segment.ms" => segment_ms: long,
            "unclean.leader.election.enable" => unclean_leader_election_enable: boolean,
        }
    }

    /// The value of a topic setting as Kafka prints it; `None` for a setting without a value or an
    /// unknown name.
    pub fn value_text(&self, key: &str) -> Option<String> {
        Some(match key {
            "cleanup.policy" => {
                let names = [
                    (self.cleanup_policy.compact, "compact"),
                    (self.cleanup_policy.delete, "delete"),
                ];
                let names: Vec<&str> = names
                    .iter()
                    .filter(|(set, _)| *set)
                    .map(|(_, name)| *name)
                    .collect();
                names.join(",")
            }
            "compression.gzip.level" => self.compression_gzip_level.to_string(),
            "compression.lz4.level" => self.compression_lz4_level.to_string(),
            "compression.type" => self.compression_type.to_string(),
            "compression.zstd.level" => self.compression_zstd_level.to_string(),
            "delete.retention.ms" => self.delete_retention_ms.to_string(),
            "errors.deadletterqueue.group.enable" => {
                self.errors_deadletterqueue_group_enable.to_string()
            }
            "file.delete.delay.ms" => self.file_delete_delay_ms.to_string(),
            "flush.messages" => self.flush_messages.to_string(),
            "flush.ms" => self.flush_ms.to_string(),
            "follower.replication.throttled.replicas" => {
                self.follower_replication_throttled_replicas.join(",")
            }
            "index.interval.bytes" => self.index_interval_bytes.to_string(),
            "internal.segment.bytes" => {
                return self.internal_segment_bytes.map(|it| it.to_string());
            }
            "leader.replication.throttled.replicas" => {
                self.leader_replication_throttled_replicas.join(",")
            }
            "local.retention.bytes" => self.local_retention_bytes.to_string(),
            "local.retention.ms" => self.local_retention_ms.to_string(),
            "max.compaction.lag.ms" => self.max_compaction_lag_ms.to_string(),
            "max.decompressed.message.bytes" => self.max_decompressed_message_bytes.to_string(),
            "max.message.bytes" => self.max_message_bytes.to_string(),
            "message.timestamp.after.max.ms" => self.message_timestamp_after_max_ms.to_string(),
            "message.timestamp.before.max.ms" => self.message_timestamp_before_max_ms.to_string(),
            "message.timestamp.type" => self.message_timestamp_type.to_string(),
            "min.cleanable.dirty.ratio" => java_double(self.min_cleanable_dirty_ratio),
            "min.compaction.lag.ms" => self.min_compaction_lag_ms.to_string(),
            "min.insync.replicas" => self.min_insync_replicas.to_string(),
            "preallocate" => self.preallocate.to_string(),
            "remote.copy.lag.bytes" => self.remote_copy_lag_bytes.to_string(),
            "remote.copy.lag.ms" => self.remote_copy_lag_ms.to_string(),
            "remote.log.copy.disable" => self.remote_log_copy_disable.to_string(),
            "remote.log.delete.on.disable" => self.remote_log_delete_on_disable.to_string(),
            "remote.storage.enable" => self.remote_storage_enable.to_string(),
            "retention.bytes" => self.retention_bytes.to_string(),
            "retention.ms" => self.retention_ms.to_string(),
            "segment.bytes" => self.segment_bytes.to_string(),
            "segment.index.bytes" => self.segment_index_bytes.to_string(),
            "segment.jitter.ms" => self.segment_jitter_ms.to_string(),
            "segment.ms" => self.segment_ms.to_string(),
            "unclean.leader.election.enable" => self.unclean_leader_election_enable.to_string(),
            _ => return None,
        })
    }
}

/// Formats a number like `Double.toString`, for the range of these settings.
pub fn java_double(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{value:?}");
    }
    let text = format!("{value:E}");
    match text.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        _ => text,
    }
}

fn long(value: ConfigValue) -> i64 {
    match value {
        ConfigValue::Integer(number) => number,
        other => unreachable!("the table says it is a number: {other:?}"),
    }
}

fn int(value: ConfigValue) -> i32 {
    long(value)
        .try_into()
        .expect("the range of the type has been checked")
}

fn double(value: ConfigValue) -> f64 {
    match value {
        ConfigValue::Double(number) => number,
        other => unreachable!("the table says it is a number: {other:?}"),
    }
}

fn boolean(value: ConfigValue) -> bool {
    match value {
        ConfigValue::Boolean(value) => value,
        other => unreachable!("the table says it is a boolean: {other:?}"),
    }
}

fn text(value: ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) => text,
        other => unreachable!("the table says it is a text: {other:?}"),
    }
}

fn list(value: ConfigValue) -> Vec<String> {
    match value {
        ConfigValue::List(items) => items,
        other => unreachable!("the table says it is a list: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::TOPIC_CONFIGS;

    #[test]
    fn the_defaults_are_the_tables_defaults() {
        let defaults = TopicConfig::default();
        for def in TOPIC_CONFIGS {
            assert_eq!(
                defaults.value_text(def.name).as_deref(),
                def.default_text(),
                "{}",
                def.name
            );
        }
        let all = TOPIC_CONFIGS
            .iter()
            .filter_map(|def| Some((def.name, def.default_text()?)));
        assert_eq!(TopicConfig::resolve(&defaults, all), Ok(defaults.clone()));
    }

    #[test]
    fn overrides_change_their_field() {
        let overrides = [
            ("retention.ms", "-1"),
            ("cleanup.policy", "compact,delete"),
            ("preallocate", "TRUE"),
        ];
        let config = TopicConfig::resolve(&TopicConfig::default(), overrides).unwrap();
        assert_eq!(config.retention_ms, -1);
        assert!(
            config.cleanup_policy.compact && config.cleanup_policy.delete && config.preallocate
        );
    }

    #[test]
    fn refusals_speak_as_kafka_does() {
        let says = |overrides: &[(&str, &str)], expected: &str| {
            let error = TopicConfig::resolve(&TopicConfig::default(), overrides.iter().copied());
            assert_eq!(error.unwrap_err().to_string(), expected);
        };
        says(&[("colour", "red")], "Unknown topic config name: colour");
        says(
            &[("retention.ms", "soon")],
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        );
        says(
            &[("segment.bytes", "10")],
            "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576",
        );
        says(
            &[
                ("min.compaction.lag.ms", "10"),
                ("max.compaction.lag.ms", "5"),
            ],
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        );
    }

    #[test]
    fn lenient_parsing_keeps_valid_settings() {
        let overrides = [
            ("retention.ms", "5"),
            ("retention.bytes", "much"),
            ("segment.ms", "7"),
        ];
        let (config, errors) = TopicConfig::resolve_leniently(&TopicConfig::default(), overrides);
        assert_eq!((config.retention_ms, config.segment_ms), (5, 7));
        assert_eq!(config.retention_bytes, -1);
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn doubles_print_as_in_java() {
        assert_eq!(java_double(0.5), "0.5");
        assert_eq!(java_double(1.0), "1.0");
        assert_eq!(java_double(f64::MAX), "1.7976931348623157E308");
        assert_eq!(java_double(0.0001), "1.0E-4");
    }
}
