//! The cost of a broker failure for the controller by the number of partitions in the cluster. Each
//! broker has 1,000 partitions with three replicas each.
//!
//! `cargo bench -p ottla-controller`

// A benchmark measures time.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::{Duration, Instant};

use ottla_config::{BrokerConfig, single_node_properties};
use ottla_controller::{ControllerContext, fence_broker};
use ottla_metadata::{MetadataImage, Provenance};
use ottla_protocol::metadata_records::register_broker_record::BrokerEndpoint;
use ottla_protocol::metadata_records::{
    FeatureLevelRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord,
};
use ottla_types::{BrokerId, LeaderEpoch, Offset, Timestamp, Uuid};

const PARTITIONS_OF_TOPIC: i32 = 1_000;
const REPLICAS: i32 = 3;
const PARTITIONS_OF_BROKER: i32 = 1_000;

fn apply(image: &mut MetadataImage, records: &[MetadataRecord]) {
    let mut provenance = image.provenance;
    provenance.last_contained_offset.0 += records.len() as i64;
    *image = image.apply(records, provenance).expect("good records").0;
}

fn directory(broker: i32) -> Uuid {
    Uuid::from_u128(1_000 + broker as u128)
}

fn cluster(partitions: i32) -> MetadataImage {
    let brokers = (partitions * REPLICAS / PARTITIONS_OF_BROKER).max(REPLICAS);
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

fn main() {
    let properties = single_node_properties("/data", "localhost:9092", "localhost:9093");
    let config = BrokerConfig::from_properties(&properties).expect("good settings");
    println!("partitions, brokers, records, ms to decide (best of 5), ms to apply");
    for partitions in [10_000, 100_000, 1_000_000] {
        let image = cluster(partitions);
        let decide = || -> (Vec<MetadataRecord>, Duration) {
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
            (records, began.elapsed())
        };
        let runs: Vec<_> = (0..5).map(|_| decide()).collect();
        let best = runs.iter().map(|(_, time)| *time).min().unwrap_or_default();
        let records = &runs[0].0;
        let began = Instant::now();
        let applied = image.apply(records, image.provenance);
        let apply_ms = began.elapsed().as_secs_f64() * 1_000.0;
        assert!(applied.is_ok());
        println!(
            "{partitions:>9} {:>6} {:>6} {:>9.2} {:>9.2}",
            image.cluster.brokers().count(),
            records.len(),
            best.as_secs_f64() * 1_000.0,
            apply_ms,
        );
    }
}
