//! The membership of this node in the cluster. The node takes part in the metadata quorum as a
//! voter or as an observer, and registers as a broker, as a controller or as both. A broker
//! registers with the active controller even if that is in its own process: `heartbeats` registers
//! it, keeps the registration alive, and performs the controlled shutdown.
//!
//! In Kafka: `SharedServer`, `BrokerServer`, `ControllerServer`.

use ottla_sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_metadata::MetadataImage;
use ottla_sync::Mutex;
use ottla_sync::oneshot;
use ottla_types::{BrokerEpoch, Offset};

use crate::controller::handle::ControllerHandle;
use crate::controller_thread::Publish;
use heartbeats::Heartbeats;
use ottla_context::NodeContext;
use ottla_storage::format::NodeIdentity;
use ottla_storage::log_dirs::LogDirs;

pub mod heartbeats;
pub mod local_host;
mod quorum_member;
mod registration;

mod controller_node;

/// How often a start checks whether there is a quorum to follow.
const LOOK_AT_QUORUM: Duration = Duration::from_millis(50);

/// The controller of this node, and this node's registration.
#[derive(Debug)]
pub struct Membership {
    pub controller: ControllerHandle,
    cluster_id: ByteString,
    broker_epoch: Arc<AtomicI64>,
    /// `None` for a node that is not a broker.
    heartbeats: Option<Heartbeats>,
    /// Completes after the first attempt to register as a controller, or when there will be none.
    controller_registration: Mutex<Option<oneshot::Receiver<()>>>,
}

impl Membership {
    pub fn cluster_id(&self) -> &ByteString {
        &self.cluster_id
    }

    /// The epoch of this broker's registration.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }

    pub fn heartbeats(&self) -> Option<&Heartbeats> {
        self.heartbeats.as_ref()
    }

    /// Joins the quorum, and starts to register this broker with the controller. The broker stays
    /// fenced and nothing is published until [`catch_up`](Self::catch_up) and
    /// [`serve`](Self::serve). Other nodes can send requests to a voter from here on; without them
    /// there may be no leader. Must be called within the runtime. Reads and writes files, so it
    /// must not run on a thread that serves connections.
    ///
    /// `previous_broker_epoch` is the epoch in the files of the last clean shutdown, -1 without
    /// one.
    pub fn join(
        context: &Arc<NodeContext>,
        file_config: &BrokerConfig,
        identity: &NodeIdentity,
        previous_broker_epoch: BrokerEpoch,
        publish: Publish,
    ) -> Result<Membership, String> {
        let quorum = quorum_member::start(context, file_config, identity, publish)?;
        let controller = quorum_member::find_controllers(context, file_config, &quorum);
        let directories = identity.directory_ids.values().copied().collect();
        let registration = registration::broker_registration(
            file_config,
            identity,
            directories,
            previous_broker_epoch,
        );
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
            ottla_sync::task::spawn(async move {
                registration::register_controller(&context, &controller, &file_config, asked_once)
                    .await;
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

    /// Waits until this node has caught up with the committed metadata log, and returns the image.
    pub async fn catch_up(
        &self,
        context: &NodeContext,
        heartbeats: &Heartbeats,
    ) -> Result<MetadataImage, String> {
        ottla_sync::select! {
            caught_up = self.controller.quorum().caught_up() => {
                caught_up.ok_or_else(|| not_followed(context))
            }
            reason = heartbeats.failed() => Err(reason),
            () = self.meets_other_cluster() => Err(heartbeats::of_other_cluster(
                context.broker_id(),
                &self.cluster_id,
            )),
        }
    }

    /// Completes when all configured bootstrap servers have answered that they belong to another
    /// cluster, so that this node can never join.
    async fn meets_other_cluster(&self) {
        while !self.controller.quorum().status().is_of_other_cluster {
            ottla_sync::time::sleep(LOOK_AT_QUORUM).await;
        }
    }

    /// Publishes the image and all later changes, and unfences this broker.
    pub async fn serve(
        &self,
        context: &NodeContext,
        heartbeats: &Heartbeats,
        log_dirs: &LogDirs,
    ) -> Result<(), String> {
        // Until the registration is accepted, another process may be running with this broker id.
        // No logs are created for its partitions, and the existing ones are left unchanged.
        heartbeats.registered().await?;
        let controller_registration = self.controller_registration.lock().take();
        if let Some(asked_once) = controller_registration {
            // An error means that there is no registration to wait for.
            let _ = asked_once.await;
        }
        // Metadata before the registration describes this broker before its restart. With that
        // metadata it would continue as leader in the same epoch, without the records that it has
        // lost since.
        let registration = Offset(self.broker_epoch().value());
        ottla_sync::select! {
            // Without the metadata every log would look like one that belongs to no partition.
            is_published = self.controller.quorum().begin_publishing(registration) => {
                if !is_published {
                    return Err(not_followed(context));
                }
            }
            reason = heartbeats.failed() => return Err(reason),
        }
        debug_assert!(
            self.is_published(context),
            "broker {} acts on metadata from before its registration",
            context.broker_id()
        );
        log_dirs.set_strays_aside();
        heartbeats.on_directories_changed(|| {
            (
                log_dirs.offline_directory_ids(),
                log_dirs.cordoned_directory_ids(),
            )
        });
        heartbeats.unfence().await?;
        // The first clients must find their leaders here, and the heartbeat is answered before its
        // effect is published on this node.
        let is_unfenced = || {
            let image = context.metadata();
            let registration = image.cluster.broker(context.broker_id());
            registration.is_some_and(|registration| !registration.fenced)
        };
        ottla_sync::select! {
            is_unfenced = self.controller.quorum().published_when(is_unfenced) => {
                is_unfenced.then_some(()).ok_or_else(|| not_followed(context))
            }
            reason = heartbeats.failed() => Err(reason),
        }
    }

    /// Whether the published metadata has this registration of the broker, or a later one, or says
    /// that it was unregistered since. The process may be stopping, and then publishes nothing.
    fn is_published(&self, context: &NodeContext) -> bool {
        let image = context.metadata();
        let registration = image.cluster.broker(context.broker_id());
        registration.is_none_or(|registration| registration.epoch >= self.broker_epoch())
    }

    /// Stops everything after a failed start.
    pub async fn abandon(&self) {
        if let Some(heartbeats) = &self.heartbeats {
            heartbeats.abort();
        }
        self.controller.stop(Duration::ZERO).await;
    }
}

/// Why the thread that follows the metadata log has ended.
fn not_followed(context: &NodeContext) -> String {
    let reason = context.failure();
    reason
        .unwrap_or("the metadata log cannot be followed")
        .to_owned()
}
