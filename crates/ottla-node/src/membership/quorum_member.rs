//! Starts the quorum thread of this node, and the channel to the active controller.

use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_net::PeerSecurity;
use ottla_storage::format::NodeIdentity;
use ottla_types::BrokerId;

use crate::controller::channel::{ActiveController, ControllerChannel, WhoLeads};
use crate::controller::handle::ControllerHandle;
use crate::controller_thread::Publish;
use crate::open::open;
use crate::quorum_handle::{self, QuorumHandle};

/// Joins the quorum. Must be called within the runtime.
pub fn start(
    context: &Arc<NodeContext>,
    config: &BrokerConfig,
    identity: &NodeIdentity,
    publish: Publish,
) -> Result<QuorumHandle, String> {
    let member = open(config, identity)?;
    context.set_bootstrap_scram(member.scram_at_start.clone());
    let security = PeerSecurity::at_controllers(context, config);
    quorum_handle::start(member, security, publish, stop_node(context))
}

/// The handle for requests to the active controller, local or remote.
pub fn find_controllers(
    context: &NodeContext,
    config: &BrokerConfig,
    quorum: &QuorumHandle,
) -> ControllerHandle {
    let security = PeerSecurity::at_controllers(context, config);
    let channel = ControllerChannel::new(config, &security, who_leads(quorum));
    let channel = Arc::new(channel);
    ControllerHandle::new(quorum.clone(), Some(channel), BrokerId(config.node_id))
}

/// The leader, as the quorum thread knows it.
fn who_leads(quorum: &QuorumHandle) -> WhoLeads {
    let quorum = quorum.clone();
    Box::new(move || {
        let status = quorum.status();
        match (status.leader, &status.leader_endpoint) {
            (Some(id), Some((host, port))) => Ok(ActiveController {
                id,
                host: host.clone(),
                port: *port,
            }),
            _ => Err(match &status.trouble {
                Some(trouble) => trouble.clone(),
                None => "no leader of the metadata quorum is known".to_owned(),
            }),
        }
    })
}

/// Stops the node when the metadata log cannot be used any more.
fn stop_node(context: &Arc<NodeContext>) -> impl FnOnce(String) + Send + 'static {
    let context = Arc::downgrade(context);
    move |reason: String| {
        if let Some(context) = context.upgrade() {
            context.fail(format!("{reason}. Fix this and start again"));
        }
    }
}
