//! Producer ids, allocated by this broker from blocks that the controller assigns.
//!
//! Kafka: `RPCProducerIdManager`.

use ottla_protocol::messages::AllocateProducerIdsRequest;
use std::sync::Arc;

use ottla_sync::async_lock::Mutex;
use ottla_types::{ErrorCode, ProducerId};

use crate::node::Node;

/// The current block. The ids left over when the broker stops are never used.
#[derive(Debug)]
pub struct ProducerIdBlocks {
    node: Arc<Node>,
    /// The next id, and the exclusive end of the block.
    block: Mutex<(i64, i64)>,
}

impl ProducerIdBlocks {
    pub fn new(node: Arc<Node>) -> ProducerIdBlocks {
        ProducerIdBlocks {
            node,
            block: Mutex::default(),
        }
    }

    /// For a node without controllers, with a fixed block.
    #[cfg(feature = "fault-injection")]
    pub fn with_block(node: Arc<Node>, ids: std::ops::Range<i64>) -> ProducerIdBlocks {
        ProducerIdBlocks {
            node,
            block: Mutex::new((ids.start, ids.end)),
        }
    }

    /// A producer id that is unique in the cluster.
    pub async fn next_producer_id(&self) -> Result<ProducerId, ErrorCode> {
        // The first caller that finds the block used up requests the next one. Other callers wait
        // for the lock.
        let mut block = self.block.lock().await;
        if block.0 >= block.1 {
            let request = AllocateProducerIdsRequest {
                broker_id: self.node.context.broker_id().value(),
                broker_epoch: self.node.broker_epoch().value(),
                ..Default::default()
            };
            let response = self.node.ask_controller(request).await?;
            ErrorCode::from_code(response.error_code).into_result()?;
            let end = response
                .producer_id_start
                .checked_add(i64::from(response.producer_id_len))
                .ok_or(ErrorCode::UnknownServerError)?;
            *block = (response.producer_id_start, end);
        }
        let id = block.0;
        block.0 += 1;
        Ok(ProducerId(id))
    }
}

#[cfg(test)]
mod tests {
    use ottla_config::{BrokerConfig, single_node_properties};
    use ottla_context::NodeContext;

    use super::*;

    /// Two producers with one ID would pass for each other: the records of one would count as
    /// duplicates of the other's.
    #[tokio::test]
    async fn the_ids_of_a_used_block_are_not_assigned_again() {
        let properties = single_node_properties("/data", "127.0.0.1:0", "127.0.0.1:0");
        let config = BrokerConfig::from_properties(&properties).unwrap().0;
        let node = Node::new(Arc::new(NodeContext::new(config)));
        let blocks = ProducerIdBlocks {
            node: Arc::new(node),
            block: Mutex::new((5, 7)),
        };
        for id in 5..7 {
            assert_eq!(blocks.next_producer_id().await, Ok(ProducerId(id)));
        }
        for _ in 0..2 {
            let refused = blocks.next_producer_id().await;
            assert_eq!(
                refused,
                Err(ErrorCode::NotController),
                "no controller answers"
            );
        }
    }
}
