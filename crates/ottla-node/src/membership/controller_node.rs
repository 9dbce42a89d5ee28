//! A node that is only a controller: it takes part in the quorum, and decides requests while it is
//! leader. A node in combined mode starts as a broker does.
//!
//! Kafka: `ControllerServer`, `ControllerRegistrationManager`.

use ottla_sync::atomic::AtomicI64;
use std::sync::Arc;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_metadata::MetadataDelta;
use ottla_sync::Mutex;
use ottla_sync::oneshot;
use ottla_types::{BrokerEpoch, BrokerId, Offset};

use super::Membership;
use super::quorum_member::{self, find_controllers};
use super::registration::register_controller;
use crate::controller::handle::ControllerHandle;
use crate::controller_thread::Publish;
use ottla_context::NodeContext;
use ottla_storage::format::NodeIdentity;
use ottla_storage::log_dirs::LogDirs;

impl Membership {
    /// Joins the quorum. Other nodes can send requests to this node when the function returns,
    /// although the leader may not be known yet. The directories stay locked while the thread runs.
    /// Must be called within the runtime.
    pub fn control(
        context: &Arc<NodeContext>,
        file_config: &BrokerConfig,
        identity: &NodeIdentity,
        log_dirs: &Arc<LogDirs>,
        mut publish: Publish,
    ) -> Result<Membership, String> {
        let publish: Publish = {
            let locked = Arc::clone(log_dirs);
            Box::new(move |delta: &MetadataDelta| {
                let _locked = &locked;
                publish(delta);
            })
        };
        let quorum = quorum_member::start(context, file_config, identity, publish)?;
        let (context, config) = (Arc::clone(context), file_config.clone());
        let own_id = BrokerId(config.node_id);
        let controllers = find_controllers(&context, &config, &quorum);
        let (asked_once, _) = oneshot::channel();
        ottla_sync::task::spawn(async move {
            // Nothing has to be ready before the metadata is published.
            if controllers.quorum().caught_up().await.is_some() {
                // If the thread has ended, so will the process.
                let _ = controllers.quorum().begin_publishing(Offset(-1)).await;
            }
            register_controller(&context, &controllers, &config, asked_once).await;
        });
        Ok(Membership {
            // An inactive controller answers `NOT_CONTROLLER`, and the client then asks the active
            // one.
            controller: ControllerHandle::new(quorum, None, own_id),
            cluster_id: ByteString::from(identity.cluster_id.clone()),
            broker_epoch: Arc::new(AtomicI64::new(BrokerEpoch::UNKNOWN.value())),
            heartbeats: None,
            controller_registration: Mutex::default(),
        })
    }
}
