//! The settings of tiered storage that depend on more than one setting, and the settings that a
//! plugin would read in Kafka: the metadata manager of the topic `__remote_log_metadata`, and the
//! store.
//!
//! Kafka: `RemoteLogManagerConfig`, `TopicBasedRemoteLogMetadataManagerConfig`, `LogConfig`.

use std::collections::BTreeMap;
use std::fmt;

use crate::config_def::{ConfigValue, InvalidValue};
use crate::tables::REMOTE_LOG_METADATA_CONFIGS;
use crate::topic_config::TopicConfig;

/// The settings with this prefix, without it: what Kafka passes to a plugin. `rsm.config.` and
/// `rlmm.config.` are the defaults of `remote.log.storage.manager.impl.prefix` and
/// `remote.log.metadata.manager.impl.prefix`.
pub fn settings_below<'a>(
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    prefix: &str,
) -> BTreeMap<String, String> {
    let below = settings.into_iter().filter_map(|(key, value)| {
        let key = key.strip_prefix(prefix)?;
        Some((key.to_owned(), value.to_owned()))
    });
    below.collect()
}

/// The settings of the topic `__remote_log_metadata` and of the clients of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteLogMetadataConfig {
    pub num_partitions: i32,
    pub replication_factor: i16,
    pub min_isr: i16,
    /// -1 for no limit.
    pub retention_ms: i64,
    /// How long a writer waits until this broker has read its record back.
    pub consume_wait_ms: i64,
    /// How long the topic may be missing or unusable before the broker ends.
    pub initialization_retry_max_timeout_ms: i64,
    pub initialization_retry_interval_ms: i64,
    /// Settings of Kafka's clients. Settings of one client override the common ones.
    pub producer: BTreeMap<String, String>,
    pub consumer: BTreeMap<String, String>,
    pub admin: BTreeMap<String, String>,
}

/// A setting of the metadata manager that is not accepted. `Display` is Kafka's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InvalidRemoteLogMetadata {
    Value(Box<InvalidValue>),
    Retention(i64),
}

impl fmt::Display for InvalidRemoteLogMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRemoteLogMetadata::Value(error) => f.write_str(&error.kafka_message()),
            InvalidRemoteLogMetadata::Retention(retention_ms) => {
                write!(
                    f,
                    "Invalid metadata topic retention in millis: {retention_ms}"
                )
            }
        }
    }
}

impl std::error::Error for InvalidRemoteLogMetadata {}

impl RemoteLogMetadataConfig {
    /// Reads the settings below the prefix, as [`settings_below`] gives them.
    pub fn resolve(
        settings: &BTreeMap<String, String>,
    ) -> Result<RemoteLogMetadataConfig, InvalidRemoteLogMetadata> {
        let mut values = BTreeMap::new();
        for def in REMOTE_LOG_METADATA_CONFIGS {
            let given = settings.get(def.name).map(String::as_str);
            let text = given.or(def.default_text()).unwrap_or_default();
            let value = def
                .parse(text)
                .map_err(|error| InvalidRemoteLogMetadata::Value(error.into()))?;
            let ConfigValue::Integer(number) = value else {
                unreachable!("all settings of the metadata manager are numbers");
            };
            values.insert(def.name, number);
        }
        let get = |name: &str| values[name];
        let retention_ms = get("remote.log.metadata.topic.retention.ms");
        if retention_ms != -1 && retention_ms <= 0 {
            return Err(InvalidRemoteLogMetadata::Retention(retention_ms));
        }
        let all = || settings.iter().map(|(key, value)| (&**key, &**value));
        let client = |prefix| {
            let mut client = settings_below(all(), "remote.log.metadata.common.client.");
            client.extend(settings_below(all(), prefix));
            client
        };
        let in_range = "the range of the type has been checked";
        Ok(RemoteLogMetadataConfig {
            num_partitions: get("remote.log.metadata.topic.num.partitions")
                .try_into()
                .expect(in_range),
            replication_factor: get("remote.log.metadata.topic.replication.factor")
                .try_into()
                .expect(in_range),
            min_isr: get("remote.log.metadata.topic.min.isr")
                .try_into()
                .expect(in_range),
            retention_ms,
            consume_wait_ms: get("remote.log.metadata.consume.wait.ms"),
            initialization_retry_max_timeout_ms: get(
                "remote.log.metadata.initialization.retry.max.timeout.ms",
            ),
            initialization_retry_interval_ms: get(
                "remote.log.metadata.initialization.retry.interval.ms",
            ),
            producer: client("remote.log.metadata.producer."),
            consumer: client("remote.log.metadata.consumer."),
            admin: client("remote.log.metadata.admin."),
        })
    }
}

/// Why the settings of a topic do not go together. `Display` is Kafka's message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvalidRemoteStorage {
    /// The topic is tiered, and the broker has no tiered storage.
    SystemDisabled,
    /// A topic in the metadata is tiered, and the broker has no tiered storage.
    SystemDisabledWithTopics,
    CleanupPolicy,
    DisabledWithoutDeleting,
    /// No limit for local segments, with a limit for the log.
    LocalUnlimited {
        local: &'static str,
        all: &'static str,
        limit: i64,
    },
    LocalAboveAll {
        local: &'static str,
        value: i64,
        all: &'static str,
        limit: i64,
    },
    /// A segment would expire locally before it is copied, if it may (KIP-1241).
    CopyLagAboveLocal {
        lag: &'static str,
        value: i64,
        local: &'static str,
        limit: i64,
    },
    /// Copying is disabled, and local segments would go before the others.
    LocalDiffersWithoutCopying {
        local: &'static str,
        all: &'static str,
    },
}

