//! Producer, consumer and admin client together, against a real broker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::admin::{NewTopic, OffsetSpec};
use ottla_client::{
    Assignor, Client, ClientConfig, ClientError, CommitOffset, Consumer, ConsumerConfig,
    DeliveredBatch, DeliveryListener, OffsetReset, Producer, ProducerConfig, ProducerRecord,
    RecordRef,
};
use ottla_protocol::ApiKey;
use ottla_records::{Compression, CompressionType};
use ottla_types::ErrorCode;

use crate::cluster::{Cluster, read, record};

impl Cluster {
    /// With frequent heartbeats.
    fn consumer(&self, group: Option<&str>) -> Consumer {
        let config = ConsumerConfig {
            group_id: group.map(str::to_owned),
            offset_reset: OffsetReset::Earliest,
            heartbeat_interval: Duration::from_millis(200),
            ..ConsumerConfig::default()
        };
        Consumer::new(self.admin.client().clone(), config)
    }
}

#[tokio::test]
async fn records_of_a_key_stay_in_order() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 3).await;
    let config = ProducerConfig {
        enable_idempotence: Some(true),
        batch_size: 200,
        ..ProducerConfig::default()
    };
    let producer = cluster.producer(config);
    let mut deliveries = Vec::new();
    for number in 0..300 {
        let key = format!("k{}", number % 5);
        deliveries.push(
            producer
                .send(record(&topic, &key, &number.to_string()))
                .await
                .expect("sent"),
        );
    }
    producer.close().await;
    let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
    for delivery in deliveries {
        let metadata = delivery.wait().await.expect("written");
        // Within a partition, records must be in the order in which they were sent.
        let next = ends.entry(metadata.partition).or_insert(0);
        assert_eq!(metadata.offset, *next);
        *next += 1;
    }

    let mut consumer = cluster.consumer(None);
    consumer.assign(&[(topic.clone(), 0), (topic.clone(), 1), (topic.clone(), 2)]);
    let records = read(&mut consumer, 300).await;
    assert_eq!(records.len(), 300);
    let mut last: BTreeMap<Bytes, i32> = BTreeMap::new();
    for record in &records {
        let text = String::from_utf8(record.value.clone().expect("a value").to_vec()).unwrap();
        let number: i32 = text.parse().expect("a number");
        let before = last.insert(record.key.clone().expect("a key"), number);
        assert!(before.is_none_or(|before| before < number));
    }
    let partition = records[0].partition;
    consumer.seek(&(topic.clone(), partition), 1);
    let again = read(&mut consumer, 1).await;
    assert_eq!((again[0].partition, again[0].offset), (partition, 1));
}

#[tokio::test]
async fn members_share_a_topic_and_hand_over_partitions() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 4).await;
    let group = cluster.name("g");
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..40 {
        let sent = ProducerRecord {
            partition: Some(number % 4),
            ..record(&topic, "k", &number.to_string())
        };
        producer.send(sent).await.expect("sent");
    }
    producer.flush().await;

    let mut first = cluster.consumer(Some(&group));
    first
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    assert_eq!(read(&mut first, 40).await.len(), 40);
    assert_eq!(first.assignment().len(), 4);
    first.commit().await.expect("committed");

    let mut second = cluster.consumer(Some(&group));
    second
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    let deadline = Instant::now() + Duration::from_secs(30);
    while first.assignment().len() != 2 || second.assignment().len() != 2 {
        assert!(
            Instant::now() < deadline,
            "{:?} {:?}",
            first.assignment(),
            second.assignment()
        );
        let (left, right) = tokio::join!(
            first.poll(Duration::from_millis(100)),
            second.poll(Duration::from_millis(100))
        );
        // Committed records are not read again by the new owner.
        assert!(left.expect("polled").is_empty() && right.expect("polled").is_empty());
    }
    let all: BTreeSet<_> = first
        .assignment()
        .into_iter()
        .chain(second.assignment())
        .collect();
    assert_eq!(all.len(), 4);

    second.close().await.expect("left");
    let deadline = Instant::now() + Duration::from_secs(30);
    while first.assignment().len() != 4 {
        assert!(Instant::now() < deadline, "{:?}", first.assignment());
        first
            .poll(Duration::from_millis(100))
            .await
            .expect("polled");
    }
    let described = cluster
        .admin
        .describe_consumer_group(&group)
        .await
        .expect("described");
    assert_eq!(
        (described.state.as_str(), described.members.len()),
        ("Stable", 1)
    );
    first.close().await.expect("left");
    assert_eq!(cluster.committed(&group).await, [10; 4]);
    let deleted = cluster
        .admin
        .delete_groups(std::slice::from_ref(&group))
        .await;
    deleted[&group].as_ref().expect("deleted");
}

