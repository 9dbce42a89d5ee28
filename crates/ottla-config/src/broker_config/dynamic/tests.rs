use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::config_def::Support;
use crate::{Variables, single_node_properties};

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
fn contradictory_settings_are_refused_before_they_are_stored() {
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
    // The settings of the other level count too.
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
fn listeners_are_added_and_removed_and_the_remaining_ones_do_not_change() {
    const STATIC: &str = "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093";
    const MAP: &str = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:SASL_PLAINTEXT";
    const EXTRA: &str =
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,EXTRA://127.0.0.1:9094";
    const MECHANISMS: (&str, &str) = ("listener.name.extra.sasl.enabled.mechanisms", "PLAIN");
    const JAAS: (&str, &str) = (
        "listener.name.extra.plain.sasl.jaas.config",
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"a\";",
    );
    let map = ("listener.security.protocol.map", MAP);
    let other_users = JAAS.1.replace("user_a", "user_b");
    let other_jaas = (JAAS.0, other_users.as_str());
    let mut properties = single_node_properties("./data", "127.0.0.1:9092", "127.0.0.1:9093");
    properties.set("advertised.listeners", "PLAINTEXT://127.0.0.1:9092");
    let (before, _) = BrokerConfig::from_properties(&properties).unwrap();
    let settings = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    let added = settings(&[("listeners", EXTRA), map, MECHANISMS, JAAS]);
    let (after, warnings) = before.with_dynamic(&BTreeMap::new(), &added);
    assert!(warnings.is_empty());
    assert!(after.sasl.listener("EXTRA").is_some());
    for (config, change, expected) in [
        (&before, settings(&[("listeners", STATIC)]), ""),
        (&before, added.clone(), ""),
        // Before the listener itself.
        (&before, settings(&[map, MECHANISMS, JAAS]), ""),
        // A setting that is not for TLS or logins has no effect on a listener, as in Kafka.
        (
            &before,
            settings(&[("listener.name.plaintext.num.io.threads", "8")]),
            "",
        ),
        // The listener is removed, with its settings or without.
        (&after, settings(&[]), ""),
        (&after, settings(&[map, MECHANISMS, JAAS]), ""),
        (
            &after,
            settings(&[("listeners", EXTRA), map, MECHANISMS, other_jaas]),
            "Configs cannot be updated dynamically for existing listener ListenerName(EXTRA), restart broker or create a new listener for update",
        ),
        (
            &before,
            settings(&[("listener.name.plaintext.ssl.client.auth", "required")]),
            "Configs cannot be updated dynamically for existing listener ListenerName(PLAINTEXT), restart",
        ),
        (
            &before,
            settings(&[(
                "listener.security.protocol.map",
                "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
            )]),
            "Security protocol cannot be updated for existing listener ListenerName(PLAINTEXT)",
        ),
        (
            &before,
            settings(&[(
                "listeners",
                "PLAINTEXT://127.0.0.1:9095,CONTROLLER://127.0.0.1:9093",
            )]),
            "listeners=PLAINTEXT://127.0.0.1:9095: the address of an existing listener",
        ),
        (
            &before,
            settings(&[("listeners", EXTRA)]),
            "there is no protocol for listener EXTRA",
        ),
        (
            &before,
            settings(&[("listeners", "PLAINTEXT://127.0.0.1:9092")]),
            "controller.listener.names has CONTROLLER, but listeners does not",
        ),
        (
            &before,
            settings(&[
                (
                    "listeners",
                    "EXTRA://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
                ),
                map,
                MECHANISMS,
                JAAS,
            ]),
            "advertised.listeners has PLAINTEXT, which listeners does not have",
        ),
        (
            &before,
            settings(&[
                (
                    "listeners",
                    "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093,EXTRA://127.0.0.1:9092",
                ),
                map,
                MECHANISMS,
                JAAS,
            ]),
            "share a port",
        ),
    ] {
        match config.check_dynamic_change(false, &change) {
            Ok(()) => assert_eq!(expected, "", "{change:?}"),
            Err(said) => assert!(!expected.is_empty() && said.contains(expected), "{said}"),
        }
    }
}

/// Without `advertised.listeners`, all listeners of the broker count as advertised.
#[test]
fn a_listener_that_counts_as_advertised_is_not_removed() {
    let listeners = |more: &str| {
        let all = format!("PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093{more}");
        let map = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTRA:PLAINTEXT";
        BTreeMap::from([
            ("listeners".to_owned(), all),
            ("listener.security.protocol.map".to_owned(), map.to_owned()),
        ])
    };
    let added = listeners(",EXTRA://127.0.0.1:9094");
    let (after, _) = config().with_dynamic(&BTreeMap::new(), &added);
    assert_eq!(
        after.check_dynamic_change(false, &listeners("")),
        Err(
            "Advertised listeners 'Set(ListenerName(PLAINTEXT), ListenerName(EXTRA))' must be a subset of \
             listeners 'Set(ListenerName(PLAINTEXT), ListenerName(CONTROLLER))'; keep them in the new value of \
             listeners, or take them out of advertised.listeners in the properties file and restart the broker"
                .to_owned()
        )
    );
}

/// The rows of the table: name, level and effect.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let lines = include_str!("dynamic_settings.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("three words");
        (word(), word(), word())
    })
}

