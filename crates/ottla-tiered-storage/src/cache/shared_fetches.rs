//! One fetch at a time for a key: concurrent callers share its result.
//!
//! Only the waiting callers own a fetch. When the last of them is gone, the fetch is dropped, and
//! with it the request to the store, unless the fetch is kept.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use ottla_sync::atomic::{AtomicU64, Ordering};
use ottla_sync::collections::{HashMap, HashSet};
use ottla_sync::{Mutex, task, time};

use crate::error::RemoteStorageError;

/// A fetch that runs while a caller polls it.
pub type SharedFetch<V> = Shared<BoxFuture<'static, Result<V, RemoteStorageError>>>;

type Weak<V> = WeakShared<BoxFuture<'static, Result<V, RemoteStorageError>>>;
type Running<K, V> = Arc<Mutex<HashMap<K, (u64, Weak<V>)>>>;

/// The fetches that run.
pub struct SharedFetches<K, V: Clone> {
    running: Running<K, V>,
    /// Distinguishes a fetch from a later one of the same key.
    next_id: AtomicU64,
}

impl<K, V> SharedFetches<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub fn new() -> SharedFetches<K, V> {
        SharedFetches {
            running: Arc::default(),
            next_id: AtomicU64::new(0),
        }
    }

    /// Returns the running fetch of the key, otherwise the result of `find`, otherwise a new fetch. `find` is called
    /// under the lock that the end of a fetch takes, so that nothing is fetched twice.
    pub fn find_or_start<T>(
        &self,
        key: &K,
        find: impl FnOnce() -> Option<T>,
        start: impl FnOnce() -> BoxFuture<'static, Result<V, RemoteStorageError>>,
    ) -> Result<T, SharedFetch<V>> {
        let mut running = self.running.lock();
        if let Some(fetch) = running.get(key).and_then(|(_, fetch)| fetch.upgrade()) {
            return Err(fetch);
        }
        if let Some(found) = find() {
            return Ok(found);
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let end = End {
            running: self.running.clone(),
            key: key.clone(),
            id,
        };
        let work = start();
        let fetch = async move {
            let _end = end;
            work.await
        }
        .boxed()
        .shared();
        if let Some(weak) = fetch.downgrade() {
            running.insert(key.clone(), (id, weak));
        }
        Err(fetch)
    }

    #[cfg(test)]
    fn is_running(&self, key: &K) -> bool {
        let running = self.running.lock();
        running
            .get(key)
            .is_some_and(|(_, fetch)| fetch.upgrade().is_some())
    }
}

/// How long a fetch is kept, so that a new attempt is made if it hangs. A chunk of 4 MiB takes as long at
/// 14 KiB per second.
pub const KEPT_FOR: Duration = Duration::from_secs(300);

/// Fetches that run to completion even if their callers are gone.
///
/// A consumer's fetch waits at most `remote.fetch.max.wait.ms` and then requests the same range again. Without kept
/// fetches, it would never get data that takes longer. The result must have a place in a cache.
///
/// A fetch that hangs is dropped after a while. Otherwise every caller would join it, and no new attempt would be made.
pub struct KeptFetches<K> {
    at_most: usize,
    at_longest: Duration,
    kept: Arc<Mutex<HashSet<K>>>,
}

impl<K: Hash + Eq + Clone + Send + 'static> KeptFetches<K> {
    pub fn new(at_most: usize) -> KeptFetches<K> {
        KeptFetches {
            at_most,
            at_longest: KEPT_FOR,
            kept: Arc::default(),
        }
    }

    /// Lets a fetch run to completion, unless too many do already.
    pub fn keep<V>(&self, key: &K, fetch: &SharedFetch<V>)
    where
        V: Clone + Send + Sync + 'static,
    {
        {
            let mut kept = self.kept.lock();
            if kept.len() >= self.at_most || !kept.insert(key.clone()) {
                return;
            }
        }
        let kept = Kept {
            all: self.kept.clone(),
            key: key.clone(),
        };
        let (fetch, at_longest) = (fetch.clone(), self.at_longest);
        task::spawn(async move {
            let _kept = kept;
            // The callers report the error.
            let _ = time::timeout(at_longest, fetch).await;
        });
    }
}

