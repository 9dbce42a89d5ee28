//! A node that is a controller: it takes part in the metadata quorum, and decides for brokers while it leads. One that is a
//! broker as well begins as brokers do.
//!
//! Kafka: `ControllerServer`, `ControllerRegistrationManager`.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_metadata::MetadataDelta;
use ottla_types::{BrokerEpoch, BrokerId, ErrorCode, Offset};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Membership, controller_registration, find_controllers, stop_node};
use crate::controller::handle::ControllerHandle;
use crate::controller_thread::Publish;
use crate::open::open;
use crate::quorum_handle;
use ottla_context::NodeContext;
use ottla_storage::format::NodeIdentity;
use ottla_storage::log_dirs::LogDirs;

/// Between two attempts to register.
const REGISTRATION_BACKOFF: Duration = Duration::from_secs(1);

impl Membership {
    /// Takes part in the quorum. When it returns the others may ask this node, which may not know who leads
    /// yet. The directories stay locked as long as its thread runs. Within the runtime.
    pub fn control(
        context: &Arc<NodeContext>,
        file_config: &BrokerConfig,
        identity: &NodeIdentity,
        log_dirs: &Arc<LogDirs>,
        mut publish: Publish,
    ) -> Result<Membership, String> {
        let member = open(file_config, identity)?;
        let publish: Publish = {
            let locked = Arc::clone(log_dirs);
            Box::new(move |delta: &MetadataDelta| {
                let _locked = &locked;
                publish(delta);
            })
        };
        let quorum = quorum_handle::start(member, publish, stop_node(context))?;
        let (context, config) = (Arc::clone(context), file_config.clone());
        let own_id = BrokerId(config.node_id);
        let controllers = find_controllers(&config, &quorum);
        let (asked_once, _) = oneshot::channel();
        tokio::spawn(async move {
            // There is nothing that would have to be ready before it.
            if controllers.quorum().caught_up().await.is_some() {
                controllers.quorum().begin_publishing(Offset(-1)).await;
            }
            register(&context, &controllers, &config, asked_once).await;
        });
        Ok(Membership {
            // Who asks an inactive controller is told so, and asks the active one.
            controller: ControllerHandle::new(quorum, None, own_id),
            cluster_id: ByteString::from(identity.cluster_id.clone()),
            broker_epoch: Arc::new(AtomicI64::new(BrokerEpoch::UNKNOWN.value())),
            heartbeats: None,
            controller_registration: Mutex::default(),
        })
    }
}

/// Shows this node to the cluster as one of its controllers. Tells `asked_once` when the first answer is there, whatever it
/// is: a cluster of an older level knows no registrations of controllers, and works without.
pub(super) async fn register(
    context: &Arc<NodeContext>,
    controller: &ControllerHandle,
    config: &BrokerConfig,
    asked_once: oneshot::Sender<()>,
) {
    let registered = async {
        if controller.quorum().caught_up().await.is_none() {
            return;
        }
        let request = controller_registration(config);
        let mut asked_once = Some(asked_once);
        loop {
            let answer = controller.submit(request.clone()).await;
            if let Some(asked_once) = asked_once.take() {
                // Nobody may wait for it.
                let _ = asked_once.send(());
            }
            match answer {
                Ok(response) if response.error_code == ErrorCode::None.code() => return,
                Ok(response) => {
                    let code = ErrorCode::from_code(response.error_code);
                    tracing::warn!("this controller is not registered: {code}");
                }
                Err(code) => tracing::debug!("this controller is not registered yet: {code}"),
            }
            tokio::time::sleep(REGISTRATION_BACKOFF).await;
        }
    };
    tokio::select! {
        () = registered => {}
        () = context.stopping() => {}
    }
}
