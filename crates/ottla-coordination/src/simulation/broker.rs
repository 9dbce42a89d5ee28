//! The part of a broker that coordinators need: partitions on a simulated disk, a fetching
//! follower, and a controller that changes leaders and in-sync replicas.

use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_coordinator::group::GroupCoordinator;
use ottla_coordinator::share_state::ShareCoordinator;
use ottla_coordinator::transaction::TransactionCoordinator;
use ottla_metadata::MetadataVersion;
use ottla_net::{Authorizer, BrokerPeers};
use ottla_node::auto_topic_creation::AutoTopicCreation;
use ottla_node::producer_id_blocks::ProducerIdBlocks;
use ottla_partition::Partition;
use ottla_partition::partition::FollowerFetches;
use ottla_partition::test_host::{TOPIC, TOPIC_ID, TestHost};
use ottla_protocol::metadata_records::{
    ConfigRecord, FeatureLevelRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord,
    RegisterBrokerRecord, TopicRecord,
};
use ottla_replica::FollowerFetch;
use ottla_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ottla_sync::simulation::Random;
use ottla_sync::{task, thread, time};
use ottla_types::{BrokerEpoch, BrokerId, Offset, TopicIdPartition, Uuid};

use super::Tally;
use crate::groups::{Groups, OFFSETS_TOPIC};
use crate::runtime::{ShardedCoordinator, read_log};
use crate::share_groups::{SHARE_STATE_TOPIC, ShareGroups};
use crate::surroundings::Surroundings;
use crate::transactions::{TRANSACTION_TOPIC, Transactions};

/// Each topic has one partition.
const TOPICS: [(&str, Uuid); 4] = [
    (OFFSETS_TOPIC, Uuid([1; 16])),
    (TRANSACTION_TOPIC, Uuid([2; 16])),
    (SHARE_STATE_TOPIC, Uuid([3; 16])),
    (TOPIC, TOPIC_ID),
];

/// The partition that clients use.
pub const OF_CLIENTS: TopicIdPartition = TopicIdPartition {
    topic_id: TOPIC_ID,
    partition: ottla_types::PartitionIndex(0),
};

/// Timeout for the log and for other brokers.
const TIMEOUT_MS: i32 = 400;

pub struct SimulatedBroker {
    test_host: TestHost,
    pub groups: Arc<Groups>,
    pub transactions: Arc<Transactions>,
    pub share_groups: Arc<ShareGroups>,
    /// Odd while the ISR is below `min.insync.replicas`.
    isr_phase: AtomicU64,
    follower_is_up: AtomicBool,
    is_over: AtomicBool,
    has_no_followers: AtomicBool,
    pub tally: ottla_sync::Mutex<Tally>,
}

fn feature(name: &str, level: i16) -> MetadataRecord {
    MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: name.to_owned().into(),
        feature_level: level,
        ..Default::default()
    })
}

impl SimulatedBroker {
    /// On an empty disk.
    pub fn start() -> Arc<SimulatedBroker> {
        let test_host = TestHost::start_in("/data".as_ref());
        let context = &test_host.host.context;
        let mut config = BrokerConfig::clone(&context.config());
        config.request_timeout_ms = TIMEOUT_MS;
        config.offsets_commit_timeout_ms = TIMEOUT_MS;
        config.share_coordinator_write_timeout_ms = TIMEOUT_MS;
        config.share_coordinator_snapshot_update_records_per_snapshot = 3;
        config.share_coordinator_state_topic_prune_interval_ms = 150;
        config.share_coordinator_cold_partition_snapshot_interval_ms = 400;
        context.set_config(config.clone());
        let node = &test_host.node;
        let surroundings = Arc::new(Surroundings {
            context: Arc::clone(context),
            host: Arc::clone(&test_host.host),
            partitions: Arc::clone(&test_host.partitions),
            producer_ids: Arc::new(ProducerIdBlocks::with_block(Arc::clone(node), 0..1_000_000)),
            auto_topic_creation: Arc::new(AutoTopicCreation::new(Arc::clone(node))),
            peers: BrokerPeers::default(),
            authorizer: Arc::new(Authorizer::allow_all()),
        });
        let share_groups = Arc::new(ShareGroups::new(Arc::clone(&surroundings), &config));
        let groups = Groups::new(
            Arc::clone(&surroundings),
            Arc::clone(&share_groups.coordinators),
        );
        let groups = Arc::new(groups);
        let transactions = Transactions::new(surroundings, Arc::clone(&groups), &config);
        let broker = Arc::new(SimulatedBroker {
            test_host,
            groups,
            transactions: Arc::new(transactions),
            share_groups,
            isr_phase: AtomicU64::new(0),
            follower_is_up: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            has_no_followers: AtomicBool::new(false),
            tally: ottla_sync::Mutex::default(),
        });
        broker.create_topics();
        broker
    }

