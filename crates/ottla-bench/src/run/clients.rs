//! The run's interface to the native client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ottla_client::{Client, Consumer, DeliveryListener, Producer, RecordRef, properties};
use tokio::runtime::Handle;

use crate::drive::generator::hand_over;
use crate::target::Cluster;

/// A producer of one topic with its own connections, as in an application.
pub struct BenchProducer {
    producer: Producer,
    topic: String,
    runtime: Handle,
}

impl BenchProducer {
    /// `number` distinguishes the transactional IDs of several producers.
    pub async fn start(
        cluster: &Cluster,
        settings: &BTreeMap<String, String>,
        topic: &str,
        number: u32,
        listener: Arc<dyn DeliveryListener>,
    ) -> Result<BenchProducer> {
        let mut settings = cluster.client_settings(settings);
        if let Some(id) = settings.get_mut("transactional.id") {
            *id = format!("{id}-{}-{number}", std::process::id());
        }
        let (client, config) =
            properties::producer(&settings).context("the settings of the producers")?;
        let is_transactional = config.transactional_id.is_some();
        let client = Client::connect(client).await?;
        client.topics(&[topic.to_owned()]).await?;
        let producer = Producer::builder(client, config)
            .listener(listener)
            .start()?;
        if is_transactional {
            producer.init_transactions().await?;
        }
        Ok(BenchProducer {
            producer,
            topic: topic.to_owned(),
            runtime: Handle::current(),
        })
    }

    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Sends a record, blocking the calling thread if necessary.
    pub fn send(&self, value: &[u8], tag: u64) -> Result<()> {
        self.send_to(None, value, tag)
    }

    /// The same, to an explicit partition.
    pub fn send_to(&self, partition: Option<i32>, value: &[u8], tag: u64) -> Result<()> {
        let record = RecordRef {
            partition,
            ..RecordRef::new(&self.topic, value)
        };
        hand_over(&self.producer, &self.runtime, record, tag)?;
        Ok(())
    }

    /// Waits until every record is acknowledged or has failed.
    pub fn flush(&self) {
        self.runtime.block_on(self.producer.flush());
    }

    pub fn close(&self, limit: Duration) {
        self.runtime.block_on(self.producer.close_within(limit));
    }
}

/// The partitions that a consumer reads, from the beginning.
#[derive(Clone, Copy, Debug)]
pub enum Subscription<'a> {
    /// These partitions, without a group.
    Partitions(&'a [i32]),
    /// The partitions that the group with this ID assigns.
    Group(&'a str),
}

/// A consumer of some partitions of a topic.
pub struct BenchConsumer {
    consumer: Consumer,
    is_member: bool,
}

impl BenchConsumer {
    pub async fn start(
        cluster: &Cluster,
        settings: &BTreeMap<String, String>,
        topic: &str,
        subscription: Subscription<'_>,
    ) -> Result<BenchConsumer> {
        let mut settings = cluster.client_settings(settings);
        settings.insert("auto.offset.reset".into(), "earliest".into());
        if let Subscription::Group(group) = subscription {
            settings.insert("group.id".into(), group.to_owned());
        }
        if !settings.contains_key("group.id") {
            // There is no group to commit to.
            settings.insert("enable.auto.commit".into(), "false".into());
        }
        let (client, config) =
            properties::consumer(&settings).context("the settings of the consumers")?;
        let client = Client::connect(client).await?;
        let mut consumer = Consumer::new(client, config);
        match subscription {
            Subscription::Partitions(partitions) => {
                let partitions = partitions.iter().map(|it| (topic.to_owned(), *it));
                consumer.assign(&partitions.collect::<Vec<_>>());
            }
            Subscription::Group(_) => consumer.subscribe(&[topic.to_owned()])?,
        }
        Ok(BenchConsumer {
            consumer,
            is_member: matches!(subscription, Subscription::Group(_)),
        })
    }

    /// Closes the consumer; a group member commits its offsets and leaves its group.
    pub async fn close(self, limit: Duration) -> Result<()> {
        if self.is_member {
            self.consumer.close_within(limit).await?;
        }
        Ok(())
    }

    /// Passes every available value to `each`, waiting up to `timeout` for the first. Returns the
    /// number of values.
    pub async fn poll(&mut self, timeout: Duration, mut each: impl FnMut(&[u8])) -> Result<u64> {
        let mut records = 0;
        for batch in &self.consumer.poll_batches(timeout).await? {
            for record in batch.iter() {
                each(record?.value.unwrap_or_default());
                records += 1;
            }
        }
        Ok(records)
    }
}
