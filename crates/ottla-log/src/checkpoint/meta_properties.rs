//! `meta.properties`: the cluster and node that a log directory belongs to, and the directory's ID.
//!
//! Version 0 has `broker.id`, and every key is optional; version 1 has `node.id` and `cluster.id`
//! (KIP-631) and `directory.id` (KIP-858). Written in version 1. Kafka: `MetaProperties`.

use std::path::{Path, PathBuf};

use ottla_types::{BrokerId, DirectoryId};

use super::{read_file, write_atomically};
use crate::error::StorageError;
use crate::handles::MayLack;

pub const META_PROPERTIES: &str = "meta.properties";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaProperties {
    /// 0 or 1.
    pub version: i32,
    pub cluster_id: Option<String>,
    pub node_id: Option<BrokerId>,
    pub directory_id: Option<DirectoryId>,
}

#[derive(Debug, thiserror::Error)]
pub enum MetaPropertiesError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{}: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
}

impl MayLack for MetaPropertiesError {
    fn is_lack_of_resources(&self) -> bool {
        matches!(self, MetaPropertiesError::Storage(error) if error.is_lack_of_resources())
    }
}

impl MetaProperties {
    /// Reads the file of a log directory; `None` if the directory is not formatted.
    pub fn read(log_dir: &Path) -> Result<Option<MetaProperties>, MetaPropertiesError> {
        let path = log_dir.join(META_PROPERTIES);
        let Some(bytes) = read_file(&path)? else {
            return Ok(None);
        };
        Self::parse(&String::from_utf8_lossy(&bytes))
            .map(Some)
            .map_err(|reason| MetaPropertiesError::Invalid { path, reason })
    }

    fn parse(text: &str) -> Result<MetaProperties, String> {
        let property = |key: &str| {
            let lines = text.lines().map(str::trim);
            let mut pairs = lines
                .filter(|line| !line.starts_with(['#', '!']))
                .filter_map(|line| line.split_once(['=', ':']));
            // As in Java, the last line of a key wins.
            pairs
                .rfind(|(name, _)| name.trim() == key)
                .map(|(_, value)| value.trim().replace('\\', ""))
        };
        let number = |key: &str| match property(key) {
            None => Ok(None),
            Some(value) => match value.parse() {
                Ok(number) => Ok(Some(BrokerId(number))),
                Err(_) => Err(format!("{key}={value}: not a number")),
            },
        };
        let version = match property("version").as_deref() {
            Some("0") => 0,
            Some("1") => 1,
            None => {
                return Err(
                    "version was not found: the file is damaged or cut short; restore it with the \
                     cluster.id, node.id and directory.id that it had"
                        .to_owned(),
                );
            }
            Some(other) => {
                return Err(format!(
                    "version={other} was written by newer software; versions 0 and 1 are known"
                ));
            }
        };
        let node_id = number(if version == 0 { "broker.id" } else { "node.id" })?;
        let cluster_id = property("cluster.id");
        if version == 1 && node_id.is_none() {
            return Err("node.id was not found".to_owned());
        }
        if version == 1 && cluster_id.is_none() {
            return Err("cluster.id was not found".to_owned());
        }
        let directory_id = match property("directory.id") {
            // A file from before KIP-858 has no `directory.id`; neither has one that was cut short.
            None if !text.ends_with(['\n', '\r']) => {
                return Err(
                    "directory.id was not found, and the last line has no end: the file is cut short; \
                     restore it with the cluster.id, node.id and directory.id that it had"
                        .to_owned(),
                );
            }
            None => None,
            Some(value) => Some(
                value
                    .parse()
                    .map_err(|error| format!("directory.id={value}: {error}"))?,
            ),
        };
        Ok(MetaProperties {
            version,
            cluster_id,
            node_id,
            directory_id,
        })
    }

    /// Writes the file of a log directory durably.
    pub fn write(&self, log_dir: &Path) -> Result<(), StorageError> {
        let mut text = String::from("#\n");
        let mut line = |key: &str, value: String| text.push_str(&format!("{key}={value}\n"));
        if let Some(cluster_id) = &self.cluster_id {
            line("cluster.id", cluster_id.clone());
        }
        if let Some(directory_id) = self.directory_id {
            line("directory.id", directory_id.to_string());
        }
        if let Some(node_id) = self.node_id {
            let key = if self.version == 0 {
                "broker.id"
            } else {
                "node.id"
            };
            line(key, node_id.to_string());
        }
        line("version", self.version.to_string());
        write_atomically(&log_dir.join(META_PROPERTIES), text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use ottla_types::{BrokerId, DirectoryId};

    use super::{META_PROPERTIES, MetaProperties};

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(MetaProperties::read(dir.path()).unwrap().is_none());
        let properties = MetaProperties {
            version: 1,
            cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qg".to_owned()),
            node_id: Some(BrokerId(3)),
            directory_id: Some(DirectoryId::from_u128(0x1234)),
        };
        properties.write(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join(META_PROPERTIES)).unwrap();
        let expected = "#\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n\
                        directory.id=AAAAAAAAAAAAAAAAAAASNA\nnode.id=3\nversion=1\n";
        assert_eq!(text, expected);
        assert_eq!(MetaProperties::read(dir.path()).unwrap(), Some(properties));
    }

    #[test]
    fn javas_files_are_read() {
        let text = "#\n#Sat Nov 21 14:00:00 UTC 2026\ncluster.id=abc\\=\ndirectory.id=J8aAPcfLQt2bqs1JT_rMgQ\nnode.id=1\nversion=1\n";
        let properties = MetaProperties::parse(text).unwrap();
        assert_eq!(properties.cluster_id.as_deref(), Some("abc="));
        assert_eq!(properties.node_id, Some(BrokerId(1)));
        assert!(properties.directory_id.is_some());
        let old = MetaProperties::parse("version=0\nbroker.id=7\n").unwrap();
        assert_eq!((old.version, old.node_id), (0, Some(BrokerId(7))));
    }

    #[test]
    fn broken_files_are_refused() {
        for text in [
            "version=2\nnode.id=1\ncluster.id=a",
            "version=1\ncluster.id=a",
            "version=1\nnode.id=1",
            "version=1\nnode.id=one\ncluster.id=a",
            "version=1\nnode.id=1\ncluster.id=a\ndirectory.id=x\n",
            "version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcw",
            "#\n#Sat Nov 21 14:00:00 UTC 2026\ncluster.id=MkU3OEV",
            "node.id=1\n",
            "",
        ] {
            assert!(MetaProperties::parse(text).is_err(), "{text}");
        }
    }
}
