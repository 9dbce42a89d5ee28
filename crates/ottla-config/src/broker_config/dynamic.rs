//! Dynamic settings (KIP-226): those of the cluster and of this broker laid over the file's, and what is checked
//! before they are stored.
//!
//! Where Kafka does the same: `DynamicBrokerConfig`, `DynamicThreadPool`.

use std::collections::BTreeMap;

use super::{BrokerConfig, ConfigError, Values, Warning};
use crate::config_def::{ConfigValue, UpdateMode};
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

/// Numbers of threads, which change by half or to the double at most.
const THREAD_COUNTS: &[&str] = &[
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
];

impl BrokerConfig {
    /// This configuration with dynamic settings laid over the file's: the cluster's, then this
    /// broker's. A dynamic value that is not accepted is left out and reported, as Kafka does, because
    /// a running broker must not stop over a setting that someone else made.
    pub fn with_dynamic(
        &self,
        cluster: &BTreeMap<String, String>,
        broker: &BTreeMap<String, String>,
    ) -> (BrokerConfig, Vec<Warning>) {
        let are_all_good = |settings: &BTreeMap<String, String>, cluster_wide| {
            let mut settings = settings.iter();
            settings.all(|(key, value)| self.check_dynamic(key, value, cluster_wide).is_ok())
        };
        // Each alone only where they do not all go together: nothing bounds how many there are.
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
    /// limits of its connections. Those of the properties file are meant to be the only ones.
    pub fn is_unserved_of_listener(key: &str) -> bool {
        let of_listener = key.strip_prefix("listener.name.");
        let base = of_listener.and_then(|rest| Some(rest.split_once('.')?.1));
        base.is_some_and(|base| {
            broker_config(base).is_some() && !CLUSTER_WIDE_OF_LISTENERS.contains(&base)
        })
    }

    /// Checks one dynamic setting before it is stored; the message is for the client. Settings that
    /// nobody knows are stored, as Kafka does.
    pub fn check_dynamic(&self, key: &str, value: &str, cluster_wide: bool) -> Result<(), String> {
        let (base, is_of_listener) = match key
            .strip_prefix("listener.name.")
            .and_then(|rest| rest.split_once('.'))
        {
            Some((_, base)) => (base, true),
            None => (key, false),
        };
        let Some(def) = broker_config(base) else {
            return Ok(());
        };
        if !is_of_listener && LISTENERS_ONLY.contains(&key) {
            return Err(format!(
                "These security configs can be dynamically updated only per-listener using the listener \
                 prefix: [{key}]"
            ));
        }
        let is_per_broker = def.update_mode == UpdateMode::PerBroker
            || is_of_listener && !CLUSTER_WIDE_OF_LISTENERS.contains(&base);
        match def.update_mode {
            UpdateMode::ReadOnly => {
                return Err(format!("Cannot update these configs dynamically: [{key}]"));
            }
            _ if is_per_broker && cluster_wide => {
                return Err(format!(
                    "Cannot update these configs at default cluster level, broker id must be \
                     specified: [{key}]"
                ));
            }
            _ => {}
        }
        def.parse(value).map_err(|error| error.kafka_message())?;
        if let Some(reason) = def.refusal(value) {
            return Err(format!(
                "Invalid value {value} for configuration {key}: {reason}"
            ));
        }
        Ok(())
    }

    /// Checks a change of the cluster's or this broker's dynamic settings, whose values have each been checked:
    /// `settings` is what there would be. The message is for the client.
    pub fn check_dynamic_change(
        &self,
        cluster_wide: bool,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), String> {
        let mut dynamic = [
            self.dynamic_default_settings.clone(),
            self.dynamic_settings.clone(),
        ];
        // What was stored and never applied does not stand in the way of other changes.
        let index = usize::from(!cluster_wide);
        let was = std::mem::take(&mut dynamic[index]);
        for (key, value) in settings {
            if self.check_dynamic(key, value, cluster_wide).is_ok() {
                dynamic[index].insert(key.clone(), value.clone());
            }
        }
        let changed = |key: &str| dynamic[index].get(key) != was.get(key);
        for key in ["listeners", "listener.security.protocol.map"] {
            if changed(key) && dynamic[index].contains_key(key) {
                return Err(format!(
                    "{key} cannot be changed while the broker runs yet; change it in its properties file and \
                     start it again"
                ));
            }
        }
        let config = self.rebuild(&dynamic).map_err(|error| error.message())?;
        for key in THREAD_COUNTS.iter().filter(|key| changed(key)) {
            let count = |config: &BrokerConfig| {
                let def = broker_config(key)?;
                let text = config.setting(key).or(def.default_text())?;
                match def.parse(text) {
                    Ok(ConfigValue::Integer(count)) => Some(count),
                    _ => None,
                }
            };
            if let (Some(old), Some(new)) = (count(self), count(&config)) {
                check_thread_count(key, old, new)?;
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::single_node_properties;

    fn config() -> BrokerConfig {
        let properties = single_node_properties("./data", "127.0.0.1:9092", "127.0.0.1:9093");
        BrokerConfig::from_properties(&properties).unwrap().0
    }

    fn change(cluster_wide: bool, key: &str, value: &str) -> Result<(), String> {
        let settings = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        config().check_dynamic_change(cluster_wide, &settings)
    }

    #[test]
    fn security_settings_change_by_listener_and_listeners_by_broker() {
        let config = config();
        let said = config
            .check_dynamic("ssl.keystore.type", "PEM", false)
            .unwrap_err();
        assert!(
            said.starts_with("These security configs can be dynamically updated only per-listener")
        );
        let of_listener = "listener.name.internal.ssl.keystore.type";
        assert_eq!(config.check_dynamic(of_listener, "PEM", false), Ok(()));
        let said = config.check_dynamic(of_listener, "PEM", true).unwrap_err();
        assert!(
            said.starts_with("Cannot update these configs at default cluster level"),
            "{said}"
        );
        let limit = "listener.name.internal.max.connections";
        assert_eq!(config.check_dynamic(limit, "5", true), Ok(()));
    }

    #[test]
    fn threads_change_by_half_or_to_the_double() {
        for (value, expected) in [
            ("4", Ok(())),
            ("16", Ok(())),
            (
                "3",
                Err("value should be at least half the current value 8"),
            ),
            (
                "17",
                Err("value should not be greater than double the current value 8"),
            ),
        ] {
            match (change(true, "num.io.threads", value), expected) {
                (Ok(()), Ok(())) => {}
                (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
                other => panic!("{value}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_does_not_go_together_is_refused_before_it_is_stored() {
        let said = change(true, "log.cleaner.max.compaction.lag.ms", "5");
        assert_eq!(said, Ok(()));
        let settings = BTreeMap::from([
            (
                "log.cleaner.min.compaction.lag.ms".to_owned(),
                "10".to_owned(),
            ),
            (
                "log.cleaner.max.compaction.lag.ms".to_owned(),
                "5".to_owned(),
            ),
        ]);
        let said = config().check_dynamic_change(true, &settings).unwrap_err();
        assert!(
            said.contains("log.cleaner.min.compaction.lag.ms=10 is more than"),
            "{said}"
        );
        // What the other level holds counts too.
        let (config, _) = config().with_dynamic(
            &BTreeMap::from([(
                "log.cleaner.max.compaction.lag.ms".to_owned(),
                "5".to_owned(),
            )]),
            &BTreeMap::new(),
        );
        let settings = BTreeMap::from([(
            "log.cleaner.min.compaction.lag.ms".to_owned(),
            "10".to_owned(),
        )]);
        assert!(config.check_dynamic_change(false, &settings).is_err());
    }

    #[test]
    fn listeners_stay_as_they_were_at_the_start() {
        let said = change(
            false,
            "listeners",
            "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        );
        assert!(
            said.unwrap_err()
                .contains("cannot be changed while the broker runs yet")
        );
    }
}
