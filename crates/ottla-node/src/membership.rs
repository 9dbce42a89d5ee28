//! The life of this node in the cluster: it takes part in the metadata quorum, as a voter or as one that follows, and is
//! registered, as broker, as controller or as both. A broker is one under any controller, also under that of its own
//! process: `heartbeats` registers it, keeps it registered, and gives its partitions away before it stops.
//!
//! Kafka does the same in `SharedServer`, `BrokerServer`, `ControllerServer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_controller::local_supported_features;
use ottla_metadata::MetadataImage;
use ottla_protocol::messages::broker_registration_request;
use ottla_protocol::messages::controller_registration_request;
use ottla_protocol::messages::{BrokerRegistrationRequest, ControllerRegistrationRequest};
use ottla_types::{BrokerEpoch, BrokerId, DirectoryId, Offset};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::controller::channel::{ActiveController, ControllerChannel, WhoLeads};
use crate::controller::handle::ControllerHandle;
use crate::controller_thread::Publish;
use crate::open::open;
use crate::quorum_handle::{self, QuorumHandle};
use heartbeats::Heartbeats;
use local_host::host_of;
use ottla_context::NodeContext;
use ottla_storage::format::NodeIdentity;
use ottla_storage::log_dirs::LogDirs;
use ottla_storage::random_uuid;

mod controller_node;
pub mod heartbeats;
pub mod local_host;

/// How often a start looks whether anybody can be followed.
const LOOK_AT_QUORUM: Duration = Duration::from_millis(50);

/// The controller of this node and this node's registration with it.
#[derive(Debug)]
pub struct Membership {
    pub controller: ControllerHandle,
    cluster_id: ByteString,
    broker_epoch: Arc<AtomicI64>,
    /// `None` for a node that is no broker.
    heartbeats: Option<Heartbeats>,
    /// Ends when this node has asked once to be registered as a controller, or never will.
    controller_registration: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Membership {
    pub fn cluster_id(&self) -> &ByteString {
        &self.cluster_id
    }

    /// The epoch with which this broker is registered.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }

    pub fn heartbeats(&self) -> Option<&Heartbeats> {
        self.heartbeats.as_ref()
    }

    /// Takes part in the quorum, and begins to register this broker with its controllers: it is fenced, and nothing is
    /// published, until [`catch_up`](Self::catch_up) and [`serve`](Self::serve). The others may ask a voter from here on;
    /// before they do, nobody may lead. Within the runtime. Reads and writes files: not for a thread that serves
    /// connections.
    ///
    /// `previous_broker_epoch` is what the markers of the last clean stop say, -1 without them.
    pub fn join(
        context: &Arc<NodeContext>,
        file_config: &BrokerConfig,
        identity: &NodeIdentity,
        previous_broker_epoch: BrokerEpoch,
        publish: Publish,
    ) -> Result<Membership, String> {
        let member = open(file_config, identity)?;
        let quorum = quorum_handle::start(member, publish, stop_node(context))?;
        let controller = find_controllers(file_config, &quorum);
        let directories = identity.directory_ids.values().copied().collect();
        let registration =
            broker_registration(file_config, identity, directories, previous_broker_epoch);
        let broker_epoch = Arc::new(AtomicI64::new(BrokerEpoch::UNKNOWN.value()));
        let heartbeats = Heartbeats::start(
            context,
            controller.clone(),
            registration,
            Arc::clone(&broker_epoch),
        );
        let (asked_once, controller_registration) = oneshot::channel();
        if file_config.process_roles.controller {
            let (context, controller) = (Arc::clone(context), controller.clone());
            let file_config = file_config.clone();
            tokio::spawn(async move {
                controller_node::register(&context, &controller, &file_config, asked_once).await;
            });
        }
        Ok(Membership {
            controller,
            cluster_id: ByteString::from(identity.cluster_id.clone()),
            broker_epoch,
            heartbeats: Some(heartbeats),
            controller_registration: Mutex::new(Some(controller_registration)),
        })
    }

    /// Waits until this node has the metadata log as it is committed, and returns the image of it.
    pub async fn catch_up(
        &self,
        context: &NodeContext,
        heartbeats: &Heartbeats,
    ) -> Result<MetadataImage, String> {
        tokio::select! {
            caught_up = self.controller.quorum().caught_up() => caught_up.ok_or_else(|| {
                let reason = context.failure().unwrap_or("the metadata log cannot be followed");
                reason.to_owned()
            }),
            reason = heartbeats.failed() => Err(reason),
            () = self.meets_other_cluster() => Err(heartbeats::of_other_cluster(
                context.broker_id(),
                &self.cluster_id,
            )),
        }
    }

    /// Ends when all of the controllers that this node was given have said that they belong to another cluster. None of
    /// them would ever take it in.
    async fn meets_other_cluster(&self) {
        while !self.controller.quorum().status().is_of_other_cluster {
            tokio::time::sleep(LOOK_AT_QUORUM).await;
        }
    }

    /// Publishes the image, and every change from here on, and has clients sent to this broker.
    pub async fn serve(
        &self,
        context: &NodeContext,
        heartbeats: &Heartbeats,
        log_dirs: &LogDirs,
    ) -> Result<(), String> {
        // Before that, another process may be this broker: logs are not made for its partitions, and those that
        // are here stay as they were left.
        heartbeats.registered().await?;
        let controller_registration = self.controller_registration.lock().take();
        if let Some(asked_once) = controller_registration {
            // An error means that there was nothing to ask.
            let _ = asked_once.await;
        }
        // What stands before its registration says what the broker was in an earlier life: with that it would lead on
        // where it led then, in the same epoch, without what it has lost since.
        let registration = Offset(self.broker_epoch().value());
        tokio::select! {
            () = self.controller.quorum().begin_publishing(registration) => {}
            reason = heartbeats.failed() => return Err(reason),
        }
        log_dirs.set_strays_aside();
        heartbeats.on_directories_changed(
            log_dirs.offline_directory_ids(),
            log_dirs.cordoned_directory_ids(),
        );
        heartbeats.unfence().await?;
        // The first clients find their leaders here: a heartbeat is answered before this node acts by what it led to.
        let is_unfenced = || {
            let image = context.metadata();
            let registration = image.cluster.broker(context.broker_id());
            registration.is_some_and(|registration| !registration.fenced)
        };
        tokio::select! {
            () = self.controller.quorum().published_when(is_unfenced) => Ok(()),
            reason = heartbeats.failed() => Err(reason),
        }
    }

    /// Ends a start that has failed.
    pub async fn abandon(&self) {
        if let Some(heartbeats) = &self.heartbeats {
            heartbeats.abort();
        }
        self.controller.stop(Duration::ZERO).await;
    }
}

/// The way to whoever decides, this node or another.
fn find_controllers(config: &BrokerConfig, quorum: &QuorumHandle) -> ControllerHandle {
    let channel = Arc::new(ControllerChannel::new(config, who_leads(quorum)));
    ControllerHandle::new(quorum.clone(), Some(channel), BrokerId(config.node_id))
}

/// Who leads, as the thread of the quorum knows it.
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

/// Ends the node when the metadata log cannot be used any more.
fn stop_node(context: &Arc<NodeContext>) -> impl FnOnce(String) + Send + 'static {
    let context = Arc::downgrade(context);
    move |reason: String| {
        if let Some(context) = context.upgrade() {
            context.fail(format!("{reason}. Fix this and start again"));
        }
    }
}

