//! What the HTTP listener and the reporter tell.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::TestBroker;
use super::produce_and_fetch::{batch, fetch_from, produce_to};

const HTTP: (&str, &str) = ("ottla.http.listener", "127.0.0.1:0");

/// The status and the body of what a path answers.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

/// The value of a metric that stands in the text with just these labels.
fn value(text: &str, metric: &str) -> f64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(metric));
    let rest = rest.map(|rest| rest.strip_prefix("{}").unwrap_or(rest));
    let value = rest.and_then(|rest| rest.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("{metric} is missing in\n{text}"));
    value.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_do_is_counted_under_the_names_of_kafka() {
    let broker = TestBroker::start_with(&[HTTP]).await;
    broker.create_topic("orders", 2, &[]).await;
    let mut client = broker.connect().await;
    let records = batch(&["a", "b", "c"]);
    let bytes = records.len() as f64;
    for _ in 0..2 {
        let request = produce_to("orders", 1, 1, records.clone());
        let answer = client.ask(9, &request).await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    let mut corrupt = records.to_vec();
    let last = corrupt.len() - 1;
    corrupt[last] ^= 1;
    client
        .ask(9, &produce_to("orders", 0, 1, corrupt.into()))
        .await;
    client
        .ask(9, &produce_to("nowhere", 0, 1, records.clone()))
        .await;
    client.ask(12, &fetch_from("orders", 1, 0)).await;

    let http = broker.running.http_addr().expect("it listens");
    let (status, text) = get(http, "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"));
    for (metric, expected) in [
        ("kafka_server_brokertopicmetrics_messagesin_total", 6.0),
        (
            "kafka_server_brokertopicmetrics_messagesin_total{topic=\"orders\"}",
            6.0,
        ),
        (
            "kafka_server_brokertopicmetrics_bytesin_total{topic=\"orders\"}",
            2.0 * bytes,
        ),
        (
            "kafka_server_brokertopicmetrics_bytesout_total{topic=\"orders\"}",
            2.0 * bytes,
        ),
        (
            "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total",
            1.0,
        ),
        (
            "kafka_server_brokertopicmetrics_failedproducerequests_total",
            2.0,
        ),
        (
            "kafka_server_brokertopicmetrics_failedproducerequests_total{topic=\"orders\"}",
            1.0,
        ),
        (
            "kafka_network_requestmetrics_requests_total{request=\"Produce\",version=\"9\"}",
            4.0,
        ),
        (
            "kafka_network_requestmetrics_totaltimems_count{request=\"Fetch\"}",
            1.0,
        ),
        ("kafka_server_replicamanager_leadercount", 2.0),
        ("kafka_server_replicamanager_partitioncount", 2.0),
        ("kafka_server_replicamanager_underreplicatedpartitions", 0.0),
        ("kafka_controller_kafkacontroller_globaltopiccount", 1.0),
        (
            "kafka_log_log_logendoffset{topic=\"orders\",partition=\"1\"}",
            6.0,
        ),
        (
            "kafka_log_log_size{topic=\"orders\",partition=\"1\"}",
            2.0 * bytes,
        ),
        (
            "kafka_server_socket_server_metrics_connection_count{listener=\"PLAINTEXT\",networkProcessor=\"0\"}",
            1.0,
        ),
        (
            "kafka_controller_kafkacontroller_activecontrollercount",
            1.0,
        ),
        ("kafka_server_kafkaserver_brokerstate", 3.0),
        (
            "kafka_server_raft_metrics_current_state_info{state=\"leader\"}",
            1.0,
        ),
        ("kafka_log_logmanager_offlinelogdirectorycount", 0.0),
        (
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            0.0,
        ),
    ] {
        assert_eq!(value(&text, metric), expected, "{metric}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_readiness_follow_the_broker() {
    let broker = TestBroker::start_with(&[HTTP]).await;
    let http = broker.running.http_addr().expect("it listens");
    assert_eq!(get(http, "/readyz").await.0, 200);
    assert_eq!(get(http, "/healthz").await.0, 200);
    broker.broker().set_state(crate::BrokerState::Recovery);
    let (status, body) = get(http, "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains("opening its logs"), "{body}");
    broker.broker().fail("the disk is gone".to_owned());
    let (status, body) = get(http, "/healthz").await;
    assert_eq!(status, 503);
    assert!(body.contains("the disk is gone"), "{body}");
    assert_eq!(get(http, "/elsewhere").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reporter_writes_again_and_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_str().expect("a path of characters");
    let broker = TestBroker::start_with(&[
        ("ottla.metrics.reporter.dir", path),
        ("ottla.metrics.reporter.interval.ms", "100"),
    ])
    .await;
    let file = dir
        .path()
        .join("kafka_controller_kafkacontroller_activecontrollercount.csv");
    let lines = || std::fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    for _ in 0..100 {
        if lines() > 3 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = lines();
    assert!(before > 3, "only {before} lines");
    broker.running.stop().await;
    assert!(lines() > before, "the last values are written at the stop");
}
