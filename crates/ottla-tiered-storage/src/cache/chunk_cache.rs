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
use ottla_sync::collections::HashMap;
use ottla_sync::{Mutex, fs};

use super::bounded_cache::BoundedCache;
use crate::error::RemoteStorageError;
use crate::settings::ChunkCacheSettings;

/// For this many bytes of its limit, a cache holds one chunk, but a few in any case. A chunk takes a few hundred
/// bytes of memory besides its own, for its entry and its key: with very small chunks, they would take many
/// times the limit.
const BYTES_PER_CHUNK: u64 = 8 << 10;
const LEAST_CHUNKS: usize = 64;

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
    /// Reads the chunk, which has this size. Others may have changed or deleted the file. Blocks.
    pub fn read(&self, size: usize) -> Result<Bytes, RemoteStorageError> {
        let bytes = fs::read(&self.path)
            .map_err(|error| RemoteStorageError::local(&self.path, "read", &error))?;
        if bytes.len() != size {
            let cause = format!("it has {} bytes instead of {size}", bytes.len());
            let name = self.path.display().to_string();
            return Err(RemoteStorageError::damaged(&name, cause));
        }
        Ok(bytes.into())
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
    state: Mutex<State>,
    directory: Option<PathBuf>,
    next_file: AtomicU64,
}

struct State {
    chunks: BoundedCache<ChunkKey, CachedChunk>,
    /// Chunks that are prefetched or were, and that no reader has reached yet.
    ahead: HashMap<ChunkKey, Unreached>,
    /// Of all of them.
    ahead_bytes: u64,
    /// Prefetches that have begun.
    prefetches: u64,
}

struct Unreached {
    bytes: u64,
    /// The last prefetch of the chunk. An earlier one may end after it has begun: its reader has gone,
    /// and the next one wants the same chunk.
    prefetch: u64,
}

impl State {
    fn forget_ahead(&mut self, key: &ChunkKey) {
        if let Some(unreached) = self.ahead.remove(key) {
            self.ahead_bytes -= unreached.bytes;
        }
    }

    fn forget_all_ahead(&mut self, gone: &[(ChunkKey, CachedChunk)]) {
        for (key, _) in gone {
            self.forget_ahead(key);
        }
    }
}

impl ChunkCache {
    pub fn open(settings: &ChunkCacheSettings) -> Result<ChunkCache, RemoteStorageError> {
        if let Some(path) = &settings.path {
            empty(path)?;
        }
        let cache = &settings.cache;
        let most = cache.size.map(|size| {
            let most = usize::try_from(size / BYTES_PER_CHUNK).unwrap_or(usize::MAX);
            most.max(LEAST_CHUNKS)
        });
        Ok(ChunkCache {
            state: Mutex::new(State {
                chunks: BoundedCache::new(cache.size, cache.retention).with_at_most(most),
                ahead: HashMap::default(),
                ahead_bytes: 0,
                prefetches: 0,
            }),
            directory: settings.path.clone(),
            next_file: AtomicU64::new(0),
        })
    }

    pub fn find(&self, key: &ChunkKey) -> Option<CachedChunk> {
        self.state.lock().chunks.get(key)
    }

    /// Removes a chunk whose file cannot be used, unless it has another file by now. Blocks.
    pub fn remove_file(&self, key: &ChunkKey, unusable: &Arc<ChunkFile>) {
        let gone = {
            let mut state = self.state.lock();
            match state.chunks.get(key) {
                Some(CachedChunk::InFile(file)) if Arc::ptr_eq(&file, unusable) => {
                    state.forget_ahead(key);
                    state.chunks.remove(key)
                }
                _ => None,
            }
        };
        // Files are deleted outside the lock.
        drop(gone);
    }

    /// Whether a chunk may be prefetched. Chunks that no reader has reached take at most half of the
    /// cache, in bytes and in number, and only what chunks in flight leave. Otherwise they would
    /// displace each other before they are read, and each would be fetched twice.
    pub fn prefetch(self: &Arc<Self>, key: &ChunkKey, bytes: u64) -> Option<Ahead> {
        let mut state = self.state.lock();
        let counted = state.ahead.get(key).map(|unreached| unreached.bytes);
        let ahead_bytes = state.ahead_bytes - counted.unwrap_or(0) + bytes;
        if let Some(limit) = state.chunks.limit()
            && (ahead_bytes > limit / 2 || state.chunks.reserved() + ahead_bytes > limit)
        {
            return None;
        }
        if let Some(most) = state.chunks.most()
            && counted.is_none()
            && state.ahead.len() >= most / 2
        {
            return None;
        }
        state.prefetches += 1;
        let prefetch = state.prefetches;
        let unreached = Unreached { bytes, prefetch };
        state.ahead.insert(key.clone(), unreached);
        state.ahead_bytes = ahead_bytes;
        drop(state);
        Some(Ahead {
            cache: self.clone(),
            key: key.clone(),
            prefetch,
        })
    }

    /// A reader has reached this chunk.
    pub fn on_reached(&self, key: &ChunkKey) {
        self.state.lock().forget_ahead(key);
    }

