//! Warnings about keys that Kafka 4.3 does not know.

use crate::nearest_name::nearest_name;
use crate::tables::{REMOTE_LOG_METADATA_CONFIGS, broker_config_of_key, broker_configs};

/// Settings of older Kafka versions that are still copied from articles, with their replacement.
#[rustfmt::skip]
const REMOVED: &[(&str, &str)] = &[
    ("zookeeper.connect", "Kafka 4 has no ZooKeeper; the controllers are given by controller.quorum.bootstrap.servers"),
    ("zookeeper.connection.timeout.ms", "Kafka 4 has no ZooKeeper; remove the line"),
    ("zookeeper.session.timeout.ms", "Kafka 4 has no ZooKeeper; remove the line"),
    ("inter.broker.protocol.version", "it was replaced by the feature metadata.version, which is kept in the data directory; remove the line"),
    ("log.message.format.version", "there is only one message format; remove the line"),
    ("log.message.downconversion.enable", "there is only one message format; remove the line"),
    ("message.format.version", "there is only one message format; remove the line"),
    ("log.message.timestamp.difference.max.ms", "give log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"),
    ("log.cleanup.interval.mins", "give log.retention.check.interval.ms, in milliseconds"),
    ("log.file.size", "give log.segment.bytes"),
    ("log.retention.size", "give log.retention.bytes"),
    ("log.default.flush.interval.ms", "give log.flush.interval.ms"),
    ("log.flush.interval", "give log.flush.interval.messages"),
    ("replica.lag.max.messages", "give replica.lag.time.max.ms, in milliseconds"),
    ("brokerid", "give node.id"),
    ("broker.id.generation.enable", "node ids are always given; remove the line"),
    ("reserved.broker.max.id", "node ids are always given; remove the line"),
    ("host.name", "give listeners=PLAINTEXT://host:port"),
    ("port", "give listeners=PLAINTEXT://host:port"),
    ("advertised.host.name", "give advertised.listeners=PLAINTEXT://host:port"),
    ("advertised.port", "give advertised.listeners=PLAINTEXT://host:port"),
    ("control.plane.listener.name", "give controller.listener.names"),
    ("offsets.commit.required.acks", "offsets are always committed by all replicas in sync; remove the line"),
    ("group.coordinator.new.enable", "there is only one group coordinator; remove the line"),
    ("delegation.token.master.key", "give delegation.token.secret.key"),
    ("auto.include.jmx.reporter", "give metric.reporters"),
    ("enable.zookeeper", "Kafka 4 has no ZooKeeper; remove the line"),
    ("log.dir.name", "give log.dirs"),
];

/// A warning about an unknown key; `None` if the key belongs to a known group.
pub(super) fn warning(key: &str) -> Option<String> {
    if key.starts_with("listener.name.") {
        let is_known = broker_config_of_key(key).is_some();
        return (!is_known).then(|| format!("{key} is not a setting of a listener; it is ignored"));
    }
    if let Some(rest) = key.strip_prefix(METADATA_MANAGER) {
        return metadata_manager_warning(rest);
    }
    let plugin_prefixes = ["rsm.config.", "config.providers."];
    if plugin_prefixes.iter().any(|prefix| key.starts_with(prefix)) {
        return None;
    }
    if let Some((_, advice)) = REMOVED.iter().find(|(removed, _)| *removed == key) {
        return Some(format!("{key} is ignored: {advice}"));
    }
    if key.starts_with("zookeeper.") {
        return Some(format!(
            "{key} is ignored: Kafka 4 has no ZooKeeper; remove the line"
        ));
    }
    Some(match nearest(key) {
        Some(name) => format!("{key} is not a setting and is ignored; did you mean {name}?"),
        None => format!("{} is not a setting and is ignored", printable(key)),
    })
}

/// A line of a file that has no settings may hold control characters, on which a terminal would act.
fn printable(key: &str) -> String {
    let shown = key.chars().map(|it| match it.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => it,
    });
    shown.collect()
}

/// The settings of the metadata manager of tiered storage; the store refuses its unknown settings
/// itself.
const METADATA_MANAGER: &str = "rlmm.config.";

/// The prefixes of the settings of the manager's clients.
const METADATA_CLIENTS: [&str; 4] = [
    "remote.log.metadata.common.client.",
    "remote.log.metadata.producer.",
    "remote.log.metadata.consumer.",
    "remote.log.metadata.admin.",
];

fn metadata_manager_warning(name: &str) -> Option<String> {
    let mut known = REMOTE_LOG_METADATA_CONFIGS.iter();
    let is_known = known.any(|def| def.name == name)
        || METADATA_CLIENTS
            .iter()
            .any(|prefix| name.starts_with(prefix));
    if is_known {
        return None;
    }
    let what =
        format!("{METADATA_MANAGER}{name} is not a setting of the metadata manager and is ignored");
    let names = REMOTE_LOG_METADATA_CONFIGS.iter().map(|def| def.name);
    Some(match nearest_name(name, names) {
        Some(name) => format!("{what}; did you mean {METADATA_MANAGER}{name}?"),
        None => what,
    })
}

/// The setting with the most similar name, if any is similar.
fn nearest(key: &str) -> Option<&'static str> {
    let names = broker_configs().filter(|def| !def.internal);
    nearest_name(key, names.map(|def| def.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::broker_config;

    #[test]
    fn slips_are_recognised() {
        assert_eq!(nearest("log.retention.hour"), Some("log.retention.hours"));
        assert_eq!(nearest("num_partitions"), Some("num.partitions"));
        assert_eq!(nearest("advertised.listener"), Some("advertised.listeners"));
        assert_eq!(nearest("my.own.key"), None);
    }

    #[test]
    fn control_characters_are_not_shown() {
        assert_eq!(
            warning("a\u{1b}[2Jb").as_deref(),
            Some("a\u{fffd}[2Jb is not a setting and is ignored")
        );
    }

    #[test]
    fn no_removed_setting_is_known() {
        for (name, _) in REMOVED {
            assert!(broker_config(name).is_none(), "{name}");
        }
    }

    #[test]
    fn settings_of_the_metadata_manager_are_known() {
        let warning = |name: &str| warning(&format!("rlmm.config.remote.log.metadata.{name}"));
        assert_eq!(warning("topic.num.partitions"), None);
        assert_eq!(warning("producer.linger.ms"), None);
        assert_eq!(
            warning("topic.num.partition").as_deref(),
            Some(
                "rlmm.config.remote.log.metadata.topic.num.partition is not a setting of the \
                 metadata manager and is ignored; did you mean \
                 rlmm.config.remote.log.metadata.topic.num.partitions?"
            )
        );
        assert!(warning("colour.of.everything").is_some_and(|it| it.ends_with("is ignored")));
    }

    #[test]
    fn listener_settings_are_known() {
        assert_eq!(
            warning("listener.name.internal.ssl.keystore.location"),
            None
        );
        assert_eq!(
            warning("listener.name.sasl.scram-sha-256.sasl.jaas.config"),
            None
        );
        assert!(warning("listener.name.internal.colour").is_some());
    }
}
