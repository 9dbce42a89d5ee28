//! The settings of tiered storage, by Kafka's names.
//!
//! Kafka: `RemoteLogManagerConfig`.

use ottla_config::{BrokerConfig, RemoteLogMetadataConfig, broker_config, settings_below};
use ottla_tiered::TaskSettings;
use ottla_tiered_storage::StorageSettings;

const MANAGER_CLASS: &str =
    "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager";

#[derive(Clone, Debug)]
pub struct RemoteSettings {
    pub tasks: TaskSettings,
    pub metadata: RemoteLogMetadataConfig,
    pub index_cache_bytes: u64,
    pub copy_quota: Quota,
    pub fetch_quota: Quota,
}

/// Bytes a second, measured over windows.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    pub bytes_per_second: i64,
    pub windows: i32,
    pub window_size_seconds: i32,
}

/// Checks the settings of tiered storage and of its store, if the broker has it. Sends no request to the store, and
/// creates no directory. The error starts with the setting.
pub fn check_settings(config: &BrokerConfig) -> Result<(), String> {
    if !config.remote_log_storage_system_enable || !config.process_roles.broker {
        return Ok(());
    }
    RemoteSettings::of(config)?;
    let store = StorageSettings::from_broker(config.static_settings());
    store.map(drop).map_err(|error| error.to_string())
}

impl RemoteSettings {
    /// From the settings of a broker with tiered storage. The error names the setting.
    pub fn of(config: &BrokerConfig) -> Result<RemoteSettings, String> {
        let class = text(config, "remote.log.metadata.manager.class.name");
        if class != MANAGER_CLASS {
            return Err(format!(
                "remote.log.metadata.manager.class.name={class}: it is a plugin of a JVM; give \
                 {MANAGER_CLASS}, or remove the line"
            ));
        }
        let listener = text(config, "remote.log.metadata.manager.listener.name");
        let mut listeners = config.advertised_listeners.iter();
        if !listener.is_empty() && !listeners.any(|it| it.name.eq_ignore_ascii_case(&listener)) {
            return Err(format!(
                "remote.log.metadata.manager.listener.name={listener}: this broker has no listener \
                 of that name; give one of listeners"
            ));
        }
        let prefix = text(config, "remote.log.metadata.manager.impl.prefix");
        let settings = config.static_settings().iter();
        let settings = settings.map(|(key, value)| (key.as_str(), value.as_str()));
        let metadata = RemoteLogMetadataConfig::resolve(&settings_below(settings, &prefix));
        let number = |key: &str| number(config, key);
        Ok(RemoteSettings {
            tasks: TaskSettings {
                interval_ms: number("remote.log.manager.task.interval.ms"),
                custom_metadata_max_bytes: number("remote.log.metadata.custom.metadata.max.bytes")
                    .max(0) as usize,
            },
            metadata: metadata.map_err(|error| format!("{prefix}*: {error}"))?,
            index_cache_bytes: number("remote.log.index.file.cache.total.size.bytes").max(0) as u64,
            copy_quota: Quota {
                bytes_per_second: config.remote_log_manager_copy_max_bytes_per_second,
                windows: number("remote.log.manager.copy.quota.window.num") as i32,
                window_size_seconds: number("remote.log.manager.copy.quota.window.size.seconds")
                    as i32,
            },
            fetch_quota: Quota {
                bytes_per_second: config.remote_log_manager_fetch_max_bytes_per_second,
                windows: number("remote.log.manager.fetch.quota.window.num") as i32,
                window_size_seconds: number("remote.log.manager.fetch.quota.window.size.seconds")
                    as i32,
            },
        })
    }
}

/// The value of a setting of the broker, or its default; empty if it has none.
fn text(config: &BrokerConfig, key: &str) -> String {
    let default = || broker_config(key).and_then(|def| def.default_text());
    let value = config.setting(key).or_else(default);
    value.unwrap_or_default().trim().to_owned()
}

/// The numbers were checked when the file was read.
fn number(config: &BrokerConfig, key: &str) -> i64 {
    text(config, key).parse().unwrap_or(0)
}
