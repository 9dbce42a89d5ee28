//! Events of brokers at the controller.

use std::time::{Duration, Instant};

use ottla_config::{BrokerConfig, single_node_properties};
use ottla_controller::{ControllerContext, fence_broker};
use ottla_metadata::{MetadataImage, MetadataLoader, Provenance};
use ottla_protocol::metadata_records::register_broker_record::BrokerEndpoint;
use ottla_protocol::metadata_records::{
    FeatureLevelRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord,
};
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};

use crate::measure::{Row, best_time};

pub const ROW: Row = Row {
    name: "broker-events",
    operation: "the fencing of a broker with 1,000 replicas, decided by the controller",
    counted: "partitions of the cluster",
    smallest: 10_000,
    measure: fencing,
};

pub const APPLIED: Row = Row {
    name: "broker-events-applied",
    operation: "the application of that fencing at a broker: the image, and the changes of its replicas",
    counted: "partitions of the cluster",
    smallest: 10_000,
    measure: application,
};

const PARTITIONS_OF_TOPIC: i32 = 1_000;
pub const REPLICAS: i32 = 3;
const REPLICAS_OF_BROKER: i32 = 1_000;
/// The broker that is fenced.
pub const DEAD: BrokerId = BrokerId(1);
/// A broker that has replicas in common with it.
pub const NEIGHBOUR: BrokerId = BrokerId(2);

/// A cluster whose brokers have as many replicas each.
fn cluster_of(partitions: u64) -> MetadataImage {
    let partitions = partitions as i32;
    cluster(
        partitions,
        (partitions * REPLICAS / REPLICAS_OF_BROKER).max(REPLICAS),
    )
}

fn fencing(partitions: u64) -> Duration {
    let image = cluster_of(partitions);
    best_time(|| {
        let (time, records) = fence(&image);
        assert!(records.len() as i32 >= REPLICAS_OF_BROKER);
        time
    })
}

fn application(partitions: u64) -> Duration {
    let image = cluster_of(partitions);
    let (_, records) = fence(&image);
    best_time(|| {
        let mut loader = MetadataLoader::new(image.clone());
        let (records, provenance) = (records.clone(), after(&image, records.len()));
        let began = Instant::now();
        let delta = loader.load_batch(records, provenance);
        let delta = delta.expect("good records").expect("a change");
        let changes = delta.local_changes(NEIGHBOUR);
        let time = began.elapsed();
        assert!(!changes.leaders.is_empty() && !changes.followers.is_empty());
        time
    })
}

/// The decision of the controller when the session of a broker has expired, and its duration.
pub fn fence(image: &MetadataImage) -> (Duration, Vec<MetadataRecord>) {
    let properties = single_node_properties("/data", "localhost:9092", "localhost:9093");
    let config = BrokerConfig::from_properties(&properties).expect("good settings");
    let context = ControllerContext {
        image,
        config: &config.0,
        kraft_version: 1,
        kraft_version_upgrade: &|_| Ok(false),
        client: Default::default(),
        mutation_quota: None,
        random: &mut || 0,
    };
    let began = Instant::now();
    let records = fence_broker(&context, DEAD);
    (began.elapsed(), records)
}

/// The provenance of an image after `records` more records.
pub fn after(image: &MetadataImage, records: usize) -> Provenance {
    let mut provenance = image.provenance;
    provenance.last_contained_offset.0 += records as i64;
    provenance
}

fn apply(image: &mut MetadataImage, records: &[MetadataRecord]) {
    *image = image
        .apply(records, after(image, records.len()))
        .expect("good records")
        .0;
}

fn directory(broker: i32) -> Uuid {
    Uuid::from_u128(1_000 + broker as u128)
}

/// A cluster with `partitions` partitions, in topics of 1,000, with three replicas on neighbouring
/// brokers.
pub fn cluster(partitions: i32, brokers: i32) -> MetadataImage {
    let mut image = MetadataImage::empty();
    image.provenance = Provenance {
        last_contained_offset: Offset(-1),
        last_contained_epoch: LeaderEpoch(1),
        last_contained_log_time: Timestamp(0),
    };
    let level = MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: "metadata.version".into(),
        feature_level: 30,
        ..Default::default()
    });
    apply(&mut image, &[level]);
    let register = |broker_id| {
        MetadataRecord::RegisterBroker(RegisterBrokerRecord {
            broker_id,
            broker_epoch: 1,
            fenced: false,
            end_points: vec![BrokerEndpoint {
                name: "PLAINTEXT".into(),
                host: "localhost".into(),
                port: 9092,
                ..Default::default()
            }],
            log_dirs: vec![directory(broker_id)],
            ..Default::default()
        })
    };
    apply(&mut image, &(0..brokers).map(register).collect::<Vec<_>>());
    for topic in 0..partitions / PARTITIONS_OF_TOPIC {
        let topic_id = Uuid::from_u128(1_000_000 + topic as u128);
        let mut records = vec![MetadataRecord::Topic(TopicRecord {
            name: format!("topic-{topic}").into(),
            topic_id,
            ..Default::default()
        })];
        records.extend((0..PARTITIONS_OF_TOPIC).map(|partition_id| {
            let first = topic * PARTITIONS_OF_TOPIC + partition_id;
            let replicas: Vec<i32> = (0..REPLICAS).map(|it| (first + it) % brokers).collect();
            MetadataRecord::Partition(PartitionRecord {
                topic_id,
                partition_id,
                leader: replicas[0],
                isr: replicas.clone(),
                directories: replicas.iter().map(|&it| directory(it)).collect(),
                replicas,
                leader_epoch: 0,
                partition_epoch: 0,
                ..Default::default()
            })
        }));
        apply(&mut image, &records);
    }
    image
}
