//! Overlays the settings of one topic on the broker's defaults.
//!
//! Kafka: `LogConfig.fromProps`, `LogConfig.validate`.

use std::fmt;

use super::TopicConfig;
use crate::config_def::InvalidValue;
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
            config.set(def, value);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::java_double;
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
