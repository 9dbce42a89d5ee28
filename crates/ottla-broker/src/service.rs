//! The interface that the network layer calls: the broker answers requests, and learns of closed
//! connections.

use std::sync::Arc;

use ottla_coordinator::share_session::ConnectionId;
use ottla_net::{Answer, Connection, MisplacedRequest, RequestContext, RequestError, Service};
use ottla_node::lost_brokers;
use ottla_protocol::{Encoded, Reader};

use crate::api;
use crate::broker::Broker;
use crate::dispatch;

impl Service for Broker {
    fn start_produce(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError> {
        dispatch::start_produce(self, context, reader)
    }

    async fn handle(
        self: &Arc<Self>,
        context: &RequestContext,
        reader: Reader,
    ) -> Result<Answer, RequestError> {
        dispatch::handle(self, context, reader).await
    }

    fn refuse_during_login(&self, request: MisplacedRequest) -> Option<Encoded> {
        api::during_login::refuse(&request)
    }

    fn on_disconnected(self: &Arc<Self>, connection: &Connection, by_peer: bool) {
        // The connection may be the one with a broker's heartbeats.
        if by_peer
            && let Some((id, epoch)) = connection.heard_broker()
            && !connection.is_draining()
        {
            let node = Arc::clone(&self.node);
            ottla_sync::task::spawn(lost_brokers::on_connection_closed(node, id, epoch));
        }
        self.share_groups
            .on_disconnected(ConnectionId(connection.id));
    }
}
