//! The state of the cluster that the metadata log describes up to one offset.
//!
//! An image never changes. Applying records (`replay`) gives the next image, which shares all
//! unchanged parts, and a delta that lists the changes. Cloning an image costs a few reference
//! counts.
//!
//! In Kafka: `org.apache.kafka.image.MetadataImage`.

use ottla_protocol::metadata_records::{MetadataRecord, ProducerIdsRecord};
use ottla_types::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, ProducerId, Timestamp};

use crate::kept_records::{ClientQuotasImage, KeptRecords};
use crate::{ClusterImage, ConfigurationsImage, FeaturesImage, MetadataVersion, TopicsImage};

/// The last offset of the metadata log that an image contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provenance {
    /// Inclusive; -1 for the empty image.
    pub last_contained_offset: Offset,
    pub last_contained_epoch: LeaderEpoch,
    /// When the leader appended the batch of that offset.
    pub last_contained_log_time: Timestamp,
}

impl Provenance {
    pub const EMPTY: Provenance = Provenance {
        last_contained_offset: Offset(-1),
        last_contained_epoch: LeaderEpoch(-1),
        last_contained_log_time: Timestamp(-1),
    };
}

impl Default for Provenance {
    fn default() -> Self {
        Provenance::EMPTY
    }
}

/// The cluster's metadata at one offset of the log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MetadataImage {
    pub provenance: Provenance,
    pub features: FeaturesImage,
    pub cluster: ClusterImage,
    pub topics: TopicsImage,
    pub configs: ConfigurationsImage,
    pub client_quotas: ClientQuotasImage,
    /// The first producer id that is not assigned to a broker; `None` before the first block.
    pub next_producer_id: Option<ProducerId>,
    pub kept: KeptRecords,
}

impl MetadataImage {
    /// The image of an empty log.
    pub fn empty() -> MetadataImage {
        MetadataImage::default()
    }

    /// The finalized level; the oldest supported one for an empty image.
    pub fn metadata_version(&self) -> MetadataVersion {
        self.features
            .metadata_version()
            .unwrap_or(MetadataVersion::MINIMUM)
    }

    /// The records of a snapshot of this image, in Kafka's order.
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let metadata_version = self.metadata_version();
        let mut records = Vec::new();
        self.features.write(metadata_version, &mut records);
        self.cluster.write(metadata_version, &mut records);
        self.topics.write(
            metadata_version,
            self.features.is_elr_enabled(),
            &mut records,
        );
        self.configs.write(&mut records);
        records.extend(
            self.client_quotas
                .iter()
                .cloned()
                .map(MetadataRecord::ClientQuota),
        );
        if let Some(next) = self.next_producer_id {
            records.push(MetadataRecord::ProducerIds(ProducerIdsRecord {
                broker_id: BrokerId::NONE.value(),
                broker_epoch: BrokerEpoch::UNKNOWN.value(),
                next_producer_id: next.value(),
                ..Default::default()
            }));
        }
        self.kept.write(metadata_version, &mut records);
        records
    }
}
