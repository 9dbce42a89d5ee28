//! One node per finding: its content, and the expected finding.

use std::fs;
use std::path::Path;

use ottla_config::{Properties, single_node_properties};
use ottla_log::checkpoint::{CleanShutdown, MetaProperties};
use ottla_protocol::coordinator_records::*;
use ottla_protocol::metadata_records::*;
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_testkit::certificates::write_stores;
use ottla_types::{BrokerEpoch, BrokerId, LeaderEpoch, Timestamp, Uuid};

use super::*;
use crate::format::format_standalone;
use crate::metadata::metadata_log::METADATA_DIR;
use crate::metadata::record_batches::records_batch;

/// A formatted node that was stopped cleanly, with the parts that a test needs.
struct Node {
    dir: tempfile::TempDir,
    properties: Properties,
    records: Vec<MetadataRecord>,
}

impl Node {
    fn new() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().display().to_string();
        let properties = single_node_properties(&data, "127.0.0.1:9092", "127.0.0.1:9093");
        let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
        format_standalone(&config).unwrap();
        CleanShutdown::write(dir.path(), BrokerEpoch(5)).unwrap();
        Node {
            dir,
            properties,
            records: vec![level("metadata.version", 30)],
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn setting(mut self, key: &str, value: &str) -> Node {
        self.properties.set(key, value);
        self
    }

    fn records(mut self, records: impl IntoIterator<Item = MetadataRecord>) -> Node {
        self.records.extend(records);
        self
    }

    /// A partition's log with the given records and tombstones.
    fn coordinator(self, dir: &str, records: &[(bytes::Bytes, Option<bytes::Bytes>)]) -> Node {
        let mut builder = RecordBatchBuilder::new(Compression::Zstd { level: 3 });
        for (key, value) in records {
            builder.append(Timestamp(1), Some(key), value.as_deref(), &[]);
        }
        let dir = self.path().join(dir);
        fs::create_dir(&dir).unwrap();
        let bytes = builder.build().to_bytes();
        fs::write(dir.join("00000000000000000000.log"), bytes).unwrap();
        self
    }

    fn look(&self) -> Preflight {
        let log = self
            .path()
            .join(METADATA_DIR)
            .join("00000000000000000000.log");
        let version = ottla_metadata::MetadataVersion::LATEST_PRODUCTION;
        let batch = records_batch(
            ottla_types::Offset(0),
            LeaderEpoch(1),
            Timestamp(1),
            &self.records,
            version,
        );
        fs::write(log, batch.unwrap().to_bytes()).unwrap();
        Preflight::of(&self.properties, Unformatted::Refused)
    }

    /// The check must produce this finding, as part of its sentence.
    #[track_caller]
    fn finds(&self, severity: Severity, sentence: &str) {
        let preflight = self.look();
        let found = preflight
            .findings
            .iter()
            .any(|it| it.severity == severity && it.to_string().contains(sentence));
        assert!(
            found,
            "{severity:?} {sentence}: not in {:#?}",
            preflight.findings
        );
        assert_eq!(preflight.is_possible(), severity != Severity::Refuses);
    }

    #[track_caller]
    fn refuses(&self, sentence: &str) {
        self.finds(Severity::Refuses, sentence);
    }
}

fn level(name: &'static str, feature_level: i16) -> MetadataRecord {
    MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: name.into(),
        feature_level,
        ..Default::default()
    })
}

fn config_of(
    kind: i8,
    resource: &'static str,
    key: &'static str,
    value: &'static str,
) -> MetadataRecord {
    MetadataRecord::Config(ConfigRecord {
        resource_type: kind,
        resource_name: resource.into(),
        name: key.into(),
        value: Some(value.into()),
        ..Default::default()
    })
}

fn topic(name: &'static str, replicas: Vec<i32>) -> [MetadataRecord; 2] {
    let topic_id = Uuid::from_u128(77);
    [
        MetadataRecord::Topic(TopicRecord {
            name: name.into(),
            topic_id,
            ..Default::default()
        }),
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            isr: replicas.clone(),
            directories: vec![Uuid::DIRECTORY_UNASSIGNED; replicas.len()],
            replicas,
            leader: 1,
            ..Default::default()
        }),
    ]
}

