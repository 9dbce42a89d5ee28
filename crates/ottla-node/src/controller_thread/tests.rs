//! Requests when writes to the metadata log fail.

mod bootstrap_snapshot;
mod broken_cases;
mod raised_kraft_version;

use ottla_sync::atomic::Ordering;
use std::io::ErrorKind;
use std::path::Path;

use ottla_config::Properties;
use ottla_protocol::metadata_records::TopicRecord;
use ottla_raft::{LogEnd, ReplicaKey, Request};
use ottla_sync::Mutex;
use ottla_types::{LeaderEpoch, Uuid};

use super::*;
use crate::quorum::work::Decided;
use ottla_storage::format::{format_standalone, read_identity};

/// A controller with its own directory, and its answers.
struct Story {
    controller: Controller,
    answers: Arc<Mutex<Vec<(&'static str, Result<(), ErrorCode>)>>>,
    published: Vec<String>,
    data: tempfile::TempDir,
}

impl Story {
    fn begin() -> Story {
        Story::begin_with(&[])
    }

    fn begin_with(settings: &[(&str, &str)]) -> Story {
        let data = tempfile::tempdir().expect("a directory");
        let config = config_of(&properties_of(data.path(), settings));
        format_standalone(&config).expect("formats");
        let identity = read_identity(&config)
            .expect("reads")
            .expect("is formatted");
        let mut controller = crate::open::open(&config, &identity).expect("leads");
        controller.settle().expect("commits");
        controller.is_publishing = true;
        Story {
            controller,
            answers: Arc::default(),
            published: Vec::new(),
            data,
        }
    }

    fn create(&self, name: &'static str) -> Work {
        let answers = Arc::clone(&self.answers);
        Work::Decide(Box::new(move |_, _| Decided {
            kraft_version: None,
            records: vec![MetadataRecord::Topic(TopicRecord {
                name: name.into(),
                topic_id: Uuid([name.as_bytes()[0]; 16]),
                ..Default::default()
            })],
            reply: Box::new(move |outcome| answers.lock().push((name, outcome.map(drop)))),
        }))
    }

