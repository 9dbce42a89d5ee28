//! A store of segments in the chunked format.
//!
//! Owns the caches of manifests, indexes and chunks. The first byte of a segment takes two round
//! trips: the manifest and a chunk; one if the manifest is cached. The offset index, which tells where
//! a record is, is fetched together with the manifest.
//!
//! Aiven's plugin: `RemoteStorageManager`, `KafkaRemoteStorageManager`.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use ottla_sync::{Mutex, fs};
use ottla_tiered::{CustomMetadata, RemoteLogSegmentMetadata};

use super::chunk_reader::{ChunkReader, Prefetch};
use super::data_key::{IV_SIZE, TAG_SIZE};
use super::key_ring::KeyRing;
use super::manifest::Manifest;
use super::object_key::{Suffix, key, key_for_reading, main_path};
use super::rate_limit::RateLimit;
use super::transform::restored_index;
use super::upload::Uploader;
use crate::blocking::Permit;
use crate::cache::{
    BoundedCache, ChunkCache, ENTRY_BYTES, KEPT_FOR, KeptFetches, SharedFetch, SharedFetches,
};
use crate::custom_metadata::{CustomMetadataField, CustomMetadataFields};
use crate::error::{RemoteStorageError, RemoteStorageErrorKind};
use crate::objects::{Environment, ObjectStorage, open_store};
use crate::remote_storage::{
    IndexType, LogSegmentData, RemoteStorageManager, SegmentStream, StoredObject, check_log_size,
};
use crate::settings::{CacheSettings, ChunkedSettings, EncryptionSettings};

/// Maximum number of manifests, and of indexes, that are fetched completely for readers that may be gone: those of ten
/// readers.
const KEPT_AT_ONCE: usize = 20;
/// More than any manifest has: the sizes of its chunks take at most 10 MiB before base64.
const MAX_MANIFEST_BYTES: u64 = 16 << 20;
/// What the cached manifests take in memory at most, whatever number of them the settings allow: with small
/// chunks, one takes megabytes. It is twice as much as the largest takes.
const MANIFEST_CACHE_BYTES: u64 = 32 << 20;

type Cache<K, V> = Arc<Mutex<BoundedCache<K, V>>>;

/// The store.
pub struct ChunkedStorage {
    shared: Arc<Shared>,
    /// Of the work that it is used for.
    permit: Permit,
}

/// What all work at the store uses.
struct Shared {
    storage: Arc<ObjectStorage>,
    uploader: Uploader,
    custom_metadata_fields: Vec<CustomMetadataField>,
    manifests: Cache<String, Arc<Manifest>>,
    manifest_fetches: SharedFetches<String, Arc<Manifest>>,
    kept_manifests: KeptFetches<String>,
    indexes: Cache<(String, IndexType), Bytes>,
    index_fetches: SharedFetches<(String, IndexType), Bytes>,
    kept_indexes: KeptFetches<(String, IndexType)>,
    chunks: Arc<ChunkReader>,
}

impl ChunkedStorage {
    /// Opens the store without a request to it. Reads key files and credentials files.
    pub fn open(
        settings: &ChunkedSettings,
        environment: Environment<'_>,
    ) -> Result<ChunkedStorage, RemoteStorageError> {
        let mut storage = open_store(&settings.backend, environment)?;
        if settings.key_prefix_mask {
            storage = storage.mask_prefix(&settings.key_prefix);
        }
        ChunkedStorage::with_storage(settings, storage)
    }

