//! The life of this node in the cluster: it leads the quorum, registers itself as controller and broker,
//! is unfenced, and on a clean stop gives its partitions away first.
//!
//! Kafka does the same in `BrokerLifecycleManager`, `ControllerRegistrationManager`, `SharedServer`.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use bytestring::ByteString;
use ottla_config::{BrokerConfig, Listener};
use ottla_controller::{bootstrap_records, local_supported_features};
use ottla_metadata::{MetadataDelta, MetadataImage, MetadataVersion};
use ottla_protocol::messages::broker_registration_request;
use ottla_protocol::messages::controller_registration_request;
use ottla_protocol::messages::{
    BrokerHeartbeatRequest, BrokerRegistrationRequest, ControllerRegistrationRequest,
};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{
    KRaftVersion, Quorum, QuorumConfig, QuorumOptions, ReplicaKey, Voter, VoterEndpoint, VoterSet,
};
use ottla_types::{BrokerEpoch, BrokerId, DirectoryId, ErrorCode, Uuid};

use super::ControllerHandle;
use super::controller_thread::{Controller, Publish, timestamp};
use super::format::NodeIdentity;
use super::local_host::canonical_host_name;
use crate::Broker;
use crate::metadata::metadata_log::MetadataLog;
use crate::metadata::publish::publish;
use crate::metadata::snapshot_file::{BOOTSTRAP_FILE, read_snapshot};

/// The controller of this node and this node's registration with it.
#[derive(Debug)]
pub struct Membership {
    pub controller: ControllerHandle,
    cluster_id: ByteString,
    broker_epoch: AtomicI64,
}

impl Membership {
    pub fn cluster_id(&self) -> &ByteString {
        &self.cluster_id
    }

    /// The epoch with which this broker is registered.
    pub fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }

    /// Opens the metadata log and takes the lead of its quorum. What the cluster was when the node stopped is
    /// known then; nothing is published yet.
    pub(crate) fn lead(
        file_config: &BrokerConfig,
        identity: &NodeIdentity,
    ) -> Result<Controller, String> {
        lead_quorum(file_config, identity)
    }

    /// Starts the controller and joins this node to its cluster. When it returns, the image is published
    /// and the broker is unfenced. Reads and writes files: not for a thread that serves connections.
    ///
    /// `previous_broker_epoch` is what the marker of the last clean stop says, -1 without one.
    pub(crate) fn start(
        broker: &Arc<Broker>,
        file_config: &BrokerConfig,
        identity: &NodeIdentity,
        mut controller: Controller,
        previous_broker_epoch: BrokerEpoch,
    ) -> Result<Membership, String> {
        let file_config = file_config.clone();
        let failed = |error: crate::metadata::metadata_log::MetadataLogError| error.to_string();
        controller
            .decide_now(&controller_registration(&file_config))
            .map_err(failed)?;
        let online = match broker.log_dirs() {
            Some(log_dirs) => log_dirs.online_directory_ids(),
            None => identity.directory_ids.values().copied().collect(),
        };
        let registration =
            broker_registration(&file_config, identity, online, previous_broker_epoch);
        let registered = controller.decide_now(&registration).map_err(failed)?;
        if registered.error_code != ErrorCode::None.code() {
            return Err(format!(
                "the broker cannot be registered: {}",
                ErrorCode::from_code(registered.error_code)
            ));
        }
        let cordoned = broker
            .log_dirs()
            .map(|log_dirs| log_dirs.cordoned_directory_ids());
        // The broker is this process: it has seen its registration.
        let unfence = BrokerHeartbeatRequest {
            broker_id: file_config.node_id,
            broker_epoch: registered.broker_epoch,
            current_metadata_offset: i64::MAX,
            cordoned_log_dirs: cordoned,
            ..Default::default()
        };
        controller.decide_now(&unfence).map_err(failed)?;

        // One fsync for all of it, and one change from nothing to what there is now, so that every
        // partition is opened once.
        controller
            .commit(&mut (Box::new(|_: &MetadataDelta| {}) as Publish))
            .map_err(failed)?;
        let initial = MetadataDelta::between(MetadataImage::empty(), controller.image().clone());
        publish(broker, &file_config, &initial);

        let runtime = tokio::runtime::Handle::current();
        let (sender, receiver) = mpsc::channel();
        let handle = ControllerHandle::new(sender, controller.status());
        let mut publish_to: Publish = {
            // The broker holds the handle that keeps this thread: a strong reference back would keep both.
            let broker = Arc::downgrade(broker);
            Box::new(move |delta| {
                if let Some(broker) = broker.upgrade() {
                    publish(&broker, &file_config, delta);
                }
            })
        };
        let stop_node = {
            let broker = Arc::downgrade(broker);
            move |reason: String| {
                if let Some(broker) = broker.upgrade() {
                    broker.fail(format!("{reason}. Mend that and start again"));
                }
            }
        };
        thread::Builder::new()
            .name("controller".to_owned())
            .spawn(move || {
                // What is published starts tasks: coordinators load, partitions flush.
                let _runtime = runtime.enter();
                controller.run(&receiver, &mut publish_to, stop_node);
            })
            .map_err(|error| format!("cannot start the thread of the controller: {error}"))?;
        Ok(Membership {
            controller: handle,
            cluster_id: ByteString::from(identity.cluster_id.clone()),
            broker_epoch: AtomicI64::new(registered.broker_epoch),
        })
    }

    /// Tells the controller that this broker stops: it leads nothing from then on. Before the logs are
    /// closed, so that the stop is a clean one.
    pub async fn leave(&self, broker: BrokerId) {
        // Twice at most: the first moves the leaders, the second fences.
        for _ in 0..2 {
            let request = BrokerHeartbeatRequest {
                broker_id: broker.value(),
                broker_epoch: self.broker_epoch().value(),
                current_metadata_offset: i64::MAX,
                want_shut_down: true,
                ..Default::default()
            };
            match self.controller.submit(request).await {
                Ok(response) if response.should_shut_down => return,
                Ok(response) if response.error_code == ErrorCode::None.code() => {}
                Ok(response) => {
                    let code = ErrorCode::from_code(response.error_code);
                    tracing::warn!("the controller does not let this broker go: {code}");
                    return;
                }
                Err(code) => {
                    tracing::warn!("the controller does not answer: {code}");
                    return;
                }
            }
        }
    }
}

