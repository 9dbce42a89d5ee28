//! The cluster under test, and what is known of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use ottla_client::{Client, ClientConfig, Consumer, ConsumerConfig, OffsetReset};
use ottla_testkit::client_histories::{Log, Seen, Value};

pub(super) const TOPICS: [&str; 2] = ["histories-a", "histories-b"];

pub(super) const PARTITIONS: i32 = 2;

/// What all processes share.
pub(super) struct Scene {
    pub(super) bootstrap: String,
    pub(super) began: Instant,
    pub(super) is_over: AtomicBool,
}

impl Scene {
    /// The clock of the history, in microseconds.
    pub(super) fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// A client that gives up soon, since a broker that does not answer is what is looked for.
    pub(super) async fn client(&self) -> Result<Client> {
        let mut config = ClientConfig::new(&self.bootstrap)?;
        config.request_timeout = Duration::from_secs(5);
        config.default_api_timeout = Duration::from_secs(10);
        Ok(Client::connect(config).await?)
    }

    pub(super) fn partitions() -> Vec<(String, i32)> {
        let of = |topic: &'static str| (0..PARTITIONS).map(move |at| (topic.to_owned(), at));
        TOPICS.into_iter().flat_map(of).collect()
    }

    /// The number that the history gives a partition.
    pub(super) fn log(topic: &str, partition: i32) -> Log {
        let topic = TOPICS.iter().position(|known| *known == topic);
        topic.unwrap_or_default() as Log * PARTITIONS as Log + partition as Log
    }
}

/// Reads what is committed from the beginning of each log.
pub(super) async fn consumer(scene: &Scene) -> Result<Consumer> {
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

pub(super) fn seen(record: &ottla_client::ConsumerRecord) -> Seen {
    let value = record.value.as_deref().unwrap_or_default();
    Seen {
        log: Scene::log(&record.topic, record.partition),
        offset: record.offset,
        // What is not a value of ours is one that nobody has sent.
        value: <[u8; 8]>::try_from(value).map_or(0, Value::from_be_bytes),
    }
}

/// How long a poll waits for something.
pub(super) const POLL: Duration = Duration::from_millis(20);
