//! Formatting: writes the initial content of a node's directories. `identity` reads it back.
//!
//! Every log directory gets `meta.properties` and `bootstrap.checkpoint`; the metadata directory of
//! a dynamic quorum (KIP-853) gets a snapshot at offset 0 with the voters. A formatted directory is
//! never changed. `meta.properties` is written last in each: a directory without it counts as empty
//! and can be formatted again.
//!
//! Kafka: `org.apache.kafka.metadata.storage.Formatter`, `StorageTool`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_controller::{BootstrapOptions, bootstrap_records};
use ottla_log::retry_lacking;
use ottla_metadata::MetadataVersion;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{KRaftVersion, ReplicaKey, SnapshotId, Voter, VoterEndpoint, VoterSet};
use ottla_sync::fs::{self, Dir};
use ottla_types::{BrokerId, DirectoryId, Timestamp, Uuid};

use crate::metadata::metadata_log::METADATA_DIR;
use crate::metadata::snapshot_file::Snapshot;
use crate::random_ids::random_uuid;

mod identity;
mod untouched;

use identity::write_meta_properties;
use untouched::remove_interrupted;

pub use identity::{
    FormatError, NodeIdentity, directories, read_all, read_identity, unformatted_metadata_dir,
};
pub use untouched::check_empty;

/// The voters of the quorum to format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InitialQuorum {
    /// Configured by `controller.quorum.voters`: nothing is written about them.
    Static,
    /// `--standalone`: only this node.
    Standalone,
    /// `--initial-controllers`.
    Controllers(Vec<InitialController>),
    /// `--no-initial-controllers`: the node joins an existing quorum.
    None,
}

/// One entry of `--initial-controllers`: `id@host:port:directory-id`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitialController {
    pub id: BrokerId,
    pub host: String,
    pub port: u16,
    pub directory_id: DirectoryId,
}

/// Options of formatting.
#[derive(Clone, PartialEq, Debug)]
pub struct FormatOptions {
    pub cluster_id: String,
    pub quorum: InitialQuorum,
    /// `--release-version`, by default [`MetadataVersion::DEFAULT`].
    pub metadata_version: MetadataVersion,
    /// `--feature`.
    pub feature_levels: BTreeMap<String, i16>,
    /// `--add-scram`, as records that create the credentials.
    pub scram_records: Vec<MetadataRecord>,
    /// `--ignore-formatted`: formats only unformatted directories.
    pub ignore_formatted: bool,
}

/// The result of formatting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatReport {
    /// Each formatted directory with its kind: `data directory`, `metadata directory`, `dynamic
    /// metadata directory`, `dynamic metadata voter directory`. Empty if all were formatted
    /// already.
    pub formatted: Vec<(PathBuf, &'static str)>,
    pub bootstrap_records: usize,
}

/// Placeholder for the properties file in suggested commands, if its name is unknown.
pub const THIS_FILE: &str = "<this server.properties>";

/// The message for a node without any formatted directory.
pub fn not_formatted(config: &BrokerConfig) -> String {
    if let Err(error) = check_empty(config) {
        return error.to_string();
    }
    let arguments = match config.controller_quorum_voters.is_empty() {
        // A broker joins an existing cluster with an existing ID.
        _ if !config.process_roles.controller => "--cluster-id <the id of the cluster>",
        true => "--standalone --cluster-id $(ottla storage random-uuid)",
        false => "--cluster-id $(ottla storage random-uuid)",
    };
    format!(
        "{} is not formatted; format it with: ottla storage format {arguments} --config {THIS_FILE}",
        config.metadata_log_dir
    )
}

/// Formats empty directories of a node for a new single-node cluster with the served features.
pub fn format_standalone(config: &BrokerConfig) -> Result<FormatReport, FormatError> {
    check_empty(config)?;
    let quorum = if config.controller_quorum_voters.is_empty() {
        InitialQuorum::Standalone
    } else {
        InitialQuorum::Static
    };
    format(
        config,
        &FormatOptions {
            cluster_id: random_uuid().to_string(),
            quorum,
            metadata_version: MetadataVersion::DEFAULT,
            feature_levels: BTreeMap::new(),
            scram_records: Vec::new(),
            ignore_formatted: false,
        },
    )
}

