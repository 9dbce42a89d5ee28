//! An observer of a leading node, over real sockets and real files.

mod newer_release;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_config::{BrokerConfig, Properties};
use ottla_metadata::{MetadataDelta, MetadataImage, MetadataVersion};
use ottla_types::Offset;
use parking_lot::Mutex;

use crate::Broker;
use crate::tests::{TestBroker, creation};
use ottla_node::QuorumHandle;
use ottla_node::controller_thread::{Controller, Publish};
use ottla_node::open::open;
use ottla_node::quorum_handle;
use ottla_storage::format::{FormatOptions, InitialQuorum, format, read_identity};

/// Less than `initial.broker.registration.timeout.ms`.
const PATIENCE: Duration = Duration::from_secs(45);

struct Observer {
    handle: QuorumHandle,
    published: Arc<Mutex<Vec<MetadataDelta>>>,
}

/// The configuration of a broker that follows a controller, with a formatted directory.
fn formatted(dir: &Path, controller: SocketAddr, cluster_id: &str) -> BrokerConfig {
    let mut properties = Properties::new("the test");
    for (key, value) in [
        ("process.roles", "broker"),
        ("node.id", "2"),
        ("listeners", "PLAINTEXT://127.0.0.1:0"),
        ("controller.listener.names", "CONTROLLER"),
        (
            "controller.quorum.bootstrap.servers",
            &controller.to_string(),
        ),
        ("log.dirs", dir.to_str().expect("characters")),
    ] {
        properties.set(key, value);
    }
    let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
    if read_identity(&config).expect("reads").is_none() {
        let options = FormatOptions {
            cluster_id: cluster_id.to_owned(),
            quorum: InitialQuorum::None,
            metadata_version: MetadataVersion::LATEST_PRODUCTION,
            feature_levels: Default::default(),
            scram_records: Vec::new(),
            ignore_formatted: false,
        };
        format(&config, &options).expect("formats");
    }
    config
}

impl Observer {
    fn start(dir: &Path, leader: &TestBroker, cluster_id: &str) -> Observer {
        Observer::start_with(dir, leader, cluster_id, |_| {})
    }

    fn start_with(
        dir: &Path,
        leader: &TestBroker,
        cluster_id: &str,
        prepare: impl FnOnce(&mut Controller),
    ) -> Observer {
        let config = formatted(dir, leader.controller_address(), cluster_id);
        let identity = read_identity(&config)
            .expect("reads")
            .expect("is formatted");
        let mut controller = open(&config, &identity).expect("opens");
        prepare(&mut controller);
        let published = Arc::<Mutex<Vec<MetadataDelta>>>::default();
        let publish: Publish = {
            let published = Arc::clone(&published);
            Box::new(move |delta| published.lock().push(delta.clone()))
        };
        let handle = quorum_handle::start(controller, Default::default(), publish, |reason| {
            panic!("{reason}")
        })
        .expect("starts");
        Observer { handle, published }
    }

    async fn caught_up(&self) -> MetadataImage {
        let caught_up = tokio::time::timeout(PATIENCE, self.handle.caught_up());
        caught_up.await.expect("in time").expect("lives")
    }

