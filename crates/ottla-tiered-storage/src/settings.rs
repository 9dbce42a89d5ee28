//! The settings of a store, by the names that they have for Kafka: `rsm.config.*` in a broker's
//! file, or below another prefix (`remote.log.storage.manager.impl.prefix`).
//!
//! `remote.log.storage.manager.class.name` chooses the store; other classes are plugins of a JVM and
//! are refused by name, and so are settings that the store does not have.
//!
//! Kafka: `LocalTieredStorage`. Aiven's plugin: `RemoteStorageManagerConfig`, `ChunkCacheConfig`.

mod azure;
mod backends;
mod given;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

#[cfg(any(test, feature = "azure"))]
pub use azure::{AzureCredentials, AzureSettings};
pub use backends::{AwsProvider, BackendSettings, S3Credentials, S3Settings};
#[cfg(feature = "gcs")]
pub use backends::{GcsCredentials, GcsSettings};
use given::Given;

use crate::custom_metadata::CustomMetadataField;
use crate::error::RemoteStorageError;

/// Kafka's store for tests.
pub const LOCAL_CLASS: &str = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage";
/// Aiven's plugin.
pub const CHUNKED_CLASS: &str = "io.aiven.kafka.tieredstorage.RemoteStorageManager";

const CLASS_KEY: &str = "remote.log.storage.manager.class.name";
const PREFIX_KEY: &str = "remote.log.storage.manager.impl.prefix";
const DEFAULT_PREFIX: &str = "rsm.config.";

/// A store and its settings.
pub enum StorageSettings {
    Local(LocalSettings),
    Chunked(Box<ChunkedSettings>),
}

/// Segments as files (`LocalTieredStorage`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalSettings {
    pub dir: PathBuf,
    pub delete_enable: bool,
    /// Whether the broker empties the store when it stops.
    pub delete_on_close: bool,
}

/// Segments in the object format of Aiven's plugin.
pub struct ChunkedSettings {
    pub backend: BackendSettings,
    pub key_prefix: String,
    pub key_prefix_mask: bool,
    /// Of the segment, before compression.
    pub chunk_size: u32,
    pub compression: bool,
    /// Leave segments alone whose first batch is compressed.
    pub compression_heuristic: bool,
    pub encryption: Option<EncryptionSettings>,
    pub custom_metadata_fields: Vec<CustomMetadataField>,
    pub upload_bytes_per_second: Option<u64>,
    /// `size` is a number of manifests. What they take in memory is limited too.
    pub manifest_cache: CacheSettings,
    pub indexes_cache: CacheSettings,
    /// None: chunks are shared while they are fetched, and not kept.
    pub chunk_cache: Option<ChunkCacheSettings>,
}

/// The key pairs: files with PEM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncryptionSettings {
    pub active_pair: String,
    /// ID, public key file, private key file.
    pub pairs: Vec<(String, PathBuf, PathBuf)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheSettings {
    /// None: no limit.
    pub size: Option<u64>,
    /// After the last use. None: no limit.
    pub retention: Option<Duration>,
    pub get_timeout: Duration,
    /// Fetches that run at once. None: the number of processors.
    pub threads: Option<usize>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkCacheSettings {
    pub cache: CacheSettings,
    /// None: in memory.
    pub path: Option<PathBuf>,
    /// Bytes of the segment that are fetched ahead of a reader.
    pub prefetch_max_size: u64,
}

/// The prefix of the names of a store's settings.
pub(crate) fn prefix_of(settings: &BTreeMap<String, String>) -> &str {
    settings
        .get(PREFIX_KEY)
        .map_or(DEFAULT_PREFIX, |it| it.trim())
}

impl StorageSettings {
    /// From the settings of a broker: all of its file, by their full names.
    pub fn from_broker(
        settings: &BTreeMap<String, String>,
    ) -> Result<StorageSettings, RemoteStorageError> {
        let class = settings.get(CLASS_KEY).map_or("", |class| class.trim());
        let prefix = prefix_of(settings);
        let own = settings
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.to_owned(), value.clone())))
            .collect();
        StorageSettings::new(class, prefix, &own)
    }

    /// From the name of the class, and the settings without their prefix.
    pub fn new(
        class: &str,
        prefix: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<StorageSettings, RemoteStorageError> {
        let given = Given::new(prefix, settings);
        let read = match class {
            LOCAL_CLASS => StorageSettings::Local(read_local(&given)?),
            CHUNKED_CLASS => StorageSettings::Chunked(Box::new(read_chunked(&given)?)),
            "" => {
                let cause = format!("is missing; give {CHUNKED_CLASS} or {LOCAL_CLASS}");
                return Err(RemoteStorageError::settings(CLASS_KEY, cause));
            }
            _ => {
                let cause = format!(
                    "is {class}, a plugin of a JVM; known are {CHUNKED_CLASS} and {LOCAL_CLASS}"
                );
                return Err(RemoteStorageError::settings(CLASS_KEY, cause));
            }
        };
        given.refuse_unknown()?;
        Ok(read)
    }
}

fn read_local(given: &Given<'_>) -> Result<LocalSettings, RemoteStorageError> {
    Ok(LocalSettings {
        dir: given.required("dir")?.into(),
        delete_enable: given.boolean("delete.enable", true)?,
        delete_on_close: given.boolean("delete.on.close", false)?,
    })
}

