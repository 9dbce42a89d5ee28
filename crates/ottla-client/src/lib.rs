//! Kafka clients: producer, consumer, share consumer, admin.
//!
//! Talks to Ottla and to every Apache Kafka that serves the versions of the protocol that this client
//! speaks. Owns sockets and retries; the bytes are `ottla-protocol`'s and `ottla-records`'.
//!
//! Settings have the names and the defaults of Kafka 4.3's clients. A key that Kafka does not have, or a value that
//! cannot be, is an error that names it ([`properties`]); so is what this client has no part for, such as Java classes.
//!
//! # Producing
//!
//! [`Producer`] encodes a record into the batch that is sent, before `send` returns. What became of it tells the
//! [`Delivery`] that comes back; those who count rather than wait give a tag, and hear of whole batches
//! ([`ProducerBuilder::listener`]).
//!
//! ```no_run
//! # async fn produce() -> Result<(), ottla_client::ClientError> {
//! use std::collections::BTreeMap;
//! use ottla_client::{Client, Producer, RecordRef, properties};
//!
//! let settings = BTreeMap::from([
//!     ("bootstrap.servers".to_owned(), "127.0.0.1:9092".to_owned()),
//!     ("compression.type".to_owned(), "zstd".to_owned()),
//! ]);
//! let (client, config) = properties::producer(&settings)?;
//! let producer = Producer::new(Client::connect(client).await?, config)?;
//! let record = RecordRef { key: Some(b"en"), ..RecordRef::new("greetings", b"hello") };
//! let delivery = producer.send_ref(record).await?;
//! let written = delivery.wait().await?;
//! println!("partition {}, offset {}", written.partition, written.offset);
//! producer.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Consuming
//!
//! [`Consumer::poll_batches`] lends keys and values from where they were received or decompressed; [`Consumer::poll`]
//! gives records to keep, whose bytes are slices of the same memory. A consumer assigns itself partitions, or shares
//! topics with the other members of its group, by the classic protocol or by KIP-848's (`group.protocol`).
//!
//! ```no_run
//! # async fn consume() -> Result<(), Box<dyn std::error::Error>> {
//! use std::collections::BTreeMap;
//! use std::time::Duration;
//! use ottla_client::{Client, Consumer, properties};
//!
//! let settings = BTreeMap::from([
//!     ("bootstrap.servers".to_owned(), "127.0.0.1:9092".to_owned()),
//!     ("group.id".to_owned(), "readers".to_owned()),
//!     ("auto.offset.reset".to_owned(), "earliest".to_owned()),
//! ]);
//! let (client, config) = properties::consumer(&settings)?;
//! let mut consumer = Consumer::new(Client::connect(client).await?, config);
//! consumer.subscribe(&["greetings".to_owned()])?;
//! for batch in &consumer.poll_batches(Duration::from_secs(10)).await? {
//!     for record in batch.iter() {
//!         println!("{:?}", record?.value);
//!     }
//! }
//! consumer.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Sharing
//!
//! [`ShareConsumer`] is a member of a share group (KIP-932): members share partitions, and say of each record what has
//! become of it. What nobody says anything of is delivered again.
//!
//! ```no_run
//! # async fn share() -> Result<(), ottla_client::ClientError> {
//! use std::collections::BTreeMap;
//! use std::time::Duration;
//! use ottla_client::{AcknowledgeType, Client, ShareConsumer, properties};
//!
//! let settings = BTreeMap::from([
//!     ("bootstrap.servers".to_owned(), "127.0.0.1:9092".to_owned()),
//!     ("group.id".to_owned(), "workers".to_owned()),
//!     ("share.acknowledgement.mode".to_owned(), "explicit".to_owned()),
//! ]);
//! let (client, config) = properties::share_consumer(&settings)?;
//! let mut consumer = ShareConsumer::new(Client::connect(client).await?, config)?;
//! consumer.subscribe(&["jobs".to_owned()]);
//! for record in consumer.poll(Duration::from_secs(10)).await? {
//!     let became = match &record.record.value {
//!         Some(_job) => AcknowledgeType::Accept,
//!         None => AcknowledgeType::Reject,
//!     };
//!     consumer.acknowledge(&record, became)?;
//! }
//! for ((topic, partition), heard) in consumer.commit().await? {
//!     println!("{topic}-{partition}: {heard:?}");
//! }
//! consumer.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Whole programs
//!
//! `examples/` has three: `produce`, `consume_in_a_group`, and `read_process_write`, which reads, processes and writes each
//! record exactly once, in transactions. [`Admin`] is what Ottla's command line tools are made with.
//!
//! # Inside
//!
//! Version numbers appear here only where one request says a thing differently in another version.

// Tests make files and threads of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod clock;
mod config;
mod error;
mod heartbeats;
mod outages;
mod partitions;

mod connection;
mod metadata;
mod metrics;

mod client;

pub mod admin;
mod consumer;
mod partitioner;
mod producer;
pub mod properties;
mod security;
mod share_consumer;

pub use admin::Admin;
pub use client::{Client, CoordinatorKind};
pub use config::ClientConfig;
pub use connection::Connection;
#[doc(hidden)]
pub use consumer::offline::OfflineConsumer;
pub use consumer::{
    Assignor, CommitCallback, CommitOffset, Consumer, ConsumerConfig, ConsumerInterceptor,
    ConsumerMetricsReader, ConsumerRecord, ConsumerWaker, FetchedBatch, GroupProtocol, OffsetReset,
    RebalanceListener,
};
pub use error::ClientError;
pub use metadata::{BrokerNode, Metadata, PartitionInfo, TopicInfo};
pub use metrics::{Metric, Metrics};
pub use ottla_sasl::scram::ScramKeys;
pub use ottla_sasl::{ClientCredentials, Mechanism as SaslMechanism, ScramMechanism};
pub use outages::Outage;
pub use partitioner::{murmur2, partition_for_key};
#[doc(hidden)]
pub use producer::offline::OfflineProducer;
pub use producer::{
    ConsumerGroupMetadata, DeliveredBatch, Delivery, DeliveryCallback, DeliveryListener, Producer,
    ProducerBuilder, ProducerConfig, ProducerInterceptor, ProducerRecord, RecordMetadata,
    RecordRef, TrySendError,
};
pub use security::{SecurityConfig, SecurityProtocol};
pub use share_consumer::{
    AcknowledgeType, AcknowledgementListener, AcknowledgementMode, AcquireMode, ShareConsumer,
    ShareConsumerConfig, ShareRecord,
};