    /// Waits until a topic was published, and returns the image.
    async fn sees(&self, topic: &str) -> MetadataImage {
        let seen = async {
            loop {
                if let Some(delta) = self.published.lock().last()
                    && delta.after.topics.by_name(topic).is_some()
                {
                    return delta.after.clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.expect("in time")
    }
}

async fn create(leader: &TestBroker, topic: &str) {
    let request = creation(topic, 2, 1);
    let created = leader.broker().node.ask_controller(request).await;
    assert_eq!(created.expect("is decided").topics[0].error_code, 0);
}

fn same(observed: &MetadataImage, leader: &TestBroker) {
    let led = MetadataImage::clone(&leader.broker().metadata());
    assert_eq!(observed.to_records(), led.to_records());
    assert_eq!(observed.provenance, led.provenance);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_replicates_the_committed_log() {
    let leader = TestBroker::start().await;
    create(&leader, "before").await;
    let dir = tempfile::tempdir().expect("a directory");
    let cluster_id = leader.broker().cluster_id();
    let observer = Observer::start(dir.path(), &leader, &cluster_id);
    same(&observer.caught_up().await, &leader);
    assert!(
        observer.published.lock().is_empty(),
        "no broker waits for it yet"
    );

    assert!(observer.handle.begin_publishing(Offset(-1)).await);
    let first = observer.published.lock()[0].clone();
    assert_eq!(observer.published.lock().len(), 1, "in one change");
    assert!(first.before.topics.is_empty());
    create(&leader, "after").await;
    same(&observer.sees("after").await, &leader);

    let status = observer.handle.status();
    assert_eq!(status.leader, Some(leader.broker().broker_id()));
    let (host, port) = status.leader_endpoint.clone().expect("is known");
    let address = leader.controller_address();
    assert_eq!((&*host, port), (&*address.ip().to_string(), address.port()));
    assert!(status.is_caught_up && !status.is_active);

    let described = leader
        .broker()
        .node
        .quorum()
        .expect("runs")
        .describe()
        .await;
    let observers = described.expect("leads").observer_states;
    assert_eq!(observers.len(), 1);
    assert_eq!(observers[0].key.id.value(), 2);
    observer.handle.stop(Duration::ZERO).await;
}

/// A broker ignores all metadata before its registration.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_before_the_requested_offset() {
    let leader = TestBroker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let cluster_id = leader.broker().cluster_id();
    let observer = Observer::start(dir.path(), &leader, &cluster_id);
    let known = observer.caught_up().await.provenance.last_contained_offset;
    let publishing = observer.handle.begin_publishing(known.plus(1));
    tokio::pin!(publishing);
    let waited = tokio::time::timeout(Duration::from_millis(50), &mut publishing);
    assert!(waited.await.is_err() && observer.published.lock().is_empty());
    create(&leader, "next").await;
    let is_published = tokio::time::timeout(PATIENCE, publishing).await;
    assert!(is_published.expect("in time"));
    let first = observer.published.lock()[0].clone();
    assert!(first.before.topics.is_empty() && first.after.topics.by_name("next").is_some());
    observer.handle.stop(Duration::ZERO).await;
}

/// A start that took this for a publication would find no partition for any of its logs.
#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_has_ended_says_that_nothing_is_published() {
    let leader = TestBroker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let observer = Observer::start(dir.path(), &leader, &leader.broker().cluster_id());
    let known = observer.caught_up().await.provenance.last_contained_offset;
    let publishing = observer.handle.begin_publishing(known.plus(1_000));
    let stopping = observer.handle.stop(Duration::ZERO);
    let (is_published, ()) = tokio::join!(publishing, stopping);
    assert!(!is_published && !observer.handle.published_when(|| false).await);
    assert!(!observer.handle.begin_publishing(Offset(-1)).await);
    assert!(observer.published.lock().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_comes_late_begins_with_a_snapshot_and_one_that_comes_again_with_its_log()
{
    let leader = TestBroker::start_with(&[
        ("metadata.log.max.record.bytes.between.snapshots", "500"),
        ("internal.metadata.log.segment.bytes", "512"),
        ("metadata.max.retention.bytes", "1024"),
    ])
    .await;
    for index in 0..20 {
        create(&leader, &format!("topic-{index}")).await;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let cluster_id = leader.broker().cluster_id();
    let observer = Observer::start(dir.path(), &leader, &cluster_id);
    same(&observer.caught_up().await, &leader);
    let metadata_dir = dir.path().join("__cluster_metadata-0");
    let snapshots = |suffix: &str| {
        let entries = std::fs::read_dir(&metadata_dir).expect("is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .filter(|name| name.to_string_lossy().ends_with(suffix))
            .count()
    };
    assert_eq!((snapshots(".checkpoint"), snapshots(".part")), (1, 0));
    observer.handle.stop(Duration::ZERO).await;

    create(&leader, "meanwhile").await;
    let again = Observer::start(dir.path(), &leader, &cluster_id);
    again.caught_up().await;
    assert!(again.handle.begin_publishing(Offset(-1)).await);
    same(&again.sees("meanwhile").await, &leader);
    again.handle.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_of_another_cluster_is_refused() {
    let leader = TestBroker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let observer = Observer::start(dir.path(), &leader, "AAAAAAAAAAAAAAAAAAAAZA");
    let trouble = async {
        loop {
            if let Some(trouble) = &observer.handle.status().trouble {
                return trouble.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let trouble = tokio::time::timeout(PATIENCE, trouble)
        .await
        .expect("in time");
    let address = leader.controller_address();
    assert_eq!(
        trouble,
        format!("{address} belongs to another cluster than AAAAAAAAAAAAAAAAAAAAZA")
    );
    assert_eq!(observer.handle.status().log_end_offset.value(), 0);
    assert!(observer.handle.status().is_of_other_cluster);
    observer.handle.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_on_a_full_disk_waits_and_can_be_stopped() {
    let leader = TestBroker::start().await;
    create(&leader, "before").await;
    let cluster_id = leader.broker().cluster_id();
    let fill = |controller: &mut Controller| {
        controller.log().faults = (
            Some(std::io::ErrorKind::StorageFull),
            Some(std::io::ErrorKind::StorageFull),
        );
    };
    let dir = tempfile::tempdir().expect("a directory");
    let observer = Observer::start_with(dir.path(), &leader, &cluster_id, fill);
    let trouble = async {
        while observer.handle.status().trouble.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, trouble)
        .await
        .expect("it says so");
    same(&observer.caught_up().await, &leader);
    assert_eq!(observer.handle.status().trouble, None);
    observer.handle.stop(Duration::ZERO).await;

    // It tries again each second.
    let before_a_retry = Duration::from_millis(900);
    let mut shortest = Duration::MAX;
    // A busy machine may take too long once.
    for _ in 0..5 {
        let dir = tempfile::tempdir().expect("a directory");
        let observer = Observer::start_with(dir.path(), &leader, &cluster_id, fill);
        while observer.handle.status().trouble.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        let stopped = tokio::time::timeout(PATIENCE, observer.handle.stop(Duration::ZERO));
        stopped.await.expect("it does not wait for space");
        shortest = shortest.min(began.elapsed());
        if shortest < before_a_retry {
            break;
        }
    }
    assert!(shortest < before_a_retry, "{shortest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_of_another_cluster_fails_at_once() {
    let leader = TestBroker::start().await;
    let dir = tempfile::tempdir().expect("a directory");
    let controller = leader.controller_address();
    let config = formatted(dir.path(), controller, "AAAAAAAAAAAAAAAAAAAAZA");
    let started = tokio::time::timeout(PATIENCE, Broker::start(config)).await;
    let Err(error) = started.expect("long before it gives up to register") else {
        panic!("it belongs to another cluster");
    };
    let error = error.to_string();
    let reason = "the directories of node 2 belong to cluster AAAAAAAAAAAAAAAAAAAAZA, and the controllers to another";
    assert!(error.contains(reason), "{error}");
}
