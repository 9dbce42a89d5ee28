//! Share groups (KIP-932), against a real broker.

// Tests make files and threads of their own.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "support/cluster.rs"]
mod cluster;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::admin::{ConfigOperation, ConfigResourceType};
use ottla_client::{
    AcknowledgeType, AcknowledgementMode, AcquireMode, Client, ClientError, ProducerConfig,
    ProducerRecord, ShareConsumer, ShareConsumerConfig, ShareRecord,
};
use parking_lot::Mutex;

use cluster::{Cluster, record};

const EXPLICIT: AcknowledgementMode = AcknowledgementMode::Explicit;

/// A group that starts at the first offset, and its topic.
struct Shared {
    cluster: Cluster,
    topic: String,
    group: String,
}

impl Shared {
    async fn start() -> Shared {
        let cluster = Cluster::start().await;
        let topic = cluster.topic("t", 1).await;
        let group = cluster.name("g");
        let reset = ConfigOperation::Set("earliest".to_owned());
        let settings = BTreeMap::from([("share.auto.offset.reset".to_owned(), reset)]);
        let kind = ConfigResourceType::Group;
        let altered = cluster.admin.alter_configs(kind, &group, &settings, false);
        altered.await.expect("the group is set up");
        Shared {
            cluster,
            topic,
            group,
        }
    }

    fn config(&self) -> ShareConsumerConfig {
        ShareConsumerConfig {
            group_id: self.group.clone(),
            ..ShareConsumerConfig::default()
        }
    }

    /// A member with its own connections.
    fn member(&self, config: ShareConsumerConfig) -> ShareConsumer {
        let client = Client::unconnected(self.cluster.admin.client().config().clone());
        let mut consumer = ShareConsumer::new(client, config).expect("a consumer");
        consumer.subscribe(std::slice::from_ref(&self.topic));
        consumer
    }