fn read_chunked(given: &Given<'_>) -> Result<ChunkedSettings, RemoteStorageError> {
    // Of the plugin's own metrics.
    for name in [
        "metrics.num.samples",
        "metrics.sample.window.ms",
        "metrics.recording.level",
    ] {
        given.ignore(name);
    }
    if let Some(format) = given.text("segment.format")
        && !format.eq_ignore_ascii_case("kafka")
    {
        return Err(given.error(
            "segment.format",
            format!("is {format}; only kafka is known"),
        ));
    }
    let chunk_size = given
        .number("chunk.size", 1..=i64::from(i32::MAX / 2))?
        .ok_or_else(|| given.error("chunk.size", "is missing; 4194304 is a good start"))?;
    let compression = given.boolean("compression.enabled", false)?;
    let compression_heuristic = given.boolean("compression.heuristic.enabled", false)?;
    if compression_heuristic && !compression {
        let cause = "is true; set compression.enabled=true too";
        return Err(given.error("compression.heuristic.enabled", cause));
    }
    let mut custom_metadata_fields = Vec::new();
    for name in given.list("custom.metadata.fields.include") {
        let field = CustomMetadataField::ALL
            .into_iter()
            .find(|it| it.name() == name);
        let field = field.ok_or_else(|| {
            let cause = format!("names {name}; give REMOTE_SIZE, OBJECT_PREFIX, OBJECT_KEY");
            given.error("custom.metadata.fields.include", cause)
        })?;
        if !custom_metadata_fields.contains(&field) {
            custom_metadata_fields.push(field);
        }
    }
    let rate = given.number(
        "upload.rate.limit.bytes.per.second",
        1 << 20..=i32::MAX.into(),
    )?;
    Ok(ChunkedSettings {
        backend: backends::read(given)?,
        key_prefix: given.text("key.prefix").unwrap_or_default().to_owned(),
        key_prefix_mask: given.boolean("key.prefix.mask", false)?,
        chunk_size: chunk_size as u32,
        compression,
        compression_heuristic,
        encryption: read_encryption(given)?,
        custom_metadata_fields,
        upload_bytes_per_second: rate.map(i64::unsigned_abs),
        manifest_cache: read_cache(given, "fetch.manifest.cache.", Some(1000), 3_600_000)?,
        indexes_cache: read_cache(given, "fetch.indexes.cache.", Some(10 << 20), 600_000)?,
        chunk_cache: read_chunk_cache(given)?,
    })
}

fn read_encryption(given: &Given<'_>) -> Result<Option<EncryptionSettings>, RemoteStorageError> {
    let is_on = given.boolean("encryption.enabled", false)?;
    if !is_on {
        // As the plugin, which reads them only then.
        for name in given
            .names()
            .filter(|name| name.starts_with("encryption.key."))
        {
            given.ignore(name);
        }
        return Ok(None);
    }
    let active_pair = given.required("encryption.key.pair.id")?.to_owned();
    let ids = given.list("encryption.key.pairs");
    if !ids.contains(&active_pair.as_str()) {
        let cause = format!("does not list {active_pair}, which encryption.key.pair.id names");
        return Err(given.error("encryption.key.pairs", cause));
    }
    let mut pairs = Vec::new();
    for id in ids {
        let file = |kind| given.required(&format!("encryption.key.pairs.{id}.{kind}.key.file"));
        pairs.push((
            id.to_owned(),
            file("public")?.into(),
            file("private")?.into(),
        ));
    }
    Ok(Some(EncryptionSettings { active_pair, pairs }))
}

fn read_chunk_cache(given: &Given<'_>) -> Result<Option<ChunkCacheSettings>, RemoteStorageError> {
    const CLASS: &str = "fetch.chunk.cache.class";
    const PACKAGE: &str = "io.aiven.kafka.tieredstorage.fetch.cache.";
    let Some(class) = given.non_empty(CLASS)? else {
        for name in given
            .names()
            .filter(|name| name.starts_with("fetch.chunk.cache."))
        {
            given.ignore(name);
        }
        return Ok(None);
    };
    let path = match class.strip_prefix(PACKAGE) {
        Some("MemoryChunkCache") => None,
        Some("DiskChunkCache") => Some(given.required("fetch.chunk.cache.path")?.into()),
        _ => {
            let cause =
                format!("is {class}; give {PACKAGE}MemoryChunkCache or {PACKAGE}DiskChunkCache");
            return Err(given.error(CLASS, cause));
        }
    };
    const SIZE: &str = "fetch.chunk.cache.size";
    if given.text(SIZE).is_none() {
        return Err(given.error(SIZE, "is missing; give bytes, or -1 for no limit"));
    }
    let prefetch = given.number("fetch.chunk.cache.prefetch.max.size", 0..=i32::MAX.into())?;
    Ok(Some(ChunkCacheSettings {
        cache: read_cache(given, "fetch.chunk.cache.", None, 600_000)?,
        path,
        prefetch_max_size: prefetch.unwrap_or(0).unsigned_abs(),
    }))
}

/// −1 means no limit.
fn read_cache(
    given: &Given<'_>,
    prefix: &str,
    default_size: Option<i64>,
    default_retention_ms: i64,
) -> Result<CacheSettings, RemoteStorageError> {
    let number = |name: &str, range| given.number(&format!("{prefix}{name}"), range);
    let size = number("size", -1..=i64::MAX)?.or(default_size);
    let retention_ms = number("retention.ms", -1..=i64::MAX)?.unwrap_or(default_retention_ms);
    let timeout_ms = number("get.timeout.ms", 1..=i64::MAX)?.unwrap_or(10_000);
    let threads = number("thread.pool.size", 0..=1024)?.unwrap_or(0);
    Ok(CacheSettings {
        size: size.and_then(|size| u64::try_from(size).ok()),
        retention: u64::try_from(retention_ms).ok().map(Duration::from_millis),
        get_timeout: Duration::from_millis(timeout_ms.unsigned_abs()),
        threads: (threads > 0).then_some(threads as usize),
    })
}

#[cfg(test)]
mod tests;
