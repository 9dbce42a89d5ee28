//! The broker for these tests, and their common setup.

#![allow(
    dead_code,
    reason = "each of the files that have this module uses a part of it"
)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::admin::NewTopic;
use ottla_client::{
    Admin, Client, ClientConfig, Consumer, ConsumerRecord, Producer, ProducerConfig, ProducerRecord,
};
use ottla_testkit::{BrokerBuilder, BrokerProcess};

/// A broker: the one in `OTTLA_CLIENT_BOOTSTRAP`, or an Ottla process of the test.
pub struct Cluster {
    /// `None` if the environment names one.
    #[allow(
        dead_code,
        reason = "one of the files that have this module restarts it"
    )]
    pub broker: Option<BrokerProcess>,
    pub admin: Admin,
    /// Makes the names of this test unique.
    suffix: String,
}

impl Cluster {
    pub async fn start() -> Cluster {
        let (broker, bootstrap) = match std::env::var("OTTLA_CLIENT_BOOTSTRAP") {
            Ok(bootstrap) => (None, bootstrap),
            Err(_) => {
                let broker = BrokerBuilder::new()
                    .property("group.initial.rebalance.delay.ms", "0")
                    .property("group.consumer.min.heartbeat.interval.ms", "500")
                    .property("group.consumer.heartbeat.interval.ms", "500")
                    .property("offsets.topic.num.partitions", "1")
                    .property("group.share.min.heartbeat.interval.ms", "500")
                    .property("group.share.heartbeat.interval.ms", "500")
                    .property("group.share.assignment.interval.ms", "0")
                    .property("share.coordinator.state.topic.num.partitions", "1")
                    .property("share.coordinator.state.topic.replication.factor", "1")
                    .property("share.coordinator.state.topic.min.isr", "1")
                    .property("auto.create.topics.enable", "false")
                    .start();
                let bootstrap = broker.bootstrap();
                (Some(broker), bootstrap)
            }
        };
        let config = ClientConfig::new(&bootstrap).expect("an address");
        let admin = Admin::new(Client::connect(config).await.expect("the broker answers"));
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Cluster {
            broker,
            admin,
            suffix: format!("-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed)),
        }
    }

    /// A name that is unique to this test.
    pub fn name(&self, name: &str) -> String {
        format!("{name}{}", self.suffix)
    }

    pub async fn topic(&self, name: &str, partitions: i32) -> String {
        let name = self.name(name);
        let topic = NewTopic {
            name: name.clone(),
            partitions: Some(partitions),
            ..NewTopic::default()
        };
        let results = self
            .admin
            .create_topics(&[topic], false)
            .await
            .expect("an answer");
        assert_eq!(results[0].error_code, 0, "{:?}", results[0].error_message);
        name
    }

    /// The committed offsets of a group, in the order of the partitions.
    pub async fn committed(&self, group: &str) -> Vec<i64> {
        let committed = self.admin.committed_offsets(group).await.expect("offsets");
        committed.values().map(|it| it.offset).collect()
    }

    pub fn producer(&self, config: ProducerConfig) -> Producer {
        Producer::new(self.admin.client().clone(), config).expect("a producer")
    }
}

pub fn record(topic: &str, key: &str, value: &str) -> ProducerRecord {
    ProducerRecord {
        topic: topic.into(),
        key: Some(Bytes::copy_from_slice(key.as_bytes())),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        ..ProducerRecord::default()
    }
}

/// Polls until this many records have arrived, or a minute is over.
pub async fn read(consumer: &mut Consumer, count: usize) -> Vec<ConsumerRecord> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut records = Vec::new();
    while records.len() < count && Instant::now() < deadline {
        records.extend(
            consumer
                .poll(Duration::from_millis(200))
                .await
                .expect("records"),
        );
    }
    records
}