    /// Waits until this many records are unsettled.
    async fn await_lag(&self, lag: i64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let partition = (self.topic.clone(), 0);
        loop {
            let offsets = self.cluster.admin.share_group_offsets(&self.group);
            let offsets = offsets.await.expect("offsets");
            if offsets[&partition].and_then(|it| it.lag) == Some(lag) {
                return;
            }
            assert!(Instant::now() < deadline, "{offsets:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Writes this many records as one batch.
    async fn write(&self, count: usize) {
        let producer = self.cluster.producer(ProducerConfig {
            linger: Duration::from_secs(60),
            ..ProducerConfig::default()
        });
        for number in 0..count {
            let sent = ProducerRecord {
                partition: Some(0),
                ..record(&self.topic, "k", &format!("value {number}"))
            };
            producer.send(sent).await.expect("sent");
        }
        producer.close().await;
    }
}

fn offsets(records: &[ShareRecord]) -> Vec<i64> {
    records.iter().map(|it| it.record.offset).collect()
}

/// Polls until there is a result.
async fn next(consumer: &mut ShareConsumer) -> Result<Vec<ShareRecord>, ClientError> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let records = consumer.poll(Duration::from_millis(500)).await?;
        if !records.is_empty() {
            return Ok(records);
        }
    }
    panic!("no record came");
}

async fn committed(consumer: &mut ShareConsumer) -> Vec<Result<(), ClientError>> {
    let committed = consumer.commit().await.expect("an answer");
    committed.into_values().collect()
}

#[tokio::test]
async fn committed_records_are_done_and_others_are_redelivered() {
    let shared = Shared::start().await;
    let mut consumer = shared.member(shared.config());
    shared.write(3).await;
    assert_eq!(
        offsets(&next(&mut consumer).await.expect("records")),
        [0, 1, 2]
    );
    let results = committed(&mut consumer).await;
    assert!(matches!(results[..], [Ok(())]), "{results:?}");

    shared.write(2).await;
    assert_eq!(
        offsets(&next(&mut consumer).await.expect("records")),
        [3, 4]
    );
    // The last poll is followed by no other poll or commit.
    consumer.close().await.expect("closed");

    let mut other = shared.member(shared.config());
    let again = next(&mut other).await.expect("records");
    assert_eq!(offsets(&again), [3, 4]);
    assert!(again.iter().all(|it| it.delivery_count == 2));
    other.close().await.expect("closed");
}

#[tokio::test]
async fn each_record_gets_the_state_of_its_acknowledgement() {
    let shared = Shared::start().await;
    let mut consumer = shared.member(ShareConsumerConfig {
        acknowledgement_mode: EXPLICIT,
        ..shared.config()
    });
    let told: Arc<Mutex<Vec<(Vec<RangeInclusive<i64>>, bool)>>> = Arc::default();
    let telling = told.clone();
    consumer.set_listener(Box::new(move |_, offsets, result| {
        telling.lock().push((offsets.to_vec(), result.is_ok()));
    }));
    shared.write(4).await;
    let records = next(&mut consumer).await.expect("records");
    assert_eq!(offsets(&records), [0, 1, 2, 3]);
    let error = consumer.poll(Duration::ZERO).await.expect_err("too early");
    assert!(
        error.to_string().contains("must be acknowledged"),
        "{error}"
    );
    for (record, kind) in records.iter().zip([
        AcknowledgeType::Accept,
        AcknowledgeType::Renew,
        AcknowledgeType::Release,
        AcknowledgeType::Reject,
    ]) {
        consumer
            .acknowledge(record, AcknowledgeType::Renew)
            .expect("in hand");
        consumer
            .acknowledge(record, kind)
            .expect("in hand, and thought of again");
    }
    let renewed = next(&mut consumer).await.expect("records");
    assert_eq!((offsets(&renewed), renewed[0].delivery_count), (vec![1], 1));
    let all = vec![0..=0, 1..=1, 2..=2, 3..=3];
    assert_eq!(told.lock()[..], [(all, true)]);

    consumer
        .acknowledge(&renewed[0], AcknowledgeType::Accept)
        .expect("in hand");
    let results = committed(&mut consumer).await;
    assert!(matches!(results[..], [Ok(())]), "{results:?}");
    let released = next(&mut consumer).await.expect("records");
    assert_eq!(
        (offsets(&released), released[0].delivery_count),
        (vec![2], 2)
    );
    let error = consumer.acknowledge(&renewed[0], AcknowledgeType::Accept);
    error.expect_err("it is not in hand any more");
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn a_poll_returns_whole_batches_up_to_max_poll_records() {
    let shared = Shared::start().await;
    for _ in 0..3 {
        shared.write(4).await;
    }
    let mut consumer = shared.member(ShareConsumerConfig {
        max_poll_records: 5,
        ..shared.config()
    });
    let first = next(&mut consumer).await.expect("records");
    assert_eq!(offsets(&first), Vec::from_iter(0..8));
    let rest = next(&mut consumer).await.expect("records");
    assert_eq!(offsets(&rest), Vec::from_iter(8..12));
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn a_strict_record_limit_is_never_exceeded() {
    let shared = Shared::start().await;
    shared.write(8).await;
    let mut consumer = shared.member(ShareConsumerConfig {
        max_poll_records: 5,
        acquire_mode: AcquireMode::RecordLimit,
        ..shared.config()
    });
    let first = next(&mut consumer).await.expect("records");
    assert_eq!(offsets(&first), [0, 1, 2, 3, 4]);
    // The rest of the batch goes to other members.
    let mut other = shared.member(shared.config());
    assert_eq!(
        offsets(&next(&mut other).await.expect("records")),
        [5, 6, 7]
    );
    other.close().await.expect("closed");
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn acknowledgements_do_not_wait_for_the_next_records() {
    let shared = Shared::start().await;
    shared.write(2).await;
    shared.write(2).await;
    let mut consumer = shared.member(ShareConsumerConfig {
        max_poll_records: 1,
        ..shared.config()
    });
    assert_eq!(
        offsets(&next(&mut consumer).await.expect("records")),
        [0, 1]
    );
    assert_eq!(
        offsets(&next(&mut consumer).await.expect("records")),
        [2, 3]
    );
    // The poll has accepted the first two, although it already had all of them.
    shared.await_lag(2).await;
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn a_member_that_closes_while_joining_leaves_the_group() {
    let shared = Shared::start().await;
    // The coordinator exists, and knows the group.
    let mut first = shared.member(shared.config());
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let polled = first.poll(Duration::from_millis(300)).await;
        polled.expect("polled");
        let described = shared.cluster.admin.describe_share_group(&shared.group);
        if described.await.is_ok_and(|it| !it.0.members.is_empty()) {
            break;
        }
        assert!(Instant::now() < deadline, "it does not join");
    }
    first.close().await.expect("closed");
    for wait in [0, 1, 2, 5, 10] {
        let mut consumer = shared.member(shared.config());
        consumer
            .poll(Duration::from_millis(wait))
            .await
            .expect("polled");
        consumer.close().await.expect("closed");
        // Earlier requests are answered by then.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let described = shared.cluster.admin.describe_share_group(&shared.group);
        let members = described.await.expect("a group").0.members;
        assert_eq!(members, [], "after {wait} ms");
    }
}

#[tokio::test]
async fn acknowledgements_of_an_ended_session_fail() {
    let mut shared = Shared::start().await;
    if shared.cluster.broker.is_none() {
        return;
    }
    shared.write(2).await;
    let mut consumer = shared.member(ShareConsumerConfig {
        acknowledgement_mode: EXPLICIT,
        ..shared.config()
    });
    let records = next(&mut consumer).await.expect("records");
    let broker = shared.cluster.broker.as_mut().expect("a broker");
    broker.stop();
    broker.start_again();
    for record in &records {
        consumer
            .acknowledge(record, AcknowledgeType::Accept)
            .expect("in hand");
    }
    let results = committed(&mut consumer).await;
    assert!(matches!(results[..], [Err(_)]), "{results:?}");
    let again = next(&mut consumer).await.expect("records");
    assert_eq!(offsets(&again), [0, 1]);
    // Renewed records are received from the broker again, so they can be acknowledged.
    for record in &again {
        consumer
            .acknowledge(record, AcknowledgeType::Renew)
            .expect("in hand");
    }
    let broker = shared.cluster.broker.as_mut().expect("a broker");
    broker.stop();
    broker.start_again();
    let third = next(&mut consumer).await.expect("records");
    assert_eq!(offsets(&third), [0, 1]);
    for record in &third {
        consumer
            .acknowledge(record, AcknowledgeType::Accept)
            .expect("in hand");
    }
    let results = committed(&mut consumer).await;
    assert!(matches!(results[..], [Ok(())]), "{results:?}");
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn an_unreadable_batch_is_rejected_and_reported() {
    let mut shared = Shared::start().await;
    if shared.cluster.broker.is_none() {
        return;
    }
    for _ in 0..3 {
        shared.write(2).await;
    }
    // One byte of a value in the second batch is changed on disk.
    let broker = shared.cluster.broker.as_mut().expect("a broker");
    broker.stop();
    let folder = broker.data_dir().join(format!("{}-0", shared.topic));
    let segment = folder.join("00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).expect("a segment");
    let mut places = bytes.windows(7).enumerate();
    let place = places.by_ref().filter(|(_, it)| *it == b"value 1").nth(1);
    let place = place.expect("the second batch").0;
    bytes[place] = b'V';
    std::fs::write(&segment, bytes).expect("written");
    broker.start_again();

    let mut consumer = shared.member(shared.config());
    assert_eq!(
        offsets(&next(&mut consumer).await.expect("records")),
        [0, 1]
    );
    let error = next(&mut consumer).await.expect_err("a damaged batch");
    assert!(matches!(error, ClientError::Records { .. }), "{error}");
    assert_eq!(
        offsets(&next(&mut consumer).await.expect("records")),
        [4, 5]
    );
    let results = committed(&mut consumer).await;
    assert!(matches!(results[..], [Ok(())]), "{results:?}");
    // Nothing is locked, and nothing is delivered again.
    shared.await_lag(0).await;
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn a_recreated_topic_is_read_and_acknowledged() {
    let shared = Shared::start().await;
    shared.write(2).await;
    let mut consumer = shared.member(ShareConsumerConfig {
        acknowledgement_mode: EXPLICIT,
        ..shared.config()
    });
    let records = next(&mut consumer).await.expect("records");
    for record in &records {
        consumer
            .acknowledge(record, AcknowledgeType::Accept)
            .expect("in hand");
    }
    committed(&mut consumer).await;
    let admin = &shared.cluster.admin;
    admin.delete_topic(&shared.topic).await.expect("deleted");
    let again = ottla_client::admin::NewTopic {
        name: shared.topic.clone(),
        partitions: Some(1),
        ..Default::default()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while admin
        .create_topics(std::slice::from_ref(&again), false)
        .await
        .expect("an answer")[0]
        .error_code
        != 0
    {
        assert!(Instant::now() < deadline, "the topic is not deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    shared.write(1).await;
    let records = next(&mut consumer).await.expect("records");
    assert_eq!(offsets(&records), [0]);
    consumer
        .acknowledge(&records[0], AcknowledgeType::Accept)
        .expect("in hand");
    let results = committed(&mut consumer).await;
    assert!(matches!(results[..], [Ok(())]), "{results:?}");
    consumer.close().await.expect("closed");
}

#[tokio::test]
async fn a_waiting_poll_is_woken_and_an_unsubscribed_one_fails() {
    let shared = Shared::start().await;
    let mut consumer = shared.member(shared.config());
    let waker = consumer.waker();
    let wake = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        waker.wake_up();
    });
    let error = consumer.poll(Duration::MAX).await.expect_err("woken");
    assert!(matches!(error, ClientError::WokenUp), "{error}");
    wake.await.expect("no panic");

    shared.write(1).await;
    assert_eq!(offsets(&next(&mut consumer).await.expect("records")), [0]);
    consumer.waker().wake_up();
    let error = consumer.commit().await.expect_err("woken");
    assert!(matches!(error, ClientError::WokenUp), "{error}");
    assert!(consumer.commit().await.is_ok());

    consumer.subscribe(&[]);
    let error = consumer.poll(Duration::MAX).await.expect_err("no topic");
    assert!(error.to_string().contains("not subscribed"), "{error}");
    consumer.close().await.expect("closed");
}
