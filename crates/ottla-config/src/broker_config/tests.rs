use super::*;
use crate::{Support, broker_config, broker_configs};

const COMBINED: &str = "\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
log.dirs=/tmp/kraft-combined-logs
num.partitions=3
log.retention.hours=168
offsets.topic.replication.factor=1
";

fn properties(extra: &str) -> Properties {
    Properties::parse(&format!("{COMBINED}{extra}"), "server.properties").expect("readable")
}

fn load(extra: &str) -> Result<(BrokerConfig, Vec<Warning>), ConfigError> {
    BrokerConfig::from_properties(&properties(extra))
}

fn config(extra: &str) -> BrokerConfig {
    load(extra).expect("accepted").0
}

#[track_caller]
fn refused(extra: &str, message: &str) {
    assert_eq!(
        load(extra).expect_err("must be refused").to_string(),
        message
    );
}

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}

#[test]
fn kafkas_own_file_is_accepted() {
    let (config, warnings) = load("").unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.node_id, 1);
    assert!(config.is_combined());
    assert_eq!(config.num_partitions, 3);
    assert_eq!(config.metadata_log_dir, "/tmp/kraft-combined-logs");
    assert_eq!(config.inter_broker_listener_name, "PLAINTEXT");
    let listeners: Vec<String> = config.listeners.iter().map(ToString::to_string).collect();
    assert_eq!(listeners, ["PLAINTEXT://:9092", "CONTROLLER://:9093"]);
    let advertised: Vec<String> = config
        .advertised_listeners
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(advertised, ["PLAINTEXT://localhost:9092"]);
    assert_eq!(
        config.advertised_controller_listeners[0].to_string(),
        "CONTROLLER://localhost:9093"
    );
    assert_eq!(config.topic_defaults, TopicConfig::default());
    assert_eq!(config.static_settings()["broker.id"], "1");
}

#[test]
fn the_built_in_configuration_is_accepted() {
    let properties = single_node_properties("./ottla-data", "127.0.0.1:9092", "127.0.0.1:9093");
    let (config, warnings) = BrokerConfig::from_properties(&properties).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(config.offsets_topic_replication_factor, 1);
    assert_eq!(config.log_dirs, ["./ottla-data"]);
}

#[test]
fn retention_takes_the_finest_unit_given() {
    let retention = |extra: &str| config(extra).topic_defaults.retention_ms;
    assert_eq!(retention("log.retention.hours=2"), 7_200_000);
    assert_eq!(retention("log.retention.minutes=5"), 300_000);
    assert_eq!(retention("log.retention.minutes=5\nlog.retention.ms=7"), 7);
    assert_eq!(retention("log.retention.hours=-1"), -1);
    assert_eq!(config("log.roll.ms=5000").topic_defaults.segment_ms, 5000);
    assert_eq!(
        config("log.roll.hours=1").topic_defaults.segment_ms,
        3_600_000
    );
    let flush = |extra: &str| config(extra).topic_defaults.flush_ms;
    assert_eq!(flush("log.flush.scheduler.interval.ms=9"), 9);
    assert_eq!(
        flush("log.flush.scheduler.interval.ms=9\nlog.flush.interval.ms=3"),
        3
    );
}

#[test]
fn a_bad_value_names_file_line_key_and_what_is_accepted() {
    refused(
        "\n# a comment\nlog.retention.hours=abc\n",
        "server.properties line 13: log.retention.hours=abc: not a number; give hours, -1 for no \
         limit",
    );
    let mut over = properties("");
    over.set("num.partitions", "none");
    assert_eq!(
        BrokerConfig::from_properties(&over)
            .unwrap_err()
            .to_string(),
        "--override num.partitions: num.partitions=none: not a number; give a whole number, at \
         least 1"
    );
}

#[test]
fn java_plugins_are_refused() {
    for (line, part) in [
        (
            "authorizer.class.name=org.example.Authorizer",
            "only org.apache.kafka.metadata.authorizer.StandardAuthorizer is supported",
        ),
        (
            "client.quota.callback.class=com.example.Quotas",
            "a Java class, which Ottla cannot load",
        ),
        (
            "metric.reporters=com.example.Reporter",
            "a Java class, which Ottla cannot load",
        ),
        (
            "create.topic.policy.class.name=com.example.Policy",
            "a Java class, which Ottla cannot load",
        ),
        (
            "principal.builder.class=com.example.Principals",
            "a Java class, which Ottla cannot load",
        ),
        (
            "group.consumer.assignors=com.example.Assignor",
            "Java classes",
        ),
    ] {
        let message = load(line).expect_err(line).to_string();
        assert!(
            message.starts_with("server.properties line 11: "),
            "{message}"
        );
        assert!(
            message.contains("is refused") && message.contains(part),
            "{message}"
        );
    }
    for line in [
        "metric.reporters=",
        "metric.reporters=org.apache.kafka.common.metrics.JmxReporter",
        "authorizer.class.name=",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "remote.log.storage.system.enable=false",
    ] {
        load(line).expect(line);
    }
}

