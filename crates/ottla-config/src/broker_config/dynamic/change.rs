//! Rules for changes of dynamic settings beyond the types of values: how much thread counts may
//! change in one step, the range of limits, and settings that must be consistent.
//!
//! Kafka: the implementations of `validateReconfiguration`, `DynamicThreadPool`, `LogCleaner`,
//! `DynamicLogConfig`, `DynamicRemoteLogConfig`, and for listeners `DataPlaneAcceptor` and
//! `ConnectionQuotas`.

use std::collections::{BTreeMap, BTreeSet};

use super::super::BrokerConfig;
use super::{Dynamic, base_of, invalid_variables, without_values};
use crate::config_def::ConfigValue;
use crate::remote_storage::check_copy_lag;
use crate::tables::broker_config;

const NETWORK_THREADS: &str = "num.network.threads";
const CLEANER_THREADS: &str = "log.cleaner.threads";

/// Thread counts. One change may at most halve or double them.
const THREAD_COUNTS: &[&str] = &[
    "background.threads",
    "num.io.threads",
    NETWORK_THREADS,
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
];

/// Limits that may be 0 in the properties file, but not in a dynamic change.
const LIMITS_OF_CONNECTIONS: &[&str] = &["max.connections", "max.connection.creation.rate"];

impl BrokerConfig {
    /// Validates a change of the dynamic settings of the cluster or of this broker, after each
    /// value has been validated. `settings` is the result of the change. The message is for the
    /// client.
    pub fn check_dynamic_change(
        &self,
        cluster_wide: bool,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let mut dynamic = Dynamic {
            written: [
                self.dynamic_default_settings.clone(),
                self.dynamic_settings.clone(),
            ],
            replaced: self.replaced_settings.clone(),
        };
        // A stored value that was never applied must not block other changes.
        let index = usize::from(!cluster_wide);
        let was = std::mem::take(&mut dynamic.written[index]);
        dynamic.replaced[index].clear();
        for (key, value) in settings {
            if self.check_dynamic(key, value, cluster_wide).is_err() {
                continue;
            }
            let is_changed = was.get(key) != Some(value);
            let replaced = self.replace_variables(index, key, value, &mut dynamic);
            let checked = self.check_replaced(index, key, &dynamic);
            if is_changed {
                replaced.and(checked)?;
            } else if checked.is_err() {
                dynamic.written[index].remove(key);
                dynamic.replaced[index].remove(key);
            }
        }
        let now = dynamic.written[index].clone();
        let all: BTreeSet<&str> = was.keys().chain(now.keys()).map(String::as_str).collect();
        let changed = all.into_iter().filter(|key| was.get(*key) != now.get(*key));
        let changed: Vec<&str> = changed.collect();
        let config = self.rebuild(&dynamic).map_err(|error| {
            let mut changed = changed.iter();
            match changed.find(|key| dynamic.replaced[index].contains_key(**key)) {
                Some(key) => invalid_variables(key),
                None => without_values(error.message(), &dynamic.replaced),
            }
        })?;
        self.check_listeners(&config)
            .map_err(|message| without_values(message, &dynamic.replaced))?;
        for key in changed {
            self.check_step(&config, key)?;
            check_local_retention(&config, key)?;
            check_copy_lags(&config, key)?;
        }
        Ok(())
    }

    /// Whether one setting may change from its current value to the value in `new`.
    fn check_step(&self, new: &BrokerConfig, key: &str) -> Result<(), String> {
        let (base, is_of_listener) = base_of(key);
        let (Some(old), Some(new)) = (integer(self, key), integer(new, key)) else {
            return Ok(());
        };
        if old == new || is_of_listener && !self.has_listener_of(key) {
            return Ok(());
        }
        if LIMITS_OF_CONNECTIONS.contains(&base) && new <= 0 {
            return Err(format!("Invalid {base} {new}"));
        }
        if is_of_listener && base != NETWORK_THREADS {
            return Ok(());
        }
        if base == CLEANER_THREADS && self.log_cleaner_enable {
            return check_cleaner_threads(old, new);
        }
        if THREAD_COUNTS.contains(&base) {
            check_thread_count(base, old, new)
        } else {
            Ok(())
        }
    }
}

