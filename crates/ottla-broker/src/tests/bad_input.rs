//! Malformed bytes, requests that ask for too much, and too many connections.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_protocol::ApiKey;
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::{ApiVersionsRequest, FetchRequest};
use ottla_types::ErrorCode;
use tokio::io::AsyncWriteExt;

use super::TestBroker;
use super::client::{Client, frame};
use super::directories::until;
use super::produce_and_fetch::{api_versions, batch, fetch_from, produce_to};
use crate::Endpoint;
use ottla_metrics::Metric;

/// Checks that the broker still serves other clients.
async fn serves(broker: &TestBroker) {
    let response = broker.connect().await.ask(3, &api_versions()).await;
    assert_eq!(response.error_code, 0);
}

#[tokio::test]
async fn malformed_requests_close_the_connection_and_are_counted() {
    let broker = TestBroker::start().await;
    let good = frame(3, &api_versions(), 1);
    let mut too_short = good[4..].to_vec();
    too_short.truncate(20);
    let with_length = |body: &[u8]| [&(body.len() as u32).to_be_bytes()[..], body].concat();
    let cases: [(&str, Vec<u8>); 6] = [
        ("a negative length", vec![0xff, 0xff, 0xff, 0xff]),
        (
            "a length above socket.request.max.bytes",
            vec![0x7f, 0, 0, 0],
        ),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        (
            "an unknown API",
            with_length(&[3, 200, 0, 0, 0, 0, 0, 1, 0xff, 0xff]),
        ),
        ("an empty request", with_length(&[])),
        ("a request cut short", with_length(&too_short)),
    ];
    for (count, (what, bytes)) in cases.into_iter().enumerate() {
        let mut client = broker.connect().await;
        client.stream.write_all(&bytes).await.unwrap();
        let closed = tokio::time::timeout(Duration::from_secs(60), client.is_closed());
        assert_eq!(closed.await, Ok(true), "{what}");
        let counted = broker
            .broker()
            .context
            .metrics
            .get(Metric::MalformedRequests);
        assert_eq!(counted, count as u64 + 1, "{what}");
    }
    serves(&broker).await;
}

/// librdkafka sends a Metadata request for all topics with three bytes too many, and Kafka ignores
/// them.
#[tokio::test]
async fn bytes_after_a_request_are_ignored() {
    let broker = TestBroker::start().await;
    let good = frame(3, &api_versions(), 1);
    let mut longer = ((good.len() - 4 + 3) as u32).to_be_bytes().to_vec();
    longer.extend_from_slice(&good[4..]);
    longer.extend_from_slice(&[1, 0, 0]);
    let mut client = broker.connect().await;
    client.stream.write_all(&longer).await.unwrap();
    let response = client.receive::<ApiVersionsRequest>(3, 1).await;
    assert_eq!(response.error_code, 0);
    serves(&broker).await;
}

#[tokio::test]
async fn an_unsupported_api_or_version_closes_the_connection() {
    let broker = TestBroker::start().await;
    let mut fetch_of_the_past = frame(4, &fetch_from("orders", 0, 0), 1).to_vec();
    fetch_of_the_past[7] = 3;
    let mut produce_of_the_future =
        frame(13, &produce_to("orders", 0, 1, batch(&["x"])), 1).to_vec();
    produce_of_the_future[7] = 14;
    for bytes in [fetch_of_the_past, produce_of_the_future] {
        let mut client = broker.connect().await;
        client.stream.write_all(&bytes).await.unwrap();
        assert!(client.is_closed().await);
    }
    serves(&broker).await;
}

#[tokio::test]
async fn a_newer_client_receives_the_supported_versions() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let mut bytes = frame(4, &api_versions(), 1).to_vec();
    bytes[7] = 99;
    client.stream.write_all(&bytes).await.unwrap();
    let response = client.receive::<ApiVersionsRequest>(0, 1).await;
    assert_eq!(response.error_code, ErrorCode::UnsupportedVersion.code());
    assert_eq!(response.api_keys.len(), 1);
    assert_eq!(
        (
            response.api_keys[0].api_key,
            response.api_keys[0].max_version
        ),
        (18, 5)
    );
    // The connection continues in a version that both support.
    assert_eq!(client.ask(4, &api_versions()).await.error_code, 0);
}