#[test]
fn tiered_storage_needs_a_store_that_is_built_in() {
    const ENABLE: &str = "remote.log.storage.system.enable=true\n";
    let with = |more: &str| load(&format!("{ENABLE}{more}"));
    let message = with("").expect_err("no store").to_string();
    assert!(
        message.contains("remote.log.storage.manager.class.name is missing"),
        "{message}"
    );
    let class = "remote.log.storage.manager.class.name=";
    let message = with(&format!("{class}com.example.Store")).expect_err("a plugin");
    assert!(
        message.to_string().contains("a plugin of a JVM"),
        "{message}"
    );
    let local = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage";
    with(&format!("{class}{local}")).expect("Kafka's store");
    let manager = "remote.log.metadata.manager.class.name=com.example.Metadata";
    with(&format!("{class}{local}\n{manager}")).expect_err("a plugin");
}

#[test]
fn a_listener_with_kafkas_default_mechanism_needs_a_key() {
    refused(
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT\n\
         security.inter.broker.protocol=PLAINTEXT\nsasl.mechanism.inter.broker.protocol=PLAIN",
        "server.properties: listener PLAINTEXT has sasl.enabled.mechanisms=GSSAPI, which is Kafka's default, \
         and no entry with the key of its service; give listener.name.plaintext.gssapi.sasl.jaas.config=\
         com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab=\"...\" \
         principal=\"kafka/...\";, or another mechanism",
    );
}

#[test]
fn a_setting_of_a_listener_overrides_the_common_one() {
    let (config, _) = load(
        "ssl.keystore.location=/all\nlistener.name.plaintext.ssl.keystore.location=/own\n\
         ssl.client.auth=required",
    )
    .unwrap();
    let setting = |key| {
        let (given, value) = config.listener_setting("PLAINTEXT", key)?;
        Some((given, value.to_owned()))
    };
    let own = "listener.name.plaintext.ssl.keystore.location".to_owned();
    let all = "ssl.client.auth".to_owned();
    assert_eq!(
        setting("ssl.keystore.location"),
        Some((own, "/own".to_owned()))
    );
    assert_eq!(
        setting("ssl.client.auth"),
        Some((all, "required".to_owned()))
    );
    assert_eq!(setting("ssl.keystore.type"), None);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    refused(
        "broker.id=2",
        "server.properties line 11: broker.id=2 and node.id=1 differ; give the same number or \
         remove broker.id",
    );
    refused(
        "log.retention.ms=0",
        "server.properties line 11: log.retention.ms=0: give -1 for no limit, or at least 1",
    );
    refused(
        "queued.max.request.bytes=1000",
        "server.properties line 11: queued.max.request.bytes=1000 is less than \
         socket.request.max.bytes=104857600; raise it, or give -1 for no limit",
    );
    refused(
        "controller.quorum.voters=2@localhost:9093",
        "server.properties line 11: controller.quorum.voters does not have this controller; add \
         1@host:port, or correct node.id",
    );
    refused(
        "inter.broker.listener.name=INTERNAL",
        "server.properties line 11: inter.broker.listener.name=INTERNAL: \
         listener.security.protocol.map does not have it; add INTERNAL:PLAINTEXT there",
    );
    refused(
        "max.connections.per.ip=0",
        "server.properties line 11: max.connections.per.ip=0 would refuse every client; list the \
         allowed ones in max.connections.per.ip.overrides=host:count",
    );
    refused(
        "listener.name.plaintext.max.connections=many",
        "server.properties line 11: max.connections=many: not a number; give a whole \
         number, at least 0",
    );
    refused(
        "cordoned.log.dirs=/elsewhere",
        "server.properties line 11: cordoned.log.dirs has /elsewhere, which is not in log.dirs; \
         write it as in log.dirs",
    );
    refused(
        "group.coordinator.rebalance.protocols=consumer",
        "server.properties line 11: group.coordinator.rebalance.protocols must have classic, \
         which cannot be disabled; add it or remove the line",
    );
}

