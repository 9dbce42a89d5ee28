//! One life of the broker process: start from the disk, threads, and end.

use std::sync::Arc;
use std::time::Duration;

use ottla_config::{BrokerConfig, TopicConfig, single_node_properties};
use ottla_metadata::MetadataVersion;
use ottla_protocol::metadata_records::{
    ConfigRecord, FeatureLevelRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord,
    TopicRecord,
};
use ottla_records::RecordBatch;
use ottla_replica::{AlterPartition, Event, FetchPosition, FetchRefusal, FollowerFetch};
use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::simulation::stream;
use ottla_sync::task::Handle;
use ottla_sync::{Mutex, task, thread, time};
use ottla_types::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition};

use super::cluster::{BROKER, Cluster, PEER};
use super::running::{DATA, Running};
use super::{checks, clients};
use crate::cleaner::Cleaner;
use crate::maintenance::Maintenance;
use crate::partition::host::{PartitionHost, Replicate};
use crate::partition::leader_answer::LeaderAnswer;
use crate::partition::{FollowerFetches, FollowerVerdict, LeaderFetcher, Partition};
use crate::test_host::{TOPIC, TOPIC_ID, TestHost};

/// How a life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// Its time was over; it will be killed.
    Over,
    Closed,
    /// Its directory failed.
    Failed,
}

pub(super) struct Life {
    pub(super) cluster: Cluster,
    pub(super) lasts: Duration,
    pub(super) closes: bool,
    /// In the last life everything must complete.
    pub(super) is_last: bool,
}

fn broker_config() -> BrokerConfig {
    let mut properties = single_node_properties(DATA, "127.0.0.1:0", "127.0.0.1:0");
    for (key, value) in [
        ("log.flush.offset.checkpoint.interval.ms", "20"),
        ("log.flush.start.offset.checkpoint.interval.ms", "20"),
        ("log.flush.scheduler.interval.ms", "10"),
        ("log.initial.task.delay.ms", "5"),
        ("log.retention.check.interval.ms", "50"),
        ("replica.high.watermark.checkpoint.interval.ms", "30"),
        ("log.cleaner.backoff.ms", "10"),
        ("log.cleaner.dedupe.buffer.size", "1048577"),
        ("log.cleaner.io.buffer.size", "16384"),
        ("replica.lag.time.max.ms", "100"),
        ("replica.fetch.wait.max.ms", "50"),
        ("ottla.disk.reserve.bytes", "0"),
    ] {
        properties.set(key, value);
    }
    let (config, _) = BrokerConfig::from_properties(&properties).expect("good settings");
    config
}

pub(super) fn format() {
    ottla_storage::format::format_standalone(&broker_config()).expect("formats");
    for dir in ["/", DATA] {
        let dir = ottla_sync::fs::Dir::open(dir.as_ref()).expect("a directory");
        dir.sync().expect("is forced");
    }
}

fn topic_settings(is_compacted: bool) -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![
        ("internal.segment.bytes", "1500"),
        ("index.interval.bytes", "300"),
        ("flush.ms", "15"),
        ("min.insync.replicas", "2"),
        ("retention.ms", "-1"),
        ("file.delete.delay.ms", "5"),
    ];
    if is_compacted {
        settings.extend([
            ("cleanup.policy", "compact"),
            ("min.cleanable.dirty.ratio", "0.01"),
        ]);
    }
    settings
}

fn records_of_topic(settings: &[(&'static str, &'static str)]) -> Vec<MetadataRecord> {
    let broker = |broker_id| {
        MetadataRecord::RegisterBroker(RegisterBrokerRecord {
            broker_id,
            fenced: false,
            ..Default::default()
        })
    };
    let setting = |(key, value): &(&'static str, &'static str)| {
        MetadataRecord::Config(ConfigRecord {
            resource_type: 2,
            resource_name: TOPIC.into(),
            name: (*key).into(),
            value: Some((*value).into()),
            ..Default::default()
        })
    };
    let mut records = vec![
        MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: MetadataVersion::FEATURE_NAME.into(),
            feature_level: MetadataVersion::LATEST_PRODUCTION.feature_level(),
            ..Default::default()
        }),
        broker(BROKER),
        broker(PEER),
        MetadataRecord::Topic(TopicRecord {
            name: TOPIC.into(),
            topic_id: TOPIC_ID,
            ..Default::default()
        }),
    ];
    records.extend(settings.iter().map(setting));
    records.push(MetadataRecord::Partition(PartitionRecord {
        partition_id: 0,
        topic_id: TOPIC_ID,
        replicas: vec![BROKER, PEER],
        isr: vec![BROKER, PEER],
        leader: BROKER,
        leader_epoch: 0,
        partition_epoch: 0,
        ..Default::default()
    }));
    records
}