    /// As [`ChunkedStorage::open`], with objects in a given place.
    pub fn with_storage(
        settings: &ChunkedSettings,
        storage: ObjectStorage,
    ) -> Result<ChunkedStorage, RemoteStorageError> {
        let storage = Arc::new(storage);
        let keys = match &settings.encryption {
            Some(encryption) => Some(Arc::new(read_keys(encryption)?)),
            None => None,
        };
        let chunk_cache = match &settings.chunk_cache {
            Some(settings) => Some(Arc::new(ChunkCache::open(settings)?)),
            None => None,
        };
        let prefetch = prefetch(settings);
        let shared = Shared {
            uploader: Uploader {
                storage: storage.clone(),
                key_prefix: settings.key_prefix.clone(),
                chunk_size: settings.chunk_size,
                compression: settings.compression,
                compression_heuristic: settings.compression_heuristic,
                keys,
                rate_limit: settings
                    .upload_bytes_per_second
                    .map(|limit| Arc::new(RateLimit::new(limit))),
            },
            custom_metadata_fields: settings.custom_metadata_fields.clone(),
            manifests: manifest_cache(&settings.manifest_cache),
            manifest_fetches: SharedFetches::new(),
            kept_manifests: KeptFetches::new(KEPT_AT_ONCE),
            indexes: cache(&settings.indexes_cache),
            index_fetches: SharedFetches::new(),
            kept_indexes: KeptFetches::new(KEPT_AT_ONCE),
            chunks: Arc::new(ChunkReader::new(storage.clone(), chunk_cache, prefetch)),
            storage,
        };
        Ok(ChunkedStorage {
            shared: Arc::new(shared),
            permit: Permit::default(),
        })
    }
}

impl Shared {
    fn key(&self, metadata: &RemoteLogSegmentMetadata, suffix: Suffix) -> String {
        key(&self.uploader.key_prefix, metadata, suffix)
    }

    fn key_for_reading(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        suffix: Suffix,
    ) -> Result<String, RemoteStorageError> {
        let fields = match &metadata.segment.custom_metadata {
            None => CustomMetadataFields::default(),
            Some(CustomMetadata(bytes)) => {
                CustomMetadataFields::decode(bytes).map_err(|error| {
                    let name = self.storage.name(&self.key(metadata, suffix));
                    RemoteStorageError::damaged(&name, error)
                })?
            }
        };
        Ok(key_for_reading(
            &self.uploader.key_prefix,
            metadata,
            &fields,
            suffix,
        ))
    }

