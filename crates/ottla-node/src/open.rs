//! What the thread of the quorum begins with: the metadata log, who votes by it and by the configuration, and
//! whom to ask.

use std::io;
use std::path::Path;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_controller::bootstrap_records;
use ottla_metadata::{MetadataVersion, ScramImage};
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{Quorum, QuorumConfig, QuorumOptions, ReplicaKey, Voter, VoterEndpoint};
use ottla_types::BrokerId;

use ottla_context::time_of_day;

use crate::controller_thread::{Controller, Opened};
use crate::membership::local_host::host_of;
use ottla_storage::format::NodeIdentity;
use ottla_storage::metadata::metadata_log::{LoadedMetadata, MetadataLog};
use ottla_storage::metadata::record_batches::MetadataBatch;
use ottla_storage::metadata::snapshot_file::{BOOTSTRAP_FILE, SnapshotReadError, read_snapshot};
use ottla_storage::metadata::static_voters::{
    bootstrap_servers, controller_listener_name, no_quorum, static_voters,
};

/// Opens the metadata log. The only voter takes the lead, and knows then what the cluster was when it stopped;
/// every other node sends nothing before the thread runs.
pub fn open(config: &BrokerConfig, identity: &NodeIdentity) -> Result<Controller, String> {
    let (log, loaded) =
        MetadataLog::open(config, time_of_day()).map_err(|error| error.to_string())?;
    let bootstrap = bootstrap_of(config, &loaded)?;
    let scram = scram_on_disk(&loaded, &bootstrap);
    let local = local_voter(config, identity);
    let mut control_records = loaded.control_records.clone();
    let can_become_voter = config.process_roles.controller;
    if !config.controller_quorum_voters.is_empty() {
        // Also where the log names voters: what raised kraft.version there may not be committed, and be cut off.
        control_records.set_static_voters(static_voters(config)?);
    }
    let voters = control_records.last_voters();
    if voters.is_empty() && bootstrap_servers(config).is_empty() {
        return Err(no_quorum());
    }
    let is_only_voter = voters.is_only_voter(local.key);
    let quorum = Quorum::new(QuorumOptions {
        config: quorum_config(config),
        local,
        can_become_voter,
        listener_name: ByteString::from(controller_listener_name(config)),
        // Also for the only voter, who may be voted out.
        bootstrap_servers: bootstrap_servers(config),
        control_records,
        election: loaded.election.clone(),
        log: log.state(),
    })
    .map_err(|error| error.to_string())?;
    let opened = Opened {
        log,
        loaded,
        quorum,
        config: config.clone(),
        cluster_id: identity.cluster_id.clone(),
        bootstrap,
        scram,
    };
    match is_only_voter {
        true => Controller::lead(opened).map_err(|error| error.to_string()),
        false => Ok(Controller::join(opened)),
    }
}

/// Controllers log in to each other with these before they have a leader, who says what is committed.
fn scram_on_disk(loaded: &LoadedMetadata, bootstrap: &[MetadataRecord]) -> ScramImage {
    let mut scram = loaded.loader.image().kept.scram.clone();
    let in_log = loaded.tail.iter().flat_map(MetadataBatch::records);
    for record in bootstrap.iter().chain(in_log) {
        scram.apply(record);
    }
    scram
}

/// This node as it would stand among the voters. A broker has no listener for the others.
fn local_voter(config: &BrokerConfig, identity: &NodeIdentity) -> Voter {
    Voter {
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
    }
}

fn quorum_config(config: &BrokerConfig) -> QuorumConfig {
    let ms = |value: i32| u64::try_from(value).unwrap_or_default();
    QuorumConfig {
        election_timeout_ms: ms(config.controller_quorum_election_timeout_ms),
        fetch_timeout_ms: ms(config.controller_quorum_fetch_timeout_ms),
        election_backoff_max_ms: ms(config.controller_quorum_election_backoff_max_ms),
        request_timeout_ms: ms(config.controller_quorum_request_timeout_ms),
        retry_backoff_ms: ms(config.controller_quorum_retry_backoff_ms),
        fetch_max_bytes: config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes: config.controller_quorum_fetch_snapshot_max_bytes,
        auto_join: config.controller_quorum_auto_join_enable,
    }
}

/// What the first controller of the cluster begins with, while the log does not say it. A broker never writes
/// it.
fn bootstrap_of(
    config: &BrokerConfig,
    loaded: &LoadedMetadata,
) -> Result<Vec<MetadataRecord>, String> {
    let is_in_log = loaded.loader.image().features.metadata_version().is_some()
        || loaded
            .tail
            .iter()
            .any(|batch| batch.sets_metadata_version());
    match config.process_roles.controller && !is_in_log {
        true => read_bootstrap(Path::new(&config.metadata_log_dir)),
        false => Ok(Vec::new()),
    }
}

/// `bootstrap.checkpoint`, or without one the newest level, as Kafka begins.
fn read_bootstrap(metadata_log_dir: &Path) -> Result<Vec<MetadataRecord>, String> {
    match read_snapshot(&metadata_log_dir.join(BOOTSTRAP_FILE)) {
        Ok(snapshot) => Ok(snapshot.records),
        Err(SnapshotReadError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            let latest = MetadataVersion::LATEST_PRODUCTION.feature_level();
            let levels = [(MetadataVersion::FEATURE_NAME.to_owned(), latest)].into();
            Ok(bootstrap_records(&levels))
        }
        Err(error) => Err(error.to_string()),
    }
}
