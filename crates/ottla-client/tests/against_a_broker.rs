//! The client against a real broker: what producer, consumer and admin calls promise each other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::admin::{NewTopic, OffsetSpec};
use ottla_client::{
    Admin, Client, ClientConfig, Consumer, ConsumerConfig, ConsumerRecord, OffsetReset, Producer,
    ProducerConfig, ProducerRecord,
};
use ottla_testkit::{BrokerBuilder, BrokerProcess};
use ottla_types::ErrorCode;

struct Cluster {
    _broker: BrokerProcess,
    admin: Admin,
}

impl Cluster {
    async fn start() -> Cluster {
        let broker = BrokerBuilder::new()
            .property("group.initial.rebalance.delay.ms", "0")
            .property("offsets.topic.num.partitions", "1")
            .start();
        let config = ClientConfig::new(&broker.bootstrap()).expect("an address");
        let admin = Admin::new(Client::connect(config).await.expect("the broker answers"));
        Cluster {
            _broker: broker,
            admin,
        }
    }

    async fn topic(&self, name: &str, partitions: i32) {
        let topic = NewTopic {
            name: name.into(),
            partitions: Some(partitions),
            ..NewTopic::default()
        };
        let results = self
            .admin
            .create_topics(&[topic], false)
            .await
            .expect("an answer");
        assert_eq!(results[0].error_code, 0, "{:?}", results[0].error_message);
    }

    fn producer(&self, config: ProducerConfig) -> Producer {
        Producer::new(self.admin.client().clone(), config).expect("a producer")
    }

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

fn record(topic: &str, key: &str, value: &str) -> ProducerRecord {
    ProducerRecord {
        topic: topic.into(),
        key: Some(Bytes::copy_from_slice(key.as_bytes())),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        ..ProducerRecord::default()
    }
}

/// Polls until so many records have come, or half a minute is over.
async fn read(consumer: &mut Consumer, count: usize) -> Vec<ConsumerRecord> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut records = Vec::new();
    while records.len() < count && Instant::now() < deadline {
        records.extend(
            consumer
                .poll(Duration::from_millis(200))
                .await
                .expect("records"),
        );
    }
    records
}

#[tokio::test]
async fn records_of_a_key_stay_in_order() {
    let cluster = Cluster::start().await;
    cluster.topic("t", 3).await;
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
                .send(record("t", &key, &number.to_string()))
                .await
                .expect("sent"),
        );
    }
    producer.close().await;
    let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
    for delivery in deliveries {
        let metadata = delivery.wait().await.expect("written");
        // Within a partition, records stand in the order in which they were sent.
        let next = ends.entry(metadata.partition).or_insert(0);
        assert_eq!(metadata.offset, *next);
        *next += 1;
    }

    let mut consumer = cluster.consumer(None);
    consumer.assign(&[("t".into(), 0), ("t".into(), 1), ("t".into(), 2)]);
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
    consumer.seek(&("t".into(), partition), 1);
    let again = read(&mut consumer, 1).await;
    assert_eq!((again[0].partition, again[0].offset), (partition, 1));
}

#[tokio::test]
async fn members_share_a_topic_and_hand_it_over() {
    let cluster = Cluster::start().await;
    cluster.topic("t", 4).await;
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..40 {
        let sent = ProducerRecord {
            partition: Some(number % 4),
            ..record("t", "k", &number.to_string())
        };
        producer.send(sent).await.expect("sent");
    }
    producer.flush().await;

    let mut first = cluster.consumer(Some("g"));
    first.subscribe(&["t".to_owned()]).expect("a group");
    assert_eq!(read(&mut first, 40).await.len(), 40);
    assert_eq!(first.assignment().len(), 4);
    first.commit().await.expect("committed");

    let mut second = cluster.consumer(Some("g"));
    second.subscribe(&["t".to_owned()]).expect("a group");
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
        // What was committed is not read again by whoever gets the partition.
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
        .describe_consumer_group("g")
        .await
        .expect("described");
    assert_eq!(
        (described.state.as_str(), described.members.len()),
        ("Stable", 1)
    );
    first.close().await.expect("left");
    let committed = cluster.admin.committed_offsets("g").await.expect("offsets");
    assert_eq!(
        committed.values().map(|it| it.offset).collect::<Vec<_>>(),
        [10; 4]
    );
    let deleted = cluster.admin.delete_groups(&["g".to_owned()]).await;
    deleted["g"].as_ref().expect("deleted");
}

#[tokio::test]
async fn deleted_records_are_gone_and_errors_say_what_is_wrong() {
    let cluster = Cluster::start().await;
    cluster.topic("t", 1).await;
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..10 {
        producer
            .send(record("t", "k", &number.to_string()))
            .await
            .expect("sent");
    }
    producer.flush().await;
    let wanted = BTreeMap::from([(("t".to_owned(), 0), 4)]);
    let deleted = cluster
        .admin
        .delete_records(&wanted)
        .await
        .expect("an answer");
    assert_eq!(*deleted[&("t".to_owned(), 0)].as_ref().expect("deleted"), 4);
    let first = cluster
        .admin
        .list_offset("t", 0, OffsetSpec::Earliest, false)
        .await;
    assert_eq!(first.expect("listed").offset, 4);
    let mut consumer = cluster.consumer(None);
    consumer.assign(&[("t".into(), 0)]);
    consumer.seek(&("t".into(), 0), 1);
    // The offset is gone, so that the consumer begins with the first there is.
    assert_eq!(read(&mut consumer, 6).await[0].offset, 4);

    let missing = cluster
        .admin
        .describe_topics(&["nowhere".to_owned()])
        .await
        .unwrap_err();
    assert_eq!(
        missing.to_string(),
        "topic nowhere: it does not exist (INVALID_TOPIC_EXCEPTION)"
    );
    let large = ProducerRecord {
        value: Some(Bytes::from(vec![0; 2 << 20])),
        ..record("t", "k", "")
    };
    let refused = producer
        .send(large)
        .await
        .err()
        .expect("refused")
        .to_string();
    assert!(
        refused.contains("more than max.request.size=1048576"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    let config = ClientConfig {
        default_api_timeout: Duration::from_millis(300),
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
