//! Metadata changes at a broker with many partitions.

use std::time::Duration;

use ottla_partition::test_host::{TestHost, led_topic};
use ottla_protocol::metadata_records::{
    BrokerRegistrationChangeRecord, MetadataRecord, RegisterBrokerRecord, RemoveTopicRecord,
};
use ottla_types::TopicId;

use crate::measure::{Row, best_of};

pub const BY_TOPICS: Row = Row {
    name: "created-topics",
    operation: "the creation and deletion of a topic with one partition, at its broker",
    counted: "other topics of the broker",
    smallest: 30,
    measure: by_topics,
};

pub const BY_LEADERS: Row = Row {
    name: "broker-changes",
    operation: "the fencing of a broker that has no replica of a leader's partitions, at this leader",
    counted: "partitions that the leader leads",
    smallest: 30,
    measure: by_leaders,
};

const CHANGES: u32 = 20;
const TOPIC_ID: TopicId = TopicId::from_u128(7);

/// Calls `measure` with a broker that leads `count` partitions.
fn with_partitions(count: u64, measure: impl FnOnce(&TestHost) -> Duration) -> Duration {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _entered = runtime.enter();
    let host = TestHost::start();
    host.lead_topics(count as usize);
    measure(&host)
}

fn by_topics(count: u64) -> Duration {
    with_partitions(count, |host| {
        best_of(CHANGES, || {
            for _ in 0..CHANGES {
                host.change(led_topic("orders", TOPIC_ID, 1), |_| {});
                let removed = RemoveTopicRecord {
                    topic_id: TOPIC_ID,
                    ..Default::default()
                };
                host.change(vec![MetadataRecord::RemoveTopic(removed)], |_| {});
            }
        })
    })
}

fn by_leaders(count: u64) -> Duration {
    with_partitions(count, |host| {
        let registered = RegisterBrokerRecord {
            broker_id: 2,
            broker_epoch: 1,
            fenced: false,
            ..Default::default()
        };
        host.change(vec![MetadataRecord::RegisterBroker(registered)], |_| {});
        let mut fenced = 1;
        best_of(CHANGES, || {
            for _ in 0..CHANGES {
                let change = BrokerRegistrationChangeRecord {
                    broker_id: 2,
                    broker_epoch: 1,
                    fenced,
                    ..Default::default()
                };
                host.change(
                    vec![MetadataRecord::BrokerRegistrationChange(change)],
                    |_| {},
                );
                fenced = -fenced;
            }
        })
    })
}