#[test]
fn a_kafka_node_with_default_settings_can_be_taken_over() {
    let levels = [
        level("group.version", 1),
        level("transaction.version", 2),
        level("share.version", 1),
        level("streams.version", 1),
        level("eligible.leader.replicas.version", 1),
    ];
    let node = Node::new()
        .records(levels)
        .records(topic("orders", vec![1]));
    assert_eq!(node.look().findings, []);
    let facts = node.look().facts;
    assert_eq!(facts.node_id, Some(1));
    assert_eq!(facts.metadata_version.as_deref(), Some("4.3-IV0"));
    assert_eq!((facts.topics, facts.partitions), (1, 1));
    assert_eq!(facts.stopped_cleanly, Some(true));
}

#[test]
fn the_preflight_changes_no_file() {
    let node = Node::new();
    node.look();
    let listing = || {
        let mut entries: Vec<_> = fs::read_dir(node.path())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (
                    entry.file_name(),
                    entry.metadata().unwrap().modified().unwrap(),
                )
            })
            .collect();
        entries.sort();
        entries
    };
    let before = listing();
    let metadata_log = node.path().join(METADATA_DIR);
    let files = || fs::read_dir(&metadata_log).unwrap().count();
    let count = files();
    Preflight::of(&node.properties, Unformatted::Refused);
    assert_eq!((listing(), files()), (before, count));
    assert!(!node.path().join(".lock").exists());
}

#[test]
fn every_invalid_setting_is_a_refusal() {
    let node = Node::new()
        .setting("authorizer.class.name", "org.example.Authorizer")
        .setting("metric.reporters", "org.example.Reporter")
        .setting("num.partitions", "many");
    assert_eq!(node.look().refusals().count(), 3, "{:#?}", node.look());
    Node::new()
        .setting("num.io.threads", "3")
        .finds(Severity::Notes, "num.io.threads=3 has no effect");
    Node::new()
        .setting("num.prtitions", "3")
        .finds(Severity::Warns, "did you mean num.partitions?");
}

#[test]
fn a_controller_alone_may_share_its_quorum() {
    let node = Node::new()
        .setting("process.roles", "controller")
        .setting("listeners", "CONTROLLER://127.0.0.1:9093");
    assert!(node.look().is_possible(), "{:#?}", node.look());
}

#[test]
fn unknown_feature_levels_are_a_refusal() {
    let mut old = Node::new();
    old.records = vec![level("metadata.version", 6)];
    old.refuses(
        "metadata.version has level 6; supported are 7 (3.3-IV3) to 33 (4.4-IV2); raise it",
    );
    let mut new = Node::new();
    new.records = vec![level("metadata.version", 34)];
    new.refuses("metadata.version has level 34, of a Kafka newer than 4.4");
    Node::new()
        .records([level("group.version", 2)])
        .refuses("group.version is finalized at level 2, and levels up to 1 are known");
    Node::new()
        .records([level("colour.version", 1)])
        .refuses("colour.version is finalized at level 1, and the feature is not known");
}

#[test]
fn an_unreadable_metadata_log_is_a_refusal() {
    let node = Node::new();
    node.look();
    let log = node
        .path()
        .join(METADATA_DIR)
        .join("00000000000000000000.log");
    let whole = fs::read(&log).unwrap();
    let mut bytes = whole.clone();
    *bytes.last_mut().unwrap() ^= 1;
    // A whole batch follows; otherwise it would be the torn end of a crash, which is cut off.
    bytes.extend_from_slice(&whole);
    let offset = bytes.len() - whole.len();
    bytes[offset..offset + 8].copy_from_slice(&100_i64.to_be_bytes());
    fs::write(&log, bytes).unwrap();
    let preflight = Preflight::of(&node.properties, Unformatted::Refused);
    let said = preflight.refusals().next().unwrap().to_string();
    assert!(said.contains("is damaged at byte 0"), "{said}");
    let mut bytes = whole;
    bytes[..8].copy_from_slice(&7_i64.to_be_bytes());
    fs::write(&log, bytes).unwrap();
    let begins_late = log.with_file_name("00000000000000000007.log");
    fs::rename(&log, begins_late).unwrap();
    let preflight = Preflight::of(&node.properties, Unformatted::Refused);
    let said = preflight.refusals().next().unwrap().to_string();
    assert!(
        said.contains("there is no snapshot of the records before"),
        "{said}"
    );
}

