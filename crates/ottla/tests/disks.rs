//! Disks that fill up or disappear, with the real binary on small file systems.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::{
    Admin, Client, ClientConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig,
    ProducerRecord,
};
use ottla_testkit::{
    BrokerBuilder, BrokerProcess, give_back, make_read_only, mount_small, take_away, with_mounts,
    words,
};

const TOPIC: &str = "orders";
const VALUE_BYTES: usize = 100_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn run(test: &str, body: impl Future<Output = ()>) {
    with_mounts(test, || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(body);
    });
}

async fn client(broker: &BrokerProcess) -> Client {
    let mut config = ClientConfig::new(&broker.bootstrap()).expect("an address");
    config.default_api_timeout = Duration::from_secs(5);
    config.request_timeout = Duration::from_secs(1);
    Client::connect(config).await.expect("the broker answers")
}

/// Produces one record; returns whether it was acknowledged.
async fn produce(producer: &Producer, partition: i32, number: usize) -> bool {
    let mut value = format!("{number} ").into_bytes();
    value.resize(VALUE_BYTES, b'x');
    let record = ProducerRecord {
        topic: TOPIC.to_owned(),
        partition: Some(partition),
        key: None,
        value: Some(Bytes::from(value)),
        headers: Vec::new(),
        timestamp: None,
    };
    match producer.send(record).await {
        Ok(delivery) => delivery.wait().await.is_ok(),
        Err(_) => false,
    }
}

/// A full disk refuses a record for as long; a busy machine takes less.
async fn producer(broker: &BrokerProcess) -> Producer {
    let config = ProducerConfig {
        delivery_timeout: Duration::from_secs(5),
        ..Default::default()
    };
    Producer::new(client(broker).await, config).expect("settings that go together")
}

/// The numbers of all records of a partition from offset `start` on.
async fn consume(broker: &BrokerProcess, partition: i32, at_least: usize) -> Vec<usize> {
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        ..Default::default()
    };
    let mut consumer = Consumer::new(client(broker).await, config);
    consumer.assign(&[(TOPIC.to_owned(), partition)]);
    let mut found = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while found.len() < at_least && Instant::now() < deadline {
        let records = consumer.poll(Duration::from_millis(500)).await;
        for record in records.expect("the broker serves") {
            let value = record.value.expect("a value");
            let text = String::from_utf8_lossy(&value);
            let number = text.split(' ').next().expect("a number");
            found.push(number.parse().expect("a number"));
        }
    }
    found
}

#[test]
fn a_full_disk_refuses_only_appends() {
    run("a_full_disk_refuses_only_appends", async {
        let dir = tempfile::tempdir().expect("a directory");
        mount_small(&dir.path().join("data"), 24);
        let mut broker = BrokerBuilder::new()
            .dir(dir.path())
            .property("log.segment.bytes", "1048576")
            .property("log.segment.delete.delay.ms", "100")
            .property("log.retention.check.interval.ms", "500")
            .property("log.initial.task.delay.ms", "100")
            .property("offsets.topic.num.partitions", "1")
            .start();
        broker.create_topic(TOPIC, 1);
        let sending = producer(&broker).await;
        let mut acknowledged = 0;
        while produce(&sending, 0, acknowledged).await {
            acknowledged += 1;
            assert!(acknowledged < 250, "more than the disk holds");
        }
        assert!(acknowledged > 150, "{acknowledged}");
        let all: Vec<usize> = (0..acknowledged).collect();
        assert_eq!(consume(&broker, 0, acknowledged).await, all);

        // Offset commits are rejected, not lost, once the free space is too small for them too.
        // Administrative requests still work.
        let admin = Admin::new(client(&broker).await);
        let offsets = BTreeMap::from([((TOPIC.to_owned(), 0), 7)]);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let committed = admin.alter_offsets("readers", &offsets).await;
            if !committed.is_ok_and(|results| results.values().all(Result::is_ok)) {
                break;
            }
            assert!(Instant::now() < deadline, "there is no space for a commit");
        }
        broker.create_topic("another", 3);

        // Both kinds of stop, and a restart on the remaining data.
        assert!(broker.stop().success(), "{}", broker.output());
        broker.start_again();
        assert_eq!(consume(&broker, 0, acknowledged).await, all);
        assert!(!produce(&producer(&broker).await, 0, acknowledged).await);
        broker.kill();
        broker.start_again();
        assert_eq!(consume(&broker, 0, acknowledged).await, all);

        // After space is freed, appends resume without a restart.
        let admin = Admin::new(client(&broker).await);
        let half = acknowledged / 2;
        let below = BTreeMap::from([((TOPIC.to_owned(), 0), half as i64)]);
        let deleted = admin.delete_records(&below).await.expect("an answer");
        assert!(deleted.values().all(Result::is_ok), "{deleted:?}");
        let sending = producer(&broker).await;
        let deadline = Instant::now() + PATIENCE;
        while !produce(&sending, 0, acknowledged).await {
            assert!(Instant::now() < deadline, "{}", broker.output());
        }
        let found = consume(&broker, 0, acknowledged - half + 1).await;
        // A failed attempt may have been written nevertheless, as with any producer.
        assert_eq!(found[..acknowledged - half], all[half..]);
        let committed = admin.alter_offsets("readers", &offsets).await;
        let committed = committed.expect("an answer");
        assert!(committed.values().all(Result::is_ok), "{committed:?}");
        admin.delete_topic(TOPIC).await.expect("it is deleted");
        assert!(broker.stop().success(), "{}", broker.output());
    });
}