    async fn manifest(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<Arc<Manifest>, RemoteStorageError> {
        match self.find_manifest(metadata) {
            Ok(manifest) => Ok(manifest),
            Err(fetch) => fetch.await,
        }
    }

    /// The manifest from the cache, or its fetch.
    fn find_manifest(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<Arc<Manifest>, SharedFetch<Arc<Manifest>>> {
        let key = self.key(metadata, Suffix::Manifest);
        let found = self.manifest_fetches.find_or_start(
            &key,
            || self.manifests.lock().get(&key),
            || {
                let (storage, keys) = (self.storage.clone(), self.uploader.keys.clone());
                let (cache, key) = (self.manifests.clone(), key.clone());
                async move {
                    let json = storage.get(&key, MAX_MANIFEST_BYTES).await?;
                    let manifest = Manifest::read(&json, keys.as_deref()).map_err(|error| {
                        let name = storage.name(&key);
                        match error {
                            super::manifest::ManifestError::NoKeyRing
                            | super::manifest::ManifestError::DataKey(_) => {
                                RemoteStorageError::settings(&format!("read {name}"), error)
                            }
                            _ => RemoteStorageError::damaged(&name, error),
                        }
                    })?;
                    let manifest = Arc::new(manifest);
                    let weight = manifest.bytes_in_memory() + key.len() as u64 + ENTRY_BYTES;
                    cache.lock().insert(key, manifest.clone(), weight);
                    Ok(manifest)
                }
                .boxed()
            },
        );
        if let Err(fetch) = &found {
            self.kept_manifests.keep(&key, fetch);
        }
        found
    }

    /// The fetch of an index, shared by concurrent callers.
    fn index_fetch(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        key: &(String, IndexType),
    ) -> BoxFuture<'static, Result<Bytes, RemoteStorageError>> {
        let (storage, cache) = (self.storage.clone(), self.indexes.clone());
        let manifest = self.find_manifest(metadata);
        let likely_size = likely_offset_index_size(metadata);
        let key = key.clone();
        async move {
            let (object, index) = &key;
            let (manifest, front) = match manifest {
                Ok(manifest) => (manifest, Bytes::new()),
                // It is at the front of its object, so it does not have to wait for its place.
                Err(manifest) if *index == IndexType::Offset => {
                    let front = async {
                        let front = storage.get_range(object, 0..likely_size).await;
                        // An error of the object is found below, where it is requested again.
                        Ok::<_, RemoteStorageError>(front.unwrap_or_default())
                    };
                    future::try_join(manifest, front).await?
                }
                Err(manifest) => (manifest.await?, Bytes::new()),
            };
            let place = manifest.indexes.of(*index).and_then(|place| place.range());
            let Some(range) = place else {
                return Err(RemoteStorageError::new(
                    RemoteStorageErrorKind::NoIndex,
                    format!("fetch {}", storage.name(object)),
                    format_args!("the segment has no {}", index.name()),
                ));
            };
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            let wanted = range.end - range.start;
            let bytes = if range.end <= front.len() as u64 {
                // A slice would keep the whole front in memory.
                Bytes::copy_from_slice(&front[range.start as usize..range.end as usize])
            } else {
                storage.get_range(object, range.clone()).await?
            };
            let name = storage.name(object);
            if bytes.len() as u64 != wanted {
                let cause = format!(
                    "its {} has {} bytes instead of {wanted}",
                    index.name(),
                    bytes.len()
                );
                return Err(RemoteStorageError::damaged(&name, cause));
            }
            let data_key = manifest.data_key.as_ref();
            let bytes = restored_index(bytes, index.name(), range.start, data_key)
                .map_err(|error| RemoteStorageError::damaged(&name, error))?;
            let weight = bytes.len() as u64 + key.0.len() as u64 + ENTRY_BYTES;
            cache.lock().insert(key, bytes.clone(), weight);
            Ok(bytes)
        }
        .boxed()
    }
}

/// The size of an offset index in its object: eight bytes for each 4 KiB of the segment, unless
/// `index.interval.bytes` is less than its default, and what encryption adds. A larger one is fetched
/// once its place is known.
fn likely_offset_index_size(metadata: &RemoteLogSegmentMetadata) -> u64 {
    const ENTRY: u64 = 8;
    const INTERVAL: u64 = 4096;
    let size = u64::try_from(metadata.segment.segment_size_bytes).unwrap_or(0);
    (size / INTERVAL + 1) * ENTRY + (IV_SIZE + TAG_SIZE) as u64
}

#[async_trait]
impl RemoteStorageManager for ChunkedStorage {
    fn with_permit(self: Arc<Self>, permit: Permit) -> Arc<dyn RemoteStorageManager> {
        let shared = Arc::clone(&self.shared);
        Arc::new(ChunkedStorage { shared, permit })
    }

    async fn copy_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        data: &LogSegmentData,
    ) -> Result<Option<CustomMetadata>, RemoteStorageError> {
        let size = match self
            .shared
            .uploader
            .upload(metadata, data, &self.permit)
            .await
        {
            Ok(size) => size,
            Err(error) => {
                if let Err(left) = self.delete_log_segment_data(metadata).await {
                    tracing::warn!("{left}; the uploaded part of the segment stays there");
                }
                return Err(error);
            }
        };
        let includes = |field| self.shared.custom_metadata_fields.contains(&field);
        let fields = CustomMetadataFields {
            remote_size: includes(CustomMetadataField::RemoteSize).then_some(size as i64),
            object_prefix: includes(CustomMetadataField::ObjectPrefix)
                .then(|| self.shared.uploader.key_prefix.clone()),
            object_key: includes(CustomMetadataField::ObjectKey).then(|| main_path(metadata)),
        };
        let bytes = fields.encode();
        Ok((!bytes.is_empty()).then_some(CustomMetadata(bytes)))
    }

    async fn fetch_log_segment(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        start_position: u32,
        end_position: Option<u32>,
    ) -> Result<SegmentStream, RemoteStorageError> {
        let key = self.shared.key_for_reading(metadata, Suffix::Log)?;
        let manifest = self.shared.manifest(metadata).await?;
        let size = manifest.chunks.original_file_size();
        check_log_size(&self.shared.storage.name(&key), size, metadata)?;
        let end = end_position.map_or(size, |end| size.min(u64::from(end) + 1));
        let range = u64::from(start_position)..end;
        let chunks = &self.shared.chunks;
        Ok(chunks.read(&key, manifest, range, &self.permit))
    }

