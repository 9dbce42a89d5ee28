//! The share partitions that a broker leads.

use std::time::Duration;

use ottla_coordination::share_groups::LedByKey;
use ottla_coordinator::persister::SharePartitionKey;
use ottla_types::{PartitionIndex, TopicId};

use crate::measure::{Row, best_of};

pub const ROW: Row = Row {
    name: "led-share-partitions",
    operation: "finding the share partitions of a changed replica",
    counted: "share partitions that the broker leads, of 10 groups",
    smallest: 1_000,
    measure: changed_replica,
};

const GROUPS: u64 = 10;
const REPLICAS: u32 = 100;
const TOPIC_ID: TopicId = TopicId::from_u128(7);

fn changed_replica(count: u64) -> Duration {
    let mut led = LedByKey::default();
    let partitions = (count / GROUPS) as i32;
    for group in 0..GROUPS {
        for partition in 0..partitions {
            let key = SharePartitionKey {
                group_id: format!("group-{group}").into(),
                topic_id: TOPIC_ID,
                partition,
            };
            led.insert(key, group);
        }
    }
    best_of(REPLICAS, || {
        for replica in 0..REPLICAS as i32 {
            let partition = PartitionIndex(replica.wrapping_mul(7919) % partitions);
            let found = led.of_partition(TOPIC_ID, partition).count();
            assert_eq!(found as u64, GROUPS);
        }
    })
}