#[test]
fn the_dynamic_settings_equal_kafkas() {
    let kafkas: Vec<&str> = rows().map(|(name, _, _)| name).collect();
    assert_eq!(kafkas.len(), 110, "as many as Kafka 4.4.0 has");
    let config = config();
    for def in crate::tables::broker_configs() {
        let is_read_only = def.update_mode == UpdateMode::ReadOnly;
        if !def.name.starts_with("ottla.") {
            assert_eq!(is_read_only, !kafkas.contains(&def.name), "{}", def.name);
        }
        for cluster_wide in [true, false] {
            let said = config.check_dynamic(def.name, "1", cluster_wide);
            let refused = format!("Cannot update these configs dynamically: [{}]", def.name);
            assert_eq!(said == Err(refused), is_read_only, "{}", def.name);
        }
    }
}

#[test]
fn each_setting_is_changed_in_the_scopes_of_kafka() {
    let config = config();
    for (name, level, _) in rows() {
        let def = broker_config(name).unwrap();
        let other = match def.support {
            Support::Refused { .. } => "",
            _ => "7",
        };
        let value = def.default_text().unwrap_or(other);
        let check = |key: &str, cluster_wide| config.check_dynamic(key, value, cluster_wide);
        let is_refused =
            |said: Result<(), String>, why: &str| said.is_err_and(|said| said.starts_with(why));
        const PER_BROKER: &str = "Cannot update these configs at default cluster level";
        const PER_LISTENER: &str =
            "These security configs can be dynamically updated only per-listener";
        match level {
            "cluster" => {
                assert_eq!(check(name, true), Ok(()), "{name}");
                assert_eq!(check(name, false), Ok(()), "{name}");
            }
            "broker" => {
                assert!(is_refused(check(name, true), PER_BROKER), "{name}");
                assert_eq!(check(name, false), Ok(()), "{name}");
            }
            "listener" => {
                assert!(is_refused(check(name, true), PER_LISTENER), "{name}");
                assert!(is_refused(check(name, false), PER_LISTENER), "{name}");
            }
            other => panic!("{name} {other}"),
        }
        // With the prefix of a listener, a setting can only be set per broker, except for
        // connection limits and thread counts.
        let of_listener = format!("listener.name.internal.{name}");
        let is_cluster_wide = CLUSTER_WIDE_OF_LISTENERS.contains(&name);
        assert_eq!(check(&of_listener, true).is_ok(), is_cluster_wide, "{name}");
        assert_eq!(check(&of_listener, false), Ok(()), "{name}");
    }
    let unknown = "listener.name.internal.no.such.setting";
    assert!(config.check_dynamic(unknown, "1", true).is_err());
    assert_eq!(config.check_dynamic(unknown, "1", false), Ok(()));
    assert_eq!(config.check_dynamic("no.such.setting", "1", true), Ok(()));
}