#[test]
fn a_file_of_a_log_that_cannot_be_written_is_a_refusal() {
    use std::os::unix::fs::symlink;
    let node = Node::new();
    let log = node.path().join("topic-0");
    fs::create_dir(&log).unwrap();
    fs::write(log.join("00000000000000000000.log"), b"").unwrap();
    // Like a file that is deleted while the directory is read.
    symlink("gone", log.join("00000000000000000000.log.deleted")).unwrap();
    assert!(node.look().is_possible());
    // Root may write any file, but cannot open a link to itself either.
    let name = "00000000000000000000.index";
    symlink(name, log.join(name)).unwrap();
    node.refuses(&format!("cannot write to topic-0/{name}"));
}

#[test]
fn acls_without_an_authorizer_are_a_note() {
    let acl = MetadataRecord::AccessControlEntry(AccessControlEntryRecord {
        id: Uuid::from_u128(9),
        ..Default::default()
    });
    let node = Node::new().records([acl]);
    let sentence = "1 ACL is not enforced without an authorizer";
    node.finds(Severity::Notes, sentence);
}

#[test]
fn unusable_delegation_tokens_are_a_note() {
    let token = MetadataRecord::DelegationToken(DelegationTokenRecord {
        token_id: "token".into(),
        ..Default::default()
    });
    let sentence = "1 delegation token is stored, but clients cannot log in";
    let node = Node::new().records([token]);
    node.finds(Severity::Notes, sentence);
    let served = node.setting("delegation.token.secret.key", "key").look();
    assert!(
        served
            .findings
            .iter()
            .all(|it| !it.what.contains("delegation token"))
    );
}