    async fn fetch_index(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Result<Bytes, RemoteStorageError> {
        let object = self.shared.key_for_reading(metadata, Suffix::Indexes)?;
        let key = (object, index);
        let found = self.shared.index_fetches.find_or_start(
            &key,
            || self.shared.indexes.lock().get(&key),
            || self.shared.index_fetch(metadata, &key),
        );
        match found {
            Ok(bytes) => Ok(bytes),
            Err(fetch) => {
                self.shared.kept_indexes.keep(&key, &fetch);
                fetch.await
            }
        }
    }

    async fn delete_log_segment_data(
        &self,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        // The manifest first: without it, the segment is no longer read.
        let keys = [Suffix::Manifest, Suffix::Indexes, Suffix::Log]
            .map(|suffix| self.shared.key(metadata, suffix));
        self.shared.manifests.lock().remove(&keys[0]);
        self.shared.storage.delete(&keys).await
    }

    async fn stored_objects(&self, metadata: &RemoteLogSegmentMetadata) -> Vec<StoredObject> {
        let manifest = self.shared.manifest(metadata).await;
        let mut objects = Vec::new();
        for suffix in Suffix::ALL {
            let expected_size_bytes = match (&manifest, suffix) {
                (Ok(manifest), Suffix::Log) => Some(manifest.chunks.transformed_file_size()),
                (Ok(manifest), Suffix::Indexes) => Some(manifest.indexes.end()),
                _ => None,
            };
            let key = match suffix {
                Suffix::Manifest => Ok(self.shared.key(metadata, suffix)),
                _ => self.shared.key_for_reading(metadata, suffix),
            };
            let (name, size_bytes) = match (key, &manifest) {
                // The object has an error besides its size.
                (Ok(key), Err(error)) if suffix == Suffix::Manifest => {
                    (self.shared.storage.name(&key), Err(error.clone()))
                }
                (Ok(key), _) => (
                    self.shared.storage.name(&key),
                    self.shared.storage.size(&key).await,
                ),
                (Err(error), _) => (
                    self.shared.storage.name(&self.shared.key(metadata, suffix)),
                    Err(error),
                ),
            };
            objects.push(StoredObject {
                name,
                size_bytes,
                expected_size_bytes,
            });
        }
        objects
    }

    fn location(&self) -> String {
        format!(
            "{}/{}",
            self.shared.storage.location(),
            self.shared.uploader.key_prefix
        )
    }
}

/// `size` is a number of manifests.
fn manifest_cache(settings: &CacheSettings) -> Cache<String, Arc<Manifest>> {
    let most = settings
        .size
        .map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let cache = BoundedCache::new(Some(MANIFEST_CACHE_BYTES), settings.retention);
    Arc::new(Mutex::new(cache.with_at_most(most)))
}

fn cache<K: std::hash::Hash + Eq, V: Clone>(settings: &CacheSettings) -> Cache<K, V> {
    Arc::new(Mutex::new(BoundedCache::new(
        settings.size,
        settings.retention,
    )))
}

fn prefetch(settings: &ChunkedSettings) -> Prefetch {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match &settings.chunk_cache {
        Some(chunks) => Prefetch {
            bytes: chunks.prefetch_max_size,
            at_once: chunks.cache.threads.unwrap_or(processors),
            at_longest: KEPT_FOR,
            get_timeout: chunks.cache.get_timeout,
        },
        None => Prefetch {
            bytes: 0,
            at_once: 1,
            at_longest: KEPT_FOR,
            get_timeout: std::time::Duration::from_secs(60),
        },
    }
}

fn read_keys(settings: &EncryptionSettings) -> Result<KeyRing, RemoteStorageError> {
    let text = |path: &std::path::Path| {
        let bytes =
            fs::read(path).map_err(|error| RemoteStorageError::local(path, "read", &error))?;
        Ok::<_, RemoteStorageError>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let mut pairs = Vec::new();
    for (id, public, private) in &settings.pairs {
        pairs.push((id.clone(), text(public)?, text(private)?));
    }
    KeyRing::new(&settings.active_pair, pairs)
        .map_err(|error| RemoteStorageError::settings("encryption.key.pairs", error))
}
