//! Metrics and interceptors of clients, against a real broker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::{
    ClientError, CommitOffset, Consumer, ConsumerConfig, ConsumerInterceptor, ConsumerRecord,
    FetchedBatch, Metrics, OffsetReset, Producer, ProducerConfig, ProducerInterceptor,
    ProducerRecord, RecordMetadata,
};
use ottla_protocol::ApiKey;
use parking_lot::Mutex;

use crate::cluster::{Cluster, read, record};

fn reader(cluster: &Cluster, group: &str) -> Consumer {
    let config = ConsumerConfig {
        group_id: Some(group.to_owned()),
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        ..ConsumerConfig::default()
    };
    Consumer::new(cluster.admin.client().clone(), config)
}

/// The number of records without retries. A leader that was just elected may need a retry.
fn sent_once(metrics: &Metrics, of: &[(&str, &str)]) -> f64 {
    let total = |name| metrics.value_of(name, of).expect("measured");
    total("record-send-total") - total("record-retry-total")
}

#[tokio::test]
async fn producers_and_consumers_have_the_metrics_of_kafka() {
    let cluster = Cluster::start().await;
    let (topic, group) = (cluster.topic("measured", 2).await, cluster.name("g"));
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..100 {
        let sent = ProducerRecord {
            partition: Some(number % 2),
            ..record(&topic, "k", "a value of some bytes")
        };
        producer.send(sent).await.expect("sent");
    }
    producer.flush().await;
    let of_producer = producer.metrics();
    let of_topic = [("topic", topic.as_str())];
    assert_eq!(sent_once(&of_producer, &[]), 100.0);
    assert_eq!(sent_once(&of_producer, &of_topic), 100.0);
    for name in [
        "batch-size-avg",
        "batch-size-max",
        "record-size-avg",
        "record-size-max",
        "compression-rate-avg",
        "record-queue-time-max",
        "records-per-request-avg",
        "request-latency-avg",
        "record-send-rate",
        "outgoing-byte-total",
        "incoming-byte-total",
        "connection-count",
        "buffer-available-bytes",
        "flush-time-ns-total",
        "metadata-age",
    ] {
        let value = of_producer.value(name);
        assert!(value.is_some_and(|it| it > 0.0), "{name} is {value:?}");
    }
    let bytes = of_producer
        .value_of("byte-total", &of_topic)
        .expect("bytes");
    assert!(bytes > 100.0 * 21.0, "{bytes}");
    assert_eq!(of_producer.value("record-error-total"), Some(0.0));

    let mut consumer = reader(&cluster, &group);
    let watching = consumer.metrics_reader();
    let before = watching.read();
    assert_eq!(before.value("assigned-partitions"), Some(0.0));
    assert!(before.value("fetch-latency-avg").is_some_and(f64::is_nan));
    assert_eq!(before.value("last-poll-seconds-ago"), Some(-1.0));
    consumer
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    assert_eq!(read(&mut consumer, 100).await.len(), 100);
    consumer.commit().await.expect("committed");
    // The sizes of a response are counted when it has been read completely.
    consumer
        .poll(Duration::from_millis(50))
        .await
        .expect("polled");
    let measured = watching.read();
    let consumed = [
        measured.value("records-consumed-total"),
        measured.value_of("records-consumed-total", &of_topic),
    ];
    assert_eq!(consumed, [Some(100.0); 2]);
    assert_eq!(
        measured.value("bytes-consumed-total"),
        measured.value_of("bytes-consumed-total", &of_topic)
    );
    assert_eq!(measured.value("assigned-partitions"), Some(2.0));
    assert_eq!(measured.value("commit-total"), Some(1.0));
    assert_eq!(measured.value("rebalance-total"), Some(1.0));
    for partition in ["0", "1"] {
        let tags = [("topic", topic.as_str()), ("partition", partition)];
        assert_eq!(measured.value_of("records-lag", &tags), Some(0.0));
        assert_eq!(measured.value_of("records-lead", &tags), Some(50.0));
        assert_eq!(
            measured.value_of("preferred-read-replica", &tags),
            Some(-1.0)
        );
    }
    for name in [
        "fetch-latency-avg",
        "fetch-rate",
        "fetch-size-max",
        "records-per-request-avg",
        "bytes-consumed-rate",
        "join-total",
        "sync-time-max",
        "rebalance-latency-total",
        "rebalance-rate-per-hour",
        "commit-latency-avg",
        "commit-sync-time-ns-total",
        "time-between-poll-avg",
        "poll-idle-ratio-avg",
        "request-size-avg",
    ] {
        let value = measured.value(name);
        assert!(value.is_some_and(|it| it > 0.0), "{name} is {value:?}");
    }
    consumer.close().await.expect("closed");
}

