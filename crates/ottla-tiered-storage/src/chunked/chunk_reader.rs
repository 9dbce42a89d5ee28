//! Chunks for readers: from the cache, from a fetch that another reader has started, or from the
//! store.
//!
//! Chunks are also fetched ahead of a sequential reader, into the cache. A reader that reads its
//! range to the end leaves those fetches running, because the next request will want them; when the
//! last reader of a segment goes before its end, they are cancelled. If the cache has no room for
//! chunks that nobody reads yet, none are fetched ahead.
//!
//! With a cache, a chunk that a reader waited for is fetched completely, even if the reader goes. A
//! consumer's fetch waits at most `remote.fetch.max.wait.ms` and then requests the same range
//! again; otherwise it would never get a chunk that takes longer. In Kafka, reads that have begun
//! continue.
//!
//! A cache in memory makes room for a chunk before it is requested, so that chunks in flight do not
//! come on top of its limit.
//!
//! Without a cache, only the requested bytes of a chunk are fetched if it is neither compressed nor
//! encrypted.
//!
//! Aiven's plugin: `ChunkCache`, `DefaultChunkManager`.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use ottla_sync::collections::HashMap;
use ottla_sync::{Mutex, Semaphore, task, time};

use super::chunk_index::Chunk;
use super::manifest::Manifest;
use super::transform::restored;
use crate::blocking::{Permit, blocking};
use crate::cache::{
    CachedChunk, ChunkCache, ChunkFile, ChunkKey, KeptFetches, SharedFetch, SharedFetches,
};
use crate::error::{RemoteStorageError, RemoteStorageErrorKind};
use crate::objects::ObjectStorage;
use crate::remote_storage::SegmentStream;

/// Chunks of one range that are fetched at once.
const CHUNKS_AT_ONCE: usize = 2;
/// Maximum number of chunks that are fetched completely for readers that may be gone: the chunks of
/// ten readers.
const KEPT_AT_ONCE: usize = 20;

/// The chunks of all segments.
pub struct ChunkReader {
    storage: Arc<ObjectStorage>,
    cache: Option<Arc<ChunkCache>>,
    fetches: SharedFetches<ChunkKey, Bytes>,
    /// Bytes of the segment ahead of a reader.
    prefetch: u64,
    /// Limits the concurrent prefetches.
    prefetch_permits: Arc<Semaphore>,
    prefetch_at_longest: Duration,
    get_timeout: Duration,
    readers: Arc<Mutex<HashMap<Arc<str>, Readers>>>,
    /// Chunks whose fetch continues without readers.
    kept: KeptFetches<ChunkKey>,
}

/// The readers of one object.
#[derive(Default)]
struct Readers {
    count: usize,
    prefetches: Vec<RunningPrefetch>,
}

struct RunningPrefetch {
    chunk: u32,
    /// The number that the cache has given it. A prefetch that was aborted may still end by itself, after
    /// the next one of its chunk has begun.
    prefetch: u64,
    task: task::AbortHandle,
}

/// What prefetching takes of the cache's settings.
#[derive(Clone, Copy, Debug)]
pub struct Prefetch {
    pub bytes: u64,
    pub at_once: usize,
    /// A prefetch that takes longer is given up, as [`KEPT_FOR`](crate::cache::KEPT_FOR) says.
    pub at_longest: Duration,
    pub get_timeout: Duration,
}

impl ChunkReader {
    pub fn new(
        storage: Arc<ObjectStorage>,
        cache: Option<Arc<ChunkCache>>,
        prefetch: Prefetch,
    ) -> ChunkReader {
        ChunkReader {
            storage,
            // Without a cache there is no place for prefetched chunks.
            prefetch: if cache.is_some() { prefetch.bytes } else { 0 },
            cache,
            fetches: SharedFetches::new(),
            prefetch_permits: Arc::new(Semaphore::new(prefetch.at_once.max(1))),
            prefetch_at_longest: prefetch.at_longest,
            get_timeout: prefetch.get_timeout,
            readers: Arc::default(),
            kept: KeptFetches::new(KEPT_AT_ONCE),
        }
    }

