//! A host with partitions and without a node, for tests that look inside a partition.

use std::path::Path;
use std::sync::Arc;

use ottla_config::{BrokerConfig, TopicConfig, single_node_properties};
use ottla_context::NodeContext;
use ottla_log::Handles;
use ottla_metadata::{MetadataDelta, MetadataLoader, MetadataVersion, Provenance};
use ottla_node::Node;
use ottla_node::dir_assignments::DirAssignments;
use ottla_protocol::metadata_records::{
    ConfigRecord, FeatureLevelRecord, MetadataRecord, PartitionChangeRecord, PartitionRecord,
    RegisterBrokerRecord, TopicRecord,
};
use ottla_storage::format::{format_standalone, read_identity};
use ottla_storage::log_dirs::{DirLocks, LoadSettings, Loading, LogDirs};
use ottla_sync::Mutex;
use ottla_types::{ErrorCode, PartitionIndex, Timestamp, TopicPartition, Uuid};

use crate::local_replicas::LocalReplicas;
use crate::partition::Partition;
use crate::partition::host::{PartitionHost, Replicate, VerifyTransactions};
use crate::partition::producer_transaction::ProducerTransaction;
use crate::partitions::Partitions;
use crate::replication::Replication;

pub const TOPIC: &str = "orders";
pub const TOPIC_ID: Uuid = Uuid([7; 16]);

/// Never answers.
struct NobodyVerifies;

impl VerifyTransactions for NobodyVerifies {
    fn verify(
        self: Arc<Self>,
        _: Arc<ProducerTransaction>,
        _: TopicPartition,
        _: Box<dyn FnOnce(Result<(), ErrorCode>) + Send>,
    ) {
    }
}

pub struct TestHost {
    pub host: Arc<PartitionHost>,
    pub partitions: Arc<Partitions>,
    pub node: Arc<Node>,
    replicas: LocalReplicas,
    loader: Mutex<MetadataLoader>,
    /// Fetchers and proposals, which are not answered.
    _replication: Arc<Replication>,
    _replicate: Arc<dyn Replicate>,
    _verifier: Arc<dyn VerifyTransactions>,
    _data: Option<tempfile::TempDir>,
}

/// The records of a topic whose partitions this broker leads.
pub fn led_topic(name: &str, topic_id: Uuid, partitions: i32) -> Vec<MetadataRecord> {
    let topic = MetadataRecord::Topic(TopicRecord {
        name: name.to_owned().into(),
        topic_id,
        ..Default::default()
    });
    let partitions = (0..partitions).map(|partition_id| {
        MetadataRecord::Partition(PartitionRecord {
            partition_id,
            topic_id,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            ..Default::default()
        })
    });
    [topic].into_iter().chain(partitions).collect()
}

impl TestHost {
    /// Must be called within a runtime.
    pub fn start() -> TestHost {
        let data = tempfile::tempdir().expect("a directory");
        let host = TestHost::start_in(data.path());
        TestHost {
            _data: Some(data),
            ..host
        }
    }

    /// On an existing directory, which is formatted here.
    pub fn start_in(data: &Path) -> TestHost {
        TestHost::start_with(data, None)
    }

    /// As [`start_in`](Self::start_in). `replicate` as for [`open`](Self::open).
    pub(crate) fn start_with(data: &Path, replicate: Option<Arc<dyn Replicate>>) -> TestHost {
        let config = config_in(data);
        format_standalone(&config).expect("formats");
        let opened = TestHost::open(config, Arc::default(), replicate, Arc::new(NobodyVerifies));
        opened.expect("there is nothing to load")
    }

