//! The interface of this node's cluster membership for the rest of the process.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytestring::ByteString;
use ottla_context::NodeContext;
use ottla_net::RequestContext;
use ottla_sync::BoxFuture;
use ottla_types::{BrokerEpoch, ErrorCode};

use crate::controller::channel::ControllerChannel;
use crate::controller::handle::ControllerHandle;
use crate::controller::requests::ControllerRequest;
use crate::membership::Membership;
use crate::membership::heartbeats::Heartbeats;
use crate::quorum_handle::QuorumHandle;

/// How long a request waits for metadata that this node is applying: as long as clients wait before
/// they repeat a refused request (`retry.backoff.ms`).
const APPLIED_WITHIN: Duration = Duration::from_millis(100);

/// This node as a member of its cluster. Before it has joined, it refuses requests that need a
/// controller.
#[derive(Debug)]
pub struct Node {
    pub context: Arc<NodeContext>,
    /// Set once, when the node has joined its cluster and before the first request is read.
    membership: OnceLock<Membership>,
}

impl Node {
    pub fn new(context: Arc<NodeContext>) -> Node {
        Node {
            context,
            membership: OnceLock::new(),
        }
    }

    pub fn set_membership(&self, membership: Membership) {
        let is_first = self.membership.set(membership).is_ok();
        assert!(is_first, "a node joins its cluster once");
    }

    pub fn membership(&self) -> Option<&Membership> {
        self.membership.get()
    }

    /// The metadata quorum; `None` before the node has joined it.
    pub fn quorum(&self) -> Option<&QuorumHandle> {
        Some(self.controller()?.quorum())
    }

    /// Returns when the metadata that this node is applying is applied, or after 100 ms. `None` if
    /// it is applying none, or has been applying one change for a second.
    ///
    /// For requests about a topic or a leadership that this node does not have. Opening logs takes
    /// tens of milliseconds; by then, other brokers may have sent clients here, and a client that
    /// is refused waits for as long as this does.
    pub fn metadata_applied(&self) -> Option<BoxFuture<'static, ()>> {
        let quorum = self.quorum()?;
        let end = quorum.unpublished()?;
        tracing::debug!(
            end = end.0,
            "a request waits for metadata that is being applied"
        );
        let quorum = quorum.clone();
        Some(Box::pin(async move {
            // If it takes longer, the request is refused.
            let _ = ottla_sync::time::timeout(APPLIED_WITHIN, quorum.published(end)).await;
        }))
    }

    /// The task that keeps this broker registered; `None` for a node that is not a broker.
    pub fn heartbeats(&self) -> Option<&Heartbeats> {
        self.membership.get()?.heartbeats()
    }

    /// The controller; `None` before the node has joined its cluster.
    pub fn controller(&self) -> Option<&ControllerHandle> {
        self.membership
            .get()
            .map(|membership| &membership.controller)
    }

    /// The cluster id; empty before the node has joined its cluster.
    pub fn cluster_id(&self) -> ByteString {
        self.membership
            .get()
            .map(|membership| membership.cluster_id().clone())
            .unwrap_or_default()
    }

    /// The epoch of this broker's registration.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        self.membership
            .get()
            .map_or(BrokerEpoch::UNKNOWN, Membership::broker_epoch)
    }

    /// Sends a request of this node to the active controller: see [`ControllerHandle::submit`].
    pub async fn ask_controller<R: ControllerRequest>(
        &self,
        request: R,
    ) -> Result<R::Response, ErrorCode> {
        match self.controller() {
            Some(controller) => controller.submit(request).await,
            None => Err(ErrorCode::NotController),
        }
    }

    /// Decides a request on this node, if it is the active controller.
    pub async fn decide_here<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode> {
        match self.controller() {
            Some(controller) => {
                controller
                    .decide_here(Arc::new(request), Some(context))
                    .await
            }
            None => Err(ErrorCode::NotController),
        }
    }

    /// Sends a client's request to the active controller on behalf of the client: a remote
    /// controller receives its principal and address. On a controller listener, the request is
    /// decided by this node or refused, because such clients look for the active controller
    /// themselves.
    pub async fn forward<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode> {
        if context.listener().is_controller {
            return self.decide_here(context, request).await;
        }
        match self.controller() {
            Some(controller) => controller.forward(context, request).await,
            None => Err(ErrorCode::NotController),
        }
    }

    /// The channel to the active controller, if that is another process and the request came in on
    /// a broker listener.
    pub fn controller_elsewhere(&self, context: &RequestContext) -> Option<&ControllerChannel> {
        if context.listener().is_controller {
            return None;
        }
        self.controller()?.channel_to_leader()
    }
}