    /// The bytes of the segment in the range, which lies within the segment.
    pub fn read(
        self: &Arc<Self>,
        object: &str,
        manifest: Arc<Manifest>,
        Range { start, end }: Range<u64>,
        permit: &Permit,
    ) -> SegmentStream {
        let object: Arc<str> = object.into();
        let (Some(first), Some(last)) = (
            manifest.chunks.chunk_at(start),
            manifest.chunks.chunk_at(end.saturating_sub(1)),
        ) else {
            return stream::empty().boxed();
        };
        if start >= end {
            return stream::empty().boxed();
        }
        let guard = Reading::begin(self, &object);
        let (reader, permit) = (self.clone(), permit.clone());
        let parts = stream::iter(first.id..=last.id)
            .map(move |id| {
                let (reader, object, manifest) = (reader.clone(), object.clone(), manifest.clone());
                let permit = permit.clone();
                async move {
                    let chunk = manifest.chunks.chunk(id).expect("within the range");
                    reader.prefetch_after(&object, &manifest, &chunk);
                    let from = start.saturating_sub(chunk.original_position);
                    let to = chunk.original_end().min(end) - chunk.original_position;
                    let bytes = reader
                        .part(&object, &manifest, &chunk, from..to, &permit)
                        .await?;
                    Ok((id, bytes))
                }
            })
            .buffered(CHUNKS_AT_ONCE);
        // The guard moves with the stream, and records whether its end was reached.
        let mut guard = Some(guard);
        parts
            .map(move |part: Result<(u32, Bytes), RemoteStorageError>| {
                let (id, bytes) = part?;
                if id == last.id
                    && let Some(guard) = guard.take()
                {
                    guard.finish();
                }
                Ok(bytes)
            })
            .boxed()
    }

    /// Bytes of a chunk.
    async fn part(
        &self,
        object: &Arc<str>,
        manifest: &Arc<Manifest>,
        chunk: &Chunk,
        range: Range<u64>,
        permit: &Permit,
    ) -> Result<Bytes, RemoteStorageError> {
        let got = async {
            // There is no place for the rest of it.
            let is_same_size = chunk.transformed_size == chunk.original_size;
            if self.cache.is_none() && manifest.is_plain() && is_same_size {
                return self.fetch_part(object, chunk, range).await;
            }
            let bytes = loop {
                match self.find_or_fetch(object, manifest, chunk) {
                    Ok(CachedChunk::InMemory(bytes)) => break bytes,
                    Ok(CachedChunk::InFile(file)) => {
                        if let Some(bytes) = self.read_file(object, chunk, file, permit).await? {
                            break bytes;
                        }
                    }
                    Err(fetch) => {
                        self.keep(object, chunk, &fetch);
                        break fetch.await?;
                    }
                }
            };
            Ok(bytes.slice(range.start as usize..range.end as usize))
        };
        time::timeout(self.get_timeout, got)
            .await
            .unwrap_or_else(|_| {
                Err(RemoteStorageError::new(
                    RemoteStorageErrorKind::Unavailable,
                    format!("fetch {}", self.storage.name(object)),
                    format_args!(
                        "chunk {} did not arrive within {} ms",
                        chunk.id,
                        self.get_timeout.as_millis()
                    ),
                ))
            })
    }

    /// A chunk from its file. `None` if the file is not as it was written. Then the cache no longer has
    /// the chunk, and it can be fetched again.
    async fn read_file(
        &self,
        object: &Arc<str>,
        chunk: &Chunk,
        file: Arc<ChunkFile>,
        permit: &Permit,
    ) -> Result<Option<Bytes>, RemoteStorageError> {
        let key = ChunkKey {
            object: object.clone(),
            chunk: chunk.id,
        };
        let (cache, size) = (self.cache.clone(), chunk.original_size as usize);
        let read = move || {
            let read = file.read(size);
            if let (Err(error), Some(cache)) = (&read, &cache) {
                tracing::warn!("{error}; the chunk is fetched again");
                cache.remove_file(&key, &file);
            }
            Ok(read.ok())
        };
        blocking(permit.clone(), read).await
    }

    /// Bytes of a chunk that is in its object as it is in the segment.
    async fn fetch_part(
        &self,
        object: &str,
        chunk: &Chunk,
        range: Range<u64>,
    ) -> Result<Bytes, RemoteStorageError> {
        let from = chunk.transformed_range().start + range.start;
        let wanted = range.end - range.start;
        let bytes = self.storage.get_range(object, from..from + wanted).await?;
        if bytes.len() as u64 != wanted {
            let (id, size) = (chunk.id, bytes.len());
            let cause =
                format!("chunk {id} at byte {from}: it has {size} bytes instead of {wanted}");
            return Err(RemoteStorageError::damaged(
                &self.storage.name(object),
                cause,
            ));
        }
        Ok(bytes)
    }