/// A fetch that runs to completion.
struct Kept<K: Hash + Eq> {
    all: Arc<Mutex<HashSet<K>>>,
    key: K,
}

impl<K: Hash + Eq> Drop for Kept<K> {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

/// Takes a fetch off the list when it ends or is dropped.
struct End<K: Hash + Eq, V: Clone> {
    running: Running<K, V>,
    key: K,
    id: u64,
}

impl<K: Hash + Eq, V: Clone> Drop for End<K, V> {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        if running.get(&self.key).is_some_and(|(id, _)| *id == self.id) {
            running.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SLOW: Duration = Duration::from_millis(300);

    async fn until(what: &str, is_so: impl Fn() -> bool) {
        let waiting = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert!(waited.is_ok(), "{what}");
    }

    fn slow(counter: &Arc<AtomicU64>) -> BoxFuture<'static, Result<u64, RemoteStorageError>> {
        let counter = counter.clone();
        async move {
            tokio::time::sleep(SLOW).await;
            Ok(counter.fetch_add(1, Ordering::Relaxed))
        }
        .boxed()
    }

    #[tokio::test]
    async fn concurrent_callers_share_a_result_and_later_ones_get_another() {
        let fetches = SharedFetches::<&str, u64>::new();
        let counter = Arc::new(AtomicU64::new(0));
        let ask = || fetches.find_or_start(&"k", || None::<()>, || slow(&counter));
        let (Err(first), Err(second)) = (ask(), ask()) else {
            panic!("found")
        };
        assert_eq!(tokio::join!(first, second), (Ok(0), Ok(0)));
        assert!(!fetches.is_running(&"k"));
        assert_eq!(ask().unwrap_err().await, Ok(1));
    }

    #[tokio::test]
    async fn a_kept_fetch_completes_without_its_callers() {
        let fetches = SharedFetches::<&str, u64>::new();
        let kept = KeptFetches::new(1);
        let counter = Arc::new(AtomicU64::new(0));
        let completed = || counter.load(Ordering::Relaxed);
        let ask = |key| {
            let fetch = fetches.find_or_start(&key, || None::<()>, || slow(&counter));
            let fetch = fetch.unwrap_err();
            kept.keep(&key, &fetch);
        };
        ask("a");
        // One too many: it ends with its callers.
        ask("b");
        until("it completes", || completed() > 0).await;
        tokio::time::sleep(SLOW).await;
        assert_eq!(completed(), 1);
        until("its place is free", || kept.kept.lock().is_empty()).await;
        ask("b");
        until("the other completes", || completed() == 2).await;
    }

    #[tokio::test]
    async fn a_fetch_that_hangs_is_not_kept_for_ever() {
        let fetches = SharedFetches::<&str, u64>::new();
        let kept = KeptFetches {
            at_longest: Duration::from_millis(5),
            ..KeptFetches::new(1)
        };
        let hang = || futures_util::future::pending::<Result<u64, RemoteStorageError>>().boxed();
        let fetch = fetches.find_or_start(&"a", || None::<()>, hang);
        kept.keep(&"a", &fetch.unwrap_err());
        until("the next caller tries again", || !fetches.is_running(&"a")).await;
        until("its place is free", || kept.kept.lock().is_empty()).await;
    }

    #[tokio::test]
    async fn the_last_caller_that_leaves_cancels_the_fetch() {
        let fetches = SharedFetches::<&str, u64>::new();
        let counter = Arc::new(AtomicU64::new(0));
        let fetch = fetches
            .find_or_start(&"k", || None::<()>, || slow(&counter))
            .unwrap_err();
        let other = fetch.clone();
        let started = tokio::time::timeout(Duration::from_millis(1), fetch).await;
        assert!(started.is_err() && fetches.is_running(&"k"));
        drop(other);
        assert!(!fetches.is_running(&"k"));
        tokio::time::sleep(2 * SLOW).await;
        assert_eq!(counter.load(Ordering::Relaxed), 0);
        // And the next one starts anew.
        let again = fetches.find_or_start(&"k", || None::<()>, || slow(&counter));
        assert_eq!(again.unwrap_err().await, Ok(0));
    }
}
