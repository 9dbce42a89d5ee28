use std::collections::BTreeMap;

use super::{
    InvalidRemoteStorage, RemoteLogMetadataConfig, check_remote_storage,
    check_remote_storage_defaults, settings_below,
};
use crate::topic_config::{CleanupPolicy, TopicConfig};

fn resolve(settings: &[(&str, &str)]) -> Result<RemoteLogMetadataConfig, String> {
    let settings = settings_below(settings.iter().copied(), "rlmm.config.");
    RemoteLogMetadataConfig::resolve(&settings).map_err(|error| error.to_string())
}

#[test]
fn the_defaults_of_the_metadata_topic_are_kafkas() {
    let config = resolve(&[]).unwrap();
    let expected = RemoteLogMetadataConfig {
        num_partitions: 50,
        replication_factor: 3,
        min_isr: 2,
        retention_ms: -1,
        consume_wait_ms: 120_000,
        initialization_retry_max_timeout_ms: 120_000,
        initialization_retry_interval_ms: 100,
        producer: BTreeMap::new(),
        consumer: BTreeMap::new(),
        admin: BTreeMap::new(),
    };
    assert_eq!(config, expected);
}

#[test]
fn settings_of_one_client_go_over_the_common_ones() {
    let config = resolve(&[
        ("rlmm.config.remote.log.metadata.topic.num.partitions", "5"),
        (
            "rlmm.config.remote.log.metadata.common.client.security.protocol",
            "SSL",
        ),
        ("rlmm.config.remote.log.metadata.producer.linger.ms", "3"),
        (
            "rlmm.config.remote.log.metadata.admin.security.protocol",
            "PLAINTEXT",
        ),
        ("rsm.config.chunk.size", "4194304"),
    ])
    .unwrap();
    assert_eq!(config.num_partitions, 5);
    let get = |client: &BTreeMap<String, String>, key: &str| client.get(key).cloned();
    assert_eq!(get(&config.producer, "linger.ms").as_deref(), Some("3"));
    assert_eq!(
        get(&config.producer, "security.protocol").as_deref(),
        Some("SSL")
    );
    assert_eq!(
        get(&config.admin, "security.protocol").as_deref(),
        Some("PLAINTEXT")
    );
    assert_eq!(get(&config.consumer, "linger.ms"), None);
}

#[test]
fn values_of_the_metadata_topic_are_refused_as_by_kafka() {
    let refused = |key: &str, value| {
        let key = format!("rlmm.config.remote.log.metadata.{key}");
        resolve(&[(&key, value)]).unwrap_err()
    };
    assert_eq!(
        refused("topic.num.partitions", "0"),
        "Invalid value 0 for configuration remote.log.metadata.topic.num.partitions: Value must \
         be at least 1"
    );
    assert_eq!(
        refused("topic.min.isr", "many"),
        "Invalid value many for configuration remote.log.metadata.topic.min.isr: Not a number of \
         type SHORT"
    );
    assert_eq!(
        refused("topic.retention.ms", "0"),
        "Invalid metadata topic retention in millis: 0"
    );
}

fn tiered() -> TopicConfig {
    TopicConfig {
        remote_storage_enable: true,
        retention_ms: 1000,
        retention_bytes: 500,
        ..TopicConfig::default()
    }
}

#[track_caller]
fn says(config: &TopicConfig, expected: &str) {
    let error = check_remote_storage(config, true, true).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn local_retention_is_within_the_retention_of_the_log() {
    let with = |bytes, ms| TopicConfig {
        local_retention_bytes: bytes,
        local_retention_ms: ms,
        ..tiered()
    };
    for (bytes, ms) in [(-2, -2), (500, 1000), (0, 0)] {
        assert_eq!(check_remote_storage(&with(bytes, ms), true, true), Ok(()));
    }
    says(
        &with(-1, -2),
        "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as \
         retention.bytes value is set as 500.",
    );
    says(
        &with(501, -2),
        "Invalid value 501 for configuration local.retention.bytes: Value must not be more than \
         retention.bytes property value: 500",
    );
    says(
        &with(-2, -1),
        "Invalid value -1 for configuration local.retention.ms: Value must not be -1 as \
         retention.ms value is set as 1000.",
    );
    says(
        &with(-2, 1001),
        "Invalid value 1001 for configuration local.retention.ms: Value must not be more than \
         retention.ms property value: 1000",
    );
    let unlimited = TopicConfig {
        retention_ms: -1,
        retention_bytes: -1,
        ..with(-1, 77)
    };
    assert_eq!(check_remote_storage(&unlimited, true, true), Ok(()));
    assert!(
        check_remote_storage_defaults(&with(501, -2)).is_err(),
        "also of a broker"
    );
}

#[test]
fn a_topic_that_is_not_copied_keeps_all_locally() {
    let with = |bytes, ms| TopicConfig {
        remote_log_copy_disable: true,
        local_retention_bytes: bytes,
        local_retention_ms: ms,
        ..tiered()
    };
    assert_eq!(check_remote_storage(&with(-2, -2), true, true), Ok(()));
    assert_eq!(check_remote_storage(&with(500, 1000), true, true), Ok(()));
    says(
        &with(400, -2),
        "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and \
         `retention.bytes` must be set to the identical value because there will be no more logs \
         copied to the remote storage.",
    );
    says(
        &with(-2, 900),
        "When `remote.log.copy.disable` is set to true, the `local.retention.ms` and \
         `retention.ms` must be set to the identical value because there will be no more logs \
         copied to the remote storage.",
    );
}

#[test]
fn only_logs_that_delete_are_tiered() {
    let compacted = TopicConfig {
        cleanup_policy: CleanupPolicy::COMPACT,
        ..tiered()
    };
    says(
        &compacted,
        "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy \
         being an empty list.",
    );
    assert_eq!(
        check_remote_storage(&tiered(), false, false),
        Err(InvalidRemoteStorage::SystemDisabled)
    );
    assert_eq!(
        InvalidRemoteStorage::SystemDisabledWithTopics.to_string(),
        "You have to delete all topics with the property remote.storage.enable=true before \
         disabling tiered storage cluster-wide"
    );
}

#[test]
fn tiering_ends_only_with_its_data() {
    let off = TopicConfig::default();
    assert_eq!(check_remote_storage(&off, false, false), Ok(()));
    let error = check_remote_storage(&off, true, true).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "It is invalid to disable remote storage without deleting remote data. If you want to \
             keep"
        ),
        "{error}"
    );
    let deleting = TopicConfig {
        remote_log_delete_on_disable: true,
        ..off
    };
    assert_eq!(check_remote_storage(&deleting, true, true), Ok(()));
}

#[test]
fn no_segment_may_expire_locally_before_it_may_be_copied() {
    let with = |lag_bytes, lag_ms| TopicConfig {
        retention_bytes: 1000,
        retention_ms: 1000,
        local_retention_bytes: -2,
        local_retention_ms: 500,
        remote_copy_lag_bytes: lag_bytes,
        remote_copy_lag_ms: lag_ms,
        ..tiered()
    };
    for (lag_bytes, lag_ms) in [(-1, 0), (0, -1), (1000, 500)] {
        let checked = check_remote_storage(&with(lag_bytes, lag_ms), true, true);
        assert_eq!(checked, Ok(()));
    }
    says(
        &with(-1, 501),
        "Invalid value 501 for configuration remote.copy.lag.ms: Value must not exceed \
         local.retention.ms (effective value: 500)",
    );
    says(
        &with(1001, 0),
        "Invalid value 1001 for configuration remote.copy.lag.bytes: Value must not exceed \
         local.retention.bytes (effective value: 1000)",
    );
}