/// As in `KafkaProducerMetrics` and `SenderMetricsRegistry`: the time of a call counts only if it
/// succeeds, and records of an aborted transaction are not errors.
#[tokio::test]
async fn a_transaction_has_the_metrics_of_kafka() {
    let cluster = Cluster::start().await;
    let client = cluster.admin.client();
    if !client.serves(ApiKey::EndTxn).await.expect("an answer") {
        return;
    }
    let topic = cluster.topic("transacted", 1).await;
    let producer = cluster.producer(ProducerConfig {
        transactional_id: Some(cluster.name("t")),
        linger: Duration::from_secs(60),
        ..ProducerConfig::default()
    });
    producer.init_transactions().await.expect("initialized");
    producer.begin_transaction().expect("begun");
    producer
        .send(record(&topic, "k", "given up"))
        .await
        .expect("taken");
    producer.abort_transaction().await.expect("aborted");
    producer.begin_transaction().expect("begun");
    producer
        .send(record(&topic, "k", "kept"))
        .await
        .expect("taken");
    producer.commit_transaction().await.expect("committed");
    let measured = producer.metrics();
    for (name, value) in [
        ("record-error-total", 0.0),
        ("flush-time-ns-total", 0.0),
        ("compression-rate-avg", 1.0),
        // 61 for the batch, 21 for the record, key and value with their lengths, no headers.
        ("record-size-max", 61.0 + 21.0 + 2.0 + 5.0 + 1.0),
    ] {
        assert_eq!(measured.value(name), Some(value), "{name}");
    }
    assert_eq!(sent_once(&measured, &[]), 1.0);
    for name in [
        "txn-init-time-ns-total",
        "txn-abort-time-ns-total",
        "txn-commit-time-ns-total",
        "metadata-wait-time-ns-total",
    ] {
        let value = measured.value(name);
        assert!(value.is_some_and(|it| it > 0.0), "{name} is {value:?}");
    }
    assert!(
        producer.init_transactions().await.is_err(),
        "only once, and a failed call has no duration"
    );
    let again = producer.metrics();
    assert_eq!(
        again.value("txn-init-time-ns-total"),
        measured.value("txn-init-time-ns-total")
    );
    producer.flush().await;
    let flushed = producer.metrics().value("flush-time-ns-total");
    assert!(flushed.is_some_and(|it| it > 0.0), "{flushed:?}");
}

/// Notes the calls that it receives, with its name.
struct Noting {
    name: &'static str,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Noting {
    fn note(&self, what: String) {
        self.notes.lock().push(format!("{} {what}", self.name));
    }
}

impl ProducerInterceptor for Noting {
    fn on_send(&self, mut record: ProducerRecord) -> ProducerRecord {
        let value = record.value.unwrap_or_default();
        let value = String::from_utf8_lossy(&value);
        self.note(format!("sends {value}"));
        record.value = Some(Bytes::from(format!("{value}+{}", self.name)));
        record
    }

    fn on_acknowledgement(&self, _topic: &str, result: Result<&RecordMetadata, &ClientError>) {
        match result {
            Ok(metadata) => self.note(format!("hears of offset {}", metadata.offset)),
            Err(error) => self.note(format!("hears {error}")),
        }
    }
}

impl ConsumerInterceptor for Noting {
    fn on_consume(&mut self, mut records: Vec<ConsumerRecord>) -> Vec<ConsumerRecord> {
        for record in &mut records {
            let value = record.value.take().unwrap_or_default();
            let value = String::from_utf8_lossy(&value);
            self.note(format!("reads {value}"));
            record.value = Some(Bytes::from(format!("{value}-{}", self.name)));
        }
        // A record that an interceptor removes is not returned, but it is consumed.
        records.retain(|record| record.offset != 1);
        records
    }

