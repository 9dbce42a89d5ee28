//! Groups whose coordinator assigns the partitions (`group.protocol=consumer`, KIP-848), against a
//! real broker.
//!
//! With a broker that does not support them, the error must say so, and which setting to use
//! instead.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::{
    Consumer, ConsumerConfig, GroupProtocol, OffsetReset, ProducerConfig, ProducerRecord,
    RebalanceListener,
};
use ottla_protocol::ApiKey;
use parking_lot::Mutex;

use crate::cluster::{Cluster, read, record};

fn config(group: &str) -> ConsumerConfig {
    ConsumerConfig {
        group_id: Some(group.to_owned()),
        group_protocol: GroupProtocol::Consumer,
        offset_reset: OffsetReset::Earliest,
        ..ConsumerConfig::default()
    }
}

fn member(cluster: &Cluster, config: ConsumerConfig) -> Consumer {
    Consumer::new(cluster.admin.client().clone(), config)
}

/// Whether the broker supports such groups.
async fn are_served(cluster: &Cluster) -> bool {
    let client = cluster.admin.client();
    let served = client.serves(ApiKey::ConsumerGroupHeartbeat).await;
    served.expect("an answer")
}

/// Polls all members until each has the given number of partitions.
async fn settle(members: &mut [&mut Consumer], wanted: &[usize]) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let held: Vec<usize> = members.iter().map(|it| it.assignment().len()).collect();
        if held == wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{held:?} instead of {wanted:?}");
        for member in members.iter_mut() {
            member
                .poll(Duration::from_millis(50))
                .await
                .expect("polled");
        }
    }
}

async fn fill(cluster: &Cluster, topic: &str, partitions: i32, count: i32) {
    let producer = cluster.producer(ProducerConfig::default());
    for number in 0..count {
        let sent = ProducerRecord {
            partition: Some(number % partitions),
            ..record(topic, "k", &number.to_string())
        };
        producer.send(sent).await.expect("sent");
    }
    producer.close().await;
}

#[tokio::test]
async fn the_error_for_a_broker_without_the_protocol_names_the_setting() {
    let cluster = Cluster::start().await;
    if are_served(&cluster).await {
        return;
    }
    let mut consumer = member(&cluster, config(&cluster.name("g")));
    consumer.subscribe(&[cluster.name("t")]).expect("a group");
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        assert!(Instant::now() < deadline, "nothing was said");
        if let Err(error) = consumer.poll(Duration::from_millis(100)).await {
            break error.to_string();
        }
    };
    assert!(
        error.starts_with("group.protocol=consumer: ")
            && error.contains("set group.protocol=classic"),
        "{error}"
    );
    consumer.close().await.expect("there is nothing to leave");
}

#[tokio::test]
async fn members_get_assignments_from_the_coordinator() {
    let cluster = Cluster::start().await;
    if !are_served(&cluster).await {
        return;
    }
    let topic = cluster.topic("t", 4).await;
    let group = cluster.name("g");
    fill(&cluster, &topic, 4, 40).await;

    let mut first = member(&cluster, config(&group));
    first
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    assert_eq!(read(&mut first, 40).await.len(), 40);
    assert_eq!(first.assignment().len(), 4);
    first.commit().await.expect("committed");

    let mut second = member(&cluster, config(&group));
    second
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    settle(&mut [&mut first, &mut second], &[2, 2]).await;
    let all: BTreeSet<_> = first
        .assignment()
        .into_iter()
        .chain(second.assignment())
        .collect();
    assert_eq!(all.len(), 4);
    // Committed records are not read again by the new owner.
    fill(&cluster, &topic, 4, 4).await;
    let (mut left, mut right) = (read(&mut first, 2).await, read(&mut second, 2).await);
    left.append(&mut right);
    assert!(left.iter().all(|record| record.offset == 10), "{left:?}");

    second.close().await.expect("left");
    settle(&mut [&mut first], &[4]).await;
    assert!(
        first.group_metadata().generation_id > 0,
        "the member's epoch"
    );
    first.close().await.expect("left");
    assert_eq!(cluster.committed(&group).await, [11; 4]);
}

