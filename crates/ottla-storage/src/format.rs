//! Formatting: what a node's directories hold before its first start, and reading that back.
//!
//! Every log directory gets `meta.properties` and `bootstrap.checkpoint`; the metadata directory of a
//! dynamic quorum (KIP-853) gets a snapshot at offset 0 that names the voters. A directory that is formatted
//! is never touched. `meta.properties` is written last in each: without it, a directory counts as empty
//! and can be formatted again.
//!
//! In Kafka: `org.apache.kafka.metadata.storage.Formatter`, `StorageTool`, `MetaPropertiesEnsemble`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_controller::{BootstrapOptions, bootstrap_records};
use ottla_log::checkpoint::MetaProperties;
use ottla_metadata::MetadataVersion;
use ottla_protocol::metadata_records::MetadataRecord;
use ottla_raft::{KRaftVersion, ReplicaKey, SnapshotId, Voter, VoterEndpoint, VoterSet};
use ottla_sync::fs::{self, Dir};
use ottla_types::{BrokerId, DirectoryId, Timestamp, Uuid};

use crate::metadata::metadata_log::METADATA_DIR;
use crate::metadata::snapshot_file::Snapshot;
use crate::random_ids::random_uuid;

mod untouched;

pub use untouched::check_empty;

/// Who votes in the quorum that is formatted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InitialQuorum {
    /// `controller.quorum.voters` names them: nothing is written about them.
    Static,
    /// `--standalone`: this node alone.
    Standalone,
    /// `--initial-controllers`.
    Controllers(Vec<InitialController>),
    /// `--no-initial-controllers`: the node joins a quorum that exists.
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

/// What to format, and with what.
#[derive(Clone, PartialEq, Debug)]
pub struct FormatOptions {
    pub cluster_id: String,
    pub quorum: InitialQuorum,
    /// `--release-version`, or the newest.
    pub metadata_version: MetadataVersion,
    /// `--feature`.
    pub feature_levels: BTreeMap<String, i16>,
    /// `--add-scram`, as the records that create the credentials.
    pub scram_records: Vec<MetadataRecord>,
    /// `--ignore-formatted`: format what is not, and leave the rest.
    pub ignore_formatted: bool,
}

/// What was formatted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatReport {
    /// Each directory with what it is: `data directory`, `metadata directory`, `dynamic metadata
    /// directory`, `dynamic metadata voter directory`. Empty when all were formatted already.
    pub formatted: Vec<(PathBuf, &'static str)>,
    pub bootstrap_records: usize,
}

/// Why nothing, or not everything, was formatted: a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(pub String);

/// To which cluster the directories of a node belong, and what they are called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeIdentity {
    pub cluster_id: String,
    /// The ids of the log directories, as `log.dirs` names them.
    pub directory_ids: BTreeMap<PathBuf, DirectoryId>,
    pub metadata_directory_id: DirectoryId,
}

/// All directories of a node: the log directories, and the metadata directory if it is another.
pub fn directories(config: &BrokerConfig) -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = Vec::new();
    for dir in config.log_dirs.iter().chain([&config.metadata_log_dir]) {
        let dir = PathBuf::from(dir);
        if !directories.contains(&dir) {
            directories.push(dir);
        }
    }
    directories
}

/// The `meta.properties` of each directory, `None` for one that is not formatted. They have to belong
/// together, and to the node.
pub fn read_all(
    config: &BrokerConfig,
) -> Result<Vec<(PathBuf, Option<MetaProperties>)>, FormatError> {
    let mut found: Vec<(PathBuf, Option<MetaProperties>)> = Vec::new();
    let mut cluster: Option<(PathBuf, String)> = None;
    for dir in directories(config) {
        let properties =
            MetaProperties::read(&dir).map_err(|error| FormatError(error.to_string()))?;
        if let Some(properties) = &properties {
            if let Some(node_id) = properties.node_id
                && node_id.value() != config.node_id
            {
                return Err(FormatError(format!(
                    "{}: the directory belongs to node {node_id}, but node.id is {}; give the directory \
                     of this node, or the right node.id",
                    dir.display(),
                    config.node_id
                )));
            }
            if let Some(cluster_id) = &properties.cluster_id {
                match &cluster {
                    Some((other, other_id)) if other_id != cluster_id => {
                        return Err(FormatError(format!(
                            "{} belongs to cluster {cluster_id} and {} to cluster {other_id}; give \
                             directories of one cluster",
                            dir.display(),
                            other.display()
                        )));
                    }
                    Some(_) => {}
                    None => cluster = Some((dir.clone(), cluster_id.clone())),
                }
            }
        }
        found.push((dir, properties));
    }
    Ok(found)
}

