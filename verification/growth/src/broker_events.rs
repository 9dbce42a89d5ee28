//! Events of brokers at the controller.

use std::time::{Duration, Instant};

use ottla_config::{BrokerConfig, single_node_properties};
use ottla_controller::{ControllerContext, fence_broker};
use ottla_metadata::{MetadataImage, Provenance};
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

const PARTITIONS_OF_TOPIC: i32 = 1_000;
const REPLICAS: i32 = 3;
const REPLICAS_OF_BROKER: i32 = 1_000;

fn fencing(partitions: u64) -> Duration {
    let properties = single_node_properties("/data", "localhost:9092", "localhost:9093");
    let config = BrokerConfig::from_properties(&properties).expect("good settings");
    let image = cluster(partitions as i32);
    best_time(|| {
        let context = ControllerContext {
            image: &image,
            config: &config.0,
            kraft_version: 1,
            kraft_version_upgrade: &|_| Ok(false),
            client: Default::default(),
            mutation_quota: None,
            random: &mut || 0,
        };
        let began = Instant::now();
        let records = fence_broker(&context, BrokerId(1));
        let time = began.elapsed();
        assert!(records.len() as i32 >= REPLICAS_OF_BROKER);
        time
    })
}

fn apply(image: &mut MetadataImage, records: &[MetadataRecord]) {
    let mut provenance = image.provenance;
    provenance.last_contained_offset.0 += records.len() as i64;
    *image = image.apply(records, provenance).expect("good records").0;
}

fn directory(broker: i32) -> Uuid {
    Uuid::from_u128(1_000 + broker as u128)
}

fn cluster(partitions: i32) -> MetadataImage {
    let brokers = (partitions * REPLICAS / REPLICAS_OF_BROKER).max(REPLICAS);
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
