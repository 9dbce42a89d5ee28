//! Every setting of Kafka 4.4.0, one line each.
//!
//! The columns are: name, type, default, valid values, importance, update mode, support in Ottla,
//! and `internal` for settings that Kafka hides from clients. Defaults are written as Kafka prints
//! them; `null` means no value, and `required` that there is no default. Tests parse every default,
//! and compare the tables with the typed configurations.

use std::sync::LazyLock;

use crate::config_def::ConfigDef;

mod row;

mod client_metrics;
mod controller;
mod group;
mod groups;
mod listeners;
mod log;
mod metrics_and_quotas;
mod ottla;
mod remote_log;
mod remote_log_metadata;
mod replication;
mod security;
mod server;
mod share_and_streams;
mod topic;
mod transactions;

/// The settings of a topic.
pub const TOPIC_CONFIGS: &[ConfigDef] = topic::ROWS;

/// The settings of a group.
pub const GROUP_CONFIGS: &[ConfigDef] = group::ROWS;

/// The settings of a client metrics subscription.
pub const CLIENT_METRICS_CONFIGS: &[ConfigDef] = client_metrics::ROWS;

/// The settings of the topic-based metadata manager of tiered storage, without their prefix.
pub const REMOTE_LOG_METADATA_CONFIGS: &[ConfigDef] = remote_log_metadata::ROWS;

/// The settings of a broker or controller, area by area.
pub const BROKER_CONFIG_AREAS: &[(&str, &[ConfigDef])] = &[
    (
        "Node, roles, controller quorum, metadata log",
        controller::ROWS,
    ),
    ("Listeners and connections", listeners::ROWS),
    ("Server", server::ROWS),
    ("Logs", log::ROWS),
    ("Replication", replication::ROWS),
    ("Consumer groups", groups::ROWS),
    ("Transactions and producers", transactions::ROWS),
    ("Share groups and streams groups", share_and_streams::ROWS),
    ("Metrics and quotas", metrics_and_quotas::ROWS),
    ("Security", security::ROWS),
    ("Tiered storage", remote_log::ROWS),
    ("Ottla's own", ottla::ROWS),
];

/// All settings of a broker or controller.
pub fn broker_configs() -> impl Iterator<Item = &'static ConfigDef> {
    BROKER_CONFIG_AREAS.iter().flat_map(|(_, rows)| rows.iter())
}

/// The broker setting with this name.
pub fn broker_config(name: &str) -> Option<&'static ConfigDef> {
    // A node looks up each of several hundred settings more than once when it starts.
    static BY_NAME: LazyLock<Vec<&'static ConfigDef>> = LazyLock::new(|| {
        let mut defs: Vec<&'static ConfigDef> = broker_configs().collect();
        defs.sort_unstable_by_key(|def| def.name);
        defs
    });
    let index = BY_NAME.binary_search_by(|def| def.name.cmp(name)).ok()?;
    Some(BY_NAME[index])
}

/// The broker setting that a key refers to. The key may have the prefix of a listener, and after it
/// a SASL mechanism (`listener.name.internal.plain.sasl.jaas.config`).
pub fn broker_config_of_key(key: &str) -> Option<&'static ConfigDef> {
    if let Some(def) = broker_config(key) {
        return Some(def);
    }
    let (_, base) = key.strip_prefix("listener.name.")?.split_once('.')?;
    broker_config(base).or_else(|| broker_config(base.split_once('.')?.1))
}

/// The topic setting with this name.
pub fn topic_config(name: &str) -> Option<&'static ConfigDef> {
    TOPIC_CONFIGS.iter().find(|def| def.name == name)
}

/// The group setting with this name.
pub fn group_config(name: &str) -> Option<&'static ConfigDef> {
    GROUP_CONFIGS.iter().find(|def| def.name == name)
}

/// The client metrics setting with this name.
pub fn client_metrics_config(name: &str) -> Option<&'static ConfigDef> {
    CLIENT_METRICS_CONFIGS.iter().find(|def| def.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broker_setting_is_found_by_its_name() {
        for def in broker_configs() {
            assert_eq!(broker_config(def.name), Some(def));
            let rows = broker_configs().filter(|row| row.name == def.name);
            assert_eq!(rows.count(), 1, "{}", def.name);
        }
        for unknown in ["", "log.retention", "zzz"] {
            assert_eq!(broker_config(unknown), None);
        }
    }

    #[test]
    fn a_key_may_have_the_prefix_of_a_listener_and_of_a_mechanism() {
        let name = |key| broker_config_of_key(key).map(|def| def.name);
        for (key, expected) in [
            ("ssl.key.password", Some("ssl.key.password")),
            ("listener.name.a.ssl.key.password", Some("ssl.key.password")),
            (
                "listener.name.a.scram-sha-256.sasl.jaas.config",
                Some("sasl.jaas.config"),
            ),
            ("scram-sha-256.sasl.jaas.config", None),
            ("listener.name.a.b.c.ssl.key.password", None),
            ("listener.name.a", None),
        ] {
            assert_eq!(name(key), expected, "{key}");
        }
    }
}