#[test]
fn listeners_are_checked() {
    refused(
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9092",
        "server.properties line 11: listeners: PLAINTEXT://:9092 and CONTROLLER://:9092 share a \
         port; give each its own, unless one is an IPv4 address and the other an IPv6 address",
    );
    refused(
        "listeners=PLAINTEXT://h:99999,CONTROLLER://:9093",
        "server.properties line 11: listeners: PLAINTEXT://h:99999: 99999 is not a port; give 0 to \
         65535",
    );
    refused(
        "listeners=PLAINTEXT:9092,CONTROLLER://:9093",
        "server.properties line 11: listeners: PLAINTEXT:9092 is not a listener; give \
         NAME://host:port",
    );
    refused(
        "listeners=CLIENTS://:9092,CONTROLLER://:9093\nlistener.security.protocol.map=CONTROLLER:PLAINTEXT",
        "server.properties line 11: listeners: there is no protocol for listener CLIENTS; add \
         CLIENTS:PLAINTEXT to listener.security.protocol.map",
    );
    refused(
        "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
        "server.properties line 11: PLAINTEXT://0.0.0.0:9092 would be advertised to clients, which \
         cannot connect to 0.0.0.0; give advertised.listeners=PLAINTEXT://host:9092 with a name or \
         address of this machine",
    );
    refused(
        "controller.listener.names=OTHER",
        "server.properties line 3: listeners: there is no protocol for listener CONTROLLER; add \
         CONTROLLER:PLAINTEXT to listener.security.protocol.map",
    );
    let map = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT";
    for map in ["", map] {
        refused(
            &format!("controller.listener.names=CONTROLER\n{map}"),
            "server.properties line 11: controller.listener.names has CONTROLER, but listeners does not; \
             did you mean CONTROLLER?",
        );
    }
    let both = config(
        "listeners=PLAINTEXT://127.0.0.1:9092,INSIDE://[::1]:9092,CONTROLLER://:9093\n\
         advertised.listeners=PLAINTEXT://a:9092,INSIDE://b:9092\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
         inter.broker.listener.name=inside\n\
         controller.quorum.voters=1@quorum:9095",
    );
    assert_eq!(both.listeners[1].to_string(), "INSIDE://[::1]:9092");
    assert_eq!(both.inter_broker_listener_name, "INSIDE");
    // The address of the controller in the voters is advertised, because its own listener has no
    // host.
    assert_eq!(
        both.advertised_controller_listeners[0].to_string(),
        "CONTROLLER://quorum:9095"
    );
}

#[test]
fn a_port_in_the_voters_that_this_controller_does_not_serve_is_a_warning() {
    let messages = |extra: &str| {
        let (_, warnings) = load(extra).expect("accepted");
        let messages: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        messages
    };
    assert_eq!(
        messages("controller.quorum.voters=1@localhost:9095"),
        [
            "server.properties line 11: controller.quorum.voters has 1@localhost:9095 for this node, but its \
             controller listens on CONTROLLER://:9093: unless port 9095 is mapped to that, other nodes cannot \
             reach this controller; correct one of the ports"
        ]
    );
    let served = [
        "controller.quorum.voters=1@localhost:9093,2@localhost:9095",
        // The port is mapped, which the advertised listener says.
        "controller.quorum.voters=1@h:9095\n\
         advertised.listeners=PLAINTEXT://h:9092,CONTROLLER://h:9095",
        // The kernel chooses the port.
        "controller.quorum.voters=1@h:9095\nlisteners=PLAINTEXT://:9092,CONTROLLER://:0",
    ];
    for extra in served {
        assert_eq!(messages(extra), [""; 0], "{extra}");
    }
}

#[test]
fn missing_settings_say_what_to_give() {
    let parse = |text| {
        BrokerConfig::from_properties(&Properties::parse(text, "s.properties").unwrap())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        parse("node.id=1\ncontroller.listener.names=CONTROLLER\n"),
        "s.properties: process.roles is missing; give process.roles=broker,controller for a node \
         that is both"
    );
    assert!(
        parse("process.roles=broker\nbroker.id=1\n")
            .contains("controller.listener.names is missing")
    );
}

#[test]
fn unknown_keys_warn() {
    let warnings = load("log.retention.hour=5\nzookeeper.connect=localhost:2181\n")
        .unwrap()
        .1;
    let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "server.properties line 11: log.retention.hour is not a setting and is ignored; did \
             you mean log.retention.hours?",
            "server.properties line 12: zookeeper.connect is ignored: Kafka 4 has no ZooKeeper; \
             the controllers are given by controller.quorum.bootstrap.servers",
        ]
    );
}