impl BrokerConfig {
    /// Whether a key refers to a listener of this broker. The name in the key is in lower case.
    fn has_listener_of(&self, key: &str) -> bool {
        let name = key.strip_prefix("listener.name.");
        let name = name.and_then(|rest| Some(rest.split_once('.')?.0));
        let mut names = self.listeners.iter().map(|it| it.name.to_lowercase());
        names.any(|known| Some(&*known) == name)
    }
}

/// The numeric value of a setting; for a key with the prefix of a listener, that of the underlying
/// setting by default.
fn integer(config: &BrokerConfig, key: &str) -> Option<i64> {
    let (base, _) = base_of(key);
    let def = broker_config(base)?;
    let text = config.setting(key).or_else(|| config.setting(base));
    match def.parse(text.or(def.default_text())?) {
        Ok(ConfigValue::Integer(number)) => Some(number),
        _ => None,
    }
}

fn check_thread_count(key: &str, old: i64, new: i64) -> Result<(), String> {
    let failed = format!("Dynamic thread count update validation failed for {key}={new}");
    if new < old / 2 {
        return Err(format!(
            "{failed}, value should be at least half the current value {old}"
        ));
    }
    if new > old * 2 {
        return Err(format!(
            "{failed}, value should not be greater than double the current value {old}"
        ));
    }
    Ok(())
}

fn check_cleaner_threads(old: i64, new: i64) -> Result<(), String> {
    if new < 1 {
        return Err("Log cleaner threads should be at least 1".to_owned());
    }
    if new < old / 2 {
        return Err(format!(
            "Log cleaner threads cannot be reduced to less than half the current value {old}"
        ));
    }
    if new > old * 2 {
        return Err(format!(
            "Log cleaner threads cannot be increased to more than double the current value {old}"
        ));
    }
    Ok(())
}

/// A segment must not expire locally before it may be copied (KIP-1241). Apache Kafka 4.4 checks this
/// also without remote storage.
fn check_copy_lags(config: &BrokerConfig, key: &str) -> Result<(), String> {
    let topic = &config.topic_defaults;
    for (lag_key, lag, [local_key, all_key], limits) in [
        (
            "log.remote.copy.lag.ms",
            topic.remote_copy_lag_ms,
            ["log.local.retention.ms", "log.retention.ms"],
            (topic.local_retention_ms, topic.retention_ms),
        ),
        (
            "log.remote.copy.lag.bytes",
            topic.remote_copy_lag_bytes,
            ["log.local.retention.bytes", "log.retention.bytes"],
            (topic.local_retention_bytes, topic.retention_bytes),
        ),
    ] {
        if [lag_key, local_key, all_key].contains(&key) {
            check_copy_lag(lag_key, lag, local_key, limits).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// The local retention of a tiered log must not exceed the retention of the log.
fn check_local_retention(config: &BrokerConfig, key: &str) -> Result<(), String> {
    const OF_THE_LOG: i64 = -2;
    let topic = &config.topic_defaults;
    for (local_key, local, all_key, all) in [
        (
            "log.local.retention.ms",
            topic.local_retention_ms,
            "log.retention.ms",
            topic.retention_ms,
        ),
        (
            "log.local.retention.bytes",
            topic.local_retention_bytes,
            "log.retention.bytes",
            topic.retention_bytes,
        ),
    ] {
        if ![local_key, all_key].contains(&key) || all < 0 || local == OF_THE_LOG {
            continue;
        }
        let invalid = format!("Invalid value {local} for configuration {local_key}");
        if local == -1 {
            return Err(format!(
                "{invalid}: Value must not be -1 as {all_key} value is set as {all}."
            ));
        }
        if local > all {
            return Err(format!(
                "{invalid}: Value must not be more than {all_key} property value: {all}"
            ));
        }
    }
    Ok(())
}
