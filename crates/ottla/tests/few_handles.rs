//! Far more partitions than file handles, and as many as memory permits: created, written and read,
//! also after a stop and after a kill. Also more connections than file handles.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::admin::NewTopic;
use ottla_client::{
    Admin, Client, ClientConfig, Consumer, ConsumerConfig, ErrorCode, OffsetReset, Producer,
    ProducerConfig, ProducerRecord,
};
use ottla_testkit::{BrokerBuilder, BrokerProcess};

const OPEN_FILES: u32 = 256;
const TOPICS: [&str; 2] = ["orders", "payments"];
const PARTITIONS: i32 = 400;
const PATIENCE: Duration = Duration::from_secs(60);

fn block_on<R>(body: impl Future<Output = R>) -> R {
    tokio::runtime::Runtime::new()
        .expect("a runtime")
        .block_on(body)
}

async fn client(broker: &BrokerProcess) -> Client {
    let config = ClientConfig::new(&broker.bootstrap()).expect("an address");
    Client::connect(config).await.expect("the broker answers")
}

fn value(topic: &str, partition: i32, round: usize) -> String {
    format!("{topic} {partition} {round}")
}

/// Writes one record to each partition; all must be acknowledged.
async fn write_to_all(
    broker: &BrokerProcess,
    config: ProducerConfig,
    topics: &[&str],
    round: usize,
) {
    let producer = Producer::new(client(broker).await, config);
    let producer = producer.expect("settings that go together");
    let mut deliveries = Vec::new();
    for &topic in topics {
        for partition in 0..PARTITIONS {
            let record = ProducerRecord {
                topic: topic.to_owned(),
                partition: Some(partition),
                key: None,
                value: Some(Bytes::from(value(topic, partition, round))),
                headers: Vec::new(),
                timestamp: None,
            };
            deliveries.push(producer.send(record).await.expect("it is sent"));
        }
    }
    for delivery in deliveries {
        delivery.wait().await.expect("it is acknowledged");
    }
    producer.close().await;
}

/// Reads one topic after the other, and requires each record of these rounds in each partition.
async fn assert_all_are_read(broker: &BrokerProcess, topics: &[&str], rounds: usize) {
    for topic in topics {
        let config = ConsumerConfig {
            offset_reset: OffsetReset::Earliest,
            ..Default::default()
        };
        let mut consumer = Consumer::new(client(broker).await, config);
        let all = (0..PARTITIONS).map(|partition| ((*topic).to_owned(), partition));
        consumer.assign(&all.collect::<Vec<_>>());
        let mut missing: BTreeSet<String> = (0..PARTITIONS)
            .flat_map(|partition| (0..rounds).map(move |round| value(topic, partition, round)))
            .collect();
        let mut progress = Instant::now();
        while !missing.is_empty() && progress.elapsed() < PATIENCE {
            let records = consumer.poll(Duration::from_millis(500)).await;
            for record in records.expect("the broker serves") {
                let value = record.value.expect("a value");
                missing.remove(&*String::from_utf8_lossy(&value));
                progress = Instant::now();
            }
        }
        let first = missing.first();
        assert!(
            missing.is_empty(),
            "{} records are missing, the first is {first:?}",
            missing.len()
        );
    }
}

fn assert_unharmed(broker: &BrokerProcess) {
    let output = broker.output();
    assert!(!output.contains("offline"), "{output}");
    assert!(broker.open_handles() < OPEN_FILES as usize, "{output}");
}

