use super::*;
use crate::broker_config::single_node_properties;

fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}

fn broker(pairs: &[(&str, &str)]) -> BrokerConfig {
    let mut properties = single_node_properties("/data", "localhost:9092", "localhost:9093");
    for (key, value) in pairs {
        properties.set(key, value);
    }
    BrokerConfig::from_properties(&properties)
        .expect("accepted")
        .0
}

fn find<'a>(described: &'a [DescribedConfig], name: &str) -> &'a DescribedConfig {
    described
        .iter()
        .find(|config| config.name == name)
        .expect(name)
}

fn chain(config: &DescribedConfig) -> Vec<(&str, &str, ConfigSource)> {
    config
        .synonyms
        .iter()
        .map(|it| {
            (
                it.name.as_str(),
                it.value.as_deref().unwrap_or("-"),
                it.source,
            )
        })
        .collect()
}

#[test]
fn a_topic_without_settings_shows_where_its_values_come_from() {
    let described = describe_topic(&broker(&[("log.segment.bytes", "2097152")]), &settings(&[]));
    let segment = find(&described, "segment.bytes");
    assert_eq!(segment.value.as_deref(), Some("2097152"));
    assert_eq!(
        chain(segment),
        [
            ("log.segment.bytes", "2097152", ConfigSource::StaticBroker),
            ("log.segment.bytes", "1073741824", ConfigSource::Default),
        ]
    );
    let retention = find(&described, "retention.ms");
    assert_eq!(retention.value.as_deref(), Some("604800000"));
    assert_eq!(retention.source, ConfigSource::Default);
    assert!(
        !described
            .iter()
            .any(|config| config.name == "internal.segment.bytes")
    );
}

#[test]
fn a_topic_setting_goes_first() {
    let config = broker(&[])
        .with_dynamic(&settings(&[("log.retention.ms", "5")]), &settings(&[]))
        .0;
    let described = describe_topic(&config, &settings(&[("retention.ms", "7")]));
    assert_eq!(
        chain(find(&described, "retention.ms")),
        [
            ("retention.ms", "7", ConfigSource::Topic),
            ("log.retention.ms", "5", ConfigSource::DynamicDefaultBroker),
            ("log.retention.hours", "168", ConfigSource::Default),
        ]
    );
    assert_eq!(find(&described, "retention.ms").source, ConfigSource::Topic);
}

#[test]
fn a_broker_shows_file_and_dynamic_settings() {
    let config = broker(&[("num.io.threads", "4"), ("my.secret", "x")])
        .with_dynamic(
            &settings(&[("num.io.threads", "6")]),
            &settings(&[("num.io.threads", "8")]),
        )
        .0;
    let described = describe_broker(&config);
    let threads = find(&described, "num.io.threads");
    assert_eq!(threads.value.as_deref(), Some("8"));
    assert!(!threads.is_read_only);
    assert_eq!(
        chain(threads),
        [
            ("num.io.threads", "8", ConfigSource::DynamicBroker),
            ("num.io.threads", "6", ConfigSource::DynamicDefaultBroker),
            ("num.io.threads", "4", ConfigSource::StaticBroker),
            ("num.io.threads", "8", ConfigSource::Default),
        ]
    );
    let documentation = |name: &str| find(&described, name).documentation.as_deref();
    let of_threads = documentation("num.io.threads").expect("a reason");
    assert!(of_threads.contains("Without effect"), "{of_threads}");
    let of_retention = documentation("log.retention.ms").expect("that of topics");
    assert!(
        of_retention.contains("without a retention.ms of their own"),
        "{of_retention}"
    );
    let unknown = find(&described, "my.secret");
    assert!(unknown.is_sensitive && unknown.value.is_none());
    assert!(find(&described, "log.dirs").is_read_only);
    let cluster = describe_cluster_default(&config);
    assert_eq!(cluster.len(), 1);
    assert_eq!(
        chain(&cluster[0]),
        [("num.io.threads", "6", ConfigSource::DynamicDefaultBroker)]
    );
}

#[test]
fn settings_of_new_topics_from_the_file_differ_from_defaults() {
    let config = broker(&[
        ("log.retention.hours", "168"),
        ("log.segment.bytes", "1073741824"),
    ]);
    let source =
        |key: &str| created_topic_config_source(&config, &settings(&[("segment.ms", "5000")]), key);
    // Under any synonym in the file, and with any value.
    assert_eq!(source("retention.ms"), ConfigSource::StaticBroker);
    assert_eq!(source("segment.bytes"), ConfigSource::StaticBroker);
    assert_eq!(source("segment.ms"), ConfigSource::Topic);
    assert_eq!(source("flush.ms"), ConfigSource::Default);
}

#[test]
fn groups_and_client_metrics() {
    let described = describe_group(
        &broker(&[]),
        &settings(&[("consumer.session.timeout.ms", "50000")]),
    );
    let timeout = find(&described, "consumer.session.timeout.ms");
    assert_eq!(
        (timeout.value.as_deref(), timeout.source),
        (Some("50000"), ConfigSource::Group)
    );
    assert_eq!(
        find(&described, "share.auto.offset.reset").value.as_deref(),
        Some("latest")
    );
    assert_eq!(
        find(&described, "streams.assignor.name").value.as_deref(),
        Some("sticky")
    );
    let warmups = |of_broker: &[(&str, &str)], own: &[(&str, &str)]| {
        let described = describe_group(&broker(of_broker), &settings(own));
        let mut found = described
            .iter()
            .filter(|it| it.name == "streams.num.warmup.replicas");
        found.next().and_then(|it| it.value.clone())
    };
    assert_eq!(warmups(&[], &[]), None, "Kafka hides it unless it is set");
    let of_broker = [("group.streams.num.warmup.replicas", "4")];
    assert_eq!(warmups(&of_broker, &[]).as_deref(), Some("4"));
    let own = [("streams.num.warmup.replicas", "1")];
    assert_eq!(warmups(&of_broker, &own).as_deref(), Some("1"));
    let described = describe_client_metrics(&settings(&[("interval.ms", "1000")]));
    assert_eq!(
        find(&described, "interval.ms").source,
        ConfigSource::ClientMetrics
    );
    assert_eq!(find(&described, "match").source, ConfigSource::Default);
}

#[test]
fn every_synonym_is_a_broker_setting() {
    for def in TOPIC_CONFIGS {
        if let Some(name) = broker_synonym_of_topic_config(def.name) {
            for name in broker_config_synonyms(name) {
                assert!(broker_config(name).is_some(), "{name}");
            }
        }
    }
}
