//! Opens the metadata log for the quorum thread, and finds its voters and bootstrap servers in the
//! log and the configuration.

use std::io;
use std::path::Path;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_controller::bootstrap_records;
use ottla_log::retry_lacking;
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

/// Opens the metadata log. If this node is the only voter, it becomes leader at once and has the
/// metadata as of its last stop. Any other node sends nothing before the thread runs.
pub fn open(config: &BrokerConfig, identity: &NodeIdentity) -> Result<Controller, String> {
    let (log, loaded) =
        MetadataLog::open(config, time_of_day()).map_err(|error| error.to_string())?;
    let bootstrap = bootstrap_of(config, &loaded)?;
    let scram = scram_on_disk(&loaded, &bootstrap);
    let local = local_voter(config, identity);
    let mut control_records = loaded.control_records.clone();
    let can_become_voter = config.process_roles.controller;
    if !config.controller_quorum_voters.is_empty() {
        // Also set if the log names voters: the record that raised `kraft.version` may be
        // uncommitted, and be truncated.
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
        // Also set for the only voter, because it can be removed from the voters.
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

/// The SCRAM credentials with which controllers authenticate to each other while there is no
/// leader. Without a leader they do not know which records are committed.
fn scram_on_disk(loaded: &LoadedMetadata, bootstrap: &[MetadataRecord]) -> ScramImage {
    let mut scram = loaded.loader.image().kept.scram.clone();
    let in_log = loaded.tail.iter().flat_map(MetadataBatch::records);
    for record in bootstrap.iter().chain(in_log) {
        scram.apply(record);
    }
    scram
}

/// The voter entry of this node. A broker has no controller listener.
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

/// The bootstrap records for the first controller of the cluster, if the log does not have them. A
/// broker never writes them.
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
        // As in Kafka, the records of Kafka 4.4 take precedence over a file beside them.
        true if !loaded.bootstrap_records.is_empty() => Ok(loaded.bootstrap_records.clone()),
        true => read_bootstrap(Path::new(&config.metadata_log_dir)),
        false => Ok(Vec::new()),
    }
}

/// Reads `bootstrap.checkpoint`, and waits for a file handle. If there is no such file, the bootstrap
/// records are the level of a fresh directory.
fn read_bootstrap(metadata_log_dir: &Path) -> Result<Vec<MetadataRecord>, String> {
    let path = metadata_log_dir.join(BOOTSTRAP_FILE);
    match retry_lacking(|| read_snapshot(&path)) {
        Ok(snapshot) => Ok(snapshot.records),
        Err(SnapshotReadError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            let level = MetadataVersion::DEFAULT.feature_level();
            let levels = [(MetadataVersion::FEATURE_NAME.to_owned(), level)].into();
            Ok(bootstrap_records(&levels))
        }
        Err(error) => Err(error.to_string()),
    }
}