    fn on_consume_batches(&mut self, batches: Vec<FetchedBatch>) -> Vec<FetchedBatch> {
        self.note(format!("reads {} batches", batches.len()));
        batches
    }

    fn on_commit(&mut self, offsets: &BTreeMap<(String, i32), CommitOffset>) {
        for offset in offsets.values() {
            self.note(format!("hears of a commit at {}", offset.offset));
        }
    }
}

#[tokio::test]
async fn interceptors_see_records_and_commits_in_order() {
    let cluster = Cluster::start().await;
    let (topic, group) = (cluster.topic("seen", 1).await, cluster.name("g"));
    let notes = Arc::new(Mutex::new(Vec::new()));
    let noting = |name| Noting {
        name,
        notes: notes.clone(),
    };
    let taken = || std::mem::take(&mut *notes.lock());
    let client = cluster.admin.client().clone();
    let producer = Producer::builder(client, ProducerConfig::default())
        .interceptor(Arc::new(noting("a")))
        .interceptor(Arc::new(noting("b")))
        .start()
        .expect("a producer");
    for value in ["x", "y"] {
        producer
            .send(record(&topic, "k", value))
            .await
            .expect("sent");
        producer.flush().await;
    }
    assert_eq!(
        taken(),
        [
            "a sends x",
            "b sends x+a",
            "a hears of offset 0",
            "b hears of offset 0",
            "a sends y",
            "b sends y+a",
            "a hears of offset 1",
            "b hears of offset 1",
        ]
    );

    // A new producer does not know its topics yet. Waiting for them must not make it a second
    // record.
    let other = cluster.topic("seen-too", 1).await;
    let blocking = producer.clone();
    let runtime = ottla_sync::task::Handle::current();
    tokio::task::spawn_blocking(move || {
        let delivery = blocking.send_blocking(&runtime, record(&other, "k", "z").as_ref());
        delivery.expect("sent")
    })
    .await
    .expect("no panic")
    .wait()
    .await
    .expect("written");
    producer.flush().await;
    assert_eq!(
        taken(),
        [
            "a sends z",
            "b sends z+a",
            "a hears of offset 0",
            "b hears of offset 0",
        ]
    );

    let mut consumer = reader(&cluster, &group);
    consumer.add_interceptor(Box::new(noting("c")));
    consumer.add_interceptor(Box::new(noting("d")));
    consumer
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    let records = read(&mut consumer, 1).await;
    let values: Vec<&[u8]> = records
        .iter()
        .filter_map(|it| it.value.as_deref())
        .collect();
    assert_eq!(values, [&b"x+a+b-c-d"[..]]);
    assert_eq!(
        taken(),
        ["c reads x+a+b", "c reads y+a+b", "d reads x+a+b-c"]
    );
    assert_eq!(consumer.position(&(topic.clone(), 0)), Some(2));

    consumer.commit().await.expect("committed");
    let commits = ["c hears of a commit at 2", "d hears of a commit at 2"];
    assert_eq!(taken(), commits);
    assert_eq!(cluster.committed(&group).await, [2]);
    let (told, tells) = std::sync::mpsc::channel();
    let callback = Box::new(move |_: &BTreeMap<_, _>, result: Result<(), ClientError>| {
        let _ = told.send(result.is_ok());
    });
    consumer.commit_async(Some(callback)).expect("a group");
    let deadline = Instant::now() + Duration::from_secs(30);
    while tells.try_recv() != Ok(true) {
        assert!(Instant::now() < deadline, "the callback is not called");
        consumer
            .poll(Duration::from_millis(20))
            .await
            .expect("polled");
    }
    assert_eq!(taken(), commits);

    consumer.seek(&(topic.clone(), 0), 0);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut batches = Vec::new();
    while batches.is_empty() && Instant::now() < deadline {
        batches = consumer
            .poll_batches(Duration::from_millis(100))
            .await
            .expect("polled");
    }
    assert_eq!(taken(), ["c reads 2 batches", "d reads 2 batches"]);
    // A failed commit is not reported.
    let refused = BTreeMap::from([(
        (topic.clone(), 99),
        CommitOffset {
            offset: 1,
            leader_epoch: -1,
            metadata: String::new(),
        },
    )]);
    assert!(consumer.commit_offsets(&refused).await.is_err());
    assert_eq!(taken(), Vec::<String>::new());
    consumer.close().await.expect("closed");
}
