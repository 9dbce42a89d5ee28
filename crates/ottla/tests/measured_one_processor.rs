//! A broker that may use one processor: its only worker thread must wait for nothing.
//!
//! Measured on the real binary, when nothing else runs.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::admin::NewTopic;
use ottla_client::{
    Admin, Client, ClientConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig,
    ProducerRecord,
};
use ottla_testkit::{BrokerBuilder, BrokerProcess, words};

/// Small records are written here, and awaited by a long poll.
const ORDERS: &str = "orders";
/// Read from the start, again and again.
const HISTORY: &str = "history";
/// Compacted.
const TABLE: &str = "table";
/// The size of `HISTORY` and `TABLE`: ten segments.
const LARGE_RECORDS: usize = 100;
const LARGE_BYTES: usize = 100_000;
const KEYS: usize = 5;
/// The partitions of the topics that are created and deleted.
const PARTITIONS: i32 = 200;
const SMALL_RECORDS: usize = 300;
/// An acknowledgement takes some milliseconds, and more on a busy machine. It takes longer than this
/// if the worker waits until a topic is created or deleted, a log is cleaned, or the slow client
/// sends the rest of its request.
const P99: Duration = Duration::from_secs(1);
const STOP: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(180);

async fn client(bootstrap: &str) -> Client {
    let config = ClientConfig::new(bootstrap).expect("an address");
    Client::connect(config).await.expect("the broker answers")
}

async fn producer(bootstrap: &str) -> Producer {
    let producer = Producer::new(client(bootstrap).await, ProducerConfig::default());
    producer.expect("settings that go together")
}

async fn write(producer: &Producer, topic: &str, key: Option<Bytes>, value: Bytes) {
    let record = ProducerRecord {
        topic: topic.to_owned(),
        partition: Some(0),
        key,
        value: Some(value),
        headers: Vec::new(),
        timestamp: None,
    };
    let delivery = producer.send(record).await.expect("it is sent");
    delivery.wait().await.expect("it is acknowledged");
}

/// Writes the large records of a topic, which has few keys.
async fn write_large(bootstrap: &str, topic: &str) {
    let producer = producer(bootstrap).await;
    let value = Bytes::from(vec![b'x'; LARGE_BYTES]);
    for number in 0..LARGE_RECORDS {
        let key = Bytes::from(format!("key {}", number % KEYS));
        write(&producer, topic, Some(key), value.clone()).await;
    }
    producer.close().await;
}

/// Whether the log has lost most of its records. The active segment is not cleaned.
fn is_cleaned(broker: &BrokerProcess) -> bool {
    let files = std::fs::read_dir(broker.data_dir().join(format!("{TABLE}-0")));
    let sizes = files.expect("the log").map(|file| {
        let file = file.expect("a file");
        let is_log = file.file_name().to_string_lossy().ends_with(".log");
        // A segment may have been replaced meanwhile.
        file.metadata()
            .map_or(0, |it| if is_log { it.len() } else { 0 })
    });
    sizes.sum::<u64>() < (LARGE_RECORDS * LARGE_BYTES / 2) as u64
}

