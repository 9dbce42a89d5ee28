//! The latency of a connected client while other clients connect up to the connection limit.
//!
//! Measured on the real binary, when nothing else runs; both times alternate within one run.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::{Client, ClientConfig, Producer, ProducerConfig, ProducerRecord};
use ottla_testkit::{BrokerBuilder, BrokerProcess};

const OPEN_FILES: u32 = 512;
const RECORDS: usize = 400;
const ROUNDS: usize = 3;
/// Other load on the machine adds to both measurements, unevenly: one run of several must pass.
const ATTEMPTS: usize = 4;
/// Below this a difference is the machine's.
const LEAST: Duration = Duration::from_millis(2);

/// How long each record took to be acknowledged, one after the other.
async fn latencies(producer: &Producer) -> Vec<Duration> {
    let mut all = Vec::with_capacity(RECORDS);
    for _ in 0..RECORDS {
        let record = ProducerRecord {
            topic: "orders".to_owned(),
            partition: Some(0),
            key: None,
            value: Some(Bytes::from_static(&[b'x'; 100])),
            headers: Vec::new(),
            timestamp: None,
        };
        let began = Instant::now();
        let delivery = producer.send(record).await.expect("it is sent");
        delivery.wait().await.expect("it is acknowledged");
        all.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    all
}

fn p99(mut latencies: Vec<Duration>) -> Duration {
    latencies.sort();
    latencies[latencies.len() * 99 / 100]
}

/// Connects until connections are refused, closes some, and continues, until it is stopped. Returns
/// the number of refusals.
fn connect_again_and_again(
    broker: &BrokerProcess,
    is_over: &std::sync::atomic::AtomicBool,
) -> usize {
    let address = broker.bootstrap().parse().expect("an address");
    let mut open = Vec::new();
    let mut refused = 0;
    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
        match TcpStream::connect_timeout(&address, Duration::from_millis(20)) {
            Ok(stream) => open.push(stream),
            Err(_) => {
                refused += 1;
                open.truncate(open.len() / 2);
            }
        }
    }
    refused
}

async fn measure(broker: &BrokerProcess) -> (Duration, Duration) {
    let config = ClientConfig::new(&broker.bootstrap()).expect("an address");
    let client = Client::connect(config).await.expect("the broker answers");
    let producer = Producer::new(client, ProducerConfig::default()).expect("settings");
    latencies(&producer).await;
    let (mut alone, mut beside_others) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        alone.extend(latencies(&producer).await);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let refused = std::thread::scope(|scope| {
            let others = scope.spawn(|| connect_again_and_again(broker, &is_over));
            let measured = tokio::task::block_in_place(|| {
                tokio::runtime::Handle::current().block_on(latencies(&producer))
            });
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            beside_others.extend(measured);
            others.join().expect("it connects")
        });
        assert!(refused > 0, "every connection was let in");
    }
    producer.close().await;
    (p99(alone), p99(beside_others))
}

#[test]
fn connecting_until_refused_does_not_slow_connected_clients() {
    let broker = BrokerBuilder::new()
        .open_files(OPEN_FILES)
        .property("offsets.topic.num.partitions", "1")
        .start();
    broker.create_topic("orders", 1);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut measured = Vec::new();
    for _ in 0..ATTEMPTS {
        let (alone, beside_others) = runtime.block_on(measure(&broker));
        println!("p99 {alone:?} alone, {beside_others:?} beside others");
        if beside_others <= 2 * alone.max(LEAST) {
            return;
        }
        measured.push((alone, beside_others));
    }
    panic!("{measured:?}");
}
