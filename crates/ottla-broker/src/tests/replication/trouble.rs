//! Replication with obstacles: a partition that hangs, a slow disk, records of an old cluster, and
//! a coordinator whose records are on too few replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_protocol::messages::OffsetFetchRequest;
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_types::{ErrorCode, TopicPartition};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Cluster, PATIENCE, TOPIC, code, has_records, registration_of};
use crate::tests::groups::{committing, fetching};
use crate::tests::produce_and_fetch::fetch_from;
use crate::tests::topic_id;
use crate::{Broker, Partition};
use ottla_coordination::groups::OFFSETS_TOPIC;
use ottla_testkit::old_message;

/// The Fetch of broker 2 to broker 1, from the start of its log.
async fn fetch_as_follower(cluster: &Cluster, max_wait_ms: i32) -> PartitionData {
    let mut request = fetch_from(TOPIC, 0, 0);
    request.max_wait_ms = max_wait_ms;
    request.min_bytes = 1;
    request.replica_id = 2;
    let response = cluster.connect(1).await.ask(12, &request).await;
    response.responses[0].partitions[0].clone()
}

/// Fetches until the leader serves it.
async fn until_served(cluster: &Cluster) {
    let give_up = Instant::now() + PATIENCE;
    while !has_records(&fetch_as_follower(cluster, 50).await) {
        assert!(Instant::now() < give_up, "it is not served again");
    }
}