#[test]
fn a_change_has_the_effect_listed_in_the_tables() {
    for (name, _, effect) in rows() {
        let def = broker_config(name).unwrap();
        let by_the_tables = match def.support {
            Support::Supported => "at-once",
            Support::AcceptedWithoutEffect(_) => "none",
            Support::Refused { .. } => "refused",
        };
        let expected = match name {
            // The last setting is permitted only with the prefix of a listener.
            "sasl.jaas.config" => "refused",
            "num.recovery.threads.per.data.dir"
            | "config.providers"
            | "remote.log.index.file.cache.total.size.bytes" => "next-start",
            _ if LISTENERS_ONLY.contains(&name) => "of-listeners",
            // Without the prefix of a listener; with it, these change at once where Kafka's do.
            _ if name.starts_with("ssl.") && by_the_tables == "at-once" => "next-start",
            _ => by_the_tables,
        };
        assert_eq!(effect, expected, "{name}");
        // Mechanisms have an effect only on SASL listeners, which the next test has.
        if effect == "at-once" && !name.starts_with("sasl.") {
            assert!(is_read_when_changed(name), "{name}");
        }
    }
}

const OVERRIDES: &str = "max.connections.per.ip.overrides";

/// A configuration whose variables have values while the flag is set.
fn config_with_variables(is_there: &Arc<AtomicBool>) -> BrokerConfig {
    let mut properties = single_node_properties("./data", "127.0.0.1:9092", "127.0.0.1:9093");
    let is_there = Arc::clone(is_there);
    properties.set_variables(Variables::new(move |value| {
        match is_there.load(Ordering::Relaxed) {
            true => Ok(value
                .replace("${file:/s:limit}", "5")
                .replace("${file:/s:password}", "secret")),
            false => Err("${file:/s:limit}: the file has no such key".to_owned()),
        }
    }));
    BrokerConfig::from_properties(&properties).unwrap().0
}

fn overrides(value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(OVERRIDES.to_owned(), value.to_owned())])
}

#[test]
fn variables_are_replaced_on_use_and_described_as_written() {
    let config = config_with_variables(&Arc::new(AtomicBool::new(true)));
    let written = "127.0.0.1:${file:/s:limit}";
    assert_eq!(
        config.check_dynamic_change(true, &overrides(written)),
        Ok(())
    );
    let (config, warnings) = config.with_dynamic(&overrides(written), &BTreeMap::new());
    assert_eq!(warnings, []);
    assert_eq!(config.max_connections_per_ip_overrides["127.0.0.1"], 5);
    assert_eq!(config.setting(OVERRIDES), Some("127.0.0.1:5"));
    let described = crate::describe_broker(&config);
    let described = described.iter().find(|it| it.name == OVERRIDES).unwrap();
    assert_eq!(described.value.as_deref(), Some(written));
    assert_eq!(described.synonyms[0].value.as_deref(), Some(written));

    // What a variable stands for is in no message.
    let wrong = overrides("127.0.0.1:${file:/s:password}");
    let said = config.check_dynamic_change(true, &wrong).unwrap_err();
    assert_eq!(said, invalid_variables(OVERRIDES));
    let (_, warnings) = config.with_dynamic(&wrong, &BTreeMap::new());
    assert_eq!(warnings[0].message, invalid_variables(OVERRIDES));
    let shown = config.message_for_clients("secret".to_owned());
    assert!(
        shown.contains(OVERRIDES) && !shown.contains("secret"),
        "{shown}"
    );
}