    /// What the chunks weigh that are there, and those that are fetched.
    #[cfg(test)]
    pub fn held_bytes(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.chunks.weight(), state.chunks.reserved())
    }

    /// Whether putting a chunk in writes a file.
    pub fn is_on_disk(&self) -> bool {
        self.directory.is_some()
    }

    /// Evicts chunks until another one fits. With a directory, it blocks.
    ///
    /// Fetches that exceed the limit by themselves continue: their readers wait for them.
    pub fn make_room(self: &Arc<Self>, bytes: u64) -> Room {
        let gone = {
            let mut state = self.state.lock();
            let gone = state.chunks.reserve(bytes);
            state.forget_all_ahead(&gone);
            gone
        };
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
            let mut state = self.cache.state.lock();
            state.chunks.release(std::mem::take(&mut self.bytes));
            let gone = state.chunks.insert(key, cached, chunk.len() as u64);
            state.forget_all_ahead(&gone);
            gone
        };
        // Files are deleted outside the lock.
        drop(gone);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.cache.state.lock().chunks.release(self.bytes);
    }
}

/// A chunk that is being prefetched. If it is not in the cache when this is dropped, because its
/// fetch failed or was cancelled, it no longer counts.
pub struct Ahead {
    cache: Arc<ChunkCache>,
    key: ChunkKey,
    prefetch: u64,
}

impl Ahead {
    /// The number of the prefetch among all of the cache.
    pub fn prefetch(&self) -> u64 {
        self.prefetch
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        let last = state.ahead.get(&self.key);
        let is_last = last.is_some_and(|last| last.prefetch == self.prefetch);
        if is_last && !state.chunks.contains(&self.key) {
            state.forget_ahead(&self.key);
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
    fn very_small_chunks_do_not_take_a_multiple_of_the_limit() {
        for (limit, most) in [(1000, 64), (1 << 20, 128)] {
            let cache = open(limit, None);
            for chunk in 0..1000 {
                let room = cache.make_room(1);
                room.fill(key(chunk), &Bytes::from_static(b"1"));
            }
            assert_eq!(cache.held_bytes(), (most, 0));
            assert!(cache.find(&key(999)).is_some(), "the last ones stay");
        }
    }

    #[test]
    fn prefetched_chunks_take_half_of_the_cache_until_they_are_read() {
        let cache = open(100, None);
        let bytes = Bytes::from(vec![0; 20]);
        let arrived = |chunk| {
            let ahead = cache.prefetch(&key(chunk), 20);
            let ahead = ahead.unwrap_or_else(|| panic!("no room for chunk {chunk}"));
            cache.make_room(20).fill(key(chunk), &bytes);
            drop(ahead);
        };
        arrived(0);
        arrived(1);
        assert!(cache.prefetch(&key(2), 20).is_none());
        cache.on_reached(&key(0));
        // Its fetch fails.
        drop(cache.prefetch(&key(2), 20).expect("one was read"));
        arrived(3);
        assert!(cache.prefetch(&key(4), 20).is_none());
        // Displaced before anybody read it.
        let rooms = [0; 4].map(|_| cache.make_room(20));
        assert_eq!(cache.held_bytes(), (20, 80));
        assert!(cache.find(&key(0)).is_none() && cache.find(&key(1)).is_none());
        // Chunks in flight take the rest.
        assert!(cache.prefetch(&key(6), 20).is_none());
        drop(rooms);
        assert!(cache.prefetch(&key(6), 20).is_some());
    }

    #[test]
    fn prefetched_chunks_that_are_very_small_do_not_displace_each_other() {
        // It holds 64 chunks.
        let cache = open(1000, None);
        let prefetch = |chunk| {
            let ahead = cache.prefetch(&key(chunk), 1)?;
            let room = cache.make_room(1);
            room.fill(key(chunk), &Bytes::from_static(b"1"));
            drop(ahead);
            Some(())
        };
        let prefetched = (0..100).filter(|chunk| prefetch(*chunk).is_some());
        assert_eq!(prefetched.count(), 32);
        assert!(cache.find(&key(0)).is_some(), "the one that is read next");
        let again = cache.prefetch(&key(0), 1);
        assert!(again.is_some(), "it counts already");
        cache.on_reached(&key(0));
        assert!(prefetch(32).is_some());
        assert!(prefetch(33).is_none());
    }

    #[test]
    fn a_chunk_that_is_prefetched_again_counts_once_and_until_then() {
        let cache = open(100, None);
        let gone = cache.prefetch(&key(0), 40).expect("half has room");
        let again = cache.prefetch(&key(0), 40).expect("it counts once");
        // The task of a reader that has gone ends later than the next reader begins.
        drop(gone);
        assert!(cache.prefetch(&key(1), 20).is_none());
        drop(again);
        assert!(cache.prefetch(&key(1), 20).is_some());
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
        assert_eq!(held.read(6).unwrap(), "123456");
        // Another reader had the chunk fetched again.
        cache.remove_file(&key(1), &held);
        let Some(CachedChunk::InFile(current)) = cache.find(&key(1)) else {
            panic!("the file is not the one that cannot be used");
        };
        drop(held);
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["1.chunk", "mine.txt"]);
        cache.remove_file(&key(1), &current);
        assert!(cache.find(&key(1)).is_none());
        drop(current);
        assert!(!dir.path().join("1.chunk").exists());
    }
}