#[test]
fn what_clients_need_for_each_listener_is_a_note() {
    let stores = tempfile::tempdir().unwrap();
    write_stores(stores.path(), &["broker"]);
    let path = |name: &str| stores.path().join(name).display().to_string();
    let (store, trust) = (path("broker.pem"), path("authority.pem"));
    let node = Node::new()
        .setting(
            "listeners",
            "PLAINTEXT://127.0.0.1:9092,SECURE://127.0.0.1:9094,LOGIN://127.0.0.1:9095,\
             CONTROLLER://127.0.0.1:9093",
        )
        .setting(
            "listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,SECURE:SSL,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        )
        .setting("ssl.keystore.type", "PEM")
        .setting("ssl.keystore.location", &store)
        .setting("ssl.truststore.type", "PEM")
        .setting("ssl.truststore.location", &trust)
        .setting("listener.name.secure.ssl.client.auth", "required")
        .setting(
            "listener.name.login.sasl.enabled.mechanisms",
            "SCRAM-SHA-512,PLAIN",
        )
        .setting(
            "listener.name.login.plain.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required user_a=\"b\";",
        );
    node.finds(
        Severity::Notes,
        "clients of SECURE://127.0.0.1:9094 need security.protocol=SSL, trust in CN=authority,O=Ottla",
    );
    node.finds(Severity::Notes, ", a certificate of their own");
    let login = "clients of LOGIN://127.0.0.1:9095 need security.protocol=SASL_PLAINTEXT, \
                 sasl.mechanism=SCRAM-SHA-512 or PLAIN";
    node.finds(Severity::Notes, login);
    node.finds(Severity::Notes, "give it SASL_SSL");
    let findings = node.look().findings;
    assert!(
        findings
            .iter()
            .all(|it| !it.what.contains("clients of PLAINTEXT"))
    );
}

/// Whatever is wrong with a setting, or not: neither preflight nor the start, which prints the same
/// sentences, shows its secret.
#[test]
fn no_finding_shows_a_secret() {
    const SECRET: &str = "hush4711";
    let jaas = |end: &str| {
        format!(
            "org.apache.kafka.common.security.plain.PlainLoginModule required user_a={SECRET} \
             password=\"{SECRET}\"{end}"
        )
    };
    let (good, cut) = (jaas(";"), jaas(""));
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{SECRET}!\n-----END PRIVATE KEY-----\n");
    let listener = |key: &str| format!("listener.name.login.{key}");
    let of_plain = listener("plain.sasl.jaas.config");
    let mut given: Vec<(String, &str)> = vec![
        ("delegation.token.secret.key".to_owned(), SECRET),
        ("sasl.jaas.config".to_owned(), good.as_str()),
        (of_plain.clone(), good.as_str()),
        (of_plain, cut.as_str()),
        (listener("plain.sasl.jaas.config "), good.as_str()),
        (
            "sasl.oauthbearer.client.credentials.client.secret".to_owned(),
            SECRET,
        ),
        (
            "sasl.oauthbearer.assertion.private.key.passphrase".to_owned(),
            SECRET,
        ),
    ];
    for key in [
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.certificates",
    ] {
        given.extend([(key.to_owned(), SECRET), (listener(key), pem.as_str())]);
    }
    for key in [
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
    ] {
        given.push((key.to_owned(), SECRET));
    }
    for (key, value) in given {
        for kind in ["PEM", "PKCS12"] {
            let node = Node::new()
                .setting(
                    "listeners",
                    "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093",
                )
                .setting(
                    "listener.security.protocol.map",
                    "PLAINTEXT:PLAINTEXT,LOGIN:SASL_SSL,CONTROLLER:PLAINTEXT",
                )
                .setting("listener.name.login.sasl.enabled.mechanisms", "PLAIN")
                .setting("ssl.keystore.type", kind)
                .setting(&key, value);
            let findings = node.look().findings;
            // The listener has no certificate that can be used.
            assert!(!findings.is_empty(), "{key}");
            for finding in findings {
                let text = finding.to_string();
                assert!(!text.contains(SECRET), "{key} {kind}: {text}");
            }
        }
    }
}

#[test]
fn dynamic_broker_settings_are_checked() {
    let broker = |resource, key, value| Node::new().records([config_of(4, resource, key, value)]);
    broker(
        "1",
        "listener.name.plaintext.plain.sasl.jaas.config",
        "secret",
    )
    .refuses("plain.sasl.jaas.config=[hidden] would apply to a listener of the properties file");
    for (resource, key, value) in [
        (
            "1",
            "listeners",
            "PLAINTEXT://:1,CONTROLLER://:2,OTHER://:3",
        ),
        ("1", "listener.name.other.plain.sasl.jaas.config", "secret"),
        ("", "listener.name.external.max.connections", "5"),
    ] {
        let look = broker(resource, key, value).look();
        assert!(look.is_possible(), "it is followed: {:#?}", look.findings);
    }
    broker("", "metric.reporters", "org.example.Reporter")
        .refuses("is refused: a metrics reporter");
    broker("", "metric.reporters", "org.example.Reporter")
        .setting("ottla.accept.unserved", "settings")
        .finds(Severity::Warns, "is refused: a metrics reporter");
    broker("", "num.io.threads", "3").finds(Severity::Notes, "num.io.threads=3 has no effect");
    broker("1", "my.setting", "3").finds(Severity::Notes, "my.setting is an unknown setting");
    broker("1", "log.dirs", "/x").finds(Severity::Notes, "is ignored, as Kafka ignores it");
    // A setting of another broker is ignored.
    assert_eq!(broker("2", "listeners", "x").look().refusals().count(), 0);
}

#[test]
fn tiered_topics_without_tiered_storage_are_a_refusal() {
    let shared = Node::new().records(topic("orders", vec![1, 2])).look();
    assert!(shared.is_possible(), "{:#?}", shared.findings);
    Node::new()
        .records([config_of(2, "orders", "remote.storage.enable", "true")])
        .refuses("remote.storage.enable=true needs remote.log.storage.system.enable=true");
    let tiered = Node::new()
        .setting("remote.log.storage.system.enable", "true")
        .setting(
            "remote.log.storage.manager.class.name",
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        )
        .records([config_of(2, "orders", "remote.storage.enable", "true")])
        .look();
    assert!(tiered.is_possible(), "{:#?}", tiered.findings);
}

#[test]
fn other_brokers_are_named() {
    let broker = MetadataRecord::RegisterBroker(RegisterBrokerRecord {
        broker_id: 7,
        ..Default::default()
    });
    Node::new().records([broker]).finds(
        Severity::Notes,
        "1 broker is registered besides this one: 7",
    );
}

#[test]
fn several_voters_are_no_refusal() {
    let voters = "1@localhost:9093,2@localhost:9094,3@localhost:9095";
    let node = Node::new().setting("controller.quorum.voters", voters);
    // Without the snapshot with the voters, the quorum is the configured one.
    let snapshot = "00000000000000000000-0000000000.checkpoint";
    fs::remove_file(node.path().join(METADATA_DIR).join(snapshot)).unwrap();
    let found = node.look();
    assert!(found.is_possible(), "{:#?}", found.findings);
}

#[test]
fn transactional_ids_are_no_refusal() {
    let key = TransactionRecordKey::TransactionLog(TransactionLogKey {
        transactional_id: "payments".into(),
    });
    let value = TransactionRecordValue::TransactionLog(TransactionLogValue {
        transaction_status: 1,
        ..Default::default()
    });
    let records = [(key.encode().unwrap(), Some(value.encode(1).unwrap()))];
    let node = Node::new().coordinator("__transaction_state-0", &records);
    assert_eq!(node.look().refusals().count(), 0);
}

#[test]
fn directories_of_other_nodes_are_refused() {
    Node::new()
        .setting("node.id", "2")
        .refuses("the directory belongs to node 1, but node.id is 2");
    let node = Node::new();
    let second = tempfile::tempdir().unwrap();
    let dirs = format!("{},{}", node.path().display(), second.path().display());
    let node = node.setting("log.dirs", &dirs);
    node.finds(
        Severity::Notes,
        "is not formatted and becomes a directory of this node",
    );
    let mut other = MetaProperties::read(node.path()).unwrap().unwrap();
    other.write(second.path()).unwrap();
    node.refuses("has the same directory.id as");
    other.cluster_id = Some("another".to_owned());
    other.node_id = Some(BrokerId(1));
    other.write(second.path()).unwrap();
    node.refuses("to cluster another");
}

#[test]
fn an_empty_directory_gets_the_format_command() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("not").join("there");
    let properties = single_node_properties(
        &data.display().to_string(),
        "127.0.0.1:9092",
        "127.0.0.1:9093",
    );
    let preflight = Preflight::of(&properties, Unformatted::Refused);
    let said = preflight.refusals().next().unwrap().to_string();
    assert!(said.contains("ottla storage format --standalone"), "{said}");
    // All settings of a single node are overrides.
    let file = format!(" --config '{}' --override ", properties.file_name());
    assert!(said.contains(&file), "{said}");
    assert!(Preflight::of(&properties, Unformatted::Formatted).is_possible());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The refusals of a node with this value of `log.dirs` on the command line, if any.
fn refusals_of_directories(of_file: &Path, overridden: Option<&str>) -> Vec<String> {
    let text = format!(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n\
         listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n\
         controller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={}\n",
        of_file.display()
    );
    let mut properties = Properties::parse(&text, "s.properties").unwrap();
    if let Some(overridden) = overridden {
        properties.set("log.dirs", overridden);
    }
    let preflight = Preflight::of(&properties, Unformatted::Refused);
    preflight.refusals().map(Finding::to_string).collect()
}

#[test]
fn the_format_command_has_the_overridden_directories() {
    let dir = tempfile::tempdir().unwrap();
    let of_file = refusals_of_directories(dir.path(), None);
    assert!(of_file[0].contains("; format it with: "), "{of_file:?}");
    let other = dir.path().join("other").display().to_string();
    let overridden = refusals_of_directories(dir.path(), Some(&other));
    let begin = format!("{other} is not formatted; format it with: ottla storage format ");
    let end = format!(" --config s.properties --override log.dirs={other}");
    assert!(overridden[0].starts_with(&begin), "{overridden:?}");
    assert!(overridden[0].ends_with(&end), "{overridden:?}");
}

/// A person copies it into a shell.
#[test]
fn the_overrides_of_the_format_command_are_words_of_a_shell() {
    let dir = tempfile::tempdir().unwrap();
    let end = |name: &str, hidden: Option<&str>| {
        let mut properties = single_node_properties("data", "127.0.0.1:9092", "127.0.0.1:9093");
        properties.set("log.dirs", &dir.path().join(name).display().to_string());
        if let Some(hidden) = hidden {
            properties.hide("${env:DIR}", hidden);
        }
        let preflight = Preflight::of(&properties, Unformatted::Refused);
        let said = preflight.refusals().next().unwrap().to_string();
        let word = said
            .split(" --override ")
            .find(|it| it.contains("log.dirs="));
        word.expect("the setting")
            .replace(&dir.path().display().to_string(), "DIR")
    };
    assert_eq!(end("a", None), "log.dirs=DIR/a");
    assert_eq!(end("it's", None), r"'log.dirs=DIR/it'\''s'");
    assert_eq!(end("hidden", Some("hidden")), "'log.dirs=DIR/${env:DIR}'");
}

#[test]
fn directories_that_cannot_be_used_are_one_refusal() {
    let dir = tempfile::tempdir().unwrap();
    for (value, begin) in [
        ("", "--override log.dirs: log.dirs=: empty; "),
        ("/proc/x", "/proc/x: cannot be "),
    ] {
        let refused = refusals_of_directories(dir.path(), Some(value));
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].starts_with(begin), "{refused:?}");
    }
}