    fn find_or_fetch(
        &self,
        object: &Arc<str>,
        manifest: &Arc<Manifest>,
        chunk: &Chunk,
    ) -> Result<CachedChunk, SharedFetch<Bytes>> {
        let key = ChunkKey {
            object: object.clone(),
            chunk: chunk.id,
        };
        let find = || self.cache.as_ref()?.find(&key);
        let start = || {
            let storage = self.storage.clone();
            let (cache, manifest) = (self.cache.clone(), manifest.clone());
            let (key, chunk) = (key.clone(), *chunk);
            fetch_chunk(storage, cache, manifest, key, chunk).boxed()
        };
        self.fetches.find_or_start(&key, find, start)
    }

    /// Has a chunk fetched to its end, unless too many are.
    fn keep(&self, object: &Arc<str>, chunk: &Chunk, fetch: &SharedFetch<Bytes>) {
        // Without a cache there is no place for it.
        if self.cache.is_none() {
            return;
        }
        let key = ChunkKey {
            object: object.clone(),
            chunk: chunk.id,
        };
        self.kept.keep(&key, fetch);
    }

    /// Starts the prefetches for a reader that is at this chunk, as far as the cache has room.
    fn prefetch_after(&self, object: &Arc<str>, manifest: &Arc<Manifest>, chunk: &Chunk) {
        let end = chunk.original_end() + self.prefetch;
        let Some(cache) = self.cache.as_ref().filter(|_| self.prefetch > 0) else {
            return;
        };
        let key_of = |chunk: u32| ChunkKey {
            object: object.clone(),
            chunk,
        };
        cache.on_reached(&key_of(chunk.id));
        let next = (chunk.id + 1..).map_while(|id| manifest.chunks.chunk(id));
        for ahead in next.take_while(|ahead| ahead.original_position < end) {
            let mut readers = self.readers.lock();
            let Some(state) = readers.get_mut(object) else {
                return;
            };
            if state.prefetches.iter().any(|it| it.chunk == ahead.id) {
                continue;
            }
            let Err(fetch) = self.find_or_fetch(object, manifest, &ahead) else {
                continue;
            };
            let size = u64::from(ahead.original_size);
            let Some(counted) = cache.prefetch(&key_of(ahead.id), size) else {
                return;
            };
            let (permits, at_longest) = (self.prefetch_permits.clone(), self.prefetch_at_longest);
            let (readers, object) = (self.readers.clone(), object.clone());
            let prefetch = counted.prefetch();
            let running = task::spawn(async move {
                let _counted = counted;
                // Made by the task itself: the starter holds the lock, and a runtime that ends drops a
                // task before it begins.
                let _listed = Listed {
                    readers,
                    object,
                    prefetch,
                };
                // The semaphore is never closed.
                let _permit = permits.acquire().await.ok();
                if let Ok(Err(error)) = time::timeout(at_longest, fetch).await {
                    tracing::debug!("fetching ahead: {error}");
                }
            });
            state.prefetches.push(RunningPrefetch {
                chunk: ahead.id,
                prefetch,
                task: running.abort_handle(),
            });
        }
    }
}

async fn fetch_chunk(
    storage: Arc<ObjectStorage>,
    cache: Option<Arc<ChunkCache>>,
    manifest: Arc<Manifest>,
    key: ChunkKey,
    chunk: Chunk,
) -> Result<Bytes, RemoteStorageError> {
    let size = u64::from(chunk.original_size);
    let is_disk = cache.as_ref().is_some_and(|cache| cache.is_on_disk());
    // A file takes its room when it is written.
    let room = match &cache {
        Some(cache) if !is_disk => Some(cache.make_room(size)),
        _ => None,
    };
    let bytes = storage
        .get_range(&key.object, chunk.transformed_range())
        .await?;
    let name = storage.name(&key.object);
    let is_plain = manifest.is_plain();
    let finish = move || {
        let data_key = manifest.data_key.as_ref();
        let bytes = restored(bytes, &chunk, manifest.is_compressed, data_key)
            .map_err(|error| RemoteStorageError::damaged(&name, error))?;
        if let Some(cache) = cache {
            let room = room.unwrap_or_else(|| cache.make_room(size));
            room.fill(key, &bytes);
        }
        Ok(bytes)
    };
    if is_plain && !is_disk {
        return finish();
    }
    // Milliseconds of processor time for a chunk, or a file. Several readers may wait for it, and later ones
    // may want it: it has no one's permit.
    blocking(Permit::default(), finish).await
}

