//! Kafka's nouns as types: offsets, epochs, ids, topic partitions and error codes.
//!
//! Every number that could be taken for another is a type of its own, so that a leader epoch cannot be
//! passed where a partition epoch is meant. The types carry no behaviour beyond what their meaning
//! gives them; there is no input, output, clock or randomness here.

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
mod numbers;
mod topic;
mod uuid;

pub use error_code::ErrorCode;
pub use numbers::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, ProducerEpoch,
    ProducerId, Sequence, Timestamp,
};
pub use topic::{TopicIdPartition, TopicName, TopicPartition, TopicPartitionDirError};
pub use uuid::{DirectoryId, ParseUuidError, TopicId, Uuid};
