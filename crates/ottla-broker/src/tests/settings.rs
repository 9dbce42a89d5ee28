//! Settings that are changed at runtime: they take effect at once, and at the next start from the
//! first log that is opened.

use std::path::Path;
use std::time::Duration;

use ottla_config::{BrokerConfig, single_node_properties};
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::{ApiVersionsRequest, IncrementalAlterConfigsRequest};
use ottla_types::ErrorCode;
use tokio::io::AsyncWriteExt;

use super::client::{Client, frame};
use super::creation_with;
use super::produce_and_fetch::{batch, produce_to};
use crate::{Broker, RunningBroker};

const SET: i8 = 0;
const DELETE: i8 = 1;
const BROKER: i8 = 4;

async fn start(data: &Path) -> (RunningBroker, Client) {
    let data = data.display().to_string();
    let properties = single_node_properties(&data, "127.0.0.1:0", "127.0.0.1:0");
    let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
    let running = Broker::format_and_start(config)
        .await
        .expect("the broker starts");
    let client = Client::connect(running.listeners()[0].local_addr).await;
    (running, client)
}

async fn create(
    client: &mut Client,
    name: &'static str,
    settings: &[(&'static str, &'static str)],
) {
    let request = creation_with(name, 1, 1, settings);
    let response = client.ask(7, &request).await;
    assert_eq!(response.topics[0].error_code, 0, "{response:?}");
}