#[tokio::test]
async fn deleted_records_are_gone_and_errors_name_the_cause() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 1).await;
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..10 {
        producer
            .send(record(&topic, "k", &number.to_string()))
            .await
            .expect("sent");
    }
    producer.flush().await;
    let wanted = BTreeMap::from([((topic.clone(), 0), 4)]);
    let deleted = cluster
        .admin
        .delete_records(&wanted)
        .await
        .expect("an answer");
    assert_eq!(*deleted[&(topic.clone(), 0)].as_ref().expect("deleted"), 4);
    let first = cluster
        .admin
        .list_offset(&topic, 0, OffsetSpec::Earliest, false)
        .await;
    assert_eq!(first.expect("listed").offset, 4);
    let mut consumer = cluster.consumer(None);
    consumer.assign(&[(topic.clone(), 0)]);
    consumer.seek(&(topic.clone(), 0), 1);
    // The offset was deleted, so the consumer starts with the first record.
    assert_eq!(read(&mut consumer, 6).await[0].offset, 4);

    let missing = cluster
        .admin
        .describe_topics(&["nowhere".to_owned()])
        .await
        .unwrap_err();
    assert_eq!(
        missing.to_string(),
        "topic nowhere: it does not exist (UNKNOWN_TOPIC_OR_PARTITION)"
    );
    let large = ProducerRecord {
        value: Some(Bytes::from(vec![0; 2 << 20])),
        ..record(&topic, "k", "")
    };
    let refused = producer.send(large).await.expect_err("refused").to_string();
    assert!(
        refused.contains("more than max.request.size=1048576"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_error_names_an_unreachable_broker() {
    let [port] = ottla_testkit::lease_ports().expect("a free port");
    let address = format!("127.0.0.1:{port}");
    let config = ClientConfig {
        default_api_timeout: Duration::from_secs(2),
        ..ClientConfig::new(&address).expect("an address")
    };
    let error = Client::connect(config).await.err().expect("refused");
    assert!(
        error
            .to_string()
            .contains(&format!("cannot connect to {address}")),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("check the address and that a broker runs there")
    );
    assert_eq!(error.code(), None::<ErrorCode>);
}

#[derive(Default)]
struct Counting {
    records: AtomicU64,
    tags: AtomicU64,
}

impl DeliveryListener for Counting {
    fn on_delivered(&self, batch: &DeliveredBatch<'_>) {
        assert!(batch.result.is_ok(), "{:?}", batch.result);
        self.records.fetch_add(batch.record_count.into(), Relaxed);
        self.tags.fetch_add(batch.tags.iter().sum(), Relaxed);
    }
}

/// With every codec, several threads and a listener, every record must be written exactly once,
/// read both borrowed and owned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_record_is_written_once_with_every_codec() {
    let cluster = Cluster::start().await;
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = cluster.topic(codec, 2).await;
        let compression: Compression = CompressionType::from_name(codec).expect("it is one").into();
        let config = ProducerConfig {
            compression,
            buffer_memory: 1 << 20,
            ..ProducerConfig::default()
        };
        let counting = Arc::new(Counting::default());
        let producer = Producer::builder(cluster.admin.client().clone(), config)
            .listener(counting.clone())
            .start()
            .expect("a producer");
        let senders: Vec<_> = (0..4u64)
            .map(|thread| {
                let (producer, topic) = (producer.clone(), topic.clone());
                tokio::spawn(async move {
                    for number in 0..5_000 {
                        let value = (thread * 5_000 + number).to_string().repeat(3);
                        let record = RecordRef::new(&topic, value.as_bytes());
                        producer.send_tagged(record, 1).await.expect("sent");
                    }
                })
            })
            .collect();
        for sender in senders {
            sender.await.expect("it ends");
        }
        producer.close().await;
        assert_eq!(counting.records.load(Relaxed), 20_000, "{codec}");
        assert_eq!(counting.tags.load(Relaxed), 20_000, "{codec}");
        let measured = producer.metrics();
        let [sent, again] = ["record-send-total", "record-retry-total"]
            .map(|name| measured.value(name).expect("measured"));
        // Retries, for example to a leader that is not ready yet, count as sent again.
        assert_eq!(sent - again, 20_000.0, "{codec}");

        let mut consumer = cluster.consumer(None);
        consumer.assign(&[(topic.clone(), 0), (topic.clone(), 1)]);
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut seen = BTreeSet::new();
        while seen.len() < 20_000 && Instant::now() < deadline {
            for batch in consumer
                .poll_batches(Duration::from_millis(200))
                .await
                .expect("batches")
            {
                for record in batch.iter() {
                    let value = record.expect("a record").value.expect("a value").to_vec();
                    assert!(seen.insert(value), "twice");
                }
            }
        }
        assert_eq!(seen.len(), 20_000, "{codec}");
        assert_eq!(consumer.current_lag(&(topic, 0)), Some(0));
    }
}

