//! Why a record of the metadata log cannot be applied. In a log that Kafka or Ottla wrote, this
//! happens only after corruption. A node with such a log stops following it.

use ottla_types::{BrokerEpoch, BrokerId, TopicId, Uuid};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the record names topic {0}, which does not exist")]
    UnknownTopic(TopicId),
    #[error("the record names topic {0:?}, which does not exist")]
    UnknownTopicName(String),
    #[error("the record changes partition {partition} of topic {topic_id}, which does not exist")]
    UnknownPartition { topic_id: TopicId, partition: i32 },
    #[error("the record of partition {partition} of topic {topic_id} is invalid: {what}")]
    InvalidPartition {
        topic_id: TopicId,
        partition: i32,
        what: String,
    },
    #[error("the record names broker {0}, which is not registered")]
    UnknownBroker(BrokerId),
    #[error(
        "the record names epoch {given} of broker {broker}, which is registered with epoch {registered}"
    )]
    BrokerEpochMismatch {
        broker: BrokerId,
        registered: BrokerEpoch,
        given: BrokerEpoch,
    },
    #[error("the record changes broker {broker} with the unknown value {value} for {field}")]
    InvalidBrokerChange {
        broker: BrokerId,
        field: &'static str,
        value: i8,
    },
    #[error("the record sets a configuration of the unknown resource type {0}")]
    UnknownConfigResourceType(i8),
    #[error(
        "metadata.version {0} is not known: this release works with 7 (3.3-IV3) to 33 (4.4-IV2); \
         raise or lower the level of the cluster to one of these first"
    )]
    UnknownMetadataVersion(i16),
    #[error("the record removes ACL {0}, which does not exist")]
    UnknownAcl(Uuid),
    #[error("the record begins, ends or aborts a transaction where none may")]
    TransactionMarker,
    #[error("the log begins a transaction within a transaction")]
    NestedTransaction,
    #[error("the log ends or aborts a transaction that it did not begin")]
    NoTransaction,
}