/// Opens the metadata log and takes the lead of the quorum.
pub(super) fn lead_quorum(
    config: &BrokerConfig,
    identity: &NodeIdentity,
) -> Result<Controller, String> {
    let (log, loaded) =
        MetadataLog::open(config, timestamp()).map_err(|error| error.to_string())?;
    // Once its records are in the log, the file is of no use any more.
    let bootstrap = match loaded.loader.image().features.metadata_version() {
        None => read_bootstrap(Path::new(&config.metadata_log_dir))?,
        Some(_) => Vec::new(),
    };
    let local = Voter {
        key: ReplicaKey::new(BrokerId(config.node_id), identity.metadata_directory_id),
        endpoints: config
            .advertised_controller_listeners
            .iter()
            .map(|listener| VoterEndpoint {
                name: ByteString::from(listener.name.clone()),
                host: ByteString::from(host_of(listener)),
                port: listener.port,
            })
            .collect(),
        supported_kraft_versions: (0, 1),
    };
    let mut control_records = loaded.control_records;
    let is_in_log = control_records.last_kraft_version().is_reconfig_supported()
        && !control_records.last_voters().is_empty();
    if !is_in_log {
        control_records.set_static_voters(static_voters(config)?);
    }
    check_only_voter(control_records.last_voters(), local.key)?;
    let quorum = Quorum::new(QuorumOptions {
        config: QuorumConfig::default(),
        local,
        can_become_voter: true,
        listener_name: ByteString::from(controller_listener_name(config)),
        bootstrap_servers: Vec::new(),
        control_records,
        election: loaded.election,
        log: log.state(),
    })
    .map_err(|error| error.to_string())?;
    Controller::lead(
        log,
        loaded.loader,
        quorum,
        config.clone(),
        identity.cluster_id.clone(),
        loaded.bytes_since_snapshot,
        &bootstrap,
    )
    .map_err(|error| error.to_string())
}

/// The quorum has no other voter than this node: nobody here speaks with others yet.
fn check_only_voter(voters: &VoterSet, local: ReplicaKey) -> Result<(), String> {
    if !voters.is_voter(local) {
        return Err(format!(
            "node {} is not one of the voters of the metadata quorum",
            local.id
        ));
    }
    if !voters.is_only_voter(local) {
        return Err(format!(
            "the metadata quorum has {} voters; this release leads a quorum of one: give \
             controller.quorum.voters one entry, or format with --standalone",
            voters.len()
        ));
    }
    Ok(())
}

/// `bootstrap.checkpoint`, or without one the newest level, as Kafka begins.
fn read_bootstrap(metadata_log_dir: &Path) -> Result<Vec<MetadataRecord>, String> {
    let path = metadata_log_dir.join(BOOTSTRAP_FILE);
    if !path.exists() {
        let latest = MetadataVersion::LATEST_PRODUCTION.feature_level();
        let levels = [(MetadataVersion::FEATURE_NAME.to_owned(), latest)].into();
        return Ok(bootstrap_records(&levels));
    }
    read_snapshot(&path)
        .map(|snapshot| snapshot.records)
        .map_err(|error| error.to_string())
}

/// `controller.quorum.voters`: their directories are not known.
pub(crate) fn static_voters(config: &BrokerConfig) -> Result<VoterSet, String> {
    let name = controller_listener_name(config);
    let voters = config.controller_quorum_voters.iter().map(|voter| Voter {
        key: ReplicaKey {
            id: BrokerId(voter.id),
            directory_id: None,
        },
        endpoints: vec![VoterEndpoint {
            name: ByteString::from(name.clone()),
            host: ByteString::from(voter.host.clone()),
            port: voter.port,
        }],
        supported_kraft_versions: (0, KRaftVersion::V0.feature_level()),
    });
    VoterSet::new(voters).map_err(|_| {
        "there is no metadata quorum: give controller.quorum.voters, or format the directory with \
         --standalone"
            .to_owned()
    })
}

/// The listener by which the nodes of the quorum reach each other.
fn controller_listener_name(config: &BrokerConfig) -> String {
    let first = config.controller_listener_names.first();
    first.cloned().unwrap_or_default()
}

/// What clients are told of a listener.
fn host_of(listener: &Listener) -> String {
    match &listener.host {
        Some(host) => host.clone(),
        None => canonical_host_name(),
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

/// A random id that is none of the reserved ones.
pub(crate) fn random_uuid() -> Uuid {
    loop {
        if let Some(id) = Uuid::from_random(rand::random()) {
            return id;
        }
    }
}