/// The bytes of the local segments of the first partition.
fn local_bytes(broker: &BrokerProcess) -> u64 {
    let folder = broker.data_dir().join(format!("{TOPIC}-0"));
    let files = std::fs::read_dir(folder).expect("the partition is there");
    // Segments are deleted meanwhile.
    let logs = files.flatten().filter_map(|file| {
        let is_log = file.path().extension().is_some_and(|it| it == "log");
        is_log.then(|| file.metadata().ok())?
    });
    logs.map(|log| log.len()).sum()
}

async fn wait_until(broker: &BrokerProcess, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: {}", broker.output());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Kafka takes such a directory offline, and needs a restart. It would need free space besides: nothing is copied before
/// it is recorded in `__remote_log_metadata`, which is on the same disk.
#[test]
fn a_disk_that_filled_while_the_store_was_away_empties_when_the_store_is_back() {
    const NAME: &str = "a_disk_that_filled_while_the_store_was_away_empties_when_the_store_is_back";
    /// Two segments, the active one, and one that is being copied.
    const USUAL_BYTES: u64 = 5 << 20;
    run(NAME, async {
        let dir = tempfile::tempdir().expect("a directory");
        mount_small(&dir.path().join("data"), 24);
        let store = dir.path().join("store");
        std::fs::create_dir(&store).expect("a directory of the store");
        let mut broker = BrokerBuilder::new()
            .dir(dir.path())
            .property("remote.log.storage.system.enable", "true")
            .property(
                "remote.log.storage.manager.class.name",
                "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            )
            .property("rsm.config.dir", &store.display().to_string())
            .property(
                "rlmm.config.remote.log.metadata.topic.replication.factor",
                "1",
            )
            .property("rlmm.config.remote.log.metadata.topic.min.isr", "1")
            .property("rlmm.config.remote.log.metadata.topic.num.partitions", "1")
            .property("remote.log.manager.task.interval.ms", "200")
            .property("log.segment.bytes", "1048576")
            .property("log.segment.delete.delay.ms", "100")
            .property("log.retention.check.interval.ms", "200")
            .property("log.initial.task.delay.ms", "100")
            .property("offsets.topic.num.partitions", "1")
            .start();
        let create = format!(
            "topics --bootstrap-server {} --create --topic {TOPIC} --partitions 1 \
             --config remote.storage.enable=true --config local.retention.bytes=2097152",
            broker.bootstrap()
        );
        broker.tool(&words(&create));
        let sending = producer(&broker).await;
        let mut acknowledged = 0;
        while acknowledged < 80 {
            assert!(produce(&sending, 0, acknowledged).await);
            acknowledged += 1;
        }
        wait_until(&broker, "the first segments stay", || {
            local_bytes(&broker) < USUAL_BYTES
        })
        .await;

        // The store is away: producing goes on, local retention waits, and the disk fills.
        let (root, aside) = (store.join("kafka-tiered-storage"), store.join("aside"));
        std::fs::rename(&root, &aside).expect("the store has objects");
        while produce(&sending, 0, acknowledged).await {
            acknowledged += 1;
            assert!(acknowledged < 330, "more than the disk holds");
        }
        let filled = local_bytes(&broker);
        assert!(filled > 2 * USUAL_BYTES, "{filled} bytes are local");
        // A reader of old records receives errors that it retries. The log names the object.
        let config = ConsumerConfig {
            offset_reset: OffsetReset::Earliest,
            ..Default::default()
        };
        let mut consumer = Consumer::new(client(&broker).await, config);
        consumer.assign(&[(TOPIC.to_owned(), 0)]);
        let object = format!("remote storage: read {}", root.display());
        let deadline = Instant::now() + PATIENCE;
        while !broker.output().contains(&object) {
            let read = consumer.poll(Duration::from_millis(500)).await;
            assert!(read.is_ok_and(|records| records.is_empty()));
            assert!(Instant::now() < deadline, "{}", broker.output());
        }
        assert!(!broker.output().contains("the log directory goes offline"));

        // It is back, and so is everything else.
        std::fs::rename(&aside, &root).expect("the store was aside");
        wait_until(&broker, "the disk stays full", || {
            local_bytes(&broker) < USUAL_BYTES
        })
        .await;
        let deadline = Instant::now() + PATIENCE;
        while !produce(&sending, 0, acknowledged).await {
            assert!(Instant::now() < deadline, "{}", broker.output());
        }
        let all: Vec<usize> = (0..acknowledged).collect();
        let found = consume(&broker, 0, acknowledged + 1).await;
        // A failed attempt may have been written nevertheless, as with any producer.
        assert_eq!(found[..acknowledged], all);
        assert_eq!(found.last(), Some(&acknowledged));
        assert!(broker.stop().success(), "{}", broker.output());
    });
}

/// The partition whose replica is in a directory.
fn partition_in(dir: &Path) -> i32 {
    let partitions = [0, 1];
    let found = partitions
        .into_iter()
        .find(|partition| dir.join(format!("{TOPIC}-{partition}")).exists());
    found.expect("one of the partitions lies there")
}

#[test]
fn a_lost_disk_takes_its_partitions_offline_and_the_last_one_stops_the_node() {
    const NAME: &str = "a_lost_disk_takes_its_partitions_offline_and_the_last_one_stops_the_node";
    run(NAME, async {
        let dir = tempfile::tempdir().expect("a directory");
        let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
        mount_small(&first, 64);
        mount_small(&second, 64);
        let metadata = dir.path().join("metadata").display().to_string();
        let mut broker = BrokerBuilder::new()
            .dir(dir.path())
            .log_dirs(&["first", "second"])
            .property("metadata.log.dir", &metadata)
            .property("log.segment.bytes", "1048576")
            .start();
        broker.create_topic(TOPIC, 2);
        let (stays, goes) = (partition_in(&first), partition_in(&second));
        let sending = producer(&broker).await;
        for number in 0..5 {
            for partition in [stays, goes] {
                assert!(produce(&sending, partition, number).await);
            }
        }
        take_away(&second);
        // Open files keep working; creating the next segment fails.
        let mut acknowledged = 5;
        while produce(&sending, goes, acknowledged).await {
            acknowledged += 1;
            assert!(acknowledged < 30, "more than a segment holds");
        }
        let said = "the log directory goes offline";
        assert!(broker.output().contains(said), "{}", broker.output());
        for number in 5..30 {
            assert!(produce(&sending, stays, number).await, "{number}");
        }
        assert_eq!(consume(&broker, stays, 30).await.len(), 30);

        // After the repair and a restart, all records are there.
        assert!(broker.stop().success(), "{}", broker.output());
        give_back(&second);
        broker.start_again();
        let found = consume(&broker, goes, acknowledged).await;
        let all: Vec<usize> = (0..acknowledged).collect();
        assert_eq!(found[..acknowledged], all);

        // Without any log directory the node exits at once and logs the reason.
        take_away(&first);
        take_away(&second);
        let sending = producer(&broker).await;
        let produced = tokio::spawn(async move {
            for number in 0..60 {
                for partition in [stays, goes] {
                    produce(&sending, partition, number).await;
                }
            }
        });
        let deadline = Instant::now() + PATIENCE;
        while !broker.output().contains("all log directories have failed") {
            assert!(Instant::now() < deadline, "{}", broker.output());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let failed = Instant::now();
        let status = broker.wait();
        let took = failed.elapsed();
        produced.abort();
        assert_eq!(status.code(), Some(1), "{}", broker.output());
        // A stop that waits for its clients takes five seconds, and one that waits for a controller longer.
        assert!(took < Duration::from_millis(4_900), "it took {took:?}");
    });
}

#[test]
fn an_unwritable_file_is_found_before_any_change() {
    const TEST: &str = "an_unwritable_file_is_found_before_any_change";
    with_mounts(TEST, || {
        let mut broker = BrokerBuilder::new().start();
        broker.create_topic(TOPIC, 2);
        assert!(broker.stop().success());
        let name = format!("{TOPIC}-1/00000000000000000000.log");
        let log = broker.data_dir().join(&name);
        // What takes the permission away also changes the file's `ctime`, which a mount does not.
        let permissions = std::fs::metadata(&log).expect("the log").permissions();
        std::fs::set_permissions(&log, permissions).expect("set");
        make_read_only(&log);
        broker.launch();
        let status = broker.wait();
        assert_eq!(status.code(), Some(1), "{}", broker.output());
        let said = format!("cannot write to {name}; run as the user that Kafka ran as");
        assert!(broker.output().contains(&said), "{}", broker.output());
        let marker = broker.data_dir().join(".kafka_cleanshutdown");
        assert!(marker.exists(), "nothing was touched");
    });
}