#[test]
fn the_refusal_of_a_directory_in_use_names_the_process() {
    let node = Node::new();
    let lock = crate::log_dirs::DirLocks::take(
        &BrokerConfig::from_properties(&node.properties).unwrap().0,
    );
    let id = std::process::id();
    node.refuses(&format!(
        "is in use by another Ottla process with id {id}; stop it, or set other log.dirs"
    ));
    drop(lock);
    assert!(node.look().is_possible());
}

#[test]
fn a_path_that_is_too_long_is_one_refusal() {
    let node = Node::new();
    let dirs = format!("{},/tmp/{}", node.path().display(), "x".repeat(300));
    let node = node.setting("log.dirs", &dirs);
    let preflight = node.look();
    let found = preflight.findings.iter();
    let of_directories = found.filter(|it| it.subject == "directories");
    assert_eq!(of_directories.count(), 1, "{:?}", preflight.findings);
    node.refuses("…: the path is too long: it has 305 bytes, and its longest name 300");
}

#[test]
fn damaged_files_of_logs_are_refusals() {
    let node = Node::new();
    let log = node.path().join("orders-0");
    fs::create_dir(&log).unwrap();
    let refusals = || -> Vec<String> {
        let preflight = node.look().with_log_files(&node.properties);
        preflight.refusals().map(Finding::to_string).collect()
    };
    assert_eq!(refusals(), Vec::<String>::new());
    let metadata = log.join("partition.metadata");
    fs::write(&metadata, "version: 0\ntopic_id: short").unwrap();
    let refused = refusals();
    assert_eq!(refused.len(), 1, "{refused:?}");
    let begin = format!("{}: line 2: ", metadata.display());
    assert!(refused[0].starts_with(&begin), "{refused:?}");
    assert!(refused[0].contains("; restore the file, or remove it"));
    // The start reads them itself.
    assert!(node.look().is_possible());
    fs::remove_file(&metadata).unwrap();
    fs::write(log.join("leader-epoch-checkpoint"), "0\n1\nx").unwrap();
    assert!(refusals()[0].contains("leader-epoch-checkpoint"));
    for partition in 1..=8 {
        let log = node.path().join(format!("orders-{partition}"));
        fs::create_dir(&log).unwrap();
        fs::write(log.join("partition.metadata"), "x").unwrap();
    }
    let refused = refusals();
    assert_eq!(refused.len(), 6, "{refused:?}");
    assert!(
        refused[5].contains(": 4 more such files are damaged"),
        "{refused:?}"
    );
}

