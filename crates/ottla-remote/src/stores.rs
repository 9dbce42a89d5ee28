//! The store of remote segments, and the index files that were read lately.
//!
//! Kafka keeps index files on disk (`RemoteIndexCache`); here they are in memory.

use std::sync::Arc;

use bytes::Bytes;
use ottla_sync::Mutex;
use ottla_tiered::{RemoteLogSegmentMetadata, StoreFailure};
use ottla_tiered_storage::{BoundedCache, IndexType, RemoteStorageError, RemoteStorageManager};
use ottla_types::Uuid;

use crate::settings::RemoteSettings;

/// The most memory for indexes, if the setting allows more: Kafka's default is meant for a disk.
const MAX_INDEX_BYTES: u64 = 64 << 20;

pub struct Stores {
    pub store: Arc<dyn RemoteStorageManager>,
    indexes: Mutex<BoundedCache<(Uuid, IndexType), Bytes>>,
}

impl Stores {
    pub fn new(store: Arc<dyn RemoteStorageManager>, settings: &RemoteSettings) -> Stores {
        let limit = settings.index_cache_bytes.min(MAX_INDEX_BYTES);
        Stores {
            store,
            indexes: Mutex::new(BoundedCache::new(Some(limit), None)),
        }
    }

    /// A whole index, from the cache or from the store.
    pub async fn index(
        &self,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Result<Bytes, RemoteStorageError> {
        let key = (metadata.segment.id, index);
        if let Some(known) = self.indexes.lock().get(&key) {
            return Ok(known);
        }
        let bytes = self.store.fetch_index(metadata, index).await?;
        let weight = bytes.len() as u64 + 64;
        drop(self.indexes.lock().insert(key, bytes.clone(), weight));
        Ok(bytes)
    }
}

/// How a decision sees a failure.
pub fn failure_of(error: &RemoteStorageError) -> StoreFailure {
    match error.is_retriable() {
        true => StoreFailure::Retriable,
        false => StoreFailure::Permanent,
    }
}
