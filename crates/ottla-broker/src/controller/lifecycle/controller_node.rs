//! A node that is a controller and no broker: it takes part in the metadata quorum, and decides for brokers elsewhere
//! while it leads.
//!
//! Kafka: `ControllerServer`, `ControllerRegistrationManager`.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_metadata::MetadataDelta;
use ottla_types::{BrokerEpoch, ErrorCode, Offset};

use super::{Membership, controller_registration, publish_to, stop_node, who_leads};
use crate::Broker;
use crate::controller::ControllerHandle;
use crate::controller::channel::ControllerChannel;
use crate::controller::controller_thread::Publish;
use crate::controller::format::NodeIdentity;
use crate::log_dirs::LogDirs;
use crate::quorum;

/// Between two attempts to register.
const REGISTRATION_BACKOFF: Duration = Duration::from_secs(1);

impl Membership {
    /// Takes part in the quorum. When it returns the others may ask this node, which may not know who leads
    /// yet. The directories stay locked as long as its thread runs. Within the runtime.
    pub(crate) fn control(
        broker: &Arc<Broker>,
        file_config: &BrokerConfig,
        identity: &NodeIdentity,
        log_dirs: &Arc<LogDirs>,
    ) -> Result<Membership, String> {
        let member = quorum::open(file_config, identity)?;
        let publish: Publish = {
            let locked = Arc::clone(log_dirs);
            let mut publish = publish_to(broker, file_config.clone());
            Box::new(move |delta: &MetadataDelta| {
                let _locked = &locked;
                publish(delta);
            })
        };
        let quorum = quorum::start(member, publish, stop_node(broker))?;
        broker.set_quorum(quorum.clone());
        let channel = Arc::new(ControllerChannel::new(file_config, who_leads(&quorum)));
        let registering = ControllerHandle::new(quorum.clone(), Some(channel));
        tokio::spawn(register(
            Arc::clone(broker),
            registering,
            file_config.clone(),
        ));
        Ok(Membership {
            // Who asks an inactive controller is told so, and asks the active one.
            controller: ControllerHandle::new(quorum, None),
            cluster_id: ByteString::from(identity.cluster_id.clone()),
            broker_epoch: Arc::new(AtomicI64::new(BrokerEpoch::UNKNOWN.value())),
            heartbeats: None,
        })
    }
}

/// Shows the cluster to this node, and this node to the cluster.
async fn register(broker: Arc<Broker>, controller: ControllerHandle, config: BrokerConfig) {
    let registered = async {
        if controller.quorum().caught_up().await.is_none() {
            return;
        }
        controller.quorum().begin_publishing(Offset(-1)).await;
        let request = controller_registration(&config);
        loop {
            match controller.submit(request.clone()).await {
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
        () = broker.stopping() => {}
    }
}
