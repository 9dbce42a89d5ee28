//! The store of remote segments, the threads for work at it, and the index files that were read
//! lately.
//!
//! Connections to the store, checks of batches, decryption, compression and the copies in between
//! take much processor time, and nobody waits for a single one of them for long. They run on
//! threads of their own, which the program may give a low priority; connections also send responses
//! with these records there (`ottla-net`). So the kernel lets the threads that serve producers and
//! consumers of new records run first. Nothing on these threads takes a run token of a partition or
//! a lock that an append takes: the append would wait at their priority.
//!
//! Kafka keeps index files on disk (`RemoteIndexCache`); here they are in memory.

use std::sync::Arc;

use bytes::Bytes;
use ottla_sync::task::{Handle, JoinHandle};
use ottla_sync::{BoxFuture, Mutex};
use ottla_tiered::{CustomMetadata, RemoteLogSegmentMetadata, StoreFailure};
use ottla_tiered_storage::{
    BoundedCache, ENTRY_BYTES, IndexType, LogSegmentData, Permit, RemoteStorageError,
    RemoteStorageManager,
};
use ottla_types::Uuid;

use crate::settings::RemoteSettings;

/// The most memory for indexes, if the setting allows more: Kafka's default is meant for a disk.
const MAX_INDEX_BYTES: u64 = 64 << 20;

pub struct Stores {
    store: Arc<dyn RemoteStorageManager>,
    indexes: Mutex<BoundedCache<(Uuid, IndexType), Bytes>>,
    /// Work at the store runs there.
    threads: Handle,
}

impl Stores {
    pub fn new(
        store: Arc<dyn RemoteStorageManager>,
        settings: &RemoteSettings,
        threads: Handle,
    ) -> Arc<Stores> {
        let limit = settings.index_cache_bytes.min(MAX_INDEX_BYTES);
        Arc::new(Stores {
            store,
            indexes: Mutex::new(BoundedCache::new(Some(limit), None)),
            threads,
        })
    }

    /// Runs work at the store on its threads. If this is dropped, the work ends where it next waits, and holds
    /// the permit until then.
    pub async fn run<T: Send + 'static>(
        &self,
        permit: &Permit,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        run_on(&self.threads, permit, Box::pin(work)).await
    }

    /// For work that already runs on the threads of the store.
    pub fn store(&self, permit: &Permit) -> Arc<dyn RemoteStorageManager> {
        Arc::clone(&self.store).with_permit(permit.clone())
    }

    /// A whole index, from the cache or from the store.
    pub async fn index(
        self: &Arc<Self>,
        permit: &Permit,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Result<Bytes, RemoteStorageError> {
        let (stores, metadata, held) = (Arc::clone(self), metadata.clone(), permit.clone());
        let reading = async move { stores.index_here(&held, &metadata, index).await };
        self.run(permit, reading).await
    }

    /// As [`Stores::index`], for work that already runs on the threads of the store.
    pub async fn index_here(
        &self,
        permit: &Permit,
        metadata: &RemoteLogSegmentMetadata,
        index: IndexType,
    ) -> Result<Bytes, RemoteStorageError> {
        let key = (metadata.segment.id, index);
        if let Some(known) = self.indexes.lock().get(&key) {
            return Ok(known);
        }
        let bytes = self.store(permit).fetch_index(metadata, index).await?;
        let weight = bytes.len() as u64 + ENTRY_BYTES;
        drop(self.indexes.lock().insert(key, bytes.clone(), weight));
        Ok(bytes)
    }

    /// Copies a segment to the store.
    pub async fn copy(
        &self,
        permit: &Permit,
        metadata: &RemoteLogSegmentMetadata,
        data: LogSegmentData,
    ) -> Result<Option<CustomMetadata>, RemoteStorageError> {
        let (store, metadata) = (self.store(permit), metadata.clone());
        let copying = async move { store.copy_log_segment_data(&metadata, &data).await };
        self.run(permit, copying).await
    }

    /// Deletes the objects of a segment.
    pub async fn delete(
        &self,
        permit: &Permit,
        metadata: &RemoteLogSegmentMetadata,
    ) -> Result<(), RemoteStorageError> {
        let (store, metadata) = (self.store(permit), metadata.clone());
        let deleting = async move { store.delete_log_segment_data(&metadata).await };
        self.run(permit, deleting).await
    }

    /// The broker stops, and does not use the store any more.
    pub async fn close(&self) -> Result<(), RemoteStorageError> {
        self.store.close().await
    }
}

async fn run_on<T: Send + 'static>(
    threads: &Handle,
    permit: &Permit,
    work: BoxFuture<'static, T>,
) -> T {
    let permit = permit.clone();
    let mut running = Running(threads.spawn(async move {
        let _permit = permit;
        work.await
    }));
    match (&mut running.0).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The threads have ended, because the process ends.
        Err(_) => std::future::pending().await,
    }
}

/// Work whose result is no longer wanted when this is dropped.
struct Running<T>(JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a decision sees a failure.
pub fn failure_of(error: &RemoteStorageError) -> StoreFailure {
    match error.is_retriable() {
        true => StoreFailure::Retriable,
        false => StoreFailure::Permanent,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ottla_sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Tells when it is dropped.
    struct Guard(Arc<AtomicBool>);

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[tokio::test]
    async fn work_runs_on_its_own_threads_and_ends_with_its_caller() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("of the store")
            .build()
            .unwrap();
        let threads = {
            let _entered = runtime.enter();
            Handle::current()
        };
        let name = async { std::thread::current().name().map(str::to_owned) };
        let name = run_on(&threads, &Permit::default(), Box::pin(name)).await;
        assert_eq!(name.as_deref(), Some("of the store"));

        let has_ended = Arc::new(AtomicBool::new(false));
        let permit = Permit::new(Guard(Arc::clone(&has_ended)));
        // It does not wait for anything at first, as decompression does not.
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = ottla_sync::oneshot::channel();
        let never = async move {
            let _ = begin.send(());
            let _ = may_end.recv();
            std::future::pending::<()>().await;
        };
        let caller = async {
            let permit = permit;
            run_on(&threads, &permit, Box::pin(never)).await;
        };
        // The caller goes while it works.
        ottla_sync::select! {
            () = caller => unreachable!("it never ends"),
            begun = begun => begun.unwrap(),
        }
        assert!(
            !has_ended.load(Ordering::Acquire),
            "the work has the permit"
        );
        drop(end);
        let ended = async {
            while !has_ended.load(Ordering::Acquire) {
                ottla_sync::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let limit = Duration::from_secs(10);
        ottla_sync::time::timeout(limit, ended).await.unwrap();
        runtime.shutdown_background();
    }
}