impl fmt::Display for InvalidRemoteStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRemoteStorage::SystemDisabled => f.write_str(
                "Tiered Storage functionality is disabled in the broker. \
                 Topic cannot be configured with remote log storage.",
            ),
            InvalidRemoteStorage::SystemDisabledWithTopics => f.write_str(
                "You have to delete all topics with the property remote.storage.enable=true before \
                 disabling tiered storage cluster-wide",
            ),
            InvalidRemoteStorage::CleanupPolicy => f.write_str(
                "Remote log storage only supports topics with cleanup.policy=delete or \
                 cleanup.policy being an empty list.",
            ),
            InvalidRemoteStorage::DisabledWithoutDeleting => f.write_str(
                "It is invalid to disable remote storage without deleting remote data. If you want \
                 to keep the remote data and turn to read only, please set \
                 `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable \
                 remote storage and delete all remote data, please set \
                 `remote.storage.enable=false,remote.log.delete.on.disable=true`.",
            ),
            InvalidRemoteStorage::LocalUnlimited { local, all, limit } => write!(
                f,
                "Invalid value -1 for configuration {local}: Value must not be -1 as {all} value \
                 is set as {limit}."
            ),
            InvalidRemoteStorage::LocalAboveAll {
                local,
                value,
                all,
                limit,
            } => write!(
                f,
                "Invalid value {value} for configuration {local}: Value must not be more than \
                 {all} property value: {limit}"
            ),
            InvalidRemoteStorage::CopyLagAboveLocal {
                lag,
                value,
                local,
                limit,
            } => write!(
                f,
                "Invalid value {value} for configuration {lag}: Value must not exceed {local} \
                 (effective value: {limit})"
            ),
            InvalidRemoteStorage::LocalDiffersWithoutCopying { local, all } => write!(
                f,
                "When `remote.log.copy.disable` is set to true, the `{local}` and `{all}` must be \
                 set to the identical value because there will be no more logs copied to the \
                 remote storage."
            ),
        }
    }
}

impl std::error::Error for InvalidRemoteStorage {}

/// The names of a limit: of local segments, and of the log.
const BYTES: (&str, &str) = ("local.retention.bytes", "retention.bytes");
const MS: (&str, &str) = ("local.retention.ms", "retention.ms");

/// Checks the settings of a topic as Kafka's controller does (`LogConfig.validate`).
/// `was_enabled` is `remote.storage.enable` before the change, `is_system_enabled` is
/// `remote.log.storage.system.enable`.
pub fn check_remote_storage(
    config: &TopicConfig,
    was_enabled: bool,
    is_system_enabled: bool,
) -> Result<(), InvalidRemoteStorage> {
    if !config.remote_storage_enable {
        return match was_enabled && !config.remote_log_delete_on_disable {
            true => Err(InvalidRemoteStorage::DisabledWithoutDeleting),
            false => Ok(()),
        };
    }
    if !is_system_enabled {
        return Err(InvalidRemoteStorage::SystemDisabled);
    }
    if config.cleanup_policy.compact {
        return Err(InvalidRemoteStorage::CleanupPolicy);
    }
    check_remote_storage_defaults(config)?;
    if config.remote_log_copy_disable {
        let differs = |local: i64, all: i64| local != -2 && local != all;
        let bytes = differs(config.local_retention_bytes, config.retention_bytes);
        let ms = differs(config.local_retention_ms, config.retention_ms);
        if let Some((local, all)) = bytes.then_some(BYTES).or(ms.then_some(MS)) {
            return Err(InvalidRemoteStorage::LocalDiffersWithoutCopying { local, all });
        }
    }
    Ok(())
}

/// Checks the broker's defaults, where tiered storage is on (`validateBrokerLogConfigValues`).
pub fn check_remote_storage_defaults(config: &TopicConfig) -> Result<(), InvalidRemoteStorage> {
    // A limit of bytes is any number that is not negative; -1 alone is no limit of time.
    if config.retention_bytes > -1 {
        let local = config.local_retention_bytes;
        check_local(BYTES, local, config.retention_bytes)?;
    }
    if config.retention_ms != -1 {
        check_local(MS, config.local_retention_ms, config.retention_ms)?;
    }
    let bytes = (config.local_retention_bytes, config.retention_bytes);
    check_copy_lag(
        "remote.copy.lag.bytes",
        config.remote_copy_lag_bytes,
        BYTES.0,
        bytes,
    )?;
    let ms = (config.local_retention_ms, config.retention_ms);
    check_copy_lag("remote.copy.lag.ms", config.remote_copy_lag_ms, MS.0, ms)
}

/// A lag of copying must not exceed the limit of the local log: `local`, or `all` if that is -2.
pub(crate) fn check_copy_lag(
    lag: &'static str,
    value: i64,
    local: &'static str,
    (local_limit, all): (i64, i64),
) -> Result<(), InvalidRemoteStorage> {
    let limit = if local_limit == -2 { all } else { local_limit };
    if value > 0 && limit >= 0 && value > limit {
        return Err(InvalidRemoteStorage::CopyLagAboveLocal {
            lag,
            value,
            local,
            limit,
        });
    }
    Ok(())
}

fn check_local(
    (local, all): (&'static str, &'static str),
    value: i64,
    limit: i64,
) -> Result<(), InvalidRemoteStorage> {
    match value {
        -2 => Ok(()),
        -1 => Err(InvalidRemoteStorage::LocalUnlimited { local, all, limit }),
        value if value > limit => Err(InvalidRemoteStorage::LocalAboveAll {
            local,
            value,
            all,
            limit,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