/// Reads what the directories of a node are. `None` when not even the metadata directory is formatted.
/// Directories that were added since, and those from before KIP-858, get an id of their own.
pub fn read_identity(config: &BrokerConfig) -> Result<Option<NodeIdentity>, FormatError> {
    let found = read_all(config)?;
    let metadata_dir = Path::new(&config.metadata_log_dir);
    let cluster_id = found
        .iter()
        .find(|(dir, _)| dir == metadata_dir)
        .and_then(|(_, properties)| properties.as_ref()?.cluster_id.clone());
    let Some(cluster_id) = cluster_id else {
        let formatted = found.iter().find(|(_, properties)| properties.is_some());
        return match formatted {
            None => Ok(None),
            Some((dir, _)) => Err(FormatError(unformatted_metadata_dir(dir, metadata_dir))),
        };
    };
    let mut ids: BTreeMap<PathBuf, DirectoryId> = BTreeMap::new();
    for (dir, properties) in found {
        let known = properties
            .as_ref()
            .and_then(|properties| properties.directory_id);
        let id = match known {
            Some(id) if ids.values().any(|other| *other == id) => {
                return Err(FormatError(format!(
                    "{}: another directory has the same directory.id {id}; a directory must not be a copy \
                     of another",
                    dir.display()
                )));
            }
            Some(id) => id,
            None => {
                let id = random_uuid();
                write_meta_properties(&dir, config, &cluster_id, id)?;
                id
            }
        };
        ids.insert(dir, id);
    }
    let metadata_directory_id = ids.get(metadata_dir).copied().unwrap_or_default();
    let directory_ids = ids
        .into_iter()
        .filter(|(dir, _)| {
            config
                .log_dirs
                .iter()
                .any(|log_dir| Path::new(log_dir) == dir)
        })
        .collect();
    Ok(Some(NodeIdentity {
        cluster_id,
        directory_ids,
        metadata_directory_id,
    }))
}

/// What to say of a node none of whose directories is formatted.
pub fn not_formatted(config: &BrokerConfig) -> String {
    if let Err(error) = check_empty(config) {
        return error.to_string();
    }
    let arguments = match config.controller_quorum_voters.is_empty() {
        // The cluster is there, and so is its id.
        _ if !config.process_roles.controller => "--cluster-id <the id of the cluster>",
        true => "--standalone --cluster-id $(ottla storage random-uuid)",
        false => "--cluster-id $(ottla storage random-uuid)",
    };
    format!(
        "{} is not formatted; format it with: ottla storage format {arguments} --config <this \
         server.properties>",
        config.metadata_log_dir
    )
}

/// What to say of a node whose metadata directory alone is not formatted.
pub fn unformatted_metadata_dir(formatted: &Path, metadata_dir: &Path) -> String {
    format!(
        "{} is formatted, but the metadata directory {} is not; restore its meta.properties, or \
         format it with --ignore-formatted",
        formatted.display(),
        metadata_dir.display()
    )
}

/// Formats the directories of a node for a new cluster of its own, with what is served. Only empty ones.
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
            metadata_version: MetadataVersion::LATEST_PRODUCTION,
            feature_levels: BTreeMap::new(),
            scram_records: Vec::new(),
            ignore_formatted: false,
        },
    )
}

/// Formats the directories of a node.
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
        bootstrap_snapshot(records.clone())
            .write_bootstrap(&dir, now)
            .map_err(io)?;
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

/// Creates a directory and those above it that are missing. Their names are forced to disk: what is written into the
/// directory later is forced too, and would be lost with its name.
fn create_forced(dir: &Path) -> io::Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && fs::metadata(dir).is_err();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(dir)?;
    for parent in missing.into_iter().filter_map(Path::parent) {
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        Dir::open(parent)?.sync()?;
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

/// The voters to write down; `None` where they are configured, or this node joins others.
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
        .and_then(|()| snapshot.write(&dir, SnapshotId::BOOTSTRAP, now))
        .map(drop)
        .map_err(|error| FormatError(format!("cannot format {}: {error}", dir.display())))
}

fn write_meta_properties(
    dir: &Path,
    config: &BrokerConfig,
    cluster_id: &str,
    directory_id: DirectoryId,
) -> Result<(), FormatError> {
    let properties = MetaProperties {
        version: 1,
        cluster_id: Some(cluster_id.to_owned()),
        node_id: Some(BrokerId(config.node_id)),
        directory_id: Some(directory_id),
    };
    fs::create_dir_all(dir)
        .map_err(|error| FormatError(format!("cannot create {}: {error}", dir.display())))?;
    properties
        .write(dir)
        .map_err(|error| FormatError(error.to_string()))
}

#[cfg(test)]
mod tests;