#[test]
fn dynamic_settings_go_over_the_file() {
    let base = config("log.retention.hours=1");
    let (changed, warnings) = base.with_dynamic(
        &settings(&[("log.retention.ms", "500"), ("message.max.bytes", "2000")]),
        &settings(&[("message.max.bytes", "3000")]),
    );
    assert_eq!(warnings, []);
    assert_eq!(changed.topic_defaults.retention_ms, 500);
    assert_eq!(changed.topic_defaults.max_message_bytes, 3000);
    assert_eq!(changed.setting("message.max.bytes"), Some("3000"));
    let (back, _) = changed.with_dynamic(&settings(&[]), &settings(&[]));
    assert_eq!(back, base);
}

#[test]
fn a_bad_dynamic_setting_is_left_out_and_reported() {
    let (changed, warnings) = config("").with_dynamic(
        &settings(&[
            ("message.max.bytes", "many"),
            ("log.roll.ms", "0"),
            ("log.retention.ms", "9"),
        ]),
        &settings(&[("log.dirs", "/elsewhere")]),
    );
    assert_eq!(changed.topic_defaults.retention_ms, 9);
    assert_eq!(changed.log_dirs, ["/tmp/kraft-combined-logs"]);
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}

#[test]
fn dynamic_settings_are_checked_before_they_are_stored() {
    let config = config("");
    assert_eq!(config.check_dynamic("log.retention.ms", "5", true), Ok(()));
    assert_eq!(config.check_dynamic("anything.else", "5", true), Ok(()));
    assert_eq!(
        config.check_dynamic("log.dirs", "/x", false),
        Err("Cannot update these configs dynamically: [log.dirs]".into())
    );
    assert_eq!(
        config.check_dynamic("listeners", "PLAINTEXT://:9092", true),
        Err(
            "Cannot update these configs at default cluster level, broker id must be specified: \
             [listeners]"
                .into()
        )
    );
    assert!(
        config
            .check_dynamic("num.io.threads", "none", true)
            .is_err()
    );
}

#[test]
fn the_tables_are_sound() {
    let (own, mut names): (Vec<&str>, Vec<&str>) = broker_configs()
        .map(|def| def.name)
        .partition(|name| name.starts_with("ottla."));
    assert!(!own.is_empty());
    names.retain(|name| !["super.users", "allow.everyone.if.no.acl.found"].contains(name));
    assert_eq!(
        names.len(),
        382,
        "as many as Kafka 4.4.0 has without its authorizer's settings"
    );
    names.extend(own);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "each is listed once");
    for def in broker_configs()
        .chain(crate::TOPIC_CONFIGS)
        .chain(crate::GROUP_CONFIGS)
    {
        let _ = def.default_value();
        if let Some(text) = def.default_text() {
            assert_eq!(def.refusal(text), None, "{}", def.name);
        }
        assert!(!def.accepted().is_empty());
    }
}

#[test]
fn every_supported_setting_is_read() {
    let read_into_other_fields = [
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "delegation.token.secret.key",
        "connections.max.reauth.ms",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "log.flush.interval.ms",
        // `ottla` reads it before the configuration is built.
        "config.providers",
        "log.retention.hours",
        "log.retention.minutes",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "max.connections.per.ip.overrides",
        "metadata.log.dir",
        "node.id",
        "ottla.jaas.file",
        "process.roles",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "security.inter.broker.protocol",
    ];
    for def in broker_configs() {
        let topic_default = crate::TOPIC_CONFIGS
            .iter()
            .any(|topic| crate::broker_synonym_of_topic_config(topic.name) == Some(def.name));
        let read = topic_default
            // Listeners can override these. They are read through `listener_setting` and
            // `OAuthSettings`.
            || def.name.starts_with("ssl.")
            || def.name.starts_with("sasl.oauthbearer.")
            || def.name.starts_with("sasl.login.")
            || def.name.starts_with("sasl.kerberos.")
            // `RemoteSettings` and the stores look these up by name.
            || def.name.starts_with("remote.log.")
            || read_into_other_fields.contains(&def.name)
            || BrokerConfig::TYPED_KEYS.contains(&def.name);
        if def.support == Support::Supported {
            assert!(
                read,
                "{} is called supported, but nothing reads it",
                def.name
            );
        }
    }
    for key in BrokerConfig::TYPED_KEYS {
        assert!(broker_config(key).is_some(), "{key}");
    }
}