#[tokio::test]
async fn the_coordinator_finds_topics_by_an_expression() {
    let cluster = Cluster::start().await;
    if !are_served(&cluster).await {
        return;
    }
    let topic = cluster.topic("regex-a", 2).await;
    cluster.topic("other-a", 2).await;
    let mut consumer = member(&cluster, config(&cluster.name("g")));
    let suffix = topic.trim_start_matches("regex-a").to_owned();
    consumer
        .subscribe_regex(&format!("regex-.*{suffix}"))
        .expect("a group");
    settle(&mut [&mut consumer], &[2]).await;
    assert!(consumer.assignment().iter().all(|(name, _)| *name == topic));
    consumer.close().await.expect("left");

    let mut refused = member(&cluster, config(&cluster.name("g2")));
    refused.subscribe_regex("(").expect("a group");
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        assert!(Instant::now() < deadline, "nothing was said");
        if let Err(error) = refused.poll(Duration::from_millis(100)).await {
            break error.to_string();
        }
    };
    assert!(error.contains("INVALID_REGULAR_EXPRESSION"), "{error}");
}

#[tokio::test]
async fn the_coordinator_must_know_the_server_assignor() {
    let cluster = Cluster::start().await;
    if !are_served(&cluster).await {
        return;
    }
    let topic = cluster.topic("t", 3).await;
    let group = cluster.name("g");
    let with = |assignor: &str| ConsumerConfig {
        group_remote_assignor: Some(assignor.to_owned()),
        ..config(&group)
    };
    let mut range = member(&cluster, with("range"));
    range
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    settle(&mut [&mut range], &[3]).await;
    let mut unknown = member(&cluster, with("mine"));
    unknown
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        assert!(Instant::now() < deadline, "nothing was said");
        if let Err(error) = unknown.poll(Duration::from_millis(100)).await {
            break error.to_string();
        }
    };
    assert!(error.contains("UNSUPPORTED_ASSIGNOR"), "{error}");
    range.close().await.expect("left");
}

/// A static member that leaves temporarily gets its partitions back, and no other member gets them
/// before that.
#[tokio::test]
async fn a_static_member_gets_its_assignment_back() {
    let cluster = Cluster::start().await;
    if !are_served(&cluster).await {
        return;
    }
    let topic = cluster.topic("t", 4).await;
    let group = cluster.name("g");
    let fixed = || ConsumerConfig {
        group_instance_id: Some("one".into()),
        ..config(&group)
    };
    let mut first = member(&cluster, fixed());
    let mut other = member(&cluster, config(&group));
    first
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    other
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    settle(&mut [&mut first, &mut other], &[2, 2]).await;
    let had = first.assignment();
    first.close().await.expect("left for a while");
    for _ in 0..10 {
        other
            .poll(Duration::from_millis(100))
            .await
            .expect("polled");
    }
    assert_eq!(other.assignment().len(), 2, "the place is kept");
    let mut again = member(&cluster, fixed());
    again
        .subscribe(std::slice::from_ref(&topic))
        .expect("a group");
    settle(&mut [&mut again], &[2]).await;
    assert_eq!(again.assignment(), had);
    again.close().await.expect("left");
    other.close().await.expect("left");
}

/// The calls of a listener.
#[derive(Clone, Default)]
struct Callbacks(Arc<Mutex<Vec<String>>>);

impl RebalanceListener for Callbacks {
    fn on_partitions_assigned(&mut self, partitions: &[(String, i32)]) {
        self.0.lock().push(format!("assigned {}", partitions.len()));
    }

    fn on_partitions_revoked(&mut self, partitions: &[(String, i32)]) {
        self.0.lock().push(format!("revoked {}", partitions.len()));
    }

    fn on_partitions_lost(&mut self, partitions: &[(String, i32)]) {
        self.0.lock().push(format!("lost {}", partitions.len()));
    }
}

/// A member that does not poll in time is removed, loses its partitions, and rejoins with the next
/// poll.
#[tokio::test]
async fn a_member_that_does_not_poll_leaves_and_joins_again() {
    let cluster = Cluster::start().await;
    if !are_served(&cluster).await {
        return;
    }
    let topic = cluster.topic("t", 2).await;
    let calls = Callbacks::default();
    let mut consumer = member(
        &cluster,
        ConsumerConfig {
            max_poll_interval: Duration::from_secs(5),
            ..config(&cluster.name("g"))
        },
    );
    consumer
        .subscribe_with_listener(std::slice::from_ref(&topic), Box::new(calls.clone()))
        .expect("a group");
    settle(&mut [&mut consumer], &[2]).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    consumer
        .poll(Duration::from_millis(50))
        .await
        .expect("polled");
    settle(&mut [&mut consumer], &[2]).await;
    consumer.close().await.expect("left");
    // An empty first assignment, before the coordinator knows the topic, is valid.
    let mut calls = calls.0.lock().clone();
    calls.retain(|calls| calls != "assigned 0");
    assert_eq!(calls, ["assigned 2", "lost 2", "assigned 2", "revoked 2"]);
}