    /// Serves requests that share one flush, until nothing further follows; returns their answers.
    fn serve(&mut self, names: &[&'static str]) -> Vec<(&'static str, Result<(), ErrorCode>)> {
        let (sender, receiver) = channel_to(&mut self.controller);
        for name in &names[1..] {
            sender.send(self.create(name)).expect("is received");
        }
        let published = Arc::new(Mutex::new(Vec::new()));
        let publish: Publish = {
            let published = Arc::clone(&published);
            Box::new(move |delta| published.lock().push(topics(&delta.after)))
        };
        self.controller.publisher.start(publish).expect("a thread");
        let mut next = self.create(names[0]);
        loop {
            let served = self.controller.serve(next, &receiver, &mut None);
            served.expect("the controller continues");
            if !self.controller.snapshot_writer.is_writing() {
                break;
            }
            next = receiver.recv().expect("the snapshot is written");
        }
        std::mem::replace(&mut self.controller.publisher, Publisher::new()).stop();
        self.published = published.lock().last().cloned().unwrap_or_default();
        std::mem::take(&mut self.answers.lock())
    }
}

/// A channel to the controller, also for its helper threads.
fn channel_to(
    controller: &mut Controller,
) -> (
    Arc<thread_channel::Sender<Work>>,
    thread_channel::Receiver<Work>,
) {
    let (sender, receiver) = thread_channel::channel();
    let sender = Arc::new(sender);
    controller.snapshot_writer = SnapshotWriter::new(Arc::downgrade(&sender));
    (sender, receiver)
}

fn properties_of(data: &Path, settings: &[(&str, &str)]) -> Properties {
    let mut properties = Properties::new("the test");
    for (key, value) in [
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        ),
        ("controller.listener.names", "CONTROLLER"),
        ("controller.quorum.bootstrap.servers", "127.0.0.1:9093"),
        ("log.dirs", data.to_str().expect("characters")),
    ] {
        properties.set(key, value);
    }
    for (key, value) in settings {
        properties.set(key, value);
    }
    properties
}

fn config_of(properties: &Properties) -> BrokerConfig {
    let (config, _) = BrokerConfig::from_properties(properties).expect("good settings");
    config
}

fn topics(image: &ottla_metadata::MetadataImage) -> Vec<String> {
    let mut names: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .filter(|name| image.topics.by_name(name).is_some())
        .map(str::to_owned)
        .collect();
    names.sort();
    names
}

const REFUSED: Result<(), ErrorCode> = Err(ErrorCode::KafkaStorageError);

#[test]
fn a_full_disk_refuses_only_the_current_request() {
    let mut story = Story::begin();
    story.controller.log.faults.0 = Some(ErrorKind::StorageFull);
    assert_eq!(story.serve(&["a", "b"]), [("a", REFUSED), ("b", Ok(()))]);
    assert_eq!(topics(story.controller.image()), ["b"]);
    assert_eq!(story.published, ["b"]);
    assert_eq!(story.serve(&["a"]), [("a", Ok(()))]);
    assert_eq!(story.published, ["a", "b"]);
}

#[test]
fn a_full_disk_rolls_back_uncommitted_decisions() {
    let mut story = Story::begin();
    assert_eq!(story.serve(&["c"]), [("c", Ok(()))]);
    let end = story.controller.log.log_end_offset();
    story.controller.log.faults.1 = Some(ErrorKind::StorageFull);
    assert_eq!(story.serve(&["a", "b"]), [("a", REFUSED), ("b", REFUSED)]);
    assert_eq!(topics(story.controller.image()), ["c"]);
    assert!(story.published.is_empty());
    assert_eq!(story.controller.log.log_end_offset(), end);
    assert_eq!(story.serve(&["b"]), [("b", Ok(()))]);
    assert_eq!(story.published, ["b", "c"]);
}

#[test]
fn a_disk_error_other_than_full_stops_the_node() {
    for (append, flush) in [
        (Some(ErrorKind::Other), None),
        (None, Some(ErrorKind::Other)),
    ] {
        let mut story = Story::begin();
        story.controller.log.faults = (append, flush);
        let (sender, receiver) = thread_channel::channel();
        let (stop, mut stopped) = oneshot::channel();
        sender.send(story.create("a")).expect("is received");
        let answers = Arc::clone(&story.answers);
        let mut failure = None;
        let serving = ottla_sync::thread::spawn(move || {
            let publish: Publish = Box::new(|_| panic!("nothing is committed"));
            story
                .controller
                .run(&receiver, publish, |reason| failure = Some(reason));
            failure
        });
        while answers.lock().is_empty() {
            ottla_sync::thread::sleep(Duration::from_millis(1));
        }
        let stop = Work::Stop {
            timeout_ms: 0,
            stopped: stop,
        };
        sender.send(stop).expect("is received");
        let failure = serving
            .join()
            .expect("joins")
            .expect("the node is notified");
        assert!(failure.contains("metadata log"), "{failure}");
        assert_eq!(*answers.lock(), [("a", REFUSED)]);
        assert_eq!(stopped.try_recv(), Ok(()));
    }
}

/// Is slow to drop, and sets the flag when it is done.
struct LetGo(Arc<AtomicBool>);

impl Drop for LetGo {
    fn drop(&mut self) {
        ottla_sync::thread::sleep(Duration::from_millis(50));
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn the_directories_are_free_when_the_stop_completes() {
    for fault in [None, Some(ErrorKind::Other)] {
        let mut story = Story::begin();
        story.controller.log.faults = (fault, None);
        let (sender, receiver) = thread_channel::channel();
        let (stop, stopped) = oneshot::channel();
        sender.send(story.create("a")).expect("is received");
        let is_let_go = Arc::new(AtomicBool::new(false));
        let locks = LetGo(Arc::clone(&is_let_go));
        let serving = ottla_sync::thread::spawn(move || {
            let publish: Publish = Box::new(move |_| {
                let _locks = &locks;
            });
            story.controller.run(&receiver, publish, |_| {});
        });
        let stop = Work::Stop {
            timeout_ms: 0,
            stopped: stop,
        };
        sender.send(stop).expect("is received");
        stopped.blocking_recv().expect("is notified");
        assert!(is_let_go.load(Ordering::Acquire), "{fault:?}");
        serving.join().expect("joins");
    }
}

/// Requests that the other nodes of the quorum wait for.
fn requests_of_the_quorum() -> [Request; 2] {
    let log_end = LogEnd {
        offset: Offset(0),
        epoch: LeaderEpoch(0),
    };
    let replica = ReplicaKey::new(BrokerId(9), Uuid::from_u128(9));
    [
        Request::Vote(ottla_raft::VoteRequest {
            epoch: LeaderEpoch(1),
            candidate: replica,
            voter: None,
            log_end,
            pre_vote: false,
        }),
        Request::Fetch(ottla_raft::FetchRequest {
            replica,
            current_leader_epoch: LeaderEpoch(0),
            log_end,
            high_watermark: Offset(0),
            max_bytes: 1000,
            max_wait_ms: 0,
        }),
    ]
}

/// Checks that the thread answers the quorum and decides requests although something else hangs, which
/// it would otherwise wait for until the end of the test.
fn assert_takes_part(
    sender: &thread_channel::Sender<Work>,
    decide: Work,
    has_answered: impl Fn() -> bool,
) {
    let begun = ottla_sync::time::now();
    let in_time = || ottla_sync::time::now() - begun < Duration::from_secs(60);
    sender.send(decide).expect("is received");
    for request in requests_of_the_quorum() {
        let (respond, mut answer) = oneshot::channel();
        let asked = Work::PeerRequest { request, respond };
        sender.send(asked).expect("is received");
        while answer.try_recv().is_err() {
            assert!(in_time(), "a request of the quorum waits");
            ottla_sync::thread::sleep(Duration::from_millis(1));
        }
    }
    while !has_answered() {
        assert!(in_time(), "a request to the controller waits");
        ottla_sync::thread::sleep(Duration::from_millis(1));
    }
}

fn stop(sender: &thread_channel::Sender<Work>) -> oneshot::Receiver<()> {
    let (stopped, is_stopped) = oneshot::channel();
    let stop = Work::Stop {
        timeout_ms: 0,
        stopped,
    };
    sender.send(stop).expect("is received");
    is_stopped
}

#[test]
fn the_quorum_is_answered_while_metadata_is_published() {
    let mut story = Story::begin();
    let (sender, receiver) = channel_to(&mut story.controller);
    let (first, second) = (story.create("a"), story.create("b"));
    let answers = Arc::clone(&story.answers);
    let disk = Arc::new(Mutex::new(()));
    let published = Arc::new(Mutex::new(Vec::new()));
    let hanging = disk.lock();
    let publish: Publish = {
        let (disk, published) = (Arc::clone(&disk), Arc::clone(&published));
        Box::new(move |delta| {
            drop(disk.lock());
            published.lock().push(topics(&delta.after));
        })
    };
    let serving = ottla_sync::thread::spawn(move || {
        story.controller.is_publishing = true;
        story.controller.run(&receiver, publish, |_| {});
    });
    assert_takes_part(&sender, first, || answers.lock().len() == 1);
    assert_takes_part(&sender, second, || answers.lock().len() == 2);
    assert_eq!(*answers.lock(), [("a", Ok(())), ("b", Ok(()))]);
    assert!(published.lock().is_empty());
    let stopped = stop(&sender);
    drop(hanging);
    stopped.blocking_recv().expect("is notified");
    serving.join().expect("joins");
    // The last change is published although the thread ends.
    assert_eq!(published.lock().last().expect("some"), &["a", "b"]);
}

#[test]
fn the_quorum_is_answered_while_a_snapshot_is_written() {
    let mut story = Story::begin_with(broken_cases::SNAPSHOTS_ALWAYS);
    let (sender, receiver) = channel_to(&mut story.controller);
    let works = [story.create("a"), story.create("b")];
    let answers = Arc::clone(&story.answers);
    let dir = story.data.path().join("__cluster_metadata-0");
    let snapshots = || {
        let entries = std::fs::read_dir(&dir).expect("is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .filter(|name| name.to_string_lossy().ends_with(".checkpoint"))
            .count()
    };
    let before = snapshots();
    let disk = Arc::new(Mutex::new(()));
    let hanging = disk.lock();
    story.controller.log.snapshot_gate = Some(Arc::clone(&disk));
    let controller = story.controller;
    let serving = ottla_sync::thread::spawn(move || {
        let publish: Publish = Box::new(|_| {});
        controller.run(&receiver, publish, |_| {});
    });
    for (index, work) in works.into_iter().enumerate() {
        assert_takes_part(&sender, work, || answers.lock().len() == index + 1);
    }
    assert_eq!(snapshots(), before);
    drop(hanging);
    let deadline = ottla_sync::time::now() + Duration::from_secs(60);
    while snapshots() == before {
        assert!(ottla_sync::time::now() < deadline, "a snapshot is written");
        ottla_sync::thread::sleep(Duration::from_millis(1));
    }
    stop(&sender).blocking_recv().expect("is notified");
    serving.join().expect("joins");
}

#[test]
fn files_replaced_by_a_snapshot_are_deleted_at_runtime() {
    let mut story = Story::begin_with(&[
        ("internal.metadata.log.segment.bytes", "512"),
        ("metadata.log.max.record.bytes.between.snapshots", "1"),
        ("metadata.max.retention.bytes", "1024"),
    ]);
    for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"] {
        assert_eq!(story.serve(&[name]), [(name, Ok(()))]);
    }
    let dir = story.data.path().join("__cluster_metadata-0");
    let names: Vec<String> = std::fs::read_dir(dir)
        .expect("the directory is there")
        .map(|entry| entry.expect("an entry").file_name().into_string())
        .map(|name| name.expect("characters"))
        .collect();
    let first_segment = format!("{:020}.log", 0);
    assert!(!names.contains(&first_segment), "{names:?}");
    let is_left = |name: &&String| name.ends_with(".deleted") && !name.starts_with("spare");
    assert_eq!(names.iter().find(is_left), None, "{names:?}");
}

#[test]
fn the_metadata_log_obeys_its_retention_settings() {
    for (setting, value, is_deleted) in [
        ("metadata.max.retention.bytes", "1024", true),
        ("metadata.max.retention.bytes", "104857600", false),
        ("metadata.max.retention.ms", "1", true),
        ("metadata.max.retention.ms", "604800000", false),
    ] {
        let mut story = Story::begin_with(&[
            ("internal.metadata.log.segment.bytes", "512"),
            ("metadata.log.max.record.bytes.between.snapshots", "1"),
            (setting, value),
        ]);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"] {
            assert_eq!(story.serve(&[name]), [(name, Ok(()))]);
            ottla_sync::thread::sleep(Duration::from_millis(3));
        }
        let dir = story.data.path().join("__cluster_metadata-0");
        let first_segment = dir.join(format!("{:020}.log", 0));
        assert_eq!(!first_segment.exists(), is_deleted, "{setting}={value}");
        let first_snapshot = dir.join(format!("{:020}-{:010}.checkpoint", 0, 0));
        assert_eq!(!first_snapshot.exists(), is_deleted, "{setting}={value}");
    }
}