    fn create_topics(&self) {
        let mut records = vec![
            feature(
                MetadataVersion::FEATURE_NAME,
                MetadataVersion::LATEST_PRODUCTION.feature_level(),
            ),
            feature("transaction.version", 2),
            feature("group.version", 1),
            feature("share.version", 1),
        ];
        records.extend([1, 2].map(|broker_id| {
            MetadataRecord::RegisterBroker(RegisterBrokerRecord {
                broker_id,
                fenced: false,
                ..Default::default()
            })
        }));
        for (name, topic_id) in TOPICS {
            records.push(MetadataRecord::Topic(TopicRecord {
                name: name.into(),
                topic_id,
                ..Default::default()
            }));
            records.push(MetadataRecord::Partition(PartitionRecord {
                partition_id: 0,
                topic_id,
                leader_epoch: 0,
                partition_epoch: 0,
                replicas: vec![1, 2],
                isr: vec![1, 2],
                leader: 1,
                ..Default::default()
            }));
            records.push(MetadataRecord::Config(ConfigRecord {
                resource_type: 2,
                resource_name: name.into(),
                name: "min.insync.replicas".into(),
                value: Some("2".into()),
                ..Default::default()
            }));
        }
        self.change(records);
    }

    /// Applies a metadata change, in the order of the broker's `publish`.
    fn change(&self, records: Vec<MetadataRecord>) {
        let (groups, transactions) = (&self.groups, &self.transactions);
        let share_groups = &self.share_groups;
        let delta = self.test_host.change(records, |delta| {
            groups.follow_leadership(groups, delta);
            transactions.follow_leadership(&transactions.coordinators, delta);
            share_groups.follow_leadership(&share_groups.coordinators, delta);
        });
        groups.follow_metadata(&delta);
        transactions.follow_features(&delta);
        share_groups.follow_metadata(&delta);
    }