/// Changes one setting of the broker, or of all brokers if `broker` is empty.
async fn alter(
    client: &mut Client,
    broker: &'static str,
    key: &'static str,
    value: Option<&'static str>,
) -> (ErrorCode, String) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: BROKER,
            resource_name: broker.into(),
            configs: vec![AlterableConfig {
                name: key.into(),
                config_operation: if value.is_some() { SET } else { DELETE },
                value: value.map(Into::into),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.ask(1, &request).await.responses.remove(0);
    let message = response.error_message.unwrap_or_default().to_string();
    (ErrorCode::from_code(response.error_code), message)
}

const DONE: ErrorCode = ErrorCode::None;

async fn produce(client: &mut Client, topic: &'static str, bytes: usize) -> ErrorCode {
    let records = batch(&[&"x".repeat(bytes)]);
    let response = client.ask(9, &produce_to(topic, 0, -1, records)).await;
    ErrorCode::from_code(response.responses[0].partition_responses[0].error_code)
}

fn index_bytes(data: &Path, partition: &str) -> u64 {
    let index = data.join(partition).join("00000000000000000000.index");
    std::fs::metadata(index).expect("the index").len()
}

/// Leaves a directory in the state after a crash that tore the indexes.
fn tear_indexes(data: &Path, partitions: &[&str]) {
    std::fs::remove_file(data.join(".kafka_cleanshutdown")).expect("it was stopped cleanly");
    for partition in partitions {
        let index = data.join(partition).join("00000000000000000000.index");
        std::fs::remove_file(index).expect("the index");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_log_is_opened_with_the_settings_of_its_topic_and_of_the_cluster() {
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = start(data.path()).await;
    create(&mut client, "dense", &[("index.interval.bytes", "1")]).await;
    create(&mut client, "plain", &[]).await;
    for topic in ["dense", "plain"] {
        for _ in 0..5 {
            assert_eq!(produce(&mut client, topic, 10).await, ErrorCode::None);
        }
    }
    running.stop().await;
    let partitions = ["dense-0", "plain-0"];
    tear_indexes(data.path(), &partitions);

    // A rebuilt index has an entry for every batch except the first, or none, depending on the
    // setting with which the log was opened.
    let (running, mut client) = start(data.path()).await;
    assert_eq!(
        alter(&mut client, "", "log.index.interval.bytes", Some("1")).await,
        (DONE, String::new())
    );
    running.stop().await;
    assert_eq!(
        index_bytes(data.path(), "dense-0"),
        4 * 8,
        "by its topic's setting"
    );
    assert_eq!(index_bytes(data.path(), "plain-0"), 0, "by the default");

    tear_indexes(data.path(), &partitions);
    let (running, _) = start(data.path()).await;
    running.stop().await;
    assert_eq!(
        index_bytes(data.path(), "plain-0"),
        4 * 8,
        "by the cluster's setting"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_of_the_broker_goes_before_the_clusters_and_both_hold_at_once_and_after_a_start()
{
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = start(data.path()).await;
    create(&mut client, "orders", &[]).await;
    assert_eq!(produce(&mut client, "orders", 1_000).await, ErrorCode::None);
    let key = "message.max.bytes";
    alter(&mut client, "", key, Some("500")).await;
    assert_eq!(
        produce(&mut client, "orders", 1_000).await,
        ErrorCode::MessageTooLarge
    );
    alter(&mut client, "1", key, Some("5000")).await;
    assert_eq!(produce(&mut client, "orders", 1_000).await, ErrorCode::None);
    alter(&mut client, "1", key, None).await;
    assert_eq!(
        produce(&mut client, "orders", 1_000).await,
        ErrorCode::MessageTooLarge
    );
    running.stop().await;

    let (running, mut client) = start(data.path()).await;
    assert_eq!(
        produce(&mut client, "orders", 1_000).await,
        ErrorCode::MessageTooLarge
    );
    alter(&mut client, "", key, None).await;
    assert_eq!(produce(&mut client, "orders", 1_000).await, ErrorCode::None);
    running.stop().await;
}

/// Whether a connection is answered, instead of being closed or held back.
async fn is_let_in(running: &RunningBroker) -> bool {
    let mut client = Client::connect(running.listeners()[0].local_addr).await;
    let request = frame(0, &ApiVersionsRequest::default(), 1);
    // It may be closed before this is written.
    let _ = client.stream.write_all(&request).await;
    let answer = tokio::time::timeout(Duration::from_millis(500), client.receive_frame()).await;
    matches!(answer, Ok(Some(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_limits_change_at_runtime_and_survive_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = start(data.path()).await;
    for (key, closed, open) in [
        ("max.connections.per.ip", "1", "9"),
        (
            "max.connections.per.ip.overrides",
            "localhost:1",
            "127.0.0.1:9",
        ),
        ("max.connections", "1", "9"),
        ("listener.name.plaintext.max.connections", "1", "9"),
    ] {
        for (value, expected) in [(closed, false), (open, true)] {
            assert_eq!(
                alter(&mut client, "", key, Some(value)).await.0,
                DONE,
                "{key}"
            );
            // A name is resolved, and an earlier connection ends, after the response.
            let mut found = is_let_in(&running).await;
            for _ in 0..60 {
                if found == expected {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                found = is_let_in(&running).await;
            }
            assert_eq!(found, expected, "{key}={value}");
        }
    }
    alter(
        &mut client,
        "",
        "max.connections.per.ip.overrides",
        Some("127.0.0.1:1"),
    )
    .await;
    running.stop().await;
    let (running, _client) = start(data.path()).await;
    assert!(!is_let_in(&running).await);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_kafka_refuses_are_not_stored() {
    let data = tempfile::tempdir().unwrap();
    let (running, mut client) = start(data.path()).await;
    let defaults_before = running.broker().config().dynamic_default_settings().len();
    for (broker, key, value, says) in [
        (
            "",
            "num.io.threads",
            "100",
            "should not be greater than double",
        ),
        ("1", "ssl.keystore.type", "PEM", "only per-listener"),
        (
            "",
            "log.cleaner.max.compaction.lag.ms",
            "0",
            "Value must be at least 1",
        ),
        (
            "1",
            "listeners",
            "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:0",
            "the address of an existing listener cannot be changed",
        ),
        (
            "1",
            "listener.name.plaintext.ssl.client.auth",
            "required",
            "for existing listener ListenerName(PLAINTEXT), restart broker or create a new listener",
        ),
    ] {
        let (code, message) = alter(&mut client, broker, key, Some(value)).await;
        assert_eq!(code, ErrorCode::InvalidRequest, "{key}");
        assert!(message.contains(says), "{key}: {message}");
    }
    assert_eq!(
        running.broker().config().dynamic_default_settings().len(),
        defaults_before
    );
    assert_eq!(running.broker().config().dynamic_settings().len(), 0);
    running.stop().await;
}
