//! The real client on a host of its own.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::admin::NewTopic;
use ottla_client::{
    Admin, ClientConfig, Consumer, ConsumerConfig, OffsetReset, Producer, ProducerConfig, RecordRef,
};
use ottla_sync::simulation::Host;
use ottla_sync::task::Handle;
use ottla_types::ErrorCode;

pub struct Client {
    host: Host,
    bootstrap: Arc<str>,
}

impl Client {
    pub fn new(name: &str, bootstrap: &str) -> Client {
        Client {
            host: Host::new(name),
            bootstrap: bootstrap.into(),
        }
    }

    fn on_host<T: 'static, F: Future<Output = T>>(
        &self,
        work: impl FnOnce(ClientConfig) -> F + 'static,
    ) -> T {
        let config = ClientConfig::new(&self.bootstrap).expect("addresses");
        let main = move || Handle::current().block_on(work(config));
        self.host.spawn("client", main).join().expect("it ends")
    }

    /// Creates a topic, as soon as there is a broker that does it.
    pub fn create_topic(&self, name: &'static str, partitions: i32, replication_factor: i16) {
        self.on_host(move |config| async move {
            let client = connect(config).await;
            let topic = NewTopic {
                name: name.to_owned(),
                partitions: Some(partitions),
                replication_factor: Some(replication_factor),
                ..NewTopic::default()
            };
            let (admin, topics) = (Admin::new(client), [topic]);
            loop {
                let results = admin
                    .create_topics(&topics, false)
                    .await
                    .expect("an answer");
                match ErrorCode::from_code(results[0].error_code) {
                    ErrorCode::None => return,
                    // Not all brokers are registered yet.
                    ErrorCode::InvalidReplicationFactor => {
                        ottla_sync::time::sleep(Duration::from_millis(100)).await;
                    }
                    _ => panic!("{:?}", results[0].error_message),
                }
            }
        });
    }

    /// Sends numbers, one record each, and returns those that were acknowledged, with their offsets.
    pub fn produce(
        &self,
        topic: &'static str,
        partition: i32,
        numbers: Range<u64>,
    ) -> Vec<(u64, i64)> {
        self.on_host(move |config| async move {
            let client = connect(config).await;
            let producer = Producer::new(client, ProducerConfig::default()).expect("good settings");
            let mut sent = Vec::new();
            for number in numbers {
                let value = number.to_be_bytes();
                let record = RecordRef {
                    partition: Some(partition),
                    ..RecordRef::new(topic, &value)
                };
                sent.push((number, producer.send_ref(record).await));
            }
            let mut acknowledged = Vec::new();
            for (number, delivery) in sent {
                if let Ok(delivery) = delivery
                    && let Ok(written) = delivery.wait().await
                {
                    acknowledged.push((number, written.offset));
                }
            }
            producer.close().await;
            acknowledged
        })
    }

    /// Reads all numbers of a partition.
    pub fn consume(&self, topic: &'static str, partition: i32) -> Vec<u64> {
        self.on_host(move |config| async move {
            let client = connect(config).await;
            let config = ConsumerConfig {
                offset_reset: OffsetReset::Earliest,
                ..ConsumerConfig::default()
            };
            let mut consumer = Consumer::new(client, config);
            let partition = (topic.to_owned(), partition);
            consumer.assign(std::slice::from_ref(&partition));
            let ends = consumer.end_offsets(std::slice::from_ref(&partition)).await;
            let end = ends.expect("the leader answers")[&partition];
            let mut read = Vec::new();
            while consumer.position(&partition).unwrap_or(0) < end {
                for record in consumer
                    .poll(Duration::from_secs(1))
                    .await
                    .expect("records")
                {
                    let value = record.value.expect("a value");
                    read.push(u64::from_be_bytes(value[..].try_into().expect("a number")));
                }
            }
            consumer.close().await.expect("it closes");
            read
        })
    }
}

/// Tries until a broker answers.
async fn connect(config: ClientConfig) -> ottla_client::Client {
    loop {
        match ottla_client::Client::connect(config.clone()).await {
            Ok(client) => return client,
            Err(_) => ottla_sync::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
