//! Where the segments are: in an S3 server through Aiven's plugin, or in a directory.

use std::path::{Path, PathBuf};

use anyhow::Result;
use ottla_peers::tiered::{self, S3Server};
use ottla_workspace::workspace;

use crate::bench_peer::setting::Setting;

pub const CHUNK_BYTES: u64 = 4 << 20;
pub const CHUNK_CACHE_BYTES: u64 = 128 << 20;
/// The prefetched bytes of ten readers fit into the cache.
pub const PREFETCH_BYTES: u64 = 8 << 20;

/// The kind of store of a run, and the entries that the peer's class path needs for it.
pub enum Kind {
    S3 {
        classes: Vec<PathBuf>,
    },
    Directory {
        classes: Vec<PathBuf>,
        reason: String,
    },
}

impl Kind {
    /// S3, unless the peer is Kafka and its plugin cannot be had.
    pub fn find(setting: &Setting<'_>) -> Result<Kind> {
        let peer = setting.sides[0];
        if peer.class_path().is_none() {
            return Ok(Kind::S3 {
                classes: Vec::new(),
            });
        }
        let given = setting.options.plugin.as_deref();
        match tiered::plugin_classes(given) {
            Ok(classes) => Ok(Kind::S3 { classes }),
            // Asked for, so nothing else would do.
            Err(error) if given.is_some() => Err(error),
            Err(error) => {
                let jars = tiered::store_jars(&workspace::target_dir().join("bench-peer"))?;
                let error = format!("{error:#}");
                Ok(Kind::Directory {
                    classes: vec![jars.join("*")],
                    reason: error.lines().next().unwrap_or_default().to_owned(),
                })
            }
        }
    }

    pub fn in_words(&self) -> String {
        match self {
            Kind::S3 { classes } if classes.is_empty() => {
                "the store: versitygw, an S3 server, on this machine".to_owned()
            }
            Kind::S3 { .. } => {
                "the store: versitygw, an S3 server, on this machine; Kafka with Aiven's plugin"
                    .to_owned()
            }
            Kind::Directory { reason, .. } => format!(
                "the store: a directory, through Kafka's LocalTieredStorage, because Aiven's plugin cannot be had \
                 ({reason}); first byte and encryption are not measured"
            ),
        }
    }

    pub fn is_s3(&self) -> bool {
        matches!(self, Kind::S3 { .. })
    }

    pub fn classes(&self) -> &[PathBuf] {
        match self {
            Kind::S3 { classes } | Kind::Directory { classes, .. } => classes,
        }
    }
}

/// The store of a turn.
pub enum Store {
    S3(S3Server),
    Directory(PathBuf),
}

impl Store {
    /// An empty store with its files in `dir`.
    pub fn start(kind: &Kind, dir: &Path) -> Result<Store> {
        std::fs::create_dir_all(dir)?;
        Ok(match kind {
            Kind::S3 { .. } => Store::S3(S3Server::start(dir)?),
            Kind::Directory { .. } => Store::Directory(dir.to_owned()),
        })
    }

    /// The broker's settings.
    pub fn settings(&self) -> Vec<(String, String)> {
        match self {
            Store::S3(server) => self.settings_at(&server.endpoint()),
            Store::Directory(dir) => tiered::directory_settings(dir),
        }
    }

    /// The broker's settings if an S3 server is reached at another address.
    pub fn settings_at(&self, endpoint: &str) -> Vec<(String, String)> {
        let mut settings = tiered::s3_settings(endpoint);
        let cache = "fetch.chunk.cache";
        for (key, value) in [
            ("chunk.size".to_owned(), CHUNK_BYTES.to_string()),
            (
                format!("{cache}.class"),
                "io.aiven.kafka.tieredstorage.fetch.cache.MemoryChunkCache".to_owned(),
            ),
            (format!("{cache}.size"), CHUNK_CACHE_BYTES.to_string()),
            (
                format!("{cache}.prefetch.max.size"),
                PREFETCH_BYTES.to_string(),
            ),
        ] {
            settings.push((format!("rsm.config.{key}"), value));
        }
        settings
    }

    /// The port of the S3 server.
    pub fn port(&self) -> Option<u16> {
        match self {
            Store::S3(server) => Some(server.port()),
            Store::Directory(_) => None,
        }
    }

    /// The process of the S3 server.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Store::S3(server) => Some(server.pid()),
            Store::Directory(_) => None,
        }
    }

    /// The segments of a topic that are in the store as a whole. In a directory, one may still be
    /// written.
    pub fn segments(&self, topic: &str) -> Result<usize> {
        let (dir, extension) = match self {
            // Written last.
            Store::S3(server) => (server.bucket(), "rsm-manifest"),
            Store::Directory(dir) => (dir.clone(), "log"),
        };
        let files = tiered::files_below(&dir, extension)?;
        let is_of_topic = |file: &&PathBuf| {
            let below = file.strip_prefix(&dir).unwrap_or(file);
            below.to_string_lossy().contains(topic)
        };
        Ok(files.iter().filter(is_of_topic).count())
    }
}