/// A batch that the topic refuses as too large is split, and the records keep their order.
#[tokio::test]
async fn a_batch_that_is_too_large_is_split() {
    let cluster = Cluster::start().await;
    let topic = cluster.name("small");
    let new = NewTopic {
        name: topic.clone(),
        partitions: Some(1),
        configs: BTreeMap::from([("max.message.bytes".to_owned(), "4000".to_owned())]),
        ..NewTopic::default()
    };
    let results = cluster
        .admin
        .create_topics(&[new], false)
        .await
        .expect("an answer");
    assert_eq!(results[0].error_code, 0, "{:?}", results[0].error_message);
    let producer = cluster.producer(ProducerConfig::default());
    let mut deliveries = Vec::new();
    for number in 0..200 {
        let sent = record(&topic, "k", &format!("{number:0>100}"));
        deliveries.push(producer.send(sent).await.expect("sent"));
    }
    producer.flush().await;
    for (number, delivery) in deliveries.into_iter().enumerate() {
        let metadata = delivery.wait().await.expect("written");
        assert_eq!(metadata.offset, number as i64);
    }
    let splits = producer.metrics().value("batch-split-total");
    assert!(splits.is_some_and(|splits| splits > 0.0), "{splits:?}");
}

#[tokio::test]
async fn a_topic_created_later_is_found() {
    let cluster = Cluster::start().await;
    let (topic, group) = (cluster.name("late"), cluster.name("g"));
    let mut consumer = cluster.consumer(Some(&group));
    consumer
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    let none = consumer
        .poll(Duration::from_millis(1500))
        .await
        .expect("polled");
    assert!(none.is_empty());
    assert_eq!(cluster.topic("late", 2).await, topic);
    let producer = cluster.producer(ProducerConfig::default());
    producer.send(record(&topic, "k", "v")).await.expect("sent");
    producer.flush().await;
    assert_eq!(read(&mut consumer, 1).await.len(), 1);
    assert_eq!(consumer.assignment().len(), 2);
    consumer.close().await.expect("left");
}

