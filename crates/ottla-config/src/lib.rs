//! Kafka's settings as data, the Java properties reader and the typed broker and topic configuration.
//!
//! Pure: nothing here opens a file, reads a clock or knows a running broker. Whoever has the text of a
//! `server.properties` gets back typed values, warnings, or an error that says what to write instead.

mod topic_config;

pub use topic_config::{BrokerCompressionType, CleanupPolicy, TimestampType, TopicConfig};
