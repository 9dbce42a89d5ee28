//! Kafka clients: producer, consumer, share consumer, admin.
//!
//! Works with Ottla and with every Apache Kafka version that supports the protocol versions of this
//! client. This crate has the sockets and the retries; the encodings are in `ottla-protocol` and
//! `ottla-records`.
//!
//! Settings have the names and defaults of Kafka 4.3's clients. A key that Kafka does not have, or
//! an invalid value, is an error that names it ([`properties`]). So are settings that this client
//! does not support, such as Java classes.
//!
//! # Producing
//!
//! [`Producer`] encodes a record into the batch that will be sent, before `send` returns. The
//! returned [`Delivery`] gives its result. Programs that count records instead of waiting for each
//! can pass a tag, and are notified of whole batches ([`ProducerBuilder::listener`]).
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
//! [`Consumer::poll_batches`] returns borrowed keys and values in the memory in which they were
//! received or decompressed. [`Consumer::poll`] returns owned records whose bytes are slices of the
//! same memory. Partitions are assigned manually, or shared with the other members of a group, with
//! the classic protocol or KIP-848's (`group.protocol`).
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
//! [`ShareConsumer`] is a member of a share group (KIP-932): members share partitions and
//! acknowledge individual records. Records that are not acknowledged are delivered again.
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
//! # Administering
//!
//! [`Admin`] has the operations of Kafka's admin client: topics, settings, groups, offsets, ACLs,
//! quotas, and the state of the cluster. A request about several items gets a result for each.
//!
//! ```no_run
//! # async fn administer() -> Result<(), ottla_client::ClientError> {
//! use std::collections::BTreeMap;
//! use ottla_client::admin::NewTopic;
//! use ottla_client::{Admin, Client, ClientError, properties};
//!
//! let settings = BTreeMap::from([
//!     ("bootstrap.servers".to_owned(), "127.0.0.1:9092".to_owned()),
//! ]);
//! let admin = Admin::new(Client::connect(properties::admin(&settings)?).await?);
//! let topic = NewTopic {
//!     name: "greetings".to_owned(),
//!     partitions: Some(6),
//!     ..NewTopic::default()
//! };
//! for created in admin.create_topics(&[topic], false).await? {
//!     let topic = format!("topic {}", &*created.name);
//!     ClientError::check(topic, created.error_code, created.error_message.as_ref())?;
//! }
//! for topic in admin.describe_topics(&["greetings".to_owned()]).await? {
//!     println!("{}: {} partitions", topic.name, topic.partitions.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Secured clusters
//!
//! `security.protocol`, `ssl.*` and `sasl.*` are those of Kafka's clients, for every kind of client.
//!
//! ```no_run
//! # async fn connect() -> Result<(), ottla_client::ClientError> {
//! use std::collections::BTreeMap;
//! use ottla_client::{Admin, Client, properties};
//!
//! let jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required \
//!             username=\"alice\" password=\"secret\";";
//! let settings = [
//!     ("bootstrap.servers", "kafka-1.example.com:9093"),
//!     ("security.protocol", "SASL_SSL"),
//!     ("ssl.truststore.type", "PEM"),
//!     ("ssl.truststore.location", "ca.crt"),
//!     ("sasl.mechanism", "SCRAM-SHA-512"),
//!     ("sasl.jaas.config", jaas),
//! ];
//! let settings: BTreeMap<String, String> =
//!     settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
//! let admin = Admin::new(Client::connect(properties::admin(&settings)?).await?);
//! println!("{:?}", admin.list_topics(false).await?);
//! # Ok(())
//! # }
//! ```
//!
//! # Complete programs
//!
//! `examples/` has six: `produce`, `consume_in_a_group`, `read_from_a_time`, `share_work`,
//! `administer`, and `read_process_write`, which consumes, processes and produces each record
//! exactly once, in transactions. Ottla's command-line tools are further examples.
//!
//! # Features and versions
//!
//! The crate has no cargo features: TLS, all SASL mechanisms and all codecs are always there, so
//! that a program accepts the same settings wherever it was built. It runs on Tokio.
//!
//! Versions follow semantic versioning: before 1.0, a release that removes or changes an item raises
//! the second number. That includes new fields of structs without private ones, such as
//! [`ClientConfig`]; programs that end them with `..Default::default()` compile unchanged. Items of
//! the re-exported crates, such as the messages in [`ottla_protocol`], follow the Kafka protocol
//! and change with it.
//!
//! # Implementation
//!
//! Version numbers are used here only where a request must be built differently for another
//! version.

// Tests make files and threads of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

mod clock;
mod config;
mod error;
mod heartbeats;
mod outages;
mod partitions;
mod slow_requests;

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
// Arguments and results have their types.
pub use ottla_protocol;
pub use ottla_records;
#[doc(hidden)]
pub use ottla_sasl::ClientLogin;
pub use ottla_sasl::scram::ScramKeys;
pub use ottla_sasl::{ClientCredentials, Mechanism as SaslMechanism, ScramMechanism, Secret};
pub use ottla_tls::CertificateFacts;
pub use ottla_types;
pub use ottla_types::ErrorCode;
pub use outages::Outage;
pub use partitioner::{murmur2, partition_for_key};
#[doc(hidden)]
pub use producer::offline::OfflineProducer;
pub use producer::{
    ConsumerGroupMetadata, DeliveredBatch, Delivery, DeliveryCallback, DeliveryListener, Producer,
    ProducerBuilder, ProducerConfig, ProducerInterceptor, ProducerRecord, RecordMetadata,
    RecordRef, TrySendError,
};
#[doc(hidden)]
pub use security::server_name;
pub use security::{SecurityConfig, SecurityProtocol, SuppliedToken};
pub use share_consumer::{
    AcknowledgeType, AcknowledgementListener, AcknowledgementMode, AcquireMode, ShareConsumer,
    ShareConsumerConfig, ShareRecord,
};
pub use slow_requests::{SlowRequest, SlowRequestListener};

/// The example of the README is compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Programs move clients to other tasks and share them. Private fields decide whether they can, so
/// the listing of the public API does not show it.
const _: () = {
    const fn is_sent<T: Send + 'static>() {}
    const fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Client>();
    is_shared::<Connection>();
    is_shared::<Admin>();
    is_shared::<Producer>();
    is_shared::<Consumer>();
    is_shared::<ConsumerWaker>();
    is_shared::<ConsumerMetricsReader>();
    is_shared::<ClientError>();
    is_sent::<Delivery>();
    is_sent::<FetchedBatch>();
    is_sent::<ConsumerRecord>();
    is_sent::<ShareConsumer>();
    is_sent::<ShareRecord>();
};
