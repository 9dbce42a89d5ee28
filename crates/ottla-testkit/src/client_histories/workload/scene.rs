//! The cluster under test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use ottla_client::admin::NewTopic;
use ottla_client::{
    Admin, Client, ClientConfig, ClientError, Consumer, ConsumerConfig, OffsetReset,
};

use crate::client_histories::{Log, Seen, Value};

pub const TOPICS: [&str; 2] = ["histories-a", "histories-b"];

pub const PARTITIONS: i32 = 2;

/// State shared by all processes.
pub struct Scene {
    pub bootstrap: String,
    /// The clock of the history, shared by all processes, in microseconds.
    pub clock: Box<dyn Fn() -> u64 + Send + Sync>,
    pub is_over: AtomicBool,
    /// Maximum pause of a process between two operations.
    pub pause: Duration,
}

impl Scene {
    /// The time of the history's clock, in microseconds.
    pub fn now(&self) -> u64 {
        (self.clock)()
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// A client with short timeouts, because unavailable brokers are expected.
    pub async fn client(&self) -> Result<Client> {
        let mut config = ClientConfig::new(&self.bootstrap)?;
        config.request_timeout = Duration::from_secs(5);
        config.default_api_timeout = Duration::from_secs(10);
        Ok(Client::connect(config).await?)
    }

    pub async fn create_topics(&self, replicas: i16) -> Result<()> {
        let admin = Admin::new(self.client().await?);
        let topics = TOPICS.map(|name| NewTopic {
            name: name.to_owned(),
            partitions: Some(PARTITIONS),
            replication_factor: Some(replicas),
            ..NewTopic::default()
        });
        for result in admin.create_topics(&topics, false).await? {
            let name = result.name.to_string();
            ClientError::check(name, result.error_code, result.error_message.as_deref())?;
        }
        Ok(())
    }

    pub fn partitions() -> Vec<(String, i32)> {
        let of = |topic: &'static str| (0..PARTITIONS).map(move |at| (topic.to_owned(), at));
        TOPICS.into_iter().flat_map(of).collect()
    }

    /// The number that the history assigns to a partition.
    pub fn log(topic: &str, partition: i32) -> Log {
        let topic = TOPICS.iter().position(|known| *known == topic);
        topic.unwrap_or_default() as Log * PARTITIONS as Log + partition as Log
    }
}

/// A consumer that reads each log from its beginning with `read_committed`.
pub async fn consumer(scene: &Scene) -> Result<Consumer> {
    let config = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        auto_commit: false,
        read_committed: true,
        fetch_max_wait: POLL,
        ..ConsumerConfig::default()
    };
    let mut consumer = Consumer::new(scene.client().await?, config);
    consumer.assign(&Scene::partitions());
    Ok(consumer)
}

pub fn seen(record: &ottla_client::ConsumerRecord) -> Seen {
    let value = record.value.as_deref().unwrap_or_default();
    Seen {
        log: Scene::log(&record.topic, record.partition),
        offset: record.offset,
        // A value that is not 8 bytes long becomes 0, which is never sent.
        value: <[u8; 8]>::try_from(value).map_or(0, Value::from_be_bytes),
    }
}

/// Maximum wait of a poll.
pub const POLL: Duration = Duration::from_millis(20);