#[test]
fn an_unclean_stop_is_a_note_with_the_bytes_to_recover() {
    let node = Node::new();
    let log = node.path().join("orders-0");
    fs::create_dir(&log).unwrap();
    for (name, size) in [
        ("00000000000000000000.log", 5_000),
        ("00000000000000000010.log", 3_000),
    ] {
        fs::write(log.join(name), vec![0; size]).unwrap();
    }
    let measured = || node.look().with_log_files(&node.properties);
    assert_eq!(measured().facts.recovery_bytes, 0);
    fs::remove_file(node.path().join(".kafka_cleanshutdown")).unwrap();
    fs::write(
        node.path().join("recovery-point-offset-checkpoint"),
        "0\n1\norders 0 12\n",
    )
    .unwrap();
    let Preflight { facts, findings } = measured();
    let note = "was not stopped cleanly: the start reads about";
    assert!(findings.iter().any(|it| it.to_string().contains(note)));
    assert_eq!(facts.stopped_cleanly, Some(false));
    // The first segment ends before the recovery point; the metadata log is always read completely.
    let metadata_log = node
        .path()
        .join(METADATA_DIR)
        .join("00000000000000000000.log");
    let metadata_bytes = fs::metadata(metadata_log).unwrap().len();
    assert_eq!(facts.recovery_bytes, 3_000 + metadata_bytes);
    assert_eq!(facts.size_bytes, 8_000 + metadata_bytes);
}