/// Makes a partition hang until the sender is dropped. Occupies no thread that serves connections.
async fn hang(
    partition: &Arc<Partition>,
    broker: &Arc<Broker>,
) -> (std::sync::mpsc::Sender<()>, JoinHandle<Option<bool>>) {
    let (release, released) = std::sync::mpsc::channel();
    let (says, it_hangs) = tokio::sync::oneshot::channel();
    let wait = move |_: &mut ottla_log::Log| {
        let _ = says.send(());
        released.recv().is_err()
    };
    let (partition, broker) = (Arc::clone(partition), Arc::clone(broker));
    let runtime = tokio::runtime::Handle::current();
    let hung = tokio::task::spawn_blocking(move || {
        runtime.block_on(partition.with_log(&broker.host, wait))
    });
    it_hangs.await.expect("it hangs");
    (release, hung)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_partition_does_not_delay_other_fetches() {
    let mut cluster = Cluster::start(2, &[]).await;
    cluster.create_topic(&[1, 2], &[]).await;
    cluster.produce(1, 1, &["a"]).await;
    cluster.stop(2).await;
    let partition = cluster.partition(1);
    let broker = Arc::clone(cluster.member(1).broker());

    let (release, hung) = hang(&partition, &broker).await;
    let answer = timeout(PATIENCE, fetch_as_follower(&cluster, 50)).await;
    let answer = answer.expect("answered while it hangs");
    assert_eq!(answer.error_code, 0);
    assert!(
        !has_records(&answer),
        "the leader has not said that it serves it"
    );
    for _ in 0..40 {
        fetch_as_follower(&cluster, 0).await;
    }
    drop(release);
    assert_eq!(hung.await.expect("it ends"), Some(true));
    until_served(&cluster).await;

    // A parked request is answered as soon as it may be served.
    let (release, hung) = hang(&partition, &broker).await;
    let fetch = fetch_as_follower(&cluster, 10 * PATIENCE.as_millis() as i32);
    tokio::pin!(fetch);
    let is_parked = async {
        while partition.followers.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = &mut fetch => panic!("answered while it hangs: {answer:?}"),
        () = is_parked => {}
    }
    drop(release);
    let answer = timeout(PATIENCE, fetch).await;
    assert!(!has_records(
        &answer.expect("answered when it may be served")
    ));
    assert_eq!(hung.await.expect("it ends"), Some(true));
    until_served(&cluster).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_counts_after_the_flush_that_flush_messages_requires() {
    let cluster = Cluster::start(2, &[]).await;
    cluster
        .create_topic(
            &[1, 2],
            &[("flush.messages", "1"), ("min.insync.replicas", "2")],
        )
        .await;
    assert_eq!(code(&cluster.produce(1, -1, &["a"]).await), ErrorCode::None);
    let follower = cluster.partition(2);
    assert_eq!(follower.reader().recovery_point().0, 1);
    // A slow disk.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(parking_lot::Mutex::new(released));
    for _ in 0..ottla_storage::log_dirs::THREADS_PER_DIRECTORY {
        let released = Arc::clone(&released);
        let jobs = follower.log_location().threads.jobs.clone();
        jobs.start(move || {
            let _ = released.lock().recv();
        });
    }
    let produced = cluster.produce(1, -1, &["b"]);
    tokio::pin!(produced);
    let in_file = async {
        while follower.reader().log_end_offset().0 < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    tokio::select! {
        answer = &mut produced => panic!("acknowledged by a file: {answer:?}"),
        () = in_file => {}
    }
    assert_eq!(follower.reader().recovery_point().0, 1);
    drop(release);
    assert_eq!(code(&produced.await), ErrorCode::None);
    assert_eq!(follower.reader().recovery_point().0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_an_old_cluster_are_replicated_unchanged() {
    let mut cluster = Cluster::start(2, &[]).await;
    cluster.create_topic(&[1], &[]).await;
    let segment = |cluster: &Cluster, id: i32| {
        let dir = cluster.partition(id).reader().dir();
        dir.join("00000000000000000000.log")
    };
    let path = segment(&cluster, 1);
    cluster.stop(1).await;
    let messages = [
        old_message(0, 0, 0, b"magic 0"),
        old_message(1, 0, 1, b"magic 1"),
        old_message(1, 0, 5, b"after a compacted range"),
    ];
    std::fs::write(&path, messages.concat()).expect("written");
    cluster.start_again(1).await;
    assert_eq!(
        code(&cluster.produce(1, 1, &["new"]).await),
        ErrorCode::None
    );
    assert_eq!(cluster.partition(1).reader().log_end_offset().0, 7);
    let directories = [1, 2].map(|id| cluster.member(id).directory());
    let added = MetadataRecord::PartitionChange(PartitionChangeRecord {
        partition_id: 0,
        topic_id: topic_id(TOPIC),
        replicas: Some(vec![1, 2]),
        directories: Some(directories.to_vec()),
        ..Default::default()
    });
    cluster.write(vec![added]).await;
    cluster
        .until("2 is in sync", |cluster| cluster.isr(1) == [1, 2])
        .await;
    assert_eq!(
        code(&cluster.produce(1, -1, &["more"]).await),
        ErrorCode::None
    );
    let bytes = |id| std::fs::read(segment(&cluster, id)).expect("is there");
    assert!(bytes(2) == bytes(1));
    assert_eq!(cluster.partition(2).reader().log_end_offset().0, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_work_after_a_start_below_min_isr() {
    let settings = [("offsets.commit.timeout.ms", "5000")];
    let mut cluster = Cluster::start(2, &settings).await;
    let replicas = [("min.insync.replicas", "2")];
    cluster.create(OFFSETS_TOPIC, &[1, 2], &replicas).await;
    // The topic whose offsets are committed.
    cluster.create("t", &[1], &[]).await;
    let commit = async |cluster: &Cluster, offset| {
        let mut request = committing(&Default::default(), offset);
        request.generation_id_or_member_epoch = -1;
        request.topics[0].partitions[0].partition_index = 0;
        let mut client = cluster.connect(1).await;
        let give_up = Instant::now() + PATIENCE;
        loop {
            let response = client.ask(9, &request).await;
            let code = ErrorCode::from_code(response.topics[0].partitions[0].error_code);
            if code != ErrorCode::CoordinatorLoadInProgress || Instant::now() > give_up {
                return code;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(commit(&cluster, 5).await, ErrorCode::None);
    cluster.stop(2).await;
    let partition = TopicPartition::new(OFFSETS_TOPIC, 0);
    let left = |cluster: &Cluster| {
        let registration = registration_of(cluster.member(1), OFFSETS_TOPIC);
        registration.is_some_and(|it| it.isr.len() == 1)
    };
    // The leader waits for it in vain and removes it from the ISR.
    assert_ne!(commit(&cluster, 9).await, ErrorCode::None);
    cluster.until("2 leaves", left).await;
    let found = cluster.member(1).broker().partitions.find(&partition);
    let reader = found.expect("it is there").reader().clone();
    assert!(reader.high_watermark() < reader.log_end_offset());

    cluster.fence(1, 2).await;
    cluster.stop(1).await;
    cluster.start_again(1).await;
    let mut client = cluster.connect(1).await;
    let give_up = Instant::now() + PATIENCE;
    let group = loop {
        let request = OffsetFetchRequest {
            require_stable: false,
            ..fetching()
        };
        let response = client.ask(9, &request).await;
        let group = response.groups[0].clone();
        if group.error_code == 0 {
            break group;
        }
        assert!(Instant::now() < give_up, "{group:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(group.topics[0].partitions[0].committed_offset, 5);
    // The other replica has the record or fetches it; then it counts.
    cluster.start_again(2).await;
    let counts = async {
        loop {
            let response = client.ask(9, &fetching()).await;
            let group = &response.groups[0];
            let topic = group.topics.first();
            if topic.is_some_and(|topic| topic.partitions[0].committed_offset == 9) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            cluster.sync().await;
        }
    };
    let counted = tokio::time::timeout(PATIENCE, counts).await;
    counted.expect("written records count when they are committed");
}