/// A reader of an object; its drop before the end counts as its going away.
struct Reading {
    readers: Arc<Mutex<HashMap<Arc<str>, Readers>>>,
    object: Arc<str>,
    is_finished: bool,
}

impl Reading {
    fn begin(reader: &ChunkReader, object: &Arc<str>) -> Reading {
        let readers = reader.readers.clone();
        readers.lock().entry(object.clone()).or_default().count += 1;
        Reading {
            readers,
            object: object.clone(),
            is_finished: false,
        }
    }

    fn finish(mut self) {
        self.is_finished = true;
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut readers = self.readers.lock();
        let Some(state) = readers.get_mut(&self.object) else {
            return;
        };
        state.count -= 1;
        if state.count > 0 {
            return;
        }
        let aborted = match self.is_finished {
            true => Vec::new(),
            false => std::mem::take(&mut state.prefetches),
        };
        if state.prefetches.is_empty() {
            readers.remove(&self.object);
        }
        // A task that is dropped at once takes the lock.
        drop(readers);
        for prefetch in aborted {
            prefetch.task.abort();
        }
    }
}

/// A prefetch that has begun. It is taken off the list when this is dropped, also after a panic of its fetch:
/// its chunk would otherwise never be prefetched again.
struct Listed {
    readers: Arc<Mutex<HashMap<Arc<str>, Readers>>>,
    object: Arc<str>,
    prefetch: u64,
}

impl Drop for Listed {
    fn drop(&mut self) {
        forget(&self.readers, &self.object, self.prefetch);
    }
}

