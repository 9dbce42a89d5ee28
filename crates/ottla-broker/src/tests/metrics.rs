//! The output of the HTTP listener and the reporter.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::ApiKey;
use ottla_protocol::messages::{
    ApiVersionsRequest, GetTelemetrySubscriptionsRequest, PushTelemetryRequest,
};
use ottla_protocol::metadata_records::{ConfigRecord, MetadataRecord};
use ottla_types::ErrorCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::TestBroker;
use super::groups::{coordinating_broker, joining};
use super::produce_and_fetch::{batch, fetch_from, produce_to};

pub(super) const HTTP: (&str, &str) = ("ottla.http.listener", "127.0.0.1:0");

/// The status and the body of a response.
pub(super) async fn get_path(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

/// The value of the sample with exactly these labels.
pub(super) fn value(text: &str, metric: &str) -> f64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(metric));
    let rest = rest.map(|rest| rest.strip_prefix("{}").unwrap_or(rest));
    let value = rest.and_then(|rest| rest.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("{metric} is missing in\n{text}"));
    value.parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn client_activity_is_counted_under_the_names_of_kafka() {
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
    // A request is counted when its response was sent, which is before the next request of the
    // connection is answered.
    client.ask(0, &ApiVersionsRequest::default()).await;

    let latencies = broker.running.broker().request_latencies();
    let timed: Vec<ApiKey> = latencies.iter().map(|it| it.api_key).collect();
    assert_eq!(timed, [ApiKey::Produce, ApiKey::Fetch]);
    assert!(latencies.iter().all(|it| it.p50_ms <= it.p99_ms));
    let activity = broker.running.broker().request_activity();
    let produced = activity.iter().find(|it| it.api_key == ApiKey::Produce);
    let produced = produced.expect("requests of Produce");
    assert!(produced.count > 1 && produced.p50_ms <= produced.p99_ms);
    assert!(produced.own_p99_ms <= produced.p99_ms, "{produced:?}");
    let open = broker.running.broker().open_connections();
    assert!(open["PLAINTEXT"] >= 1, "{open:?}");

    let http = broker.running.http_addr().expect("it listens");
    let (status, text) = get_path(http, "/metrics").await;
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"));
    let uncleanable = format!(
        "kafka_log_logcleanermanager_uncleanable_partitions_count{{logDirectory=\"{}\"}}",
        broker.data.path().display()
    );
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
            "kafka_network_requestmetrics_errors_total{request=\"Produce\",error=\"NONE\"}",
            2.0,
        ),
        (
            "kafka_network_requestmetrics_errors_total{request=\"Produce\",error=\"CORRUPT_MESSAGE\"}",
            1.0,
        ),
        (
            "kafka_network_requestmetrics_errors_total{request=\"Produce\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"}",
            1.0,
        ),
        (
            "kafka_network_requestmetrics_errors_total{request=\"Fetch\",error=\"NONE\"}",
            2.0,
        ),
        (
            "kafka_network_requestmetrics_totaltimems_count{request=\"Fetch\"}",
            1.0,
        ),
        (
            "kafka_network_requestmetrics_totaltimems_count{request=\"FetchConsumer\"}",
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
        (&uncleanable, 0.0),
        (
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            0.0,
        ),
    ] {
        assert_eq!(value(&text, metric), expected, "{metric}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboards_find_the_types_and_labels_of_kafka() {
    let broker = TestBroker::start_with(&[HTTP]).await;
    broker.create_topic("orders", 1, &[]).await;
    let mut client = broker.connect().await;
    let request = produce_to("orders", 0, 1, batch(&["a"]));
    client.ask(9, &request).await;
    client.ask(12, &fetch_from("orders", 0, 0)).await;
    let http = broker.running.http_addr().expect("it listens");
    // The idle ratio is known from the second sample on; the first is taken at the end of a minute.
    for _ in 0..2 {
        broker.broker().context.metrics.worker_idle.look();
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let text = get_path(http, "/metrics").await.1;
    let mut given = 0;
    for line in include_str!("dashboard_metrics.txt").lines() {
        if line.starts_with('#') {
            continue;
        }
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a word");
        let (is_given, name, kind, labels) = (word() == "given", word(), word(), word());
        let family = name.strip_suffix("_total").unwrap_or(name);
        let found = text.contains(&format!("# TYPE {family} {kind}\n"));
        let with_labels = text.lines().any(|line| {
            let rest = line.strip_prefix(name).unwrap_or("-");
            let keys = match rest.strip_prefix('{') {
                Some(rest) => label_keys(rest),
                None if rest.starts_with(' ') => String::new(),
                None => return false,
            };
            keys == labels.trim_matches('-')
        });
        assert_eq!((found, with_labels), (is_given, is_given), "{line}");
        given += usize::from(is_given);
    }
    assert!(given > 20, "{given}");
}

/// The keys of a sample's labels in alphabetical order.
fn label_keys(labels: &str) -> String {
    let (labels, _) = labels.rsplit_once('}').expect("an end of the labels");
    let pieces = labels
        .split("=\"")
        .filter_map(|piece| piece.rsplit(['{', ',', '"']).next());
    let mut keys: Vec<&str> = pieces.filter(|key| !key.is_empty()).collect();
    keys.sort_unstable();
    keys.join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_acks_0_producers_are_counted() {
    let broker = TestBroker::start_with(&[HTTP]).await;
    let mut client = broker.connect().await;
    let request = produce_to("nowhere", 0, 0, batch(&["a"]));
    client.send(9, &request).await;
    assert!(client.is_closed().await);
    let http = broker.running.http_addr().expect("it listens");
    let text = get_path(http, "/metrics").await.1;
    let metric = "kafka_network_requestmetrics_errors_total{request=\"Produce\",error=\"UNKNOWN_TOPIC_OR_PARTITION\"}";
    assert_eq!(value(&text, metric), 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn flushes_are_timed() {
    const COUNT: &str = "kafka_log_logflushstats_logflushrateandtimems_count";
    let broker = TestBroker::start_with(&[HTTP]).await;
    let http = broker.running.http_addr().expect("it listens");
    broker
        .create_topic("orders", 1, &[("flush.messages", "1")])
        .await;
    let mut client = broker.connect().await;
    let before = value(&get_path(http, "/metrics").await.1, COUNT);
    for _ in 0..3 {
        let request = produce_to("orders", 0, 1, batch(&["a"]));
        client.ask(9, &request).await;
    }
    // Brokers of other tests in this process may contribute.
    let after = value(&get_path(http, "/metrics").await.1, COUNT);
    assert!(after >= before + 3.0, "{before} and then {after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_readiness_follow_the_broker() {
    let broker = TestBroker::start_with(&[HTTP]).await;
    let http = broker.running.http_addr().expect("it listens");
    assert_eq!(get_path(http, "/readyz").await.0, 200);
    assert_eq!(get_path(http, "/healthz").await.0, 200);
    broker
        .broker()
        .context
        .set_state(crate::BrokerState::Recovery);
    let (status, body) = get_path(http, "/readyz").await;
    assert_eq!(status, 503);
    assert!(body.contains("opening its logs"), "{body}");
    broker.broker().context.fail("the disk is gone".to_owned());
    let (status, body) = get_path(http, "/healthz").await;
    assert_eq!(status, 503);
    assert!(body.contains("the disk is gone"), "{body}");
    assert_eq!(get_path(http, "/elsewhere").await.0, 404);
}

/// `MetricsData` with one gauge `a.b` of 2.5 without labels, by hand.
const ONE_GAUGE: &[u8] = &[
    0x0a, 0x18, 0x12, 0x16, 0x12, 0x14, 0x0a, 3, b'a', b'.', b'b', 0x2a, 0x0d, 0x0a, 0x0b, 0x21, 0,
    0, 0, 0, 0, 0, 4, 0x40, 0x3a, 0,
];

#[tokio::test(flavor = "multi_thread")]
async fn clients_push_the_subscribed_metrics() {
    let broker = TestBroker::start_with(&[HTTP]).await;
    broker
        .write(vec![MetadataRecord::Config(ConfigRecord {
            resource_type: 16,
            resource_name: "all".into(),
            name: "metrics".into(),
            value: Some("a.".into()),
            ..Default::default()
        })])
        .await;
    let mut client = broker.connect().await;
    let get = GetTelemetrySubscriptionsRequest::default();
    let asked = client.ask(0, &get).await;
    assert_eq!(asked.error_code, 0);
    assert_eq!(asked.requested_metrics, ["a."]);
    assert!(!asked.client_instance_id.is_zero());
    let push = |subscription_id, metrics: &[u8]| PushTelemetryRequest {
        client_instance_id: asked.client_instance_id,
        subscription_id,
        metrics: Bytes::copy_from_slice(metrics),
        ..Default::default()
    };
    let pushed = client.ask(0, &push(asked.subscription_id, ONE_GAUGE)).await;
    assert_eq!(pushed.error_code, 0);
    let again = client.ask(0, &push(asked.subscription_id, ONE_GAUGE)).await;
    assert_eq!(again.error_code, ErrorCode::ThrottlingQuotaExceeded.code());
    let http = broker.running.http_addr().expect("it listens");
    let (_, text) = get_path(http, "/metrics").await;
    let metric = format!(
        "client_a_b{{client_id=\"test\",client_instance_id=\"{}\"}}",
        asked.client_instance_id
    );
    assert_eq!(value(&text, &metric), 2.5);

    let zero = PushTelemetryRequest::default();
    let refused = client.ask(0, &zero).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidRequest.code());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_consumer_no_client_is_asked_for_metrics() {
    let advertises = async |settings: &[(&str, &str)]| {
        let broker = TestBroker::start_with(settings).await;
        let mut client = broker.connect().await;
        let request = ApiVersionsRequest {
            client_software_name: "a".into(),
            client_software_version: "1".into(),
            ..Default::default()
        };
        let answer = client.ask(4, &request).await;
        let code = ApiKey::PushTelemetry.code();
        answer.api_keys.iter().any(|api| api.api_key == code)
    };
    assert!(advertises(&[HTTP]).await);
    assert!(!advertises(&[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reporter_writes_periodically() {
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
    for _ in 0..1_000 {
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

#[tokio::test(flavor = "multi_thread")]
async fn the_wait_of_a_member_for_others_is_no_work_of_the_broker() {
    let broker = coordinating_broker(&[("group.initial.rebalance.delay.ms", "3000")]).await;
    let mut client = broker.connect().await;
    let required = client.ask(9, &joining(&ByteString::new())).await;
    let joined = client.ask(9, &joining(&required.member_id)).await;
    assert_eq!(joined.error_code, 0);
    // Counted before the next request of the connection is answered.
    client.ask(0, &ApiVersionsRequest::default()).await;
    let activity = broker.broker().request_activity();
    let joins = activity.iter().find(|it| it.api_key == ApiKey::JoinGroup);
    let joins = joins.expect("requests of JoinGroup");
    assert!(
        joins.p99_ms > 2_700.0 && joins.own_p99_ms < 2_000.0,
        "{joins:?}"
    );
    for slow in broker.broker().slow_requests() {
        let own = slow.local + slow.response_send;
        let is_slow = slow.api_key != ApiKey::JoinGroup || own >= Duration::from_millis(10);
        assert!(is_slow, "{slow:?}");
    }
}
