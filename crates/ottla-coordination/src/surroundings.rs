//! What coordinators use: the node, its partitions, and other brokers.

use std::sync::Arc;

use ottla_context::NodeContext;
use ottla_net::{Authorizer, BrokerPeers};
use ottla_node::auto_topic_creation::AutoTopicCreation;
use ottla_node::producer_id_blocks::ProducerIdBlocks;
use ottla_partition::{Partition, PartitionHost, Partitions};
use ottla_types::ErrorCode;

#[derive(Debug)]
pub struct Surroundings {
    pub context: Arc<NodeContext>,
    pub host: Arc<PartitionHost>,
    pub partitions: Arc<Partitions>,
    pub producer_ids: Arc<ProducerIdBlocks>,
    pub auto_topic_creation: Arc<AutoTopicCreation>,
    pub peers: BrokerPeers,
    pub authorizer: Arc<Authorizer>,
}

impl Surroundings {
    /// A partition with a replica on this broker, or the error code if there is none.
    pub fn local_partition(&self, topic: &str, index: i32) -> Result<Arc<Partition>, ErrorCode> {
        self.partitions.local(&self.context, topic, index)
    }
}