/// Takes a prefetch off the list of its object.
fn forget(readers: &Mutex<HashMap<Arc<str>, Readers>>, object: &Arc<str>, prefetch: u64) {
    let mut readers = readers.lock();
    if let Some(state) = readers.get_mut(object) {
        state.prefetches.retain(|it| it.prefetch != prefetch);
        if state.count == 0 && state.prefetches.is_empty() {
            readers.remove(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};
    use ottla_sync::simulation::{self, Config};

    use super::super::chunk_index::ChunkIndex;
    use super::super::manifest::IndexPlaces;
    use super::*;
    use crate::settings::{CacheSettings, ChunkCacheSettings};

    const CHUNK: u32 = 1000;

    /// A reader of a store that does not answer, with a cache of 5,000 bytes.
    fn silent(
        prefetch_bytes: u64,
        at_longest: Duration,
    ) -> (Arc<ChunkReader>, Arc<ChunkCache>, Arc<Manifest>) {
        let silent = ThrottleConfig {
            wait_get_per_call: Duration::from_secs(3600),
            ..ThrottleConfig::default()
        };
        let store = ThrottledStore::new(InMemory::new(), silent);
        let storage = ObjectStorage::new(Arc::new(store), "memory".to_owned(), 1 << 20);
        let settings = ChunkCacheSettings {
            cache: CacheSettings {
                size: Some(5000),
                retention: None,
                get_timeout: Duration::from_secs(60),
                threads: None,
            },
            path: None,
            prefetch_max_size: 0,
        };
        let cache = Arc::new(ChunkCache::open(&settings).unwrap());
        let prefetch = Prefetch {
            bytes: prefetch_bytes,
            at_once: 1,
            at_longest,
            get_timeout: settings.cache.get_timeout,
        };
        let reader = ChunkReader::new(Arc::new(storage), Some(cache.clone()), prefetch);
        let manifest = Arc::new(Manifest {
            chunks: ChunkIndex::new(CHUNK, 10_000, &[CHUNK; 10]).unwrap(),
            indexes: IndexPlaces::of_sizes([0; 4], None),
            is_compressed: false,
            data_key: None,
        });
        (Arc::new(reader), cache, manifest)
    }

    /// Chunks and numbers of the prefetches of an object that is read.
    fn listed(reader: &ChunkReader, object: &str) -> Vec<(u32, u64)> {
        let readers = reader.readers.lock();
        let state = readers.get(object).expect("it is read");
        let listed = state.prefetches.iter().map(|it| (it.chunk, it.prefetch));
        listed.collect()
    }

    #[tokio::test]
    async fn chunks_in_flight_do_not_come_on_top_of_the_cache() {
        let (reader, cache, manifest) = silent(0, Duration::from_secs(60));
        for chunk in 0..5 {
            let key = ChunkKey {
                object: "earlier".into(),
                chunk,
            };
            let bytes = Bytes::from(vec![0; CHUNK as usize]);
            cache.make_room(CHUNK.into()).fill(key, &bytes);
        }
        assert_eq!(cache.held_bytes(), (5000, 0));
        let mut stream = reader.read("later", manifest, 0..10_000, &Permit::default());
        let first = time::timeout(Duration::from_millis(50), stream.next()).await;
        assert!(first.is_err(), "the store does not answer");
        // Two chunks of the range are requested at once.
        assert_eq!(cache.held_bytes(), (3000, 2000));
    }

    #[tokio::test]
    async fn an_aborted_prefetch_that_ends_leaves_the_next_one_of_its_chunk_in_the_list() {
        let (reader, _cache, manifest) = silent(2000, Duration::from_secs(60));
        let object: Arc<str> = "log".into();
        let listed = || listed(&reader, &object);
        let soon = Duration::from_millis(20);
        let mut stream = reader.read(&object, manifest.clone(), 0..1000, &Permit::default());
        assert!(time::timeout(soon, stream.next()).await.is_err());
        let aborted = listed();
        assert_eq!(aborted.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2]);
        drop(stream);
        let mut stream = reader.read(&object, manifest, 0..1000, &Permit::default());
        assert!(time::timeout(soon, stream.next()).await.is_err());
        let running = listed();
        assert_eq!(running.iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2]);
        // The last step of tasks that the abort has met after the end of their fetch.
        for (_, prefetch) in aborted {
            forget(&reader.readers, &object, prefetch);
        }
        assert_eq!(listed(), running, "its readers can still abort it");
        for (_, prefetch) in running {
            forget(&reader.readers, &object, prefetch);
        }
        assert!(listed().is_empty());
    }

    #[tokio::test]
    async fn a_prefetch_that_panics_is_repeated() {
        let (reader, _cache, manifest) = silent(1000, Duration::from_secs(60));
        let key = ChunkKey {
            object: "log".into(),
            chunk: 1,
        };
        let panics = |()| -> Result<Bytes, RemoteStorageError> { panic!("of the fetch") };
        let start = || futures_util::future::ready(()).map(panics).boxed();
        let fetch = reader.fetches.find_or_start(&key, || None::<()>, start);
        let fetch = fetch.unwrap_err();
        let soon = Duration::from_millis(20);
        let mut first = reader.read("log", manifest.clone(), 0..1000, &Permit::default());
        assert!(time::timeout(soon, first.next()).await.is_err());
        assert!(listed(&reader, "log").is_empty());
        drop(fetch);
        let mut second = reader.read("log", manifest, 0..1000, &Permit::default());
        assert!(time::timeout(soon, second.next()).await.is_err());
        let again = listed(&reader, "log");
        assert_eq!(again.iter().map(|it| it.0).collect::<Vec<_>>(), [1]);
    }

    /// A simulated task is dropped by the thread that aborts it.
    #[test]
    fn the_last_reader_of_an_object_may_drop_its_prefetches_at_once() {
        let report = simulation::run(Config::new(1), || {
            let (reader, _cache, manifest) = silent(1000, Duration::from_secs(60));
            // The store would wait in real time.
            let _fetches = [0, 1].map(|chunk| {
                let key = ChunkKey {
                    object: "log".into(),
                    chunk,
                };
                let never = futures_util::future::pending::<Result<Bytes, RemoteStorageError>>();
                let start = || never.boxed();
                reader.fetches.find_or_start(&key, || None::<()>, start)
            });
            let reading = async move {
                let mut stream = reader.read("log", manifest, 0..1000, &Permit::default());
                let soon = Duration::from_millis(20);
                assert!(time::timeout(soon, stream.next()).await.is_err());
                assert_eq!(listed(&reader, "log").len(), 1);
                drop(stream);
                assert!(reader.readers.lock().is_empty());
            };
            task::Handle::current().block_on(reading);
        });
        report.unwrap();
    }

    #[tokio::test]
    async fn one_chunk_after_the_other_is_prefetched_and_given_up_if_it_hangs() {
        let (reader, cache, manifest) = silent(2000, Duration::from_secs(4));
        let mut stream = reader.read("log", manifest, 0..1000, &Permit::default());
        let first = time::timeout(Duration::from_millis(50), stream.next()).await;
        assert!(first.is_err(), "the store does not answer");
        // The one that the reader waits for, and one of the two after it.
        assert_eq!(cache.held_bytes(), (0, 2000));
        let given_up = async {
            while cache.held_bytes() != (0, 1000) {
                time::sleep(Duration::from_millis(10)).await;
            }
        };
        let limit = Duration::from_secs(60);
        time::timeout(limit, given_up).await.unwrap();
    }
}
