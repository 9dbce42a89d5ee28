//! The life of this node in the cluster: it takes part in the metadata quorum, as a voter or as one that follows, and is
//! registered, as broker, as controller or as both. A broker is one under any controller, also under that of its own
//! process: `heartbeats` registers it, keeps it registered, and gives its partitions away before it stops.
//!
//! Kafka does the same in `SharedServer`, `BrokerServer`, `ControllerServer`.

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

    /// Waits until this node has the metadata log as it is committed, and returns the image of it.
    pub async fn catch_up(
        &self,
        context: &NodeContext,
        heartbeats: &Heartbeats,
    ) -> Result<MetadataImage, String> {
        ottla_sync::select! {
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
            ottla_sync::time::sleep(LOOK_AT_QUORUM).await;
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
        ottla_sync::select! {
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
        ottla_sync::select! {
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
