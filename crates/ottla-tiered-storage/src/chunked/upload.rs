//! The upload of one segment: log, indexes, manifest, in this order.
//!
//! Aiven's plugin: `KafkaRemoteStorageManager.copyLogSegmentData`.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use ottla_sync::{Mutex, fs};
use ottla_tiered::RemoteLogSegmentMetadata;

use super::chunk_index::ChunkIndex;
use super::data_key::DataKey;
use super::key_ring::KeyRing;
use super::manifest::{IndexPlaces, Manifest};
use super::object_key::{Suffix, key};
use super::rate_limit::RateLimit;
use super::transform::{ChunkTransform, sealed};
use crate::blocking::{Permit, blocking};
use crate::error::RemoteStorageError;
use crate::objects::{ObjectStorage, once};
use crate::remote_storage::LogSegmentData;

/// How segments are transformed and where they go.
pub struct Uploader {
    pub storage: Arc<ObjectStorage>,
    pub key_prefix: String,
    pub chunk_size: u32,
    pub compression: bool,
    pub compression_heuristic: bool,
    pub keys: Option<Arc<KeyRing>>,
    pub rate_limit: Option<Arc<RateLimit>>,
}

impl Uploader {
    /// Uploads a segment, and returns the bytes that it takes in the store.
    pub async fn upload(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        data: &LogSegmentData,
        permit: &Permit,
    ) -> Result<u64, RemoteStorageError> {
        let is_compressed = self.compression
            && !(self.compression_heuristic && is_compressed(&data.log_segment, permit).await?);
        let data_key = self.keys.as_ref().map(|_| DataKey::generate());
        let transform = ChunkTransform::new(self.chunk_size, is_compressed, data_key.clone());
        let object = |suffix| key(&self.key_prefix, metadata, suffix);

        let log = object(Suffix::Log);
        let (log_size, chunks) = self
            .upload_log(&log, &data.log_segment, transform, permit)
            .await?;
        let (indexes, places) = indexes(data, data_key.as_ref(), permit).await?;
        let indexes_key = object(Suffix::Indexes);
        let indexes_size = self.storage.upload(&indexes_key, once(indexes)).await?;
        let manifest = Manifest {
            chunks,
            indexes: places,
            is_compressed,
            data_key,
        };
        let manifest_key = object(Suffix::Manifest);
        let json = manifest
            .write(metadata, self.keys.as_deref())
            .map_err(|error| {
                RemoteStorageError::settings(&self.storage.name(&manifest_key), error)
            })?;
        let manifest_size = self.storage.upload(&manifest_key, once(json)).await?;
        Ok(log_size + indexes_size + manifest_size)
    }

    async fn upload_log(
        &self,
        object: &str,
        path: &Path,
        transform: ChunkTransform,
        permit: &Permit,
    ) -> Result<(u64, ChunkIndex), RemoteStorageError> {
        let file = blocking(permit.clone(), {
            let path = path.to_owned();
            move || {
                fs::File::open(&path)
                    .map_err(|error| RemoteStorageError::local(&path, "read", &error))
            }
        })
        .await?;
        let sizes = Arc::new(Mutex::new((0u64, Vec::new())));
        let source = stream::try_unfold((file, transform), |(mut file, mut transform)| {
            let (path, sizes, permit) = (path.to_owned(), sizes.clone(), permit.clone());
            async move {
                let (chunk, original, file, transform) = blocking(permit, move || {
                    let local =
                        |error: std::io::Error| RemoteStorageError::local(&path, "read", &error);
                    let mut counted = Counted {
                        file: &mut file,
                        bytes: 0,
                    };
                    let chunk = transform.next(&mut counted).map_err(local)?;
                    let original = counted.bytes;
                    Ok((chunk, original, file, transform))
                })
                .await?;
                let Some(chunk) = chunk else {
                    return Ok(None);
                };
                if let Some(limit) = &self.rate_limit {
                    limit.pass(original).await;
                }
                {
                    let mut sizes = sizes.lock();
                    sizes.0 += original;
                    sizes.1.push(chunk.len() as u32);
                }
                Ok(Some((chunk, (file, transform))))
            }
        });
        let size = self.storage.upload(object, source.boxed()).await?;
        let (original, sizes) = std::mem::take(&mut *sizes.lock());
        let index = ChunkIndex::new(self.chunk_size, original, &sizes)
            .map_err(|error| RemoteStorageError::damaged(&path.display().to_string(), error))?;
        Ok((size, index))
    }
}

/// A file that counts the bytes read from it.
struct Counted<'a> {
    file: &'a mut fs::File,
    bytes: u64,
}

impl std::io::Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The indexes object and the places in it.
async fn indexes(
    data: &LogSegmentData,
    key: Option<&DataKey>,
    permit: &Permit,
) -> Result<(Bytes, IndexPlaces), RemoteStorageError> {
    let (data, key) = (data.clone(), key.cloned());
    blocking(permit.clone(), move || {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| RemoteStorageError::local(path, "read", &error))
        };
        let mut object = Vec::new();
        let mut add = |index: Vec<u8>| {
            let before = object.len();
            // An index without content has no tag either.
            match &key {
                Some(key) if !index.is_empty() => object.extend(sealed(key, &index)),
                _ => object.extend(index),
            }
            (object.len() - before) as u32
        };
        let sizes = [
            add(read(&data.offset_index)?),
            add(read(&data.time_index)?),
            add(read(&data.producer_snapshot_index)?),
            add(data.leader_epoch_index.to_vec()),
        ];
        let transaction = match &data.transaction_index {
            Some(path) => Some(add(read(path)?)),
            None => None,
        };
        Ok((object.into(), IndexPlaces::of_sizes(sizes, transaction)))
    })
    .await
}

/// Whether the first batch of a segment is compressed. A segment that has none counts as compressed:
/// the plugin uploads it as it is.
async fn is_compressed(path: &Path, permit: &Permit) -> Result<bool, RemoteStorageError> {
    /// Where the attributes of a batch are, and how long they are.
    const ATTRIBUTES: std::ops::Range<usize> = 21..23;
    const CODEC: u16 = 0b111;
    let path = path.to_owned();
    blocking(permit.clone(), move || {
        use std::io::Read;
        let mut header = Vec::new();
        let file = fs::File::open(&path);
        file.and_then(|file| file.take(ATTRIBUTES.end as u64).read_to_end(&mut header))
            .map_err(|error| RemoteStorageError::local(&path, "read", &error))?;
        let attributes = header.get(ATTRIBUTES).and_then(|it| it.try_into().ok());
        Ok(attributes.is_none_or(|it| u16::from_be_bytes(it) & CODEC != 0))
    })
    .await
}
