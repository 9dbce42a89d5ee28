//! Quotas from the client's point of view: it gets its response at once, with a throttle time, and
//! its connection is not read for that time.

use std::time::{Duration, Instant};

use ottla_metrics::Metric;
use ottla_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use ottla_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::*;
use ottla_types::ErrorCode;

use super::metrics::{HTTP, get_path, value};
use super::produce_and_fetch::{batch, fetch_from, produce_to};
use super::{Client, TestBroker, creation, topic_id};

/// The clients of these tests are anonymous, with the client ID `test`.
const BY_CLIENT_ID: &[(&str, Option<&str>)] = &[("client-id", Some("test"))];
/// Two windows of one second: a burst of one second's amount passes.
const WINDOWS: [(&str, &str); 2] = [
    ("quota.window.num", "2"),
    ("controller.quota.window.num", "2"),
];

async fn set(client: &mut Client, entity: &[(&str, Option<&str>)], key: &str, limit: f64) {
    let request = AlterClientQuotasRequest {
        entries: vec![EntryData {
            entity: entity
                .iter()
                .map(|(entity_type, name)| EntityData {
                    entity_type: (*entity_type).into(),
                    entity_name: name.map(Into::into),
                    ..Default::default()
                })
                .collect(),
            ops: vec![OpData {
                key: key.into(),
                value: limit,
                remove: limit == 0.0,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let altered = client.ask(1, &request).await;
    assert_eq!(altered.entries[0].error_code, 0, "{altered:?}");
}

/// How long the next request of a client waits for its response.
async fn waits(client: &mut Client) -> Duration {
    let began = Instant::now();
    client.ask(3, &ApiVersionsRequest::default()).await;
    began.elapsed()
}

fn kilobytes(count: usize) -> bytes::Bytes {
    batch(&["x".repeat(count * 1_000).as_str()])
}

#[tokio::test]
async fn a_producer_over_its_quota_is_throttled_and_muted() {
    let broker = TestBroker::start_with(&[HTTP, WINDOWS[0]]).await;
    broker.create_topic("orders", 1, &[]).await;
    let http = broker.running.http_addr().expect("it listens");
    let mut admin = broker.connect().await;
    let mut client = broker.connect().await;
    let request = produce_to("orders", 0, 1, kilobytes(30));
    // Without a quota nothing is measured.
    assert_eq!(client.ask(9, &request).await.throttle_time_ms, 0);
    set(&mut admin, BY_CLIENT_ID, "producer_byte_rate", 5_000.0).await;
    let began = Instant::now();
    let answer = client.ask(9, &request).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    // Six seconds' amount.
    let throttle_ms = answer.throttle_time_ms;
    assert!((5_000..5_100).contains(&throttle_ms), "{throttle_ms}");
    let answered = began.elapsed();
    let text = get_path(http, "/metrics").await.1;
    waits(&mut client).await;
    let paused = began.elapsed();
    assert!(answered < Duration::from_millis(4_900), "{answered:?}");
    assert!(paused >= Duration::from_millis(5_000), "{paused:?}");
    let labels = r#"{user="",client_id="test"}"#;
    let rate = value(&text, &format!("kafka_server_produce_byte_rate{labels}"));
    assert!((5_000.0..31_000.0).contains(&rate), "{rate}");
    let throttled = value(
        &text,
        &format!("kafka_server_produce_throttle_time{labels}"),
    );
    assert_eq!(throttled, f64::from(throttle_ms));
    assert_eq!(value(&text, "ottla_connections_muted"), 1.0);
    // Other clients are not throttled, and this one no longer is.
    set(&mut admin, BY_CLIENT_ID, "producer_byte_rate", 0.0).await;
    assert_eq!(client.ask(9, &request).await.throttle_time_ms, 0);
}

#[tokio::test]
async fn pipelined_requests_are_throttled_too() {
    let broker = TestBroker::start_with(&[WINDOWS[0]]).await;
    broker.create_topic("orders", 1, &[]).await;
    let mut client = broker.connect().await;
    set(&mut client, BY_CLIENT_ID, "producer_byte_rate", 20_000.0).await;
    for acks in [0, 1] {
        let mut client = broker.connect().await;
        let began = Instant::now();
        for _ in 0..4 {
            client
                .send(9, &produce_to("orders", 0, acks, kilobytes(10)))
                .await;
        }
        let correlation_id = client.send(3, &ApiVersionsRequest::default()).await;
        for answer in 1..correlation_id {
            if acks > 0 {
                client.receive::<ProduceRequest>(9, answer).await;
            }
        }
        client
            .receive::<ApiVersionsRequest>(3, correlation_id)
            .await;
        let took = began.elapsed();
        assert!(took > Duration::from_millis(900), "acks={acks}: {took:?}");
        assert!(took < Duration::from_secs(20), "acks={acks}: {took:?}");
    }
}

#[tokio::test]
async fn a_consumer_over_its_quota_gets_no_records_until_the_throttle_ends() {
    let broker = TestBroker::start_with(&[WINDOWS[0]]).await;
    broker.create_topic("orders", 1, &[]).await;
    let mut client = broker.connect().await;
    for _ in 0..8 {
        client
            .ask(9, &produce_to("orders", 0, 1, kilobytes(10)))
            .await;
    }
    set(
        &mut client,
        &[("user", None)],
        "consumer_byte_rate",
        25_000.0,
    )
    .await;
    // At most the burst that the quota permits.
    let first = client.ask(11, &fetch_from("orders", 0, 0)).await;
    assert_eq!(first.throttle_time_ms, 0);
    assert_eq!(records_of(&first), 20_000 / 10_000);
    // A session is created only by a response with partitions.
    let mut of_session = fetch_from("orders", 0, 0);
    of_session.session_epoch = 0;
    let (began, full) = until_throttled(&mut client, &of_session).await;
    assert_eq!((full.error_code, full.session_id), (0, 0));
    assert!(full.responses.is_empty());
    waits(&mut client).await;
    assert!(began.elapsed().as_millis() >= full.throttle_time_ms as u128);
    // The client waits until the windows have passed.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    let full = client.ask(11, &of_session).await;
    assert_ne!(full.session_id, 0);
    assert_eq!(records_of(&full), 2);
    let (mut next, mut epoch) = (of_session, 1);
    next.session_id = full.session_id;
    loop {
        next.session_epoch = epoch;
        let answer = client.ask(11, &next).await;
        assert_eq!((answer.error_code, answer.session_id), (0, full.session_id));
        if answer.throttle_time_ms > 0 {
            assert!(answer.responses.is_empty(), "counted records are not sent");
            break;
        }
        epoch += 1;
    }
    // The session continues after it.
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    next.session_epoch = epoch + 1;
    let answer = client.ask(11, &next).await;
    assert_eq!(answer.error_code, 0);
    assert_eq!(records_of(&answer), 2);
}

/// Sends requests until a response has a throttle time. Returns when that request was sent.
async fn until_throttled(client: &mut Client, request: &FetchRequest) -> (Instant, FetchResponse) {
    loop {
        let began = Instant::now();
        let answer = client.ask(11, request).await;
        if answer.throttle_time_ms > 0 {
            return (began, answer);
        }
    }
}

/// The size of the records in units of 10 kB.
fn records_of(answer: &FetchResponse) -> u64 {
    let records = &answer.responses[0].partitions[0].records;
    records.as_ref().map_or(0, |records| records.len()) / 10_000
}

#[tokio::test]
async fn request_time_has_its_own_quota() {
    let broker = TestBroker::start_with(&[WINDOWS[0]]).await;
    let mut client = broker.connect().await;
    set(&mut client, BY_CLIENT_ID, "request_percentage", 0.0001).await;
    let began = Instant::now();
    let answer = client.ask(9, &MetadataRequest::default()).await;
    // At most one window.
    let throttle_ms = answer.throttle_time_ms;
    assert!((1..=1_000).contains(&throttle_ms), "{throttle_ms}");
    waits(&mut client).await;
    assert!(began.elapsed().as_millis() >= throttle_ms as u128);
}

#[tokio::test]
async fn topic_changes_are_refused_until_tokens_are_available() {
    let broker = TestBroker::start_with(&[WINDOWS[1]]).await;
    let mut client = broker.connect().await;
    set(&mut client, BY_CLIENT_ID, "controller_mutation_rate", 2.0).await;
    // The burst is four, and the last request may exceed it. Creating 20 partitions takes less than the
    // eight seconds after which there are tokens again.
    let created = client.ask(7, &creation("a", 20, 1)).await;
    assert_eq!(
        (created.topics[0].error_code, created.throttle_time_ms),
        (0, 0)
    );
    let exceeded = ErrorCode::ThrottlingQuotaExceeded.code();
    let began = Instant::now();
    let refused = client.ask(7, &creation("b", 1, 1)).await;
    assert_eq!(refused.topics[0].error_code, exceeded);
    let message = refused.topics[0].error_message.as_deref();
    assert_eq!(message, Some("The throttling quota has been exceeded."));
    assert!(
        (1..=8_000).contains(&refused.throttle_time_ms),
        "{refused:?}"
    );
    waits(&mut client).await;
    assert!(began.elapsed().as_millis() >= refused.throttle_time_ms as u128);
    // No longer than necessary.
    let created = client.ask(7, &creation("b", 10, 1)).await;
    assert_eq!(created.topics[0].error_code, 0);
    let more = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: "a".into(),
            count: 21,
            assignments: None,
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let refused = client.ask(3, &more).await;
    assert_eq!(refused.results[0].error_code, exceeded);
    waits(&mut client).await;
    let more = client.ask(2, &more).await;
    assert_eq!(
        more.results[0].error_code, 0,
        "older versions are never refused"
    );
    let deleting = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some("a".into()),
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    let mut older = deleting.clone();
    older.topic_names = vec!["a".into()];
    older.topics.clear();
    let deleted = client.ask(4, &older).await;
    assert_eq!(deleted.responses[0].error_code, 0);
    assert!(deleted.throttle_time_ms > 1_500, "{deleted:?}");
    let mut other = broker.connect().await;
    let refused = other.ask(6, &deleting).await;
    // Rejected as invalid before it is charged.
    assert_eq!(
        refused.responses[0].error_code,
        ErrorCode::UnknownTopicOrPartition.code()
    );
}

#[tokio::test]
async fn an_address_above_its_connection_rate_is_rejected() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    set(
        &mut client,
        &[("ip", Some("127.0.0.1"))],
        "connection_creation_rate",
        1.0,
    )
    .await;
    let mut open = Vec::new();
    // In ten seconds.
    for _ in 0..10 {
        let mut let_in = broker.connect().await;
        let_in.ask(3, &ApiVersionsRequest::default()).await;
        open.push(let_in);
    }
    let began = Instant::now();
    let mut turned_away = broker.connect().await;
    assert!(turned_away.is_closed().await);
    assert!(
        began.elapsed() >= Duration::from_millis(250),
        "{:?}",
        began.elapsed()
    );
    let metrics = &broker.broker().context.metrics;
    assert_eq!(metrics.get(Metric::ConnectionsThrottled), 1);
    // Open connections stay, and other addresses are admitted.
    waits(&mut open[0]).await;
    let address = broker.address(crate::Endpoint::Broker);
    let mut other = Client::connect_from("127.0.0.2".parse().unwrap(), address).await;
    waits(&mut other).await;
}

#[tokio::test]
async fn quotas_are_in_force_again_after_a_start() {
    let broker = TestBroker::start_with(&[WINDOWS[0]]).await;
    let mut client = broker.connect().await;
    set(
        &mut client,
        &[("user", Some("ANONYMOUS"))],
        "producer_byte_rate",
        1_000.0,
    )
    .await;
    client.ask(7, &creation("orders", 1, 1)).await;
    let all = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    let described = client.ask(12, &all).await;
    let broker = broker.restart().await;
    let mut client = broker.connect().await;
    let mut request = produce_to("orders", 0, 1, kilobytes(2));
    request.topic_data[0].topic_id = described.topics[0].topic_id;
    assert_ne!(request.topic_data[0].topic_id, topic_id("orders"));
    let answer = client.ask(9, &request).await;
    assert!(answer.throttle_time_ms > 900, "{answer:?}");
}
