//! Cluster images for tests, created from records like every image.

use ottla_metadata::{MetadataDelta, MetadataImage, Provenance};
use ottla_protocol::metadata_records::{
    ConfigRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord, RemoveTopicRecord,
    TopicRecord,
};
use ottla_types::{Offset, TopicId, Uuid};

/// `ConfigResource.Type.GROUP`.
const GROUP_RESOURCE_TYPE: i8 = 32;

/// The brokers and topics of a cluster. By default all partitions are on broker 1.
#[derive(Clone, Default)]
pub(crate) struct TestImage {
    records: Vec<MetadataRecord>,
}

/// The id of the topic with this name, made of its first bytes, so that ids have the order of the
/// names.
pub(crate) fn topic_id(name: &str) -> TopicId {
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    Uuid(id)
}

impl TestImage {
    pub(crate) fn new() -> Self {
        TestImage::default()
    }

    pub(crate) fn broker(mut self, id: i32, rack: Option<&'static str>) -> Self {
        self.records
            .push(MetadataRecord::RegisterBroker(RegisterBrokerRecord {
                broker_id: id,
                rack: rack.map(Into::into),
                ..Default::default()
            }));
        self
    }

    pub(crate) fn topic(mut self, name: &'static str, partitions: i32) -> Self {
        self.records.push(MetadataRecord::Topic(TopicRecord {
            name: name.into(),
            topic_id: topic_id(name),
            ..Default::default()
        }));
        for index in 0..partitions {
            self = self.partition(name, index);
        }
        self
    }

    pub(crate) fn partition(mut self, name: &'static str, index: i32) -> Self {
        self.records
            .push(MetadataRecord::Partition(PartitionRecord {
                topic_id: topic_id(name),
                partition_id: index,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                ..Default::default()
            }));
        self
    }

    pub(crate) fn replicas(mut self, name: &'static str, index: i32, replicas: &[i32]) -> Self {
        self.records
            .push(MetadataRecord::Partition(PartitionRecord {
                topic_id: topic_id(name),
                partition_id: index,
                replicas: replicas.to_vec(),
                isr: replicas.to_vec(),
                leader: replicas[0],
                ..Default::default()
            }));
        self
    }

    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.records
            .push(MetadataRecord::RemoveTopic(RemoveTopicRecord {
                topic_id: topic_id(name),
                ..Default::default()
            }));
        self
    }

    /// Sets a setting of a group.
    pub(crate) fn group_setting(
        mut self,
        group_id: &'static str,
        key: &'static str,
        value: &'static str,
    ) -> Self {
        self.records.push(MetadataRecord::Config(ConfigRecord {
            resource_type: GROUP_RESOURCE_TYPE,
            resource_name: group_id.into(),
            name: key.into(),
            value: Some(value.into()),
            ..Default::default()
        }));
        self
    }

    pub(crate) fn build(&self) -> MetadataImage {
        self.after(&MetadataImage::empty()).0
    }

    /// The image after `before` with these additions. Its version is one higher.
    pub(crate) fn after(&self, before: &MetadataImage) -> (MetadataImage, MetadataDelta) {
        let provenance = Provenance {
            last_contained_offset: Offset(before.provenance.last_contained_offset.value() + 1),
            ..before.provenance
        };
        before
            .apply(&self.records, provenance)
            .expect("records that fit the image")
    }
}