    /// On formatted directories. `replicate`, if given, replaces the product's fetchers and
    /// proposals.
    pub(crate) fn open(
        config: BrokerConfig,
        topic_config: Arc<TopicConfig>,
        replicate: Option<Arc<dyn Replicate>>,
        verifier: Arc<dyn VerifyTransactions>,
    ) -> Result<TestHost, String> {
        let identity = read_identity(&config).map_err(|error| error.to_string())?;
        let identity = identity.ok_or("not formatted")?;
        let log_dirs = Arc::new(LogDirs::new(
            DirLocks::take(&config)?,
            &identity,
            Handles::unlimited(),
        ));
        log_dirs.load(&LoadSettings {
            topic_config: &|_| Arc::clone(&topic_config),
            assigned: &|_| None,
            producer_id_expiration_ms: 86_400_000,
            threads_per_dir: 1,
            loading: &Loading::default(),
            now: Timestamp(0),
        })?;
        let context = Arc::new(NodeContext::new(config));
        let node = Arc::new(Node::new(Arc::clone(&context)));
        let host = Arc::new(PartitionHost::new(context));
        host.set_log_dirs(log_dirs);
        let replication = Arc::new(Replication::new(Arc::clone(&host), Arc::clone(&node)));
        let replicate = replicate.unwrap_or_else(|| Arc::clone(&replication) as _);
        host.set_replication(Arc::downgrade(&replicate));
        host.set_verifier(Arc::downgrade(&verifier));
        let partitions = Arc::new(Partitions::default());
        let replicas = LocalReplicas::new(
            Arc::clone(&host),
            Arc::clone(&partitions),
            Arc::clone(&replication),
            Arc::new(DirAssignments::new(Arc::clone(&node))),
        );
        Ok(TestHost {
            host,
            partitions,
            node,
            replicas,
            loader: Mutex::default(),
            _replication: replication,
            _replicate: replicate,
            _verifier: verifier,
            _data: None,
        })
    }

    /// The only partition of a topic, led by this broker; settings are `key=value`.
    pub fn lead(&self, settings: &[(&'static str, &'static str)]) -> Arc<Partition> {
        let mut records = Vec::from(this_broker());
        records.extend(led_topic(TOPIC, TOPIC_ID, 1));
        records.extend(settings.iter().map(|(key, value)| {
            MetadataRecord::Config(ConfigRecord {
                resource_type: 2,
                resource_name: TOPIC.into(),
                name: (*key).into(),
                value: Some((*value).into()),
                ..Default::default()
            })
        }));
        self.apply(records);
        let found = self.partitions.find(&TopicPartition::new(TOPIC, 0));
        found.expect("the partition is here")
    }

    /// Creates `count` more topics with one partition each, led by this broker. Their names and IDs
    /// are numbered from the number of existing partitions on.
    pub fn lead_topics(&self, count: usize) -> Vec<Arc<Partition>> {
        let first = self.partitions.load().iter().count();
        let ids =
            (first..first + count).map(|number| Uuid::from_u128((1u128 << 64) + number as u128));
        let records = ids.clone().enumerate().flat_map(|(place, topic_id)| {
            led_topic(&format!("topic-{}", first + place), topic_id, 1)
        });
        let broker = (first == 0).then(this_broker).into_iter().flatten();
        self.apply(broker.chain(records).collect());
        let map = self.partitions.load();
        let led = ids.map(|id| map.partition_by_id(id, PartitionIndex(0)).cloned());
        led.map(|it| it.expect("it is here")).collect()
    }

    /// Leaves the partition without a leader.
    pub fn take_leader_away(&self) {
        self.apply(vec![MetadataRecord::PartitionChange(
            PartitionChangeRecord {
                partition_id: 0,
                topic_id: TOPIC_ID,
                leader: -1,
                ..Default::default()
            },
        )]);
    }

    pub(crate) fn apply(&self, records: Vec<MetadataRecord>) {
        self.change(records, |_| {});
    }

    /// Applies a metadata change. `follow` is called between [`LocalReplicas::begin_change`] and
    /// the publication of the image, for the parts above partitions.
    pub fn change(
        &self,
        records: Vec<MetadataRecord>,
        follow: impl FnOnce(&MetadataDelta),
    ) -> MetadataDelta {
        let loaded = self.loader.lock().load_batch(records, Provenance::EMPTY);
        let delta = loaded
            .expect("good records")
            .expect("they change something");
        let mut change = self.replicas.begin_change(&delta);
        follow(&delta);
        self.host.context.set_metadata(delta.after.clone());
        change.finish(&delta);
        delta
    }
}

fn this_broker() -> [MetadataRecord; 2] {
    [
        MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: MetadataVersion::FEATURE_NAME.into(),
            feature_level: MetadataVersion::LATEST_PRODUCTION.feature_level(),
            ..Default::default()
        }),
        MetadataRecord::RegisterBroker(RegisterBrokerRecord {
            broker_id: 1,
            ..Default::default()
        }),
    ]
}

fn config_in(data: &Path) -> BrokerConfig {
    let data = data.to_str().expect("a path of characters");
    let properties = single_node_properties(data, "127.0.0.1:0", "127.0.0.1:0");
    BrokerConfig::from_properties(&properties)
        .expect("good settings")
        .0
}