/// Formats the directories of a node. Waits for file handles.
pub fn format(config: &BrokerConfig, options: &FormatOptions) -> Result<FormatReport, FormatError> {
    let has_dynamic_quorum = options.quorum != InitialQuorum::Static;
    let levels = BootstrapOptions {
        metadata_version: options.metadata_version,
        feature_levels: options.feature_levels.clone(),
        has_dynamic_quorum,
    }
    .effective_levels()
    .map_err(FormatError)?;
    if !options.scram_records.is_empty() && !options.metadata_version.is_scram_supported() {
        return Err(FormatError(format!(
            "SCRAM is only supported in metadata.version {} or later.",
            MetadataVersion::IBP_3_5_IV2
        )));
    }
    let mut records = bootstrap_records(&levels);
    records.extend(options.scram_records.iter().cloned());

    let found = read_all(config)?;
    for (dir, properties) in &found {
        let Some(properties) = properties else {
            continue;
        };
        if !options.ignore_formatted {
            return Err(FormatError(format!(
                "Log directory {} is already formatted. Use --ignore-formatted to ignore this directory \
                 and format the others.",
                dir.display()
            )));
        }
        if let Some(cluster_id) = &properties.cluster_id
            && *cluster_id != options.cluster_id
        {
            return Err(FormatError(format!(
                "{} belongs to cluster {cluster_id}, not to {}; give its cluster id",
                dir.display(),
                options.cluster_id
            )));
        }
    }
    let now = ottla_context::time_of_day();
    let mut report = FormatReport {
        formatted: Vec::new(),
        bootstrap_records: records.len(),
    };
    let standalone_id = random_uuid();
    let controllers = initial_controllers(config, options, standalone_id)?;
    for (dir, properties) in found {
        if properties.is_some() {
            continue;
        }
        let is_metadata_dir = dir == Path::new(&config.metadata_log_dir);
        let own = controllers.as_ref().and_then(|controllers| {
            controllers
                .iter()
                .find(|controller| controller.id.value() == config.node_id)
        });
        let (description, directory_id) = match (is_metadata_dir, &controllers, own) {
            (false, _, _) => ("data directory", random_uuid()),
            (true, None, _) if has_dynamic_quorum => ("dynamic metadata directory", random_uuid()),
            (true, None, _) => ("metadata directory", random_uuid()),
            (true, Some(_), Some(own)) => ("dynamic metadata voter directory", own.directory_id),
            (true, Some(_), None) => ("dynamic metadata directory", random_uuid()),
        };
        let io =
            |error: io::Error| FormatError(format!("cannot format {}: {error}", dir.display()));
        create_forced(&dir).map_err(io)?;
        if is_metadata_dir {
            remove_interrupted(&dir).map_err(io)?;
        }
        let bootstrap = bootstrap_snapshot(records.clone());
        retry_lacking(|| bootstrap.write_bootstrap(&dir, now)).map_err(io)?;
        if is_metadata_dir && let Some(controllers) = &controllers {
            let name = config
                .controller_listener_names
                .first()
                .cloned()
                .unwrap_or_default();
            write_quorum_snapshot(&dir, controllers, &name, &levels, now)?;
        }
        write_meta_properties(&dir, config, &options.cluster_id, directory_id)?;
        report.formatted.push((dir, description));
    }
    Ok(report)
}

/// Creates a directory and its missing parents, and fsyncs their entries. Files written into the
/// directory are fsynced later, but would be lost with the directory's entry.
fn create_forced(dir: &Path) -> io::Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && fs::metadata(dir).is_err();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(dir)?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        retry_lacking(|| Dir::open(parent))?.sync()?;
    }
    Ok(())
}

fn bootstrap_snapshot(records: Vec<MetadataRecord>) -> Snapshot {
    Snapshot {
        last_contained_log_time: Timestamp(0),
        kraft_version: KRaftVersion::V0,
        voters: None,
        records,
    }
}

/// The voters to write; `None` if they are configured or this node joins a quorum.
fn initial_controllers(
    config: &BrokerConfig,
    options: &FormatOptions,
    standalone_id: Uuid,
) -> Result<Option<Vec<InitialController>>, FormatError> {
    match &options.quorum {
        InitialQuorum::Static | InitialQuorum::None => Ok(None),
        InitialQuorum::Controllers(controllers) => Ok(Some(controllers.clone())),
        InitialQuorum::Standalone => {
            let listener = config.advertised_controller_listeners.first().ok_or_else(|| {
                FormatError(
                    "there is no controller listener; give controller.listener.names and a listener of \
                     that name"
                        .to_owned(),
                )
            })?;
            Ok(Some(vec![InitialController {
                id: BrokerId(config.node_id),
                host: listener
                    .host
                    .clone()
                    .unwrap_or_else(|| "localhost".to_owned()),
                port: listener.port,
                directory_id: standalone_id,
            }]))
        }
    }
}

fn write_quorum_snapshot(
    dir: &Path,
    controllers: &[InitialController],
    listener_name: &str,
    levels: &BTreeMap<String, i16>,
    now: Timestamp,
) -> Result<(), FormatError> {
    let voters = VoterSet::new(controllers.iter().map(|controller| Voter {
        key: ReplicaKey::new(controller.id, controller.directory_id),
        endpoints: vec![VoterEndpoint {
            name: ByteString::from(listener_name),
            host: ByteString::from(controller.host.clone()),
            port: controller.port,
        }],
        supported_kraft_versions: (0, 1),
    }))
    .map_err(|error| FormatError(format!("the initial controllers: {error}")))?;
    let level = levels.get("kraft.version").copied().unwrap_or_default();
    let snapshot = Snapshot {
        last_contained_log_time: now,
        kraft_version: KRaftVersion::from_feature_level(level).unwrap_or_default(),
        voters: Some(voters),
        records: Vec::new(),
    };
    let dir = dir.join(METADATA_DIR);
    fs::create_dir_all(&dir)
        .and_then(|()| retry_lacking(|| snapshot.write(&dir, SnapshotId::BOOTSTRAP, now)))
        .map(drop)
        .map_err(|error| FormatError(format!("cannot format {}: {error}", dir.display())))
}

#[cfg(test)]
mod tests;
