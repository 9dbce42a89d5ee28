//! What all connections of a node share: who is connected, and what may be taken.

use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;

use crate::address_limits::AddressLimits;
use crate::connections::Connections;
use crate::handshakes::Handshakes;
use crate::creation_rate::AddressQuotas;
use crate::request_memory::RequestMemory;

#[derive(Debug)]
pub struct Network {
    pub context: Arc<NodeContext>,
    pub connections: Arc<Connections>,
    pub address_limits: AddressLimits,
    pub(crate) handshakes: Handshakes,
    pub address_quotas: AddressQuotas,
    /// `queued.max.request.bytes`.
    pub request_memory: RequestMemory,
}

impl Network {
    pub fn new(context: Arc<NodeContext>, config: &BrokerConfig) -> Network {
        Network {
            context,
            connections: Arc::default(),
            address_limits: AddressLimits::default(),
            handshakes: Handshakes::default(),
            address_quotas: AddressQuotas::new(config),
            request_memory: RequestMemory::new(config.queued_max_request_bytes),
        }
    }
}

/// Follows a change of `max.connections.per.ip.overrides`; names are resolved on a thread of their own.
pub fn follow_address_limits(network: &Arc<Network>) {
    if network.address_limits.are_of(&network.context.config()) {
        return;
    }
    let following = Arc::clone(network);
    let follow = move || {
        let config = || Arc::clone(&following.context.config());
        if let Err(error) = following.address_limits.resolve_latest(config) {
            tracing::warn!("the previous value stays in force: {error}");
        }
    };
    let thread = ottla_sync::thread::Builder::new().name("address-limits".to_owned());
    if let Err(error) = thread.spawn(follow) {
        tracing::warn!("max.connections.per.ip.overrides is not followed: {error}");
    }
}