/// Creates and deletes large topics, and counts them.
async fn create_and_delete(bootstrap: String, deleted: Arc<AtomicUsize>, is_over: Arc<AtomicBool>) {
    let admin = Admin::new(client(&bootstrap).await);
    while !is_over.load(Ordering::Relaxed) {
        let topic = NewTopic {
            name: format!("large-{}", deleted.load(Ordering::Relaxed)),
            partitions: Some(PARTITIONS),
            replication_factor: Some(1),
            ..NewTopic::default()
        };
        let name = topic.name.clone();
        let created = admin.create_topics(&[topic], false).await;
        assert_eq!(created.expect("an answer")[0].error_code, 0);
        admin.delete_topic(&name).await.expect("it is deleted");
        deleted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads a topic from its start, and counts how often.
async fn read_again_and_again(bootstrap: String, read: Arc<AtomicUsize>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let config = ConsumerConfig {
            offset_reset: OffsetReset::Earliest,
            ..Default::default()
        };
        let mut consumer = Consumer::new(client(&bootstrap).await, config);
        consumer.assign(&[(HISTORY.to_owned(), 0)]);
        let mut records = 0;
        while records < LARGE_RECORDS {
            let polled = consumer.poll(Duration::from_millis(500)).await;
            records += polled.expect("the broker serves").len();
        }
        read.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits for more bytes than there will be, until the broker stops.
async fn poll_long(bootstrap: String) {
    let config = ConsumerConfig {
        fetch_min_bytes: 1 << 24,
        fetch_max_wait: Duration::from_secs(20),
        ..Default::default()
    };
    let mut consumer = Consumer::new(client(&bootstrap).await, config);
    consumer.assign(&[(ORDERS.to_owned(), 0)]);
    while consumer.poll(Duration::from_secs(60)).await.is_ok() {}
}

/// Announces a request, and sends only its start.
fn slow_client(broker: &BrokerProcess) -> TcpStream {
    let mut stream = TcpStream::connect(broker.bootstrap()).expect("it is let in");
    let announced: u32 = 1 << 20;
    stream
        .write_all(&announced.to_be_bytes())
        .expect("it is sent");
    stream.write_all(&[0; 1000]).expect("it is sent");
    stream
}

/// Writes small records, one after the other, while everything else goes on. Returns how long each
/// took to be acknowledged.
async fn latencies_beside_work(broker: &BrokerProcess) -> Vec<Duration> {
    let bootstrap = broker.bootstrap();
    write_large(&bootstrap, HISTORY).await;
    let (deleted, read) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let is_over = Arc::<AtomicBool>::default();
    let work = [
        tokio::spawn(create_and_delete(
            bootstrap.clone(),
            Arc::clone(&deleted),
            Arc::clone(&is_over),
        )),
        tokio::spawn(read_again_and_again(
            bootstrap.clone(),
            Arc::clone(&read),
            Arc::clone(&is_over),
        )),
    ];
    let table = bootstrap.clone();
    let cleaning = tokio::spawn(async move { write_large(&table, TABLE).await });
    let producer = producer(&bootstrap).await;
    let mut latencies = Vec::new();
    let is_done = || {
        let is_counted = |count: &AtomicUsize| count.load(Ordering::Relaxed) > 0;
        is_counted(&deleted) && is_counted(&read) && cleaning.is_finished() && is_cleaned(broker)
    };
    while latencies.len() < SMALL_RECORDS || !is_done() {
        let began = Instant::now();
        write(&producer, ORDERS, None, Bytes::from_static(b"small")).await;
        latencies.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    cleaning.await.expect("it is written");
    for work in work {
        work.await.expect("it goes on to the end");
    }
    producer.close().await;
    latencies
}

/// The processor time of the broker so far.
fn processor_time(broker: &BrokerProcess) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", broker.pid()));
    let stat = stat.expect("the broker runs");
    // The name in parentheses may contain spaces. User and system time are 12 and 13 fields after it.
    let (_, fields) = stat.rsplit_once(") ").expect("a name");
    let times = fields.split(' ').skip(11).take(2);
    let ticks: u64 = times.map(|it| it.parse::<u64>().expect("ticks")).sum();
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[test]
fn one_processor_serves_clients_beside_other_work() {
    let mut broker = BrokerBuilder::new()
        .on_one_processor()
        .property("log.segment.bytes", "1048576")
        .property("log.segment.delete.delay.ms", "100")
        .property("log.cleaner.backoff.ms", "100")
        .property("log.cleaner.min.cleanable.ratio", "0.01")
        .start();
    broker.create_topic(ORDERS, 1);
    broker.create_topic(HISTORY, 1);
    let servers = broker.bootstrap();
    let table = format!(
        "topics --bootstrap-server {servers} --create --topic {TABLE} --partitions 1 --config cleanup.policy=compact"
    );
    broker.tool(&words(&table));

    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let slow = slow_client(&broker);
    runtime.spawn(poll_long(servers));
    let beside_work = async {
        let working = latencies_beside_work(&broker);
        tokio::time::timeout(PATIENCE, working).await
    };
    let Ok(mut latencies) = runtime.block_on(beside_work) else {
        panic!("it does not end:\n{}", broker.output());
    };
    let output = broker.output();
    assert!(output.contains("1 processor,"), "{output}");
    latencies.sort();
    let p99 = latencies[latencies.len() * 99 / 100];
    assert!(p99 < P99, "{p99:?}");

    // What waits takes no processor time: neither the long poll nor the slow client is asked again
    // and again. The last files may still be deleted.
    let span = Duration::from_secs(2);
    let is_idle = || {
        let before = processor_time(&broker);
        std::thread::sleep(span);
        processor_time(&broker) - before < span / 4
    };
    assert!((0..5).any(|_| is_idle()), "{}", broker.output());

    let began = Instant::now();
    assert!(broker.stop().success(), "{}", broker.output());
    assert!(began.elapsed() < STOP, "{:?}", began.elapsed());
    drop(slow);
}