/// Cooperative members continue to read the partitions that they keep.
#[tokio::test]
async fn cooperating_members_keep_their_partitions() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 4).await;
    let group = cluster.name("g");
    let member = || {
        let config = ConsumerConfig {
            group_id: Some(group.clone()),
            offset_reset: OffsetReset::Earliest,
            partition_assignment_strategy: vec![Assignor::CooperativeSticky],
            heartbeat_interval: Duration::from_millis(200),
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(cluster.admin.client().clone(), config);
        consumer
            .subscribe(std::slice::from_ref(&topic))
            .expect("a group");
        consumer
    };
    let (mut first, mut second) = (member(), member());
    let deadline = Instant::now() + Duration::from_secs(30);
    while first.assignment().len() != 4 {
        assert!(Instant::now() < deadline);
        first
            .poll(Duration::from_millis(100))
            .await
            .expect("polled");
    }
    while second.assignment().len() != 2 {
        assert!(Instant::now() < deadline, "{:?}", second.assignment());
        let (left, right) = tokio::join!(
            first.poll(Duration::from_millis(100)),
            second.poll(Duration::from_millis(100))
        );
        left.expect("polled");
        right.expect("polled");
        assert!(
            first.assignment().len() >= 2,
            "kept partitions are never revoked"
        );
    }
    assert_eq!(first.assignment().len(), 2);
    first.close().await.expect("left");
    second.close().await.expect("left");
}

#[tokio::test]
async fn paused_partitions_are_not_fetched_and_timestamps_find_offsets() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 2).await;
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..20 {
        let sent = ProducerRecord {
            partition: Some(number % 2),
            timestamp: Some(1_000_000 + i64::from(number)),
            ..record(&topic, "k", "v")
        };
        producer.send(sent).await.expect("sent");
    }
    producer.flush().await;
    let (even, odd) = ((topic.clone(), 0), (topic.clone(), 1));
    let mut consumer = cluster.consumer(None);
    consumer.assign(&[even.clone(), odd.clone()]);
    consumer.pause(std::slice::from_ref(&odd));
    let records = read(&mut consumer, 10).await;
    assert!(records.iter().all(|record| record.partition == 0));
    assert!(
        consumer
            .poll(Duration::from_millis(300))
            .await
            .expect("polled")
            .is_empty()
    );
    consumer.resume(std::slice::from_ref(&odd));
    assert_eq!(read(&mut consumer, 10).await.len(), 10);
    let times = BTreeMap::from([(even.clone(), 1_000_005), (odd.clone(), 2_000_000)]);
    let found = consumer.offsets_for_times(&times).await.expect("found");
    assert_eq!(found[&even].map(|it| it.offset), Some(3));
    assert_eq!(found[&odd], None);
    consumer
        .seek_to_end(std::slice::from_ref(&even))
        .await
        .expect("sought");
    assert_eq!(consumer.position(&even), Some(10));
}

fn transactional(cluster: &Cluster, id: &str) -> Producer {
    cluster.producer(ProducerConfig {
        transactional_id: Some(cluster.name(id)),
        max_block: Duration::from_secs(30),
        ..ProducerConfig::default()
    })
}