#[test]
fn partitions_may_outnumber_the_file_handles() {
    let mut broker = BrokerBuilder::new().open_files(OPEN_FILES).start();
    for topic in TOPICS {
        broker.create_topic(topic, PARTITIONS);
    }
    assert_unharmed(&broker);
    block_on(async {
        write_to_all(&broker, ProducerConfig::default(), &TOPICS, 0).await;
        assert_all_are_read(&broker, &TOPICS, 1).await;
        assert_unharmed(&broker);
    });
    assert!(broker.stop().success(), "{}", broker.output());
    broker.start_again();
    block_on(async {
        write_to_all(&broker, ProducerConfig::default(), &TOPICS, 1).await;
        assert_all_are_read(&broker, &TOPICS, 2).await;
        assert_unharmed(&broker);
    });
    broker.kill();
    broker.start_again();
    block_on(async {
        assert_all_are_read(&broker, &TOPICS, 2).await;
        write_to_all(&broker, ProducerConfig::default(), &TOPICS, 2).await;
        assert_unharmed(&broker);
    });
    assert!(broker.stop().success(), "{}", broker.output());
}

/// Creates topics until one is refused, and returns those that were created.
async fn create_until_refused(broker: &BrokerProcess) -> Vec<String> {
    const MOST: usize = 100;
    let admin = Admin::new(client(broker).await);
    let mut created = Vec::new();
    while created.len() < MOST {
        let name = format!("topic-{}", created.len());
        let topic = NewTopic {
            name: name.clone(),
            partitions: Some(PARTITIONS),
            replication_factor: Some(1),
            ..NewTopic::default()
        };
        let results = admin.create_topics(&[topic], false).await;
        let results = results.expect("it is answered");
        match ErrorCode::from_code(results[0].error_code) {
            ErrorCode::None => created.push(name),
            ErrorCode::PolicyViolation => return created,
            error => panic!("{error}"),
        }
    }
    panic!("{MOST} topics were created");
}

#[test]
fn partitions_are_created_until_memory_is_short_and_all_of_them_work() {
    // The least with which a broker starts.
    const MEMORY: &str = "67108864";
    // A broker that is short of memory gives no producer IDs.
    let config = ProducerConfig {
        enable_idempotence: Some(false),
        ..ProducerConfig::default()
    };
    let mut broker = BrokerBuilder::new()
        .property("ottla.memory.max.bytes", MEMORY)
        .start();
    let created = block_on(create_until_refused(&broker));
    assert!(!created.is_empty(), "{}", broker.output());
    let topics: Vec<&str> = created.iter().map(String::as_str).collect();
    block_on(write_to_all(&broker, config, &topics, 0));
    assert!(broker.stop().success(), "{}", broker.output());
    broker.start_again();
    block_on(assert_all_are_read(&broker, &topics, 1));
}

#[test]
fn connections_without_a_handle_wait_and_open_ones_are_served() {
    let mut broker = BrokerBuilder::new()
        .open_files(OPEN_FILES)
        .property("offsets.topic.num.partitions", "1")
        .start();
    for topic in TOPICS {
        broker.create_topic(topic, PARTITIONS);
    }
    let config = ProducerConfig::default();
    block_on(async {
        let producer = Producer::new(client(&broker).await, config);
        let producer = producer.expect("settings that go together");
        let send = async |number: i32| {
            let record = ProducerRecord {
                topic: TOPICS[0].to_owned(),
                partition: Some(number % PARTITIONS),
                key: None,
                value: Some(Bytes::from_static(b"on")),
                headers: Vec::new(),
                timestamp: None,
            };
            let delivery = producer.send(record).await.expect("it is sent");
            delivery.wait().await.expect("it is acknowledged");
        };
        send(0).await;
        // The broker accepts as many connections as it has handles; the kernel queues some more.
        let address = broker.bootstrap().parse().expect("an address");
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(5));
        let others: Vec<_> = (0..OPEN_FILES).map_while(|_| connect().ok()).collect();
        let let_in = OPEN_FILES as usize / 4;
        assert!(
            (let_in..OPEN_FILES as usize).contains(&others.len()),
            "{}",
            others.len()
        );
        for number in 1..=PARTITIONS {
            send(number).await;
        }
        assert_unharmed(&broker);
        drop(others);
        let another = client(&broker).await;
        drop(another);
        producer.close().await;
    });
    assert!(broker.stop().success(), "{}", broker.output());
}