impl Life {
    pub(super) fn live(self) -> Stop {
        let cluster = self.cluster;
        let has_losses = cluster.with(|state| state.setup.has_losses);
        let is_compacted = cluster.with(|state| state.setup.is_compacted);
        let settings = topic_settings(is_compacted);
        let recovery_point = checks::written_recovery_point();
        let mut config = broker_config();
        if has_losses {
            // The peer stays in sync.
            config.replica_lag_time_max_ms = i64::MAX;
        }
        let overrides = settings.iter().copied();
        let (topic_config, _) = TopicConfig::resolve_leniently(&config.topic_defaults, overrides);
        let link = Arc::new(Link {
            cluster: cluster.clone(),
            order: Mutex::default(),
            host: Mutex::default(),
        });
        let verifier = Arc::new(clients::Verifier);
        let opened = TestHost::open(
            config,
            Arc::new(topic_config),
            Some(Arc::clone(&link) as _),
            verifier,
        );
        let Ok(broker) = opened.inspect_err(|error| tell!("does not start: {error}")) else {
            return Stop::Failed;
        };
        let broker = Arc::new(broker);
        let host = Arc::clone(&broker.host);
        *link.host.lock() = Some(Arc::clone(&host));
        let log_dirs = Arc::clone(host.log_dirs().expect("there are directories"));
        cluster.with(|state| state.on_broker_up());
        let mut records = records_of_topic(&settings);
        let applied = cluster.with(|state| {
            records.extend(state.changes.iter().cloned());
            state.changes.len()
        });
        broker.apply(records);
        let Some(partition) = broker.partitions.find(&TopicPartition::new(TOPIC, 0)) else {
            return Stop::Failed;
        };
        if !log_dirs.is_online(&partition.reader()) {
            return Stop::Failed;
        }
        let checked = checks::on_start(&cluster, &partition, recovery_point);
        let Some(truncations) = checked else {
            return Stop::Failed;
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let has_failed = Arc::new(AtomicBool::new(false));
        let lost = (
            Arc::clone(&host),
            Arc::clone(&partition),
            Arc::clone(&has_failed),
        );
        log_dirs.set_failure_listener(move |failure| {
            tell!("the directory fails: {:?}", failure.is_fatal);
            let (host, partition, has_failed) = &lost;
            partition.notify(host, Event::LogLost);
            partition.wake_all();
            has_failed.store(true, Ordering::Release);
        });
        let running = Running {
            cluster: cluster.clone(),
            host: Arc::clone(&host),
            partition: Arc::clone(&partition),
            is_over: Arc::clone(&is_over),
        };
        let parts = (
            Arc::clone(&host),
            Arc::clone(&broker.partitions),
            Arc::clone(&log_dirs),
        );
        let cleaner = Arc::new(Cleaner::new(
            Arc::clone(&parts.0),
            Arc::clone(&parts.1),
            Arc::clone(&parts.2),
        ));
        let maintenance = Arc::new(Maintenance::new(parts.0, parts.1, parts.2));
        drop(task::spawn(Arc::clone(&cleaner).keep_cleaning()));
        drop(task::spawn(maintenance.maintain()));
        let start = |name: &str, work: fn(&Running, u64), number: u64| {
            let running = running.clone();
            let thread = thread::Builder::new().name(name.to_owned());
            let thread = thread.spawn(move || work(&running, number));
            thread.expect("a thread starts")
        };
        let publishing = {
            let (broker, running) = (Arc::clone(&broker), running.clone());
            thread::spawn(move || publish(&broker, &running, applied))
        };
        let mut threads = vec![
            publishing,
            start("peer-fetches", peer_fetches, 0),
            start("watch", checks::watch, truncations),
        ];
        let fetching = {
            let (link, running) = (Arc::clone(&link), running.clone());
            thread::spawn(move || link.fetch(&running))
        };
        threads.push(fetching);
        if !self.is_last {
            threads.push(start("producer-1", clients::produce, 1));
            threads.push(start("producer-2", clients::produce, 2));
            threads.push(start("transactions-1", clients::transact, 3));
            threads.push(start("transactions-2", clients::transact, 4));
        }
        let deadline = time::now() + self.lasts;
        while time::now() < deadline && !has_failed.load(Ordering::Acquire) {
            thread::sleep(Duration::from_millis(5));
        }
        if self.is_last {
            checks::at_the_end(&running);
        }
        is_over.store(true, Ordering::Release);
        if has_failed.load(Ordering::Acquire) {
            return Stop::Failed;
        }
        if !self.closes {
            return Stop::Over;
        }
        for thread in threads {
            thread.join().expect("a thread ends");
        }
        host.context.begin_stop();
        cleaner.stop();
        let handle = Handle::current();
        handle.block_on(partition.ensure_topic_id(&host));
        let Some(job) = handle.block_on(partition.close(&host)) else {
            return Stop::Failed;
        };
        if log_dirs.close_log(&job, partition.topic_id).is_err() {
            return Stop::Failed;
        }
        log_dirs.close(BrokerEpoch(1), &[]);
        Stop::Closed
    }
}

/// Applies the controller's decisions.
fn publish(broker: &TestHost, running: &Running, mut applied: usize) {
    let mut random = stream("publish");
    while !running.is_over() {
        let next = running
            .cluster
            .with(|state| state.changes.get(applied).cloned());
        if let Some(change) = next {
            applied += 1;
            broker.apply(vec![change]);
        }
        thread::sleep(Duration::from_millis(random.below(4)));
    }
}

/// The peer as a follower: its fetch requests.
fn peer_fetches(running: &Running, _: u64) {
    let mut random = stream("peer");
    let (handle, partition) = (Handle::current(), &running.partition);
    while !running.is_over() {
        // Sometimes longer than `replica.lag.time.max.ms`.
        let pause_ms = if random.one_in(60) {
            200
        } else {
            random.below(6)
        };
        thread::sleep(Duration::from_millis(pause_ms));
        let (leader, epoch, from, last) = running.cluster.with(|state| {
            let last = state.peer_epoch();
            (state.leader, state.leader_epoch, state.peer_end(), last)
        });
        if leader != BROKER {
            continue;
        }
        let fetch = FollowerFetch {
            replica_id: BrokerId(PEER),
            broker_epoch: BrokerEpoch(0),
            leader_epoch: Some(LeaderEpoch(epoch)),
            fetch_offset: Offset(from),
            last_fetched_epoch: last,
            end_of_last_fetched_epoch: None,
            log_start_offset: Offset(0),
            leader_log_start_offset: Offset(0),
            now_ms: running.host.context.now_ms(),
        };
        let fetches = vec![(Arc::clone(partition), fetch)];
        let decided = handle.block_on(FollowerFetches::decide(&running.host, fetches));
        match decided[0] {
            FollowerVerdict::Served { .. } => {
                let reader = partition.reader();
                let read = reader.read(Offset(from), 2_000, reader.log_end_offset(), true);
                let region = read.ok().and_then(|result| result.region);
                let Some(Ok(bytes)) = region.map(|region| region.read()) else {
                    continue;
                };
                let batches: Result<Vec<RecordBatch>, _> = RecordBatch::read_all(bytes).collect();
                let batches = batches.expect("a read returns whole batches");
                let state = &running.cluster;
                state.with(|state| state.replicate(epoch, from, batches));
            }
            FollowerVerdict::Refused(FetchRefusal::Diverging(end)) => {
                running.cluster.with(|state| state.cut_peer(epoch, end));
            }
            FollowerVerdict::Refused(FetchRefusal::Error(_)) | FollowerVerdict::Undecided(_) => {}
        }
    }
}

/// The broker's connection to the peer and the controller.
pub(super) struct Link {
    cluster: Cluster,
    order: Mutex<Option<(Arc<Partition>, FetchPosition)>>,
    host: Mutex<Option<Arc<PartitionHost>>>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    fn fetch(&self, running: &Running) {
        let mut random = stream("fetch");
        while !running.is_over() {
            let order = self.order.lock().take();
            if let Some((partition, order)) = order {
                let result = self.cluster.with(|state| state.serve(order));
                thread::sleep(Duration::from_millis(random.below(3)));
                let answer = LeaderAnswer { order, result };
                partition.on_leader_answered(&running.host, answer);
            }
            thread::sleep(Duration::from_millis(1 + random.below(4)));
        }
    }
}

impl Replicate for Link {
    fn fetcher(self: Arc<Self>, _: BrokerId, _: &TopicPartition) -> Arc<dyn LeaderFetcher> {
        self
    }

