//! Calls of a consumer besides reading: asynchronous commits, subscriptions by pattern, and
//! wakeups.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ottla_client::{
    Client, ClientConfig, ClientError, CommitCallback, CommitOffset, Consumer, ConsumerConfig,
    OffsetReset, ProducerConfig, ProducerRecord,
};
use ottla_types::ErrorCode;

use crate::cluster::{Cluster, read, record};

fn config(group: &str) -> ConsumerConfig {
    ConsumerConfig {
        group_id: Some(group.to_owned()),
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        heartbeat_interval: Duration::from_millis(200),
        ..ConsumerConfig::default()
    }
}

async fn fill(cluster: &Cluster, topic: &str, partitions: i32, count: i32) {
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..count {
        let sent = ProducerRecord {
            partition: Some(number % partitions),
            ..record(topic, "k", "v")
        };
        producer.send(sent).await.expect("sent");
    }
    producer.flush().await;
}

type Calls = Vec<(
    String,
    BTreeMap<(String, i32), CommitOffset>,
    Option<ErrorCode>,
)>;

/// The results that callbacks received, in order.
#[derive(Clone, Default)]
struct Listening(Arc<Mutex<Calls>>);

impl Listening {
    fn callback(&self, name: &str) -> CommitCallback {
        let (calls, name) = (self.0.clone(), name.to_owned());
        Box::new(move |offsets, result| {
            let code = result
                .err()
                .map(|error| error.code().expect("a broker's error"));
            calls.lock().unwrap().push((name, offsets.clone(), code));
        })
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

fn offset(offset: i64) -> CommitOffset {
    CommitOffset {
        offset,
        leader_epoch: -1,
        metadata: String::new(),
    }
}

#[tokio::test]
async fn results_of_async_commits_are_reported_in_order() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 2).await;
    let group = cluster.name("g");
    fill(&cluster, &topic, 2, 20).await;
    let mut consumer = Consumer::new(cluster.admin.client().clone(), config(&group));
    consumer
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    assert_eq!(read(&mut consumer, 20).await.len(), 20);

    let listening = Listening::default();
    let all_of = |number| {
        BTreeMap::from([0, 1].map(|partition| ((topic.clone(), partition), offset(number))))
    };
    consumer
        .commit_async(Some(listening.callback("positions")))
        .expect("a member");
    for number in [3, 5] {
        consumer
            .commit_offsets_async(
                all_of(number),
                Some(listening.callback(&format!("{number}"))),
            )
            .expect("a member");
    }
    assert_eq!(
        listening.count(),
        0,
        "callbacks are called from within a poll"
    );
    let deadline = Instant::now() + Duration::from_secs(30);
    while listening.count() < 3 {
        assert!(Instant::now() < deadline, "callbacks are not called");
        let none = consumer.poll(Duration::from_millis(50)).await;
        assert!(none.expect("polled").is_empty());
    }
    {
        let calls = listening.0.lock().unwrap();
        let names: Vec<&str> = calls.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["positions", "3", "5"]);
        assert!(calls.iter().all(|(_, _, code)| code.is_none()), "{calls:?}");
        let positions: Vec<i64> = calls[0].1.values().map(|it| it.offset).collect();
        assert_eq!(positions, [10, 10]);
        assert_eq!(calls[2].1, all_of(5));
    }
    // The last one wins.
    assert_eq!(cluster.committed(&group).await, [5, 5]);

    // A refused commit is reported as well, at the latest by `close`.
    let nowhere = BTreeMap::from([((cluster.name("none"), 0), offset(1))]);
    consumer
        .commit_offsets_async(nowhere, Some(listening.callback("refused")))
        .expect("a member");
    consumer.close().await.expect("left");
    let (name, _, code) = listening.0.lock().unwrap()[3].clone();
    assert_eq!(name, "refused");
    assert!(
        matches!(
            code,
            Some(ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId)
        ),
        "{code:?}"
    );
    assert_eq!(cluster.committed(&group).await, [5, 5]);
}