fn controller_registration(config: &BrokerConfig) -> ControllerRegistrationRequest {
    ControllerRegistrationRequest {
        controller_id: config.node_id,
        incarnation_id: random_uuid(),
        zk_migration_ready: false,
        listeners: config
            .advertised_controller_listeners
            .iter()
            .map(|listener| controller_registration_request::Listener {
                name: ByteString::from(listener.name.clone()),
                host: ByteString::from(host_of(listener)),
                port: listener.port,
                security_protocol: listener.protocol.code(),
                ..Default::default()
            })
            .collect(),
        features: local_supported_features()
            .into_iter()
            .map(|feature| controller_registration_request::Feature {
                name: feature.name,
                min_supported_version: feature.min,
                max_supported_version: feature.max,
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn broker_registration(
    config: &BrokerConfig,
    identity: &NodeIdentity,
    online: Vec<DirectoryId>,
    previous_broker_epoch: BrokerEpoch,
) -> BrokerRegistrationRequest {
    BrokerRegistrationRequest {
        broker_id: config.node_id,
        cluster_id: ByteString::from(identity.cluster_id.clone()),
        incarnation_id: random_uuid(),
        listeners: config
            .advertised_listeners
            .iter()
            .map(|listener| broker_registration_request::Listener {
                name: ByteString::from(listener.name.clone()),
                host: ByteString::from(host_of(listener)),
                port: listener.port,
                security_protocol: listener.protocol.code(),
                ..Default::default()
            })
            .collect(),
        features: local_supported_features()
            .into_iter()
            .map(|feature| broker_registration_request::Feature {
                name: feature.name,
                min_supported_version: feature.min,
                max_supported_version: feature.max,
                ..Default::default()
            })
            .collect(),
        rack: config.broker_rack.clone().map(ByteString::from),
        is_migrating_zk_broker: false,
        log_dirs: online,
        previous_broker_epoch: previous_broker_epoch.value(),
        ..Default::default()
    }
}