#[test]
fn a_variable_without_a_value_is_refused_and_later_keeps_the_value() {
    let is_there = Arc::new(AtomicBool::new(false));
    let file = config_with_variables(&is_there);
    let settings = overrides("127.0.0.1:${file:/s:limit}");
    let reason = format!("{OVERRIDES}: ${{file:/s:limit}}: the file has no such key");
    assert_eq!(
        file.check_dynamic_change(true, &settings),
        Err(reason.clone())
    );
    let (without, warnings) = file.with_dynamic(&settings, &BTreeMap::new());
    assert_eq!(
        warnings[0].message,
        format!("{reason}; the setting has no effect")
    );
    assert!(without.max_connections_per_ip_overrides.is_empty());

    is_there.store(true, Ordering::Relaxed);
    let (config, warnings) = file.with_dynamic(&settings, &BTreeMap::new());
    assert_eq!(warnings, []);
    is_there.store(false, Ordering::Relaxed);
    let mut more = settings.clone();
    more.insert("num.io.threads".to_owned(), "4".to_owned());
    assert_eq!(config.check_dynamic_change(true, &more), Ok(()));
    let (config, warnings) = config.with_dynamic(&more, &BTreeMap::new());
    assert_eq!(warnings.len(), 1);
    assert_eq!(
        warnings[0].message,
        format!("{reason}; the setting keeps its value")
    );
    assert_eq!(config.max_connections_per_ip_overrides["127.0.0.1"], 5);
    assert_eq!(config.setting("num.io.threads"), Some("4"));
}

#[test]
fn mechanisms_change_at_once() {
    let file = "process.roles=broker\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
                listeners=A://localhost:9092\ninter.broker.listener.name=A\n\
                listener.security.protocol.map=A:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n\
                controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs=/data\n\
                sasl.enabled.mechanisms=SCRAM-SHA-512\n\
                sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n\
                listener.name.a.scram-sha-512.sasl.jaas.config=\
                org.apache.kafka.common.security.scram.ScramLoginModule required username=\"n\" password=\"p\";\n\
                listener.name.a.scram-sha-256.sasl.jaas.config=\
                org.apache.kafka.common.security.scram.ScramLoginModule required username=\"n\" password=\"q\";\n";
    let properties = Properties::parse(file, "server.properties").unwrap();
    let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
    let with = |settings: &[(&str, &str)]| {
        let settings = settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        config.with_dynamic(&BTreeMap::new(), &settings.collect())
    };
    let both = ("sasl.enabled.mechanisms", "SCRAM-SHA-256,SCRAM-SHA-512");
    let (changed, warnings) = with(&[
        both,
        ("sasl.mechanism.inter.broker.protocol", "SCRAM-SHA-256"),
    ]);
    assert_eq!(warnings, []);
    assert!(
        changed
            .sasl
            .listener("A")
            .unwrap()
            .find("SCRAM-SHA-256")
            .is_some()
    );
    assert_eq!(
        changed.sasl.peer("A").unwrap().mechanism.name(),
        "SCRAM-SHA-256"
    );
    let (unchanged, warnings) = with(&[("sasl.enabled.mechanisms", "SCRAM-SHA-256")]);
    assert!(
        warnings[0].message.contains("does not accept it"),
        "{warnings:?}"
    );
    assert_eq!(unchanged.sasl, config.sasl);
}

/// Whether a change of a setting changes the value that the broker reads.
fn is_read_when_changed(name: &str) -> bool {
    const VALUES: [&str; 12] = [
        "8388608",
        "3",
        "4",
        "0.25",
        "true",
        "false",
        "compact",
        "gzip",
        "LogAppendTime",
        "127.0.0.1:9",
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:SSL",
        "PLAINTEXT://127.0.0.1:9095,CONTROLLER://127.0.0.1:9093",
    ];
    let usual = config();
    VALUES.into_iter().chain(["./data"]).any(|value| {
        let settings = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        let (mut changed, warnings) = config().with_dynamic(&BTreeMap::new(), &settings);
        changed.dynamic_settings.clear();
        warnings.is_empty() && changed != usual
    })
}

