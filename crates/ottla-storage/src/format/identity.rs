//! The `meta.properties` of a node's directories: the cluster and the node they belong to.
//!
//! Kafka: `MetaPropertiesEnsemble`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ottla_config::BrokerConfig;
use ottla_log::checkpoint::MetaProperties;
use ottla_log::retry_lacking;
use ottla_sync::fs;
use ottla_types::{BrokerId, DirectoryId};

use crate::random_ids::random_uuid;

/// Why formatting failed or was incomplete, as a sentence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FormatError(pub String);

/// The cluster, the node and the IDs of a node's directories.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeIdentity {
    pub cluster_id: String,
    /// The IDs of the log directories, by their path in `log.dirs`.
    pub directory_ids: BTreeMap<PathBuf, DirectoryId>,
    pub metadata_directory_id: DirectoryId,
}

/// All directories of a node: the log directories, and the metadata directory if it is separate.
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

/// The `meta.properties` of each directory; `None` for an unformatted one. They must be consistent
/// with each other and with the node. Waits for file handles.
pub fn read_all(
    config: &BrokerConfig,
) -> Result<Vec<(PathBuf, Option<MetaProperties>)>, FormatError> {
    let mut found: Vec<(PathBuf, Option<MetaProperties>)> = Vec::new();
    let mut cluster: Option<(PathBuf, String)> = None;
    for dir in directories(config) {
        let properties = retry_lacking(|| MetaProperties::read(&dir));
        let properties = properties.map_err(|error| FormatError(error.to_string()))?;
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

/// Reads the identity of a node. `None` if no directory is formatted. If only some directories are
/// formatted, the start is refused, as in Kafka: an apparently new directory may be a disk that is
/// not mounted. Directories from before KIP-858 get an ID.
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
    if let Some((dir, _)) = found.iter().find(|(_, properties)| properties.is_none()) {
        return Err(FormatError(unformatted_log_dir(dir)));
    }
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

/// The message for a node whose metadata directory alone is not formatted.
pub fn unformatted_metadata_dir(formatted: &Path, metadata_dir: &Path) -> String {
    format!(
        "{} is formatted, but the metadata directory {} is not; restore its meta.properties, or \
         format it with --ignore-formatted",
        formatted.display(),
        metadata_dir.display()
    )
}

/// The message for a node with a log directory that is not formatted.
fn unformatted_log_dir(dir: &Path) -> String {
    format!(
        "{} has no meta.properties; mount its disk or restore the file, or, if the directory is new, \
         format it with `ottla storage format --ignore-formatted`",
        dir.display()
    )
}

pub(super) fn write_meta_properties(
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
    retry_lacking(|| properties.write(dir)).map_err(|error| FormatError(error.to_string()))
}