#[tokio::test]
async fn a_bad_software_name_is_an_invalid_request() {
    let broker = TestBroker::start().await;
    let mut client = broker.connect().await;
    let mut request = api_versions();
    request.client_software_name = "no good".into();
    let response = client.ask(3, &request).await;
    assert_eq!(response.error_code, ErrorCode::InvalidRequest.code());
}

#[tokio::test]
async fn requests_above_the_size_limit_are_refused() {
    let broker = TestBroker::start_with(&[("socket.request.max.bytes", "1000")]).await;
    broker.create_topic("orders", 1, &[]).await;
    let overhead = frame(9, &produce_to("orders", 0, 1, batch(&[""])), 1).len() - 4;
    let mut client = broker.connect().await;
    let fits = produce_to("orders", 0, 1, batch(&[&"x".repeat(1000 - overhead - 10)]));
    let response = client.ask(9, &fits).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    let too_large = produce_to("orders", 0, 1, batch(&[&"x".repeat(1000)]));
    client.send(9, &too_large).await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn connections_per_address_are_limited() {
    let broker = TestBroker::start_with(&[("max.connections.per.ip", "2")]).await;
    let mut first = broker.connect().await;
    first.ask(3, &api_versions()).await;
    let mut second = broker.connect().await;
    second.ask(3, &api_versions()).await;
    let mut third = broker.connect().await;
    assert!(third.is_closed().await);
    assert_eq!(
        broker
            .broker()
            .context
            .metrics
            .get(Metric::ConnectionsRefused),
        1
    );
    drop(second);
    while broker.broker().network.connections.count() > 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    serves(&broker).await;
}

#[tokio::test]
async fn connections_beyond_max_connections_wait() {
    let broker = TestBroker::start_with(&[("max.connections", "1")]).await;
    let mut first = broker.connect().await;
    first.ask(3, &api_versions()).await;
    let mut second = broker.connect().await;
    second.send(3, &api_versions()).await;
    let early = tokio::time::timeout(Duration::from_millis(100), second.receive_frame());
    assert!(early.await.is_err(), "it is not served yet");
    drop(first);
    second.receive::<ApiVersionsRequest>(3, 1).await;
}

#[tokio::test]
async fn a_listener_may_have_its_own_limit() {
    let broker = TestBroker::start_with(&[("listener.name.plaintext.max.connections", "1")]).await;
    let mut first = broker.connect().await;
    first.ask(3, &api_versions()).await;
    let mut second = broker.connect().await;
    second.send(3, &api_versions()).await;
    let early = tokio::time::timeout(Duration::from_millis(100), second.receive_frame());
    assert!(early.await.is_err(), "it is not served yet");
    // The controller listener has room.
    let mut other = Client::connect(broker.address(Endpoint::Controller)).await;
    other.ask(3, &api_versions()).await;
    drop(first);
    second.receive::<ApiVersionsRequest>(3, 1).await;
}

#[tokio::test]
async fn connections_above_the_creation_rate_are_accepted_later() {
    let broker = TestBroker::start_with(&[("max.connection.creation.rate", "1")]).await;
    // A rate of 1 permits ten in ten seconds; the eleventh connection waits for a second.
    let started = Instant::now();
    for _ in 0..10 {
        broker.connect().await.ask(3, &api_versions()).await;
    }
    assert_eq!(
        broker
            .broker()
            .context
            .metrics
            .get(Metric::ConnectionsDelayed),
        0
    );
    broker.connect().await.ask(3, &api_versions()).await;
    assert_eq!(
        broker
            .broker()
            .context
            .metrics
            .get(Metric::ConnectionsDelayed),
        1
    );
    assert!(started.elapsed() >= Duration::from_millis(900));
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let broker = TestBroker::start_with(&[("connections.max.idle.ms", "2000")]).await;
    let mut client = broker.connect().await;
    client.ask(3, &api_versions()).await;
    assert!(client.is_closed().await);
    assert_eq!(
        broker.broker().context.metrics.get(Metric::ConnectionsIdle),
        1
    );
    serves(&broker).await;
}

#[tokio::test]
async fn an_idle_client_that_does_not_read_is_closed() {
    let broker = TestBroker::start_with(&[("connections.max.idle.ms", "2000")]).await;
    broker.create_topic("orders", 1, &[]).await;
    let mut client = broker.connect().await;
    let large = "x".repeat(900_000);
    client
        .ask(9, &produce_to("orders", 0, 1, batch(&[&large])))
        .await;
    // More responses than fit into the socket buffers; the client reads none.
    for _ in 0..50 {
        client.send(12, &fetch_from("orders", 0, 0)).await;
    }
    while broker.broker().network.connections.count() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    serves(&broker).await;
}

#[tokio::test]
async fn large_requests_wait_for_memory_of_other_requests() {
    let broker = TestBroker::start_with(&[
        ("queued.max.request.bytes", "200000"),
        ("socket.request.max.bytes", "200000"),
    ])
    .await;
    broker.create_topic("orders", 1, &[]).await;
    let request = produce_to("orders", 0, 1, batch(&[&"x".repeat(150_000)]));
    let bytes: Bytes = frame(9, &request, 1);
    // One holds the memory, and another one exceeds the budget, as one may.
    let mut holder = broker.connect().await;
    let mut beyond = broker.connect().await;
    for part in [&bytes[..1000], &bytes[1000..2000]] {
        holder.stream.write_all(part).await.unwrap();
        beyond.stream.write_all(part).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let available = || broker.broker().network.request_memory.available_bytes();
    until("one of them holds memory", || available() < 100_000).await;
    // What exceeds the budget is not counted.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut other = broker.connect().await;
    let sent = other.send(9, &request).await;
    let early = tokio::time::timeout(Duration::from_millis(100), other.stream.readable());
    assert!(early.await.is_err(), "there is no memory for it yet");
    holder.stream.write_all(&bytes[2000..]).await.unwrap();
    holder
        .receive::<ottla_protocol::messages::ProduceRequest>(9, 1)
        .await;
    other
        .receive::<ottla_protocol::messages::ProduceRequest>(9, sent)
        .await;
}

#[tokio::test]
async fn a_stop_answers_parked_requests() {
    let (broker, mut client) = TestBroker::with_topic("orders", 1).await;
    let mut fetch = fetch_from("orders", 0, 0);
    fetch.max_wait_ms = i32::MAX;
    let waiting = client.send(12, &fetch).await;
    until("the fetch begins", || fetches_begun(&broker) == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stopped = tokio::time::timeout(Duration::from_secs(60), broker.running.stop());
    stopped.await.expect("it does not wait for the fetch");
    client
        .receive::<ottla_protocol::messages::FetchRequest>(12, waiting)
        .await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_slow_request_is_not_idle() {
    let broker = TestBroker::start_with(&[("connections.max.idle.ms", "3000")]).await;
    let mut client = broker.connect().await;
    let request = super::client::frame(3, &ApiVersionsRequest::default(), 1);
    let (first, last) = request.split_at(request.len() - 10);
    client.stream.write_all(first).await.expect("is read");
    for byte in last {
        // Together twice the time.
        tokio::time::sleep(Duration::from_millis(600)).await;
        client.stream.write_all(&[*byte]).await.expect("is read");
    }
    assert!(client.receive_frame().await.is_some());
}

/// Sends the start of a large request: its length, and this number of bytes.
async fn begin(broker: &TestBroker, bytes: usize) -> Client {
    let mut client = broker.connect().await;
    let length = 512 * 1024u32;
    let begun = [&length.to_be_bytes()[..], &vec![0; bytes]].concat();
    client.stream.write_all(&begun).await.unwrap();
    client
}

/// A broker with a small budget, and a topic.
async fn with_little_memory() -> TestBroker {
    let broker = TestBroker::start_with(&[
        ("queued.max.request.bytes", "524288"),
        ("socket.request.max.bytes", "524288"),
    ])
    .await;
    broker.create_topic("orders", 1, &[]).await;
    broker
}

async fn produces_much(broker: &TestBroker) -> bool {
    let mut client = broker.connect().await;
    let request = produce_to("orders", 0, 1, batch(&[&"x".repeat(100_000)]));
    let answer = client.ask(9, &request);
    match tokio::time::timeout(Duration::from_secs(60), answer).await {
        Ok(answer) => answer.responses[0].partition_responses[0].error_code == 0,
        Err(_) => false,
    }
}

#[tokio::test]
async fn announced_but_unsent_requests_take_no_memory() {
    let broker = with_little_memory().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(begin(&broker, 8).await);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let free = broker.broker().network.request_memory.available_bytes();
    assert_eq!(free, 512 * 1024);
    let began = Instant::now();
    assert!(produces_much(&broker).await);
    // A request that has to wait gets the memory of peers that have sent nothing for ten seconds.
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "nothing to wait for"
    );
}

#[tokio::test]
async fn stalled_requests_are_closed_when_other_requests_need_memory() {
    let broker = with_little_memory().await;
    let mut stopped = Vec::new();
    // Two hold the budget, and the third exceeds it.
    for _ in 0..3 {
        stopped.push(begin(&broker, 100_000).await);
    }
    let available = || broker.broker().network.request_memory.available_bytes();
    until("they hold all memory", || available() == 0).await;
    assert!(
        produces_much(&broker).await,
        "within the patience with peers that stop"
    );
    let mut is_closed = false;
    for client in &mut stopped {
        let closed = tokio::time::timeout(Duration::from_secs(2), client.is_closed());
        is_closed = closed.await == Ok(true);
        if is_closed {
            break;
        }
    }
    assert!(is_closed);
}

/// Requests that each hold a part of the memory, and together need more than there is: they wait
/// for each other.
#[tokio::test]
async fn requests_that_wait_for_each_other_release_their_memory() {
    let broker = with_little_memory().await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(begin(&broker, 400_000).await);
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = Instant::now();
    assert!(produces_much(&broker).await, "{:?}", began.elapsed());
}

/// A long poll of several days, which names its partition so often that the request is large.
fn large_long_poll() -> FetchRequest {
    let mut request = fetch_from("orders", 0, 0);
    request.max_wait_ms = i32::MAX;
    let partitions = &mut request.topics[0].partitions;
    *partitions = vec![partitions[0].clone(); 8_000];
    request
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_polls_are_closed_when_other_requests_need_their_memory() {
    let broker = with_little_memory().await;
    let mut waiting = Vec::new();
    // The third exceeds the budget.
    let available = || broker.broker().network.request_memory.available_bytes();
    while available() > 100_000 || waiting.len() < 3 {
        let before = available();
        let mut client = broker.connect().await;
        client.send(4, &large_long_poll()).await;
        waiting.push(client);
        // Until it is read, or waits for memory.
        for _ in 0..40 {
            if available() < before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(waiting.len() < 20);
    }
    for _ in 0..3 {
        let mut client = broker.connect().await;
        client.send(4, &large_long_poll()).await;
        waiting.push(client);
    }
    assert!(
        produces_much(&broker).await,
        "within the patience with them"
    );
    let metrics = &broker.broker().context.metrics;
    assert!(metrics.get(Metric::ConnectionsClosedForMemory) > 0);
}

/// The number of Fetch requests that the broker has begun to serve.
fn fetches_begun(broker: &TestBroker) -> u64 {
    let metrics = &broker.broker().context.metrics;
    let mut apis = metrics.requests().apis();
    let fetch = apis.find(|(key, _)| *key == ApiKey::Fetch);
    fetch.map_or(0, |(_, fetch)| {
        let by_version = fetch.requests_by_version();
        by_version.iter().map(|(_, count)| count).sum()
    })
}

/// A connection has at most one waiting request; a client that needs more must open more
/// connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_one_long_poll() {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let mut long = fetch_from("orders", 0, 0);
    long.max_wait_ms = i32::MAX;
    let mut client = broker.connect().await;
    for _ in 0..100 {
        client.send(12, &long).await;
    }
    until("the first begins", || fetches_begun(&broker) > 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fetches_begun(&broker), 1);
    let mut second = broker.connect().await;
    second.send(12, &long).await;
    until("the other begins", || fetches_begun(&broker) > 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(fetches_begun(&broker), 2);
    assert!(produces_much(&broker).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_entry_of_a_duplicate_partition_counts() {
    let (_broker, mut client) = TestBroker::with_topic("orders", 2).await;
    for value in ["a", "b", "c"] {
        client
            .ask(9, &produce_to("orders", 0, 1, batch(&[value])))
            .await;
    }
    let mut request = fetch_from("orders", 0, 2);
    request.min_bytes = 0;
    let partitions = &mut request.topics[0].partitions;
    let first = partitions[0].clone();
    let other = FetchPartition {
        partition: 1,
        fetch_offset: 0,
        ..first.clone()
    };
    let again = FetchPartition {
        fetch_offset: 3,
        ..first
    };
    partitions.extend([other, again]);
    let answer = client.ask(12, &request).await;
    let partitions = &answer.responses[0].partitions;
    let indexes: Vec<i32> = partitions.iter().map(|it| it.partition_index).collect();
    assert_eq!(indexes, [0, 1]);
    assert!(
        partitions[0]
            .records
            .as_ref()
            .is_none_or(|it| it.is_empty())
    );
}
