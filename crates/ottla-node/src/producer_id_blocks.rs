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
        // The first caller that finds the block used up requests the next one, and the others wait
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
