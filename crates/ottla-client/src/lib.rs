//! Kafka clients: producer, consumer, admin.
//!
//! Talks to Ottla and to every Apache Kafka that serves the versions of the protocol that this client
//! speaks. Owns sockets and retries; the bytes are `ottla-protocol`'s and `ottla-records`'.
//!
//! Version numbers appear here only where one request says a thing differently in another version.

mod clock;
mod config;
mod error;

mod connection;
mod metadata;
mod metrics;

mod client;

pub mod admin;
mod consumer;
mod partitioner;
mod producer;
pub mod properties;
mod scram;
mod security;

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
pub use partitioner::{murmur2, partition_for_key};
#[doc(hidden)]
pub use producer::offline::OfflineProducer;
pub use producer::{
    ConsumerGroupMetadata, DeliveredBatch, Delivery, DeliveryCallback, DeliveryListener,
    OffsetToCommit, Producer, ProducerBuilder, ProducerConfig, ProducerInterceptor, ProducerRecord,
    RecordMetadata, RecordRef, TrySendError,
};
pub use scram::{ScramKeys, ScramMechanism};
pub use security::{SaslMechanism, SecurityConfig, SecurityProtocol};
