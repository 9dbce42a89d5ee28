//! A builder of clusters for tests of decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_config::{BrokerConfig, single_node_properties};
use ottla_metadata::{MetadataImage, Provenance};
use ottla_protocol::metadata_records::{
    FeatureLevelRecord, FenceBrokerRecord, MetadataRecord, RegisterBrokerRecord,
    register_broker_record::{BrokerEndpoint, BrokerFeature},
};
use ottla_security::quota::MutationQuota;
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};

use crate::decision::ControllerContext;
use crate::features::local_supported_features;

/// The epoch with which broker 1 of `Cluster::single_node` is registered.
pub(crate) const SINGLE_NODE_EPOCH: i64 = 101;

pub(crate) struct Cluster {
    pub image: MetadataImage,
    pub config: BrokerConfig,
    settings: BTreeMap<String, String>,
    kraft_version: i16,
    kraft_version_upgrade: Box<dyn Fn(i16) -> Result<bool, String>>,
    pub client: ByteString,
    pub mutation_quota: Option<Arc<dyn MutationQuota>>,
    random: Box<dyn FnMut() -> u64>,
}

impl Cluster {
    pub fn empty() -> Cluster {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut cluster = Cluster {
            image: MetadataImage::empty(),
            config: config(&BTreeMap::new()),
            settings: BTreeMap::new(),
            kraft_version: 1,
            kraft_version_upgrade: Box::new(|level| Ok(level > 1)),
            client: ByteString::new(),
            mutation_quota: None,
            random: Box::new(move || {
                // xorshift64*: the same sequence in every run.
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d)
            }),
        };
        cluster.image.provenance = Provenance {
            last_contained_offset: Offset(-1),
            last_contained_epoch: LeaderEpoch(1),
            last_contained_log_time: Timestamp(0),
        };
        cluster
    }

    /// Broker 1, unfenced, at metadata.version 4.3-IV0.
    pub fn single_node() -> Cluster {
        Cluster::with_brokers(&[1])
    }

    pub fn with_brokers(ids: &[i32]) -> Cluster {
        let mut cluster = Cluster::empty().with_feature("metadata.version", 30);
        for &id in ids {
            let register = MetadataRecord::RegisterBroker(RegisterBrokerRecord {
                broker_id: id,
                broker_epoch: 100 + i64::from(id),
                incarnation_id: Uuid::from_u128(500 + id as u128),
                end_points: vec![BrokerEndpoint {
                    name: "PLAINTEXT".into(),
                    host: "localhost".into(),
                    port: 9092,
                    ..Default::default()
                }],
                features: local_supported_features()
                    .into_iter()
                    .map(|feature| BrokerFeature {
                        name: feature.name,
                        min_supported_version: feature.min,
                        max_supported_version: feature.max,
                        ..Default::default()
                    })
                    .collect(),
                fenced: false,
                log_dirs: vec![directory(id)],
                ..Default::default()
            });
            cluster.apply(&[register]);
        }
        cluster
    }

    pub fn with_feature(mut self, name: &'static str, feature_level: i16) -> Cluster {
        self.apply(&[MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: name.into(),
            feature_level,
            ..Default::default()
        })]);
        self
    }

    pub fn with_setting(mut self, key: &str, value: &str) -> Cluster {
        self.settings.insert(key.to_owned(), value.to_owned());
        self.config = config(&self.settings);
        self
    }

    /// A quorum of static voters. `upgrade` is the result for `kraft_version_upgrade`.
    pub fn with_static_quorum(mut self, upgrade: Result<bool, &'static str>) -> Cluster {
        self.kraft_version = 0;
        self.kraft_version_upgrade = Box::new(move |_| upgrade.map_err(str::to_owned));
        self
    }

    pub fn fence(mut self, id: i32) -> Cluster {
        let epoch = self.image.cluster.broker_epoch(BrokerId(id)).value();
        self.apply(&[MetadataRecord::FenceBroker(FenceBrokerRecord {
            id,
            epoch,
            ..Default::default()
        })]);
        self
    }

    pub fn apply(&mut self, records: &[MetadataRecord]) {
        let mut provenance = self.image.provenance;
        provenance.last_contained_offset.0 += records.len() as i64;
        self.image = self
            .image
            .apply(records, provenance)
            .expect("the records fit")
            .0;
    }

    pub fn context(&mut self) -> ControllerContext<'_> {
        ControllerContext {
            image: &self.image,
            config: &self.config,
            kraft_version: self.kraft_version,
            kraft_version_upgrade: &*self.kraft_version_upgrade,
            client: self.client.clone(),
            mutation_quota: self.mutation_quota.clone(),
            random: &mut self.random,
        }
    }
}

pub(crate) fn directory(broker: i32) -> Uuid {
    Uuid::from_u128(1000 + broker as u128)
}

fn config(settings: &BTreeMap<String, String>) -> BrokerConfig {
    let mut properties = single_node_properties("/data", "localhost:9092", "localhost:9093");
    for (key, value) in settings {
        properties.set(key, value);
    }
    BrokerConfig::from_properties(&properties)
        .expect("the settings are valid")
        .0
}
