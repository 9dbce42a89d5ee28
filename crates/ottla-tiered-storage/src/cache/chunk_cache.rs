//! Chunks that were read, in memory or in files.
//!
//! The files are below the configured directory, which is emptied when the cache is opened: files
//! of an earlier process are useless. A file is written under another name first.
//!
//! Aiven's plugin: `MemoryChunkCache`, `DiskChunkCache`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ottla_sync::atomic::{AtomicU64, Ordering};
use ottla_sync::{Mutex, fs};

use super::bounded_cache::BoundedCache;
use crate::error::RemoteStorageError;
use crate::settings::ChunkCacheSettings;

/// A chunk of an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ChunkKey {
    pub object: Arc<str>,
    pub chunk: u32,
}

/// A chunk that was found.
#[derive(Clone, Debug)]
pub enum CachedChunk {
    InMemory(Bytes),
    /// Deleted with its last reference; readers that hold a displaced file can still read it.
    InFile(Arc<ChunkFile>),
}

/// Deletes its file when it is dropped.
#[derive(Debug)]
pub struct ChunkFile {
    path: PathBuf,
}

impl ChunkFile {
    /// Blocks.
    pub fn read(&self) -> Result<Bytes, RemoteStorageError> {
        fs::read(&self.path)
            .map(Bytes::from)
            .map_err(|error| RemoteStorageError::local(&self.path, "read", &error))
    }
}

impl Drop for ChunkFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(
                "{}",
                RemoteStorageError::local(&self.path, "delete", &error)
            );
        }
    }
}

/// Chunks by their keys, bounded in bytes of the segment.
pub struct ChunkCache {
    chunks: Mutex<BoundedCache<ChunkKey, CachedChunk>>,
    directory: Option<PathBuf>,
    next_file: AtomicU64,
}

impl ChunkCache {
    pub fn open(settings: &ChunkCacheSettings) -> Result<ChunkCache, RemoteStorageError> {
        if let Some(path) = &settings.path {
            empty(path)?;
        }
        let cache = &settings.cache;
        Ok(ChunkCache {
            chunks: Mutex::new(BoundedCache::new(cache.size, cache.retention)),
            directory: settings.path.clone(),
            next_file: AtomicU64::new(0),
        })
    }

    pub fn find(&self, key: &ChunkKey) -> Option<CachedChunk> {
        self.chunks.lock().get(key)
    }

    /// Whether putting a chunk in writes a file.
    pub fn is_on_disk(&self) -> bool {
        self.directory.is_some()
    }

    /// Keeps a chunk. With a directory, it blocks. A chunk that cannot be written is not kept.
    pub fn insert(&self, key: ChunkKey, chunk: &Bytes) {
        let weight = chunk.len() as u64;
        let cached = match &self.directory {
            // A slice would keep the buffer that it is of.
            None => CachedChunk::InMemory(chunk.clone()),
            Some(directory) => match self.write(directory, chunk) {
                Ok(file) => CachedChunk::InFile(Arc::new(file)),
                Err(error) => {
                    tracing::warn!("{error}; the chunk is not cached");
                    return;
                }
            },
        };
        let gone = self.chunks.lock().insert(key, cached, weight);
        // Files are deleted outside the lock.
        drop(gone);
    }

    fn write(&self, directory: &Path, chunk: &Bytes) -> Result<ChunkFile, RemoteStorageError> {
        use std::io::Write;
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{number}.chunk"));
        let written = fs::File::create(&path).and_then(|mut file| file.write_all(chunk));
        // Owns the file from here on, and deletes half a file.
        let file = ChunkFile { path };
        match written {
            Ok(()) => Ok(file),
            Err(error) => Err(RemoteStorageError::local(&file.path, "write", &error)),
        }
    }
}

/// Deletes the files of an earlier cache, and nothing else.
fn empty(directory: &Path) -> Result<(), RemoteStorageError> {
    let failed = |error: std::io::Error| RemoteStorageError::local(directory, "empty", &error);
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "chunk")
        {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CacheSettings;
    use std::time::Duration;

    #[test]
    fn a_displaced_file_is_deleted_when_its_last_reader_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("7.chunk"), "old").unwrap();
        std::fs::write(dir.path().join("mine.txt"), "kept").unwrap();
        let cache = ChunkCache::open(&ChunkCacheSettings {
            cache: CacheSettings {
                size: Some(10),
                retention: None,
                get_timeout: Duration::from_secs(1),
                threads: None,
            },
            path: Some(dir.path().to_owned()),
            prefetch_max_size: 0,
        })
        .unwrap();
        let key = |chunk| ChunkKey {
            object: "log".into(),
            chunk,
        };
        cache.insert(key(0), &Bytes::from_static(b"123456"));
        let Some(CachedChunk::InFile(held)) = cache.find(&key(0)) else {
            panic!("not in a file");
        };
        cache.insert(key(1), &Bytes::from_static(b"abcdef"));
        assert!(cache.find(&key(0)).is_none());
        assert_eq!(cache.chunks.lock().weight(), 6);
        assert_eq!(held.read().unwrap(), "123456");
        drop(held);
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["1.chunk", "mine.txt"]);
    }
}
