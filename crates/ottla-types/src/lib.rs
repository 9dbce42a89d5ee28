//! Kafka's nouns as types: offsets, epochs, IDs, topic partitions and error codes.
//!
//! Numbers that could be confused are distinct types, so that a leader epoch cannot be passed as a
//! partition epoch. The types carry no behaviour beyond their meaning. Beside them is [`shell_word()`],
//! which messages of all crates use. This crate has no I/O, clock or randomness.

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        clippy::iter_over_hash_type
    )
)]

mod error_code;
mod iso_duration;
mod named_enum;
mod numbers;
mod plantable_bugs;
mod shell_word;
mod topic;
mod uuid;

pub use error_code::ErrorCode;
pub use iso_duration::iso_duration_ms;
pub use numbers::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, ProducerEpoch,
    ProducerId, Sequence, Timestamp,
};
pub use shell_word::shell_word;
pub use topic::{TopicIdPartition, TopicName, TopicPartition, TopicPartitionDirError};
pub use uuid::{DirectoryId, ParseUuidError, TopicId, Uuid};