#[test]
fn threads_of_the_cleaner_and_of_listeners_change_by_half_or_to_the_double() {
    for (key, value, expected) in [
        ("log.cleaner.threads", "2", ""),
        ("log.cleaner.threads", "0", "should be at least 1"),
        (
            "log.cleaner.threads",
            "3",
            "cannot be increased to more than double the current value 1",
        ),
        ("listener.name.plaintext.num.network.threads", "6", ""),
        (
            "listener.name.plaintext.num.network.threads",
            "7",
            "should not be greater than double the current value 3",
        ),
        ("listener.name.plaintext.num.io.threads", "100", ""),
        ("listener.name.PLAINTEXT.num.network.threads", "7", ""),
        ("listener.name.elsewhere.max.connections", "0", ""),
        ("remote.log.reader.threads", "5", ""),
        (
            "remote.log.reader.threads",
            "4",
            "should be at least half the current value 10",
        ),
        ("max.connections", "1", ""),
        ("max.connections", "0", "Invalid max.connections 0"),
        (
            "listener.name.plaintext.max.connection.creation.rate",
            "0",
            "Invalid max.connection.creation.rate 0",
        ),
    ] {
        match change(false, key, value) {
            Ok(()) => assert_eq!(expected, "", "{key}={value}"),
            Err(said) => {
                assert!(!expected.is_empty() && said.contains(expected), "{said}");
            }
        }
    }
}

#[test]
fn removing_a_thread_count_obeys_the_bound_of_half_the_current_value() {
    let of = |count: &str| BTreeMap::from([("num.io.threads".to_owned(), count.to_owned())]);
    let (config, _) = config().with_dynamic(&of("16"), &BTreeMap::new());
    assert_eq!(config.check_dynamic_change(true, &BTreeMap::new()), Ok(()));
    let (config, _) = config.with_dynamic(&of("32"), &BTreeMap::new());
    let said = config.check_dynamic_change(true, &BTreeMap::new());
    assert!(
        said.unwrap_err()
            .contains("at least half the current value 32")
    );
    // The setting of this broker hides that of the cluster.
    let (config, _) = config.with_dynamic(&of("32"), &of("8"));
    assert_eq!(config.check_dynamic_change(true, &of("1")), Ok(()));
}

#[test]
fn local_retention_does_not_exceed_the_total_retention() {
    for (settings, expected) in [
        (
            [
                ("log.retention.ms", "1000"),
                ("log.local.retention.ms", "1000"),
            ],
            "",
        ),
        (
            [("log.retention.ms", "-1"), ("log.local.retention.ms", "-1")],
            "",
        ),
        (
            [
                ("log.retention.ms", "1000"),
                ("log.local.retention.ms", "1001"),
            ],
            "Value must not be more than log.retention.ms property value: 1000",
        ),
        (
            [
                ("log.retention.bytes", "1000"),
                ("log.local.retention.bytes", "-1"),
            ],
            "Value must not be -1 as log.retention.bytes value is set as 1000.",
        ),
        (
            [
                ("log.retention.ms", "1000"),
                ("log.remote.copy.lag.ms", "1000"),
            ],
            "",
        ),
        (
            [
                ("log.local.retention.ms", "999"),
                ("log.remote.copy.lag.ms", "1000"),
            ],
            "1000 for configuration log.remote.copy.lag.ms: Value must not exceed log.local.retention.ms",
        ),
        (
            [
                ("log.retention.bytes", "1000"),
                ("log.remote.copy.lag.bytes", "1001"),
            ],
            "Value must not exceed log.local.retention.bytes (effective value: 1000)",
        ),
    ] {
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let said = config().check_dynamic_change(true, &BTreeMap::from(settings));
        match said {
            Ok(()) => assert_eq!(expected, ""),
            Err(said) => assert!(!expected.is_empty() && said.contains(expected), "{said}"),
        }
    }
}
