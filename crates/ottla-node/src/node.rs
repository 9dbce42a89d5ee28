//! What the rest of the process knows of this node's part in its cluster.

use std::sync::{Arc, OnceLock};

use bytestring::ByteString;
use ottla_context::NodeContext;
use ottla_net::RequestContext;
use ottla_types::{BrokerEpoch, ErrorCode};

use crate::controller::channel::ControllerChannel;
use crate::controller::handle::ControllerHandle;
use crate::controller::requests::ControllerRequest;
use crate::membership::Membership;
use crate::membership::heartbeats::Heartbeats;
use crate::quorum_handle::QuorumHandle;

/// This node in its cluster. Before it has joined, it knows no controller and refuses what needs one.
#[derive(Debug)]
pub struct Node {
    pub context: Arc<NodeContext>,
    /// Set once, when the node has joined its cluster, before the first request is read.
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

    /// The metadata quorum; `None` before the node takes part in it.
    pub fn quorum(&self) -> Option<&QuorumHandle> {
        Some(self.controller()?.quorum())
    }

    /// The task that keeps this broker in its cluster; `None` for a node that is no broker.
    pub fn heartbeats(&self) -> Option<&Heartbeats> {
        self.membership.get()?.heartbeats()
    }

    /// The controller; `None` before the node has joined its cluster.
    pub fn controller(&self) -> Option<&ControllerHandle> {
        self.membership
            .get()
            .map(|membership| &membership.controller)
    }

    /// The id of the cluster; empty before the node has joined it.
    pub fn cluster_id(&self) -> ByteString {
        self.membership
            .get()
            .map(|membership| membership.cluster_id().clone())
            .unwrap_or_default()
    }

    /// The epoch with which this broker is registered.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        self.membership
            .get()
            .map_or(BrokerEpoch::UNKNOWN, Membership::broker_epoch)
    }

    /// Has the controller decide what this node asks for itself: see [`ControllerHandle::submit`].
    pub async fn ask_controller<R: ControllerRequest>(
        &self,
        request: R,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        match self.controller() {
            Some(controller) => controller.submit(request).await,
            None => Err(ErrorCode::NotController),
        }
    }

    /// Has this node's controller decide a request, if it is the active one.
    pub async fn decide_here<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        match self.controller() {
            Some(controller) => {
                controller
                    .decide_here(Arc::new(request), Some(context))
                    .await
            }
            None => Err(ErrorCode::NotController),
        }
    }

    /// Has the controller decide what a client asks for, with the client's rights: a controller elsewhere receives its
    /// principal and address. A client of a controller's listener looks for the active controller itself.
    pub async fn forward<R: ControllerRequest>(
        &self,
        context: &RequestContext,
        request: R,
    ) -> Result<R::Response, ErrorCode>
    where
        R::Response: Send + 'static,
    {
        if context.listener().is_controller {
            return self.decide_here(context, request).await;
        }
        match self.controller() {
            Some(controller) => controller.forward(context, request).await,
            None => Err(ErrorCode::NotController),
        }
    }

    /// The channel to the active controller, where that is another process and the request came to a listener of the
    /// broker.
    pub fn controller_elsewhere(&self, context: &RequestContext) -> Option<&ControllerChannel> {
        if context.listener().is_controller {
            return None;
        }
        self.controller()?.channel_to_leader()
    }
}
