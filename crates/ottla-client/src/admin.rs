//! Administration: topics, settings, groups, offsets.
//!
//! Each call sends the request to the broker that can answer it and gives back what was said about each
//! of the things asked for, in Kafka's own response structs where they say it best.

mod acls;
mod cluster;
mod configs;
pub(crate) mod groups;
mod offsets;
mod quotas;
mod reassignments;
mod share_groups;
mod streams_groups;
mod topics;
mod transactions;

use crate::client::Client;

pub use cluster::{ElectionType, EndpointType, FeatureUpdateType, QuorumDescription};
pub use configs::{ConfigOperation, ConfigResourceType, DescribedConfigs};
pub use groups::{DescribedConsumerGroup, GroupListing, GroupMember};
pub use offsets::{CommittedOffset, ListedOffset, OffsetSpec};
pub use quotas::{NewScramCredential, QuotaEntity, QuotaMatch};
pub use reassignments::ReplicaLogDirs;
pub use share_groups::{DescribedShareGroup, ShareGroupMember, SharePartitionOffset};
pub use streams_groups::{DescribedStreamsGroup, StreamsGroupMember, Subtopology, TaskAssignment};
pub use topics::{NewTopic, PartitionDescription, TopicDescription};
pub use transactions::{OpenTransaction, TransactionFilter, TransactionListing};

/// Administers a cluster.
#[derive(Clone)]
pub struct Admin {
    client: Client,
    /// It knows controllers only, and asks the active one for everything.
    is_of_controllers: bool,
}

impl Admin {
    pub fn new(client: Client) -> Admin {
        Admin {
            client,
            is_of_controllers: false,
        }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// A text as the protocol crate has it.
fn text(value: &str) -> bytestring::ByteString {
    value.to_owned().into()
}
