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

/// Chunks by their keys, bounded in bytes of the segment. In memory, a chunk that is being fetched
/// counts too.
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

    /// What the chunks weigh that are there, and those that are fetched.
    #[cfg(test)]
    pub fn held_bytes(&self) -> (u64, u64) {
        let chunks = self.chunks.lock();
        (chunks.weight(), chunks.reserved())
    }

    /// Whether putting a chunk in writes a file.
    pub fn is_on_disk(&self) -> bool {
        self.directory.is_some()
    }

    /// Evicts chunks until another one fits. With a directory, it blocks.
    ///
    /// Fetches that exceed the limit by themselves continue: their readers wait for them.
    pub fn make_room(self: &Arc<Self>, bytes: u64) -> Room {
        let gone = self.chunks.lock().reserve(bytes);
        // Files are deleted outside the lock.
        drop(gone);
        Room {
            cache: self.clone(),
            bytes,
        }
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

/// Room for a chunk that is not there yet. Given back when it is dropped.
pub struct Room {
    cache: Arc<ChunkCache>,
    bytes: u64,
}

impl Room {
    /// Keeps a chunk. With a directory, it blocks. A chunk that cannot be written is not kept.
    pub fn fill(mut self, key: ChunkKey, chunk: &Bytes) {
        let cached = match &self.cache.directory {
            None => CachedChunk::InMemory(chunk.clone()),
            Some(directory) => match self.cache.write(directory, chunk) {
                Ok(file) => CachedChunk::InFile(Arc::new(file)),
                Err(error) => {
                    tracing::warn!("{error}; the chunk is not cached");
                    return;
                }
            },
        };
        let gone = {
            let mut chunks = self.cache.chunks.lock();
            chunks.release(std::mem::take(&mut self.bytes));
            chunks.insert(key, cached, chunk.len() as u64)
        };
        // Files are deleted outside the lock.
        drop(gone);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.cache.chunks.lock().release(self.bytes);
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

    fn open(size: u64, path: Option<&Path>) -> Arc<ChunkCache> {
        let cache = ChunkCache::open(&ChunkCacheSettings {
            cache: CacheSettings {
                size: Some(size),
                retention: None,
                get_timeout: Duration::from_secs(1),
                threads: None,
            },
            path: path.map(Path::to_owned),
            prefetch_max_size: 0,
        });
        Arc::new(cache.unwrap())
    }

    fn key(chunk: u32) -> ChunkKey {
        ChunkKey {
            object: "log".into(),
            chunk,
        }
    }

    #[test]
    fn a_chunk_counts_from_the_start_of_its_fetch() {
        let cache = open(10, None);
        let (first, second) = (cache.make_room(6), cache.make_room(4));
        assert_eq!(cache.held_bytes(), (0, 10));
        first.fill(key(0), &Bytes::from_static(b"123456"));
        assert_eq!(cache.held_bytes(), (6, 4));
        // Its fetch failed.
        drop(second);
        assert_eq!(cache.held_bytes(), (6, 0));
        let third = cache.make_room(6);
        assert_eq!(cache.held_bytes(), (0, 6));
        assert!(cache.find(&key(0)).is_none());
        third.fill(key(1), &Bytes::from_static(b"abcdef"));
        assert_eq!(cache.held_bytes(), (6, 0));
    }

    #[test]
    fn a_displaced_file_is_deleted_when_its_last_reader_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("7.chunk"), "old").unwrap();
        std::fs::write(dir.path().join("mine.txt"), "kept").unwrap();
        let cache = open(10, Some(dir.path()));
        let put = |chunk, bytes: &'static [u8]| {
            let room = cache.make_room(6);
            room.fill(key(chunk), &Bytes::from_static(bytes));
        };
        put(0, b"123456");
        let Some(CachedChunk::InFile(held)) = cache.find(&key(0)) else {
            panic!("not in a file");
        };
        put(1, b"abcdef");
        assert!(cache.find(&key(0)).is_none());
        assert_eq!(cache.held_bytes(), (6, 0));
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
