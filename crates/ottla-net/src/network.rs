//! What all connections of a node share: who is connected, and what may be taken.

use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;

use crate::address_limits::AddressLimits;
use crate::connections::Connections;
use crate::request_memory::RequestMemory;

#[derive(Debug)]
pub struct Network {
    pub context: Arc<NodeContext>,
    pub connections: Arc<Connections>,
    pub address_limits: AddressLimits,
    /// `queued.max.request.bytes`.
    pub request_memory: RequestMemory,
}

impl Network {
    pub fn new(context: Arc<NodeContext>, config: &BrokerConfig) -> Network {
        Network {
            context,
            connections: Arc::default(),
            address_limits: AddressLimits::default(),
            request_memory: RequestMemory::new(config.queued_max_request_bytes),
        }
    }
}