#[tokio::test]
async fn a_pattern_follows_created_and_deleted_topics() {
    let cluster = Cluster::start().await;
    let first = cluster.topic("pattern-a", 2).await;
    let other = cluster.topic("other-a", 1).await;
    // The pattern must match the complete name; this name is longer.
    let longer = cluster.topic("pattern-b", 1).await;
    let suffix = first.trim_start_matches("pattern-a").to_owned();
    for topic in [&first, &other, &longer] {
        fill(&cluster, topic, 1, 4).await;
    }
    let bootstrap = cluster.admin.client().config().bootstrap_servers.join(",");
    let client_config = ClientConfig {
        metadata_max_age: Duration::from_millis(300),
        ..ClientConfig::new(&bootstrap).expect("an address")
    };
    let client = Client::connect(client_config).await.expect("connected");
    let mut consumer = Consumer::new(client, config(&cluster.name("g")));
    let refused = consumer.subscribe_pattern("(").unwrap_err();
    assert!(refused.to_string().contains("not a regular expression"));
    consumer
        .subscribe_pattern(&format!("pattern-[ac]{suffix}|pattern-"))
        .expect("a group");
    let records = read(&mut consumer, 4).await;
    assert!(records.iter().all(|record| *record.topic == *first));
    assert_eq!(consumer.subscription(), std::slice::from_ref(&first));
    assert_eq!(consumer.assignment().len(), 2);
    consumer.commit().await.expect("committed");

    // A new topic: the member rejoins for it and continues from its commits.
    let third = cluster.topic("pattern-c", 1).await;
    fill(&cluster, &third, 1, 3).await;
    let more = read(&mut consumer, 3).await;
    assert_eq!(more.len(), 3);
    assert!(more.iter().all(|record| *record.topic == *third));
    assert_eq!(consumer.assignment().len(), 3);
    consumer.commit().await.expect("committed");

    // A deleted topic.
    cluster.admin.delete_topic(&first).await.expect("deleted");
    let deadline = Instant::now() + Duration::from_secs(30);
    while consumer.assignment().len() != 1 {
        assert!(Instant::now() < deadline, "{:?}", consumer.assignment());
        let polled = consumer.poll(Duration::from_millis(100)).await;
        assert!(polled.expect("polled").is_empty());
    }
    assert_eq!(consumer.subscription(), [third]);
    consumer.close().await.expect("left");
}

/// A poll takes longer than this if nothing wakes it.
const SOON: Duration = Duration::from_secs(60);

/// The duration and the error of a poll that is woken up after some milliseconds.
async fn poll_and_wake(consumer: &mut Consumer, after: Duration) -> (Duration, ClientError) {
    let waker = consumer.waker();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(after);
        waker.wake_up();
    });
    let began = Instant::now();
    let polled = consumer.poll(Duration::from_secs(120)).await;
    thread.join().expect("it wakes and ends");
    (began.elapsed(), polled.expect_err("nothing to read"))
}

#[tokio::test]
async fn a_waiting_consumer_is_woken() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 1).await;
    let mut consumer = Consumer::new(
        cluster.admin.client().clone(),
        config(&cluster.name("nobody")),
    );
    consumer.assign(&[(topic.clone(), 0)]);
    for _ in 0..2 {
        let (took, error) = poll_and_wake(&mut consumer, Duration::from_millis(300)).await;
        assert!(matches!(error, ClientError::WokenUp), "{error}");
        assert!(took < SOON, "{took:?}");
    }
    // A wakeup before a poll ends the next poll that would wait, and only that one.
    consumer.waker().wake_up();
    let polled = consumer.poll(Duration::from_secs(120)).await;
    assert!(matches!(polled, Err(ClientError::WokenUp)));
    let none = consumer.poll(Duration::from_millis(200)).await;
    assert!(none.expect("polled").is_empty());
    // The records that it has not read are still there.
    fill(&cluster, &topic, 1, 5).await;
    assert_eq!(read(&mut consumer, 5).await.len(), 5);
}

/// A member that waits for another one to rejoin can be woken up too.
#[tokio::test]
async fn a_consumer_that_waits_for_other_members_is_woken() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 2).await;
    let group = cluster.name("g");
    let member = || {
        let mut consumer = Consumer::new(cluster.admin.client().clone(), config(&group));
        consumer
            .subscribe(std::slice::from_ref(&topic))
            .expect("a group");
        consumer
    };
    let (mut first, mut second) = (member(), member());
    let deadline = Instant::now() + Duration::from_secs(30);
    while first.assignment().len() != 2 {
        assert!(Instant::now() < deadline);
        let polled = first.poll(Duration::from_millis(100)).await;
        polled.expect("polled");
    }
    let (took, error) = poll_and_wake(&mut second, Duration::from_millis(500)).await;
    assert!(matches!(error, ClientError::WokenUp), "{error}");
    assert!(took < SOON, "{took:?}");
    // Joining continues.
    while second.assignment().len() != 1 {
        assert!(Instant::now() < deadline, "{:?}", second.assignment());
        let (left, right) = tokio::join!(
            first.poll(Duration::from_millis(100)),
            second.poll(Duration::from_millis(100))
        );
        left.expect("polled");
        right.expect("polled");
    }
    first.close().await.expect("left");
    second.close().await.expect("left");
}

#[tokio::test]
async fn empty_partitions_do_not_delay_records_of_others() {
    let cluster = Cluster::start().await;
    let topic = cluster.topic("t", 6).await;
    let own = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        fetch_max_wait: Duration::from_secs(15),
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(cluster.admin.client().clone(), own);
    let partitions: Vec<(String, i32)> = (0..6).map(|index| (topic.clone(), index)).collect();
    consumer.assign(&partitions);
    let producer = cluster.producer(ProducerConfig::default());
    let began = Instant::now();
    for _ in 0..4 {
        let sent = ProducerRecord {
            partition: Some(0),
            ..record(&topic, "k", "v")
        };
        let delivery = producer.send(sent).await.expect("sent");
        delivery.wait().await.expect("stored");
        let records = read(&mut consumer, 1).await;
        assert_eq!(records.len(), 1);
    }
    // Less than one fetch that waits.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(14), "{took:?}");
}
