//! The registrations of this node as a broker and as a controller.

use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_controller::local_supported_features;
use ottla_protocol::messages::broker_registration_request;
use ottla_protocol::messages::controller_registration_request;
use ottla_protocol::messages::{BrokerRegistrationRequest, ControllerRegistrationRequest};
use ottla_storage::format::NodeIdentity;
use ottla_storage::random_uuid;
use ottla_sync::oneshot;
use ottla_sync::time::timeout;
use ottla_types::{BrokerEpoch, BrokerId, DirectoryId, ErrorCode};

use super::local_host::host_of;
use crate::controller::handle::ControllerHandle;
use crate::quorum_handle::QuorumHandle;

/// The pause between two attempts to register.
const REGISTRATION_BACKOFF: Duration = Duration::from_secs(1);

/// A committed registration that is not published after this time may have been removed in the same
/// publication.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(5);

/// Converts the listeners to the types of one message module. Both registrations have the same
/// fields with types of their own.
macro_rules! listeners {
    ($module:ident, $advertised:expr) => {
        $advertised
            .iter()
            .map(|listener| $module::Listener {
                name: ByteString::from(listener.name.clone()),
                host: ByteString::from(host_of(listener)),
                port: listener.port,
                security_protocol: listener.protocol.code(),
                ..Default::default()
            })
            .collect()
    };
}

/// Converts the features of this node in the same way.
macro_rules! features {
    ($module:ident) => {
        local_supported_features()
            .into_iter()
            .map(|feature| $module::Feature {
                name: feature.name,
                min_supported_version: feature.min,
                max_supported_version: feature.max,
                ..Default::default()
            })
            .collect()
    };
}

fn controller_registration(config: &BrokerConfig) -> ControllerRegistrationRequest {
    let advertised = &config.advertised_controller_listeners;
    ControllerRegistrationRequest {
        controller_id: config.node_id,
        incarnation_id: random_uuid(),
        zk_migration_ready: false,
        listeners: listeners!(controller_registration_request, advertised),
        features: features!(controller_registration_request),
        ..Default::default()
    }
}

pub fn broker_registration(
    config: &BrokerConfig,
    identity: &NodeIdentity,
    online: Vec<DirectoryId>,
    previous_broker_epoch: BrokerEpoch,
) -> BrokerRegistrationRequest {
    BrokerRegistrationRequest {
        broker_id: config.node_id,
        cluster_id: ByteString::from(identity.cluster_id.clone()),
        incarnation_id: random_uuid(),
        listeners: listeners!(broker_registration_request, config.advertised_listeners),
        features: features!(broker_registration_request),
        rack: config.broker_rack.clone().map(ByteString::from),
        is_migrating_zk_broker: false,
        log_dirs: online,
        previous_broker_epoch: previous_broker_epoch.value(),
        ..Default::default()
    }
}

/// Registers this node as a controller, and again if it is unregistered while it runs: without its
/// registration, a feature could be raised to a level that it does not support. Completes
/// `asked_once` after the first answer, even if it is an error: clusters with an older
/// `metadata.version` do not support registrations of controllers, and work without them.
///
/// Kafka: `ControllerRegistrationManager`.
pub async fn register_controller(
    context: &Arc<NodeContext>,
    controller: &ControllerHandle,
    config: &BrokerConfig,
    asked_once: oneshot::Sender<()>,
) {
    let registered = async {
        if controller.quorum().caught_up().await.is_none() {
            return;
        }
        let own_id = BrokerId(config.node_id);
        let request = controller_registration(config);
        let mut asked_once = Some(asked_once);
        loop {
            let answer = controller.submit(request.clone()).await;
            if let Some(asked_once) = asked_once.take() {
                // The receiver may be gone.
                let _ = asked_once.send(());
            }
            match answer {
                Ok(response) if response.error_code == ErrorCode::None.code() => {
                    let lost = registration_lost(context, controller.quorum(), own_id);
                    if lost.await.is_none() {
                        return;
                    }
                    tracing::warn!("this controller was unregistered; registering it again");
                }
                Ok(response) => {
                    let code = ErrorCode::from_code(response.error_code);
                    tracing::warn!("this controller is not registered: {code}");
                }
                Err(code) => tracing::debug!("this controller is not registered yet: {code}"),
            }
            ottla_sync::time::sleep(REGISTRATION_BACKOFF).await;
        }
    };
    ottla_sync::select! {
        () = registered => {}
        () = context.stopping() => {}
    }
}

/// Waits until a committed registration of this controller is gone. `None` if the quorum thread has
/// ended.
async fn registration_lost(
    context: &NodeContext,
    quorum: &QuorumHandle,
    own_id: BrokerId,
) -> Option<()> {
    let is_published = || context.metadata().cluster.controller(own_id).is_some();
    loop {
        let published = quorum.published_when(&is_published);
        match timeout(PUBLISHED_WITHIN, published).await {
            Ok(true) => break,
            Ok(false) => return None,
            Err(_) => {}
        }
        // Otherwise only the publication is late.
        let committed = quorum.caught_up().await?;
        if committed.cluster.controller(own_id).is_none() {
            return Some(());
        }
    }
    let lost = quorum.published_when(|| !is_published()).await;
    lost.then_some(())
}

#[cfg(test)]
mod tests;
