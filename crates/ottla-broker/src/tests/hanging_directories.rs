//! A log directory whose disk hangs instead of failing: other directories are not affected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ottla_log::Log;
use ottla_log::checkpoint::{
    LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint, PARTITION_METADATA, RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::{BrokerHeartbeatRequest, ListOffsetsRequest};
use ottla_types::{ErrorCode, Offset, TopicPartition};

use super::client::Client;
use super::directories::{Node, TOPIC, create, create_topic, produce, produce_into, until};
use ottla_partition::partition::append_pace::AppendTime;
use ottla_storage::log_dirs::THREADS_PER_DIRECTORY;

const PATIENCE: Duration = Duration::from_secs(30);

/// A node with two partitions, each in its own directory.
async fn start(settings: &[(&str, &str)]) -> (Node, Client) {
    let node = Node::start(settings).await;
    let mut client = node.connect().await;
    create(&mut client, 2).await;
    assert_ne!(node.directory(0).0, node.directory(1).0);
    for index in [0, 1] {
        let id = node
            .partition(index)
            .reader()
            .dir()
            .join(PARTITION_METADATA);
        until("the id of the topic is written", || id.exists()).await;
    }
    (node, client)
}

/// Occupies all threads of a partition's directory, like a disk that hangs, until the returned
/// sender is dropped. Work that the directory began before has ended on return: it may hold the run
/// token of a partition, and would process what comes next.
async fn hang(node: &Node, index: i32) -> std::sync::mpsc::Sender<()> {
    let partition = node.partition(index);
    let threads = &partition.log_location().threads;
    let (release, released) = std::sync::mpsc::channel();
    let released = Arc::new(parking_lot::Mutex::new(released));
    let occupied = Arc::new(AtomicUsize::new(0));
    for _ in 0..THREADS_PER_DIRECTORY {
        for share in [
            &threads.jobs,
            &threads.reads,
            &threads.appends,
            &threads.topic_ids,
        ] {
            let (released, occupied) = (Arc::clone(&released), Arc::clone(&occupied));
            share.start(move || {
                occupied.fetch_add(1, Ordering::Relaxed);
                let _ = released.lock().recv();
            });
        }
    }
    until("all threads of the directory are occupied", || {
        occupied.load(Ordering::Relaxed) == THREADS_PER_DIRECTORY
    })
    .await;
    release
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_directory_does_not_delay_flushes_of_another() {
    let (node, mut client) = start(&[("log.flush.interval.messages", "1")]).await;
    let hung = hang(&node, 0).await;
    let mut of_hung = node.connect().await;
    let waiting = tokio::spawn(async move { produce(&mut of_hung, 0, "a").await });
    assert_eq!(produce(&mut client, 1, "b").await, ErrorCode::None);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "its flush waits for the disk");
    drop(hung);
    assert_eq!(waiting.await.unwrap(), ErrorCode::None);
}

/// Kafka moves a log aside that has records and no topic ID.
#[tokio::test(flavor = "multi_thread")]
async fn no_record_is_acknowledged_before_the_topic_id_is_on_disk() {
    let (node, mut client) = start(&[]).await;
    let hung = hang(&node, 0).await;
    create_topic(&mut client, "late", 2).await;
    let dir_of = |topic: &str, index| {
        let partition = node.broker().partitions.get(topic, index).unwrap();
        partition.reader().dir()
    };
    let lies_with = |index| dir_of("late", index).parent() == dir_of(TOPIC, 0).parent();
    let (waiting, well) = if lies_with(0) { (0, 1) } else { (1, 0) };
    assert!(lies_with(waiting) && !lies_with(well));
    let produced = produce_into(&mut client, "late", well, "a").await;
    assert_eq!(produced, ErrorCode::None);
    assert!(dir_of("late", well).join(PARTITION_METADATA).exists());
    let mut of_waiting = node.connect().await;
    let produced =
        tokio::spawn(async move { produce_into(&mut of_waiting, "late", waiting, "a").await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!produced.is_finished(), "its id waits for the disk");
    assert!(!dir_of("late", waiting).join(PARTITION_METADATA).exists());
    drop(hung);
    assert_eq!(produced.await.unwrap(), ErrorCode::None);
    assert!(dir_of("late", waiting).join(PARTITION_METADATA).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn flush_ms_is_kept_while_another_directory_hangs() {
    let (node, mut client) = start(&[
        ("log.initial.task.delay.ms", "0"),
        ("log.flush.scheduler.interval.ms", "10"),
        ("log.flush.interval.ms", "20"),
    ])
    .await;
    let is_flushed = |index| {
        let partition = node.partition(index);
        let log = partition.reader();
        log.recovery_point() == log.log_end_offset()
    };
    // In both orders, because the schedules may reach either first.
    for (hanging, well) in [(0, 1), (1, 0)] {
        let hung = hang(&node, hanging).await;
        for index in [hanging, well, well] {
            assert_eq!(produce(&mut client, index, "a").await, ErrorCode::None);
            let deadline = Instant::now() + PATIENCE;
            while index == well && !is_flushed(well) {
                assert!(Instant::now() < deadline, "{well} is flushed");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert!(!is_flushed(hanging), "its flush waits for the disk");
        drop(hung);
        let deadline = Instant::now() + PATIENCE;
        while !is_flushed(hanging) {
            assert!(Instant::now() < deadline, "{hanging} is flushed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_of_a_directory_are_written_while_another_hangs() {
    let (node, mut client) = start(&[
        ("log.initial.task.delay.ms", "0"),
        ("log.flush.scheduler.interval.ms", "10"),
        ("log.flush.interval.ms", "10"),
        ("log.flush.offset.checkpoint.interval.ms", "10"),
        ("log.flush.start.offset.checkpoint.interval.ms", "10"),
        ("replica.high.watermark.checkpoint.interval.ms", "10"),
    ])
    .await;
    let written = |index: i32, file: &str| {
        let path = node.directory(index).0.unwrap().join(file);
        let checkpoint = OffsetCheckpoint::read(&path).ok()?;
        let of = TopicPartition::new(TOPIC, index);
        checkpoint.offsets.get(&of).copied()
    };
    for (round, (hanging, well)) in [(0, 1), (1, 0)].into_iter().enumerate() {
        let hung = hang(&node, hanging).await;
        // Every schedule has run by now.
        tokio::time::sleep(Duration::from_millis(100)).await;
        for index in [hanging, well] {
            assert_eq!(produce(&mut client, index, "a").await, ErrorCode::None);
        }
        let end = Offset(round as i64 + 1);
        let move_start = move |log: &mut Log| log.increment_log_start_offset(end).is_ok();
        let moved = node
            .partition(well)
            .with_log(&node.broker().host, move_start)
            .await;
        assert_eq!(moved, Some(true));
        for file in [
            REPLICATION_OFFSET_CHECKPOINT,
            RECOVERY_POINT_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
        ] {
            until(file, || written(well, file) == Some(end)).await;
        }
        let of_hung = written(hanging, REPLICATION_OFFSET_CHECKPOINT);
        assert_ne!(of_hung, Some(end), "it waits for the disk");
        drop(hung);
        until("the disk is back", || {
            written(hanging, REPLICATION_OFFSET_CHECKPOINT) == Some(end)
        })
        .await;
    }
}

/// Makes appends to a partition's directory run on maintenance threads, for longer than any test
/// takes.
fn make_slow(node: &Node, index: i32) {
    const HOUR_MS: u64 = 3_600_000;
    let partition = node.partition(index);
    for _ in 0..3 {
        let pace = &partition.log_location().pace;
        let stalled = AppendTime::Stalled(Duration::from_secs(1));
        pace.note(stalled, || node.broker().now_ms() + HOUR_MS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_and_appends_continue_while_another_directory_hangs() {
    let (node, mut client) = start(&[
        ("log.initial.task.delay.ms", "0"),
        ("log.retention.check.interval.ms", "10"),
        ("log.retention.ms", "-1"),
        ("log.retention.bytes", "1"),
    ])
    .await;
    let large = "x".repeat(400_000);
    for (hanging, well) in [(0, 1), (1, 0)] {
        make_slow(&node, hanging);
        let hung = hang(&node, hanging).await;
        let mut of_hung = node.connect().await;
        let waiting = tokio::spawn(async move { produce(&mut of_hung, hanging, "a").await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        let before = node.partition(well).reader().log_start_offset();
        // Three of them fill a segment.
        for _ in 0..4 {
            assert_eq!(produce(&mut client, well, &large).await, ErrorCode::None);
        }
        until("old segments are deleted", || {
            node.partition(well).reader().log_start_offset() > before
        })
        .await;
        if waiting.is_finished() {
            let outcome = waiting.await;
            panic!("its append should wait for the disk of partition {hanging}: {outcome:?}");
        }
        drop(hung);
        assert_eq!(waiting.await.unwrap(), ErrorCode::None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_holds_the_run_token_does_not_append_to_a_directory_that_became_slow() {
    let (node, mut client) = start(&[]).await;
    assert_eq!(produce(&mut client, 0, "a").await, ErrorCode::None);
    let (partition, host) = (node.partition(0), Arc::clone(&node.broker().host));
    let runtime = tokio::runtime::Handle::current();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let holder = tokio::task::spawn_blocking(move || {
        let looking = partition.look(&host, move |_, _| {
            let _ = begun.send(());
            let _ = released.recv();
        });
        runtime.block_on(looking)
    });
    has_begun.await.unwrap();
    make_slow(&node, 0);
    let hung = hang(&node, 0).await;
    let mut of_hung = node.connect().await;
    let waiting = tokio::spawn(async move { produce(&mut of_hung, 0, "b").await });
    // The append is in the inbox by then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(release);
    assert!(holder.await.unwrap().is_some());
    assert_eq!(node.partition(0).reader().log_end_offset(), Offset(1));
    drop(hung);
    assert_eq!(waiting.await.unwrap(), ErrorCode::None);
}

/// The first offset at or after a timestamp. The search reads files.
async fn offset_at(client: &mut Client, index: i32, timestamp: i64) -> i64 {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: TOPIC.into(),
            partitions: vec![ListOffsetsPartition {
                partition_index: index,
                timestamp,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = client.ask(7, &request).await;
    let found = &answer.topics[0].partitions[0];
    assert_eq!(found.error_code, 0);
    found.offset
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_by_time_do_not_wait_for_a_hanging_directory() {
    let (node, mut client) = start(&[]).await;
    for index in 0..2 {
        assert_eq!(produce(&mut client, index, "a").await, ErrorCode::None);
    }
    let hung = hang(&node, 0).await;
    let mut of_hung = node.connect().await;
    let waiting = tokio::spawn(async move { offset_at(&mut of_hung, 0, 0).await });
    assert_eq!(offset_at(&mut client, 1, 0).await, 0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished(), "it waits for the disk");
    drop(hung);
    assert_eq!(waiting.await.unwrap(), 0);
}

/// Opens and deletes logs as slowly as a disk that hangs, until the returned sender is dropped.
async fn hang_opening(node: &Node) -> std::sync::mpsc::Sender<()> {
    let broker = Arc::clone(node.broker());
    let (release, released) = std::sync::mpsc::channel();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _changing = broker.partitions.changing.lock();
        let _ = begun.send(());
        let _ = released.recv();
    });
    has_begun.await.unwrap();
    release
}

/// In Kafka, the thread of `MetadataLoader` follows the metadata, separate from that of the quorum.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cannot_open_its_logs_stays_in_the_quorum() {
    let (node, mut client) = start(&[]).await;
    let hung = hang_opening(&node).await;
    let mut of_hung = node.connect().await;
    let creating = tokio::spawn(async move { create_topic(&mut of_hung, "late", 1).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let broker = node.broker();
    // If it waited for the logs, it would wait until `hung` is dropped.
    let in_time = Duration::from_secs(30);
    let quorum = broker.node.quorum().unwrap();
    let described = tokio::time::timeout(in_time, quorum.describe()).await;
    assert!(described.expect("it answers").is_some());
    let heartbeat = BrokerHeartbeatRequest {
        broker_id: broker.broker_id().value(),
        broker_epoch: broker.node.membership().unwrap().broker_epoch().value(),
        current_metadata_offset: i64::MAX,
        ..Default::default()
    };
    let heard = tokio::time::timeout(in_time, broker.node.ask_controller(heartbeat)).await;
    assert!(!heard.expect("it decides").unwrap().is_fenced);
    assert!(!creating.is_finished(), "the topic is not here yet");
    drop(hung);
    creating.await.unwrap();
    // A client that received the response to CreateTopics finds the topic.
    let produced = produce_into(&mut client, "late", 0, "a").await;
    assert_eq!(produced, ErrorCode::None);
}