    fn change_partitions(&self, topics: &[(&str, Uuid)], change: PartitionChangeRecord) {
        let records = topics.iter().map(|(_, topic_id)| {
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                partition_id: 0,
                topic_id: *topic_id,
                ..change.clone()
            })
        });
        self.change(records.collect());
    }

    fn set_leader(&self, topics: &[(&str, Uuid)], leader: i32) {
        let change = PartitionChangeRecord {
            leader,
            ..Default::default()
        };
        self.change_partitions(topics, change);
    }

    fn set_isr(&self, isr: Vec<i32>) {
        let change = PartitionChangeRecord {
            isr: Some(isr),
            ..Default::default()
        };
        self.change_partitions(&TOPICS, change);
    }

    /// Re-elects this broker, so that coordinators are loaded again.
    pub fn elect_again(&self) {
        self.set_leader(&TOPICS, 1);
    }

    /// Closes the files of the logs, which are opened again when they are read.
    pub fn close_files(&self) {
        for (topic, _) in TOPICS {
            let partition = self.partition(topic);
            let closed = partition.with_log(&self.test_host.host, |log| log.close_files());
            ottla_sync::task::Handle::current().block_on(closed);
        }
    }

    /// The current phase, if the ISR is below `min.insync.replicas`.
    pub fn phase_under_min_isr(&self) -> Option<u64> {
        let phase = self.isr_phase.load(Ordering::SeqCst);
        (phase % 2 == 1).then_some(phase)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Makes clients end after their current request.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Ends [`follow`](Self::follow).
    pub fn end_following(&self) {
        self.has_no_followers.store(true, Ordering::SeqCst);
    }

    pub fn partition(&self, topic: &str) -> Arc<Partition> {
        let found = self.test_host.partitions.get(topic, 0);
        found.expect("the partition is here")
    }

    /// The state in the log below the high watermark.
    pub fn committed<C: ShardedCoordinator>(&self, host: &Arc<C::Host>) -> C {
        let partition = self.partition(C::TOPIC);
        loop {
            let reader = partition.reader().clone();
            let start = reader.log_start_offset();
            let coordinator = C::new(host, partition.leader_epoch());
            let end = reader.high_watermark();
            match read_log::<C>(host, &reader, end, coordinator) {
                // Records deleted during the read may be missing.
                _ if reader.log_start_offset() != start => {}
                Ok(loaded) => return loaded.coordinator,
                Err(error) => panic!("{} cannot be read: {error}", C::TOPIC),
            }
        }
    }

    pub fn committed_groups(&self) -> GroupCoordinator {
        self.committed(&self.groups)
    }

    pub fn committed_transactions(&self) -> TransactionCoordinator {
        self.committed(&self.transactions.coordinators)
    }

    pub fn committed_share_state(&self) -> ShareCoordinator {
        self.committed(&self.share_groups.coordinators)
    }

    /// The other replica fetches everything at intervals.
    pub fn follow(&self, mut random: Random) {
        while !self.has_no_followers.load(Ordering::SeqCst) {
            if self.follower_is_up.load(Ordering::SeqCst) {
                task::Handle::current().block_on(self.fetch_once());
            }
            thread::sleep(Duration::from_micros(random.below(20_000)));
        }
    }

    async fn fetch_once(&self) {
        let fetches = TOPICS.iter().map(|(topic, _)| {
            let partition = self.partition(topic);
            let fetch = FollowerFetch {
                replica_id: BrokerId(2),
                broker_epoch: BrokerEpoch::UNKNOWN,
                leader_epoch: None,
                fetch_offset: partition.reader().log_end_offset(),
                last_fetched_epoch: None,
                end_of_last_fetched_epoch: None,
                log_start_offset: Offset::ZERO,
                leader_log_start_offset: Offset::ZERO,
                now_ms: self.test_host.host.context.now_ms(),
            };
            (partition, fetch)
        });
        // A refused fetch is repeated.
        FollowerFetches::decide(&self.test_host.host, fetches.collect()).await;
    }

    /// Changes leaders and in-sync replicas for a while, and restores them.
    pub fn govern(&self, mut random: Random) {
        for _ in 0..3 + random.below(5) {
            thread::sleep(Duration::from_millis(random.below(200)));
            match random.below(3) {
                0 => self.lose_follower(&mut random),
                1 => self.lose_leaders(&mut random),
                _ => {
                    let topic = random.index(TOPICS.len());
                    self.set_leader(&TOPICS[topic..=topic], 1);
                    self.tally.lock().elections += 1;
                }
            }
        }
    }

    fn lose_follower(&self, random: &mut Random) {
        self.follower_is_up.store(false, Ordering::SeqCst);
        // Some requests wait for the follower before it leaves the ISR.
        thread::sleep(Duration::from_millis(random.below(20)));
        self.set_isr(vec![1]);
        self.isr_phase.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(random.below(4 * TIMEOUT_MS as u64)));
        self.isr_phase.fetch_add(1, Ordering::SeqCst);
        self.set_isr(vec![1, 2]);
        self.follower_is_up.store(true, Ordering::SeqCst);
        self.tally.lock().shrinks += 1;
    }

    fn lose_leaders(&self, random: &mut Random) {
        let topics: Vec<_> = TOPICS.into_iter().filter(|_| random.one_in(2)).collect();
        self.set_leader(&topics, -1);
        let loses_share_partitions = topics.iter().any(|(topic, _)| *topic == TOPIC);
        thread::sleep(Duration::from_millis(20 + random.below(100)));
        if loses_share_partitions {
            self.check_share_partitions_are_closed();
        }
        self.set_leader(&topics, 1);
        self.tally.lock().losses_of_leaders += 1;
    }

    /// No share partition is open while its partition is led elsewhere.
    fn check_share_partitions_are_closed(&self) {
        for group in 0..super::SHARE_GROUPS {
            let group = super::share_group(group);
            let led = self.share_groups.partitions.get(&group, OF_CLIENTS);
            assert!(
                led.is_none_or(|led| led.failure().is_some()),
                "a share partition is open whose partition is led here no longer"
            );
        }
    }
}

/// Every request is answered, without relying on a timeout of the client.
pub async fn in_time<F: Future>(asked: F) -> F::Output {
    let answered = time::timeout(Duration::from_secs(60), asked).await;
    answered.expect("a request is never answered")
}
