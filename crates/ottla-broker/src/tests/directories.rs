//! Several log directories: the placement of replicas, moves while the replicas are served, and
//! failures of a directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_config::{BrokerConfig, single_node_properties};
use ottla_log::StorageError;
use ottla_protocol::messages::alter_replica_log_dirs_request::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic,
};
use ottla_protocol::messages::delete_topics_request::DeleteTopicState;
use ottla_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use ottla_protocol::messages::*;
use ottla_types::{BrokerId, DirectoryId, ErrorCode, TopicPartition};

use super::client::Client;
use super::creation_with;
use super::produce_and_fetch::{batch, fetch_from, produce_to};
use crate::{Broker, Partition, RunningBroker};

pub(super) const TOPIC: &str = "orders";
const PATIENCE: Duration = Duration::from_secs(30);

/// A node with two log directories and one for the metadata log.
pub(crate) struct Node {
    data: tempfile::TempDir,
    running: Option<RunningBroker>,
}

impl Node {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Node {
        let mut node = Node {
            data: tempfile::tempdir().unwrap(),
            running: None,
        };
        node.start_again(settings).await;
        node
    }

    pub(super) async fn start_again(&mut self, settings: &[(&str, &str)]) {
        let dirs = self.dirs().map(|dir| dir.display().to_string());
        let mut properties = single_node_properties(&dirs.join(","), "127.0.0.1:0", "127.0.0.1:0");
        let metadata = self.data.path().join("metadata").display().to_string();
        properties.set("metadata.log.dir", &metadata);
        for (key, value) in settings {
            properties.set(key, value);
        }
        let config = BrokerConfig::from_properties(&properties).unwrap().0;
        self.running = Some(Broker::format_and_start(config).await.unwrap());
    }

    pub(super) async fn stop(&mut self) {
        self.running.take().unwrap().stop().await;
    }

    fn dirs(&self) -> [PathBuf; 2] {
        ["first", "second"].map(|name| self.data.path().join(name))
    }

    pub(super) fn broker(&self) -> &Arc<Broker> {
        self.running.as_ref().unwrap().broker()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.running.as_ref().unwrap().listeners()[0].local_addr).await
    }

    /// The directory of the replica according to this broker, and according to the controller.
    pub(super) fn directory(&self, index: i32) -> (Option<PathBuf>, Option<DirectoryId>) {
        let partition = self.broker().partitions.get(TOPIC, index);
        let dir = partition.map(|partition| partition.reader().dir());
        let image = self.broker().metadata();
        let topic = image.topics.by_name(TOPIC);
        let registration = topic.and_then(|topic| topic.partition(index.into()));
        let assigned = registration.and_then(|known| known.directory(BrokerId(1)));
        (
            dir.and_then(|dir| dir.parent().map(Path::to_path_buf)),
            assigned,
        )
    }

    pub(crate) fn partition(&self, index: i32) -> Arc<Partition> {
        self.broker().partitions.get(TOPIC, index).unwrap()
    }

    fn id_of(&self, dir: &Path) -> DirectoryId {
        let described = self.broker().log_dirs().unwrap().describe();
        let found = described.iter().find(|known| known.path == dir);
        found.unwrap().directory_id
    }

    /// The directory of a replica, and the other directory.
    fn where_and_elsewhere(&self, index: i32) -> (PathBuf, PathBuf) {
        let [first, second] = self.dirs();
        match self.directory(index).0 {
            Some(dir) if dir == first => (first, second),
            _ => (second, first),
        }
    }

    /// The entries of a directory that belong to the topic.
    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(TOPIC)).collect()
    }
}

pub(crate) async fn create(client: &mut Client, partitions: i32) {
    create_topic(client, TOPIC, partitions).await;
}

pub(super) async fn create_topic(client: &mut Client, name: &str, partitions: i32) {
    let request = creation_with(name, partitions, 1, &[("segment.bytes", "1048576")]);
    let created = client.ask(7, &request).await;
    assert_eq!(created.topics[0].error_code, 0);
}