    fn propose(self: Arc<Self>, partition: &Arc<Partition>, proposal: AlterPartition, _: bool) {
        let host = self.host.lock().clone().expect("the broker has started");
        let partition = Arc::clone(partition);
        task::spawn(async move {
            time::sleep(Duration::from_millis(2)).await;
            let result = self.cluster.with(|state| state.alter(&proposal));
            time::sleep(Duration::from_millis(2)).await;
            partition.notify(&host, Event::PartitionAltered { proposal, result });
        });
    }
}

impl LeaderFetcher for Link {
    fn is_for(&self, leader: BrokerId, _: &TopicPartition) -> bool {
        leader == BrokerId(PEER)
    }

    fn order(&self, partition: &Arc<Partition>, position: FetchPosition) {
        *self.order.lock() = Some((Arc::clone(partition), position));
    }

    fn stop(&self, _: &Partition) {
        *self.order.lock() = None;
    }

    fn list_leader_offsets(&self, partition: &Arc<Partition>, leader_epoch: LeaderEpoch) {
        let host = self.host.lock().clone().expect("the broker has started");
        let (cluster, partition) = (self.cluster.clone(), Arc::clone(partition));
        task::spawn(async move {
            time::sleep(Duration::from_millis(2)).await;
            let result = cluster.with(|state| state.list_offsets(leader_epoch));
            let now_ms = host.context.now_ms();
            let listed = Event::LeaderOffsetsListed {
                leader_epoch,
                result,
                now_ms,
            };
            partition.notify(&host, listed);
        });
    }
}