/// Consume, process, produce: aborted records are not visible, and offsets are committed with the
/// records.
#[tokio::test]
async fn transactions_are_atomic() {
    let cluster = Cluster::start().await;
    if let Ok(version) = std::env::var("OTTLA_CLIENT_TRANSACTION_VERSION") {
        // The test environment says that the broker was set to `transaction.version` 0 or 1.
        let finalized = cluster
            .admin
            .client()
            .finalized_feature("transaction.version");
        assert_eq!(finalized.to_string(), version);
    }
    if !cluster
        .admin
        .client()
        .serves(ApiKey::EndTxn)
        .await
        .expect("an answer")
    {
        // An unsupported feature is an error, not a wait.
        let refused = transactional(&cluster, "x").init_transactions().await;
        let refused = refused.expect_err("there are no transactions");
        assert!(!matches!(refused, ClientError::GaveUp { .. }), "{refused}");
        return;
    }
    let (source, target) = (cluster.topic("in", 1).await, cluster.topic("out", 2).await);
    let plain = cluster.producer(ProducerConfig::default());
    for number in 0..10 {
        plain
            .send(record(&source, "k", &number.to_string()))
            .await
            .expect("sent");
    }
    plain.close().await;

    let group = cluster.name("g");
    let config = ConsumerConfig {
        group_id: Some(group.clone()),
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        read_committed: true,
        max_poll_records: 5,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(cluster.admin.client().clone(), config.clone());
    consumer
        .subscribe(std::slice::from_ref(&source))
        .expect("a group");
    let producer = transactional(&cluster, "x");
    producer.init_transactions().await.expect("initialized");
    let mut rounds = 0;
    let mut done = 0;
    while done < 10 {
        let records = consumer
            .poll(Duration::from_millis(500))
            .await
            .expect("records");
        if records.is_empty() {
            continue;
        }
        producer.begin_transaction().expect("begun");
        for (index, read) in records.iter().enumerate() {
            let sent = ProducerRecord {
                topic: target.clone(),
                partition: Some(index as i32 % 2),
                value: read.value.clone(),
                ..ProducerRecord::default()
            };
            producer.send(sent).await.expect("sent");
        }
        let next = records.last().expect("there is one").offset + 1;
        let offsets = BTreeMap::from([((source.clone(), 0), CommitOffset::new(next))]);
        producer
            .send_offsets_to_transaction(&offsets, &consumer.group_metadata())
            .await
            .expect("offsets");
        rounds += 1;
        if rounds == 2 {
            // Some of it may be written already, and must not become visible.
            producer.flush().await;
            producer.abort_transaction().await.expect("aborted");
            consumer.seek(&(source.clone(), 0), records[0].offset);
            continue;
        }
        producer.commit_transaction().await.expect("committed");
        done += records.len();
    }
    let partition = (source, 0);
    let committed = cluster
        .admin
        .stable_offsets(&group, std::slice::from_ref(&partition))
        .await
        .expect("offsets");
    assert_eq!(committed[&partition].offset, 10);
    let mut all = Consumer::new(
        cluster.admin.client().clone(),
        ConsumerConfig {
            group_id: None,
            ..config
        },
    );
    all.assign(&[(target.clone(), 0), (target, 1)]);
    let mut values: Vec<i32> = read(&mut all, 10)
        .await
        .iter()
        .map(|record| {
            String::from_utf8_lossy(record.value.as_deref().unwrap())
                .parse()
                .unwrap()
        })
        .collect();
    values.sort_unstable();
    assert_eq!(values, (0..10).collect::<Vec<_>>());
    assert!(
        all.poll(Duration::from_millis(500))
            .await
            .expect("polled")
            .is_empty()
    );

    // Another producer with the same id fences this one.
    let newer = transactional(&cluster, "x");
    newer.init_transactions().await.expect("initialized");
    producer.begin_transaction().expect("begun");
    let sent = producer
        .send(record(&consumer.subscription()[0].clone(), "k", "v"))
        .await;
    let lost = match sent {
        Ok(_) => producer.commit_transaction().await,
        Err(error) => Err(error),
    };
    let lost = lost.expect_err("fenced");
    // A partition leader knows only that the epoch is old; the coordinator returns the precise
    // error.
    let fenced = match lost.code() {
        Some(ErrorCode::InvalidProducerEpoch) => {
            producer.abort_transaction().await.expect_err("fenced")
        }
        _ => lost,
    };
    assert_eq!(fenced.code(), Some(ErrorCode::ProducerFenced));
    assert!(
        producer.begin_transaction().is_err(),
        "the producer is closed"
    );
}