pub(crate) async fn produce(client: &mut Client, index: i32, value: &str) -> ErrorCode {
    produce_into(client, TOPIC, index, value).await
}

pub(super) async fn produce_into(
    client: &mut Client,
    topic: &'static str,
    index: i32,
    value: &str,
) -> ErrorCode {
    let request = produce_to(topic, index, 1, batch(&[value]));
    let answer = client.ask(9, &request).await;
    ErrorCode::from_code(answer.responses[0].partition_responses[0].error_code)
}

async fn move_to(client: &mut Client, index: i32, path: &Path) -> ErrorCode {
    let request = AlterReplicaLogDirsRequest {
        dirs: vec![AlterReplicaLogDir {
            path: path.display().to_string().into(),
            topics: vec![AlterReplicaLogDirTopic {
                name: TOPIC.into(),
                partitions: vec![index],
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = client.ask(2, &request).await;
    ErrorCode::from_code(answer.results[0].partitions[0].error_code)
}

/// Requests all directories with all of their contents.
fn all_dirs() -> DescribeLogDirsRequest {
    DescribeLogDirsRequest {
        topics: None,
        ..Default::default()
    }
}

/// The topic's logs in a directory: partition, whether it is a copy, and its lag.
async fn described(client: &mut Client, dir: &Path) -> Vec<(i32, bool, i64)> {
    let answer = client.ask(5, &all_dirs()).await;
    let of_dir = answer
        .results
        .iter()
        .find(|known| &*known.log_dir == dir.to_str().unwrap());
    let topics = of_dir.unwrap().topics.iter().filter(|t| &*t.name == TOPIC);
    let partitions = topics.flat_map(|topic| &topic.partitions);
    partitions
        .map(|found| (found.partition_index, found.is_future_key, found.offset_lag))
        .collect()
}

pub(super) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// All values of a partition in order.
async fn consume(client: &mut Client, index: i32, count: usize) -> Vec<String> {
    let mut values = Vec::new();
    while values.len() < count {
        let request = fetch_from(TOPIC, index, values.len() as i64);
        let answer = client.ask(12, &request).await;
        let partition = &answer.responses[0].partitions[0];
        assert_eq!(partition.error_code, 0);
        let records = partition.records.clone().unwrap();
        let ottla_protocol::Records::Bytes(bytes) = records else {
            panic!("a client reads bytes");
        };
        for batch in ottla_records::RecordBatch::read_all(bytes) {
            let Ok(batch) = batch else { break };
            for record in batch.records(1 << 24).unwrap() {
                let record = record.unwrap();
                let value = record.value.unwrap();
                values.push(String::from_utf8(value.to_vec()).unwrap());
            }
        }
    }
    values
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_learns_the_directories_of_replicas() {
    let node = Node::start(&[]).await;
    create(&mut node.connect().await, 4).await;
    for index in 0..4 {
        until("the controller is notified", || {
            let (dir, assigned) = node.directory(index);
            assigned == dir.map(|dir| node.id_of(&dir))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_moved_under_load() {
    let node = Node::start(&[]).await;
    let mut client = node.connect().await;
    create(&mut client, 1).await;
    // Several segments, and more than one round copies.
    let large = "x".repeat(100_000);
    for n in 0..60 {
        assert_eq!(
            produce(&mut client, 0, &format!("{n} {large}")).await,
            ErrorCode::None
        );
    }
    let (from, to) = node.where_and_elsewhere(0);
    let is_moved = Arc::new(AtomicBool::new(false));
    let mut producer = node.connect().await;
    let until_moved = Arc::clone(&is_moved);
    let producing = tokio::spawn(async move {
        let mut count = 60;
        while !until_moved.load(Ordering::Relaxed) {
            let code = produce(&mut producer, 0, &format!("{count} small")).await;
            assert_eq!(code, ErrorCode::None);
            count += 1;
        }
        count
    });
    assert_eq!(move_to(&mut client, 0, &to).await, ErrorCode::None);
    assert_eq!(
        move_to(&mut client, 0, &to).await,
        ErrorCode::None,
        "it is under way"
    );
    until("the replica is moved", || {
        node.directory(0) == (Some(to.clone()), Some(node.id_of(&to)))
    })
    .await;
    is_moved.store(true, Ordering::Relaxed);
    let count = producing.await.unwrap();
    assert_eq!(produce(&mut client, 0, "last").await, ErrorCode::None);
    let values = consume(&mut client, 0, count + 1).await;
    for (n, value) in values[..count].iter().enumerate() {
        assert!(value.starts_with(&format!("{n} ")), "{n}");
    }
    assert_eq!(values[count], "last");
    assert_eq!(described(&mut client, &from).await, []);
    assert_eq!(described(&mut client, &to).await, [(0, false, 0)]);
    let [left] = &Node::names(&from)[..] else {
        panic!("{:?}", Node::names(&from));
    };
    assert!(left.ends_with("-delete"), "{left}");
    assert_eq!(Node::names(&to), ["orders-0"]);
}

/// One byte per second: nothing moves.
const STANDSTILL: (&str, &str) = ("replica.alter.log.dirs.io.max.bytes.per.second", "1");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_described_cancelled_and_deleted_with_its_topic() {
    let mut node = Node::start(&[STANDSTILL]).await;
    let mut client = node.connect().await;
    create(&mut client, 2).await;
    for n in 0..3 {
        for index in 0..2 {
            produce(&mut client, index, &format!("{n}")).await;
        }
    }
    let (from, to) = node.where_and_elsewhere(0);
    assert_eq!(move_to(&mut client, 0, &to).await, ErrorCode::None);
    until("the first round ends", || {
        node.broker()
            .log_dirs()
            .unwrap()
            .describe()
            .iter()
            .any(|dir| {
                dir.partitions
                    .iter()
                    .any(|p| p.is_future && p.offset_lag == 2)
            })
    })
    .await;
    let there = described(&mut client, &to).await;
    assert!(there.contains(&(0, true, 2)), "{there:?}");
    assert_eq!(
        move_to(&mut client, 0, &from).await,
        ErrorCode::None,
        "where it is: the move is given up"
    );
    assert!(!described(&mut client, &to).await.iter().any(|p| p.1));
    assert!(
        Node::names(&to)
            .iter()
            .all(|name| !name.ends_with("-future"))
    );

    // The copy is deleted with the topic.
    assert_eq!(move_to(&mut client, 0, &to).await, ErrorCode::None);
    let delete = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(TOPIC.into()),
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    assert_eq!(client.ask(6, &delete).await.responses[0].error_code, 0);
    for dir in node.dirs() {
        let names = Node::names(&dir);
        assert!(
            names.iter().all(|name| name.ends_with("-delete")),
            "{names:?}"
        );
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_continues_after_a_restart() {
    let mut node = Node::start(&[STANDSTILL]).await;
    let mut client = node.connect().await;
    create(&mut client, 1).await;
    for n in 0..10 {
        produce(&mut client, 0, &format!("{n}")).await;
    }
    let (_, to) = node.where_and_elsewhere(0);
    assert_eq!(move_to(&mut client, 0, &to).await, ErrorCode::None);
    node.stop().await;
    let [copy] = &Node::names(&to)[..] else {
        panic!("{:?}", Node::names(&to));
    };
    assert!(copy.ends_with("-future"), "{copy}");
    node.start_again(&[]).await;
    until("the replica is moved", || {
        node.directory(0) == (Some(to.clone()), Some(node.id_of(&to)))
    })
    .await;
    let mut client = node.connect().await;
    let values = consume(&mut client, 0, 10).await;
    assert_eq!(values, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    node.stop().await;
    node.start_again(&[]).await;
    assert_eq!(node.directory(0).0, Some(to));
}

/// The controller is informed before the copy replaces the log, and records are appended in
/// between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_after_the_assignment_loses_no_records() {
    let mut node = Node::start(&[STANDSTILL]).await;
    let mut client = node.connect().await;
    create(&mut client, 1).await;
    for n in 0..10 {
        produce(&mut client, 0, &format!("{n}")).await;
    }
    let (from, to) = node.where_and_elsewhere(0);
    assert_eq!(move_to(&mut client, 0, &to).await, ErrorCode::None);
    let partition = node.partition(0);
    let assignments = &node.broker().dir_assignments;
    let index = partition.topic_partition.partition;
    assignments.assign(partition.topic_id, index, node.id_of(&to), None);
    until("the controller is notified", || {
        node.directory(0) == (Some(from.clone()), Some(node.id_of(&to)))
    })
    .await;
    drop(partition);
    node.stop().await;
    node.start_again(&[]).await;
    let mut client = node.connect().await;
    let values = consume(&mut client, 0, 10).await;
    assert_eq!(values, (0..10).map(|n| n.to_string()).collect::<Vec<_>>());
    until("the replica is moved", || {
        node.directory(0) == (Some(to.clone()), Some(node.id_of(&to)))
    })
    .await;
    assert_eq!(consume(&mut client, 0, 10).await, values);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_copy_cancels_the_move() {
    use std::os::unix::fs::FileExt;

    let node = Node::start(&[]).await;
    let mut client = node.connect().await;
    create(&mut client, 1).await;
    produce(&mut client, 0, "one").await;
    let (from, to) = node.where_and_elsewhere(0);
    let file = from.join("orders-0/00000000000000000000.log");
    let file = std::fs::File::options().write(true).open(file).unwrap();
    // The magic of the first batch.
    file.write_all_at(&[9], 16).unwrap();
    assert_eq!(move_to(&mut client, 0, &to).await, ErrorCode::None);
    until("the move is given up", || {
        let names = Node::names(&to);
        !names.is_empty() && names.iter().all(|name| name.ends_with("-delete"))
    })
    .await;
    assert!(!described(&mut client, &to).await.iter().any(|p| p.1));
    assert_eq!(node.directory(0).0, Some(from));
    assert_eq!(produce(&mut client, 0, "two").await, ErrorCode::None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_targets_are_refused_and_future_replicas_accepted() {
    let node = Node::start(&[]).await;
    let mut client = node.connect().await;
    let [first, second] = node.dirs();
    // Kafka compares the texts.
    for no_such in [node.data.path().join("nowhere"), first.join("")] {
        assert_eq!(
            move_to(&mut client, 0, &no_such).await,
            ErrorCode::LogDirNotFound,
            "{no_such:?}"
        );
    }
    for dir in [&first, &second] {
        assert_eq!(
            move_to(&mut client, 0, dir).await,
            ErrorCode::UnknownTopicOrPartition
        );
    }
    create(&mut client, 1).await;
    assert_eq!(node.directory(0).0, Some(second.clone()));
    let cordon = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 4,
            resource_name: "1".into(),
            configs: vec![AlterableConfig {
                name: "cordoned.log.dirs".into(),
                value: Some(first.display().to_string().into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = client.ask(1, &cordon).await;
    assert_eq!(answer.responses[0].error_code, 0);
    until("the controller knows the cordoned directories", || {
        let image = node.broker().metadata();
        let broker = image.cluster.broker(BrokerId(1)).unwrap();
        broker.cordoned_directories.as_deref() == Some(&[node.id_of(&first)][..])
    })
    .await;
    assert_eq!(
        move_to(&mut client, 0, &first).await,
        ErrorCode::InvalidReplicaAssignment
    );
    let answer = client.ask(5, &all_dirs()).await;
    let cordoned: Vec<bool> = answer.results.iter().map(|dir| dir.is_cordoned).collect();
    assert_eq!(cordoned, [true, false]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_leaders_in_a_failed_directory_move() {
    let node = Node::start(&[]).await;
    let mut client = node.connect().await;
    create(&mut client, 2).await;
    for index in 0..2 {
        assert_eq!(produce(&mut client, index, "one").await, ErrorCode::None);
        until("the controller is notified", || {
            let (dir, assigned) = node.directory(index);
            assigned == dir.map(|dir| node.id_of(&dir))
        })
        .await;
    }
    let error = std::io::Error::from_raw_os_error(libc::EIO);
    let error = StorageError::new("write to", Path::new("x"), error);
    let log_dirs = node.broker().log_dirs().unwrap();
    log_dirs.on_partition_error(&node.partition(0).reader(), &error);
    let leader = |index: i32| {
        let image = node.broker().metadata();
        let topic = image.topics.by_name(TOPIC).unwrap();
        topic.partition(index.into()).unwrap().leader
    };
    until("its partitions have no leader", || {
        leader(0) == BrokerId::NONE
    })
    .await;
    assert_eq!(leader(1), BrokerId(1));
    assert_eq!(
        produce(&mut client, 0, "two").await,
        ErrorCode::KafkaStorageError
    );
    assert_eq!(produce(&mut client, 1, "two").await, ErrorCode::None);
    let registered = node
        .broker()
        .metadata()
        .cluster
        .broker(BrokerId(1))
        .cloned();
    assert_eq!(registered.unwrap().directories.len(), 1);
    // Nothing is moved while a copy may be in an offline directory.
    let (from, _) = node.where_and_elsewhere(1);
    assert_eq!(move_to(&mut client, 1, &from).await, ErrorCode::None);
    assert_eq!(
        node.broker()
            .directory_moves
            .alter_replica_log_dir(&TopicPartition::new(TOPIC, 0), from.to_str().unwrap()),
        Err(ErrorCode::KafkaStorageError)
    );
}

/// A consumer that finds a broken disk first is not refused for ever: another replica leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreadable_directory_goes_offline() {
    let mut node = Node::start(&[]).await;
    let mut client = node.connect().await;
    create(&mut client, 2).await;
    for index in 0..2 {
        assert_eq!(produce(&mut client, index, "one").await, ErrorCode::None);
    }
    node.stop().await;
    node.start_again(&[]).await;
    let (dir, _) = node.where_and_elsewhere(0);
    // No log has its files open until it is read or written.
    let log = dir.join(format!("{TOPIC}-0/{:020}.log", 0));
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    let mut client = node.connect().await;
    let answer = client.ask(12, &fetch_from(TOPIC, 0, 0)).await;
    assert_eq!(
        ErrorCode::from_code(answer.responses[0].partitions[0].error_code),
        ErrorCode::KafkaStorageError
    );
    until("the directory is offline", || {
        let described = node.broker().log_dirs().unwrap().describe();
        described
            .iter()
            .all(|known| known.path != dir || !known.is_online)
    })
    .await;
    assert_eq!(consume(&mut client, 1, 1).await, ["one"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unacknowledged_directory_failure_stops_the_broker_in_time() {
    for (timeout_ms, ends) in [("100", true), ("3600000", false)] {
        let node = Node::start(&[("log.dir.failure.timeout.ms", timeout_ms)]).await;
        create(&mut node.connect().await, 2).await;
        node.broker()
            .controller()
            .unwrap()
            .stop(std::time::Duration::ZERO)
            .await;
        let error = std::io::Error::from_raw_os_error(libc::EIO);
        let error = StorageError::new("write to", Path::new("x"), error);
        let log_dirs = node.broker().log_dirs().unwrap();
        log_dirs.on_partition_error(&node.partition(0).reader(), &error);
        if ends {
            until("the broker ends", || node.broker().failure().is_some()).await;
            let reason = node.broker().failure().unwrap().to_string();
            assert!(reason.contains("log.dir.failure.timeout.ms"), "{reason}");
        } else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(node.broker().failure().is_none());
        }
    }
}
