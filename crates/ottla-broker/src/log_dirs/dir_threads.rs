//! How many of the threads for work that waits for a disk one log directory may hold at once.
//!
//! The threads are shared by all directories, the reads of what is not in the page cache, recompression and the
//! metrics. A disk that hangs, rather than fails, keeps every thread that waits for it: without a share of its own it
//! would come to hold them all, and the directories that are well would wait with it. What is over the share waits
//! without a thread, in the order in which it came.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;

/// A quarter of the threads that the process has (`MAX_BLOCKING_THREADS` of the binary). A disk gains nothing from more
/// flushes side by side.
const SHARE: usize = 8;

/// The share of one log directory.
#[derive(Clone, Debug)]
pub(crate) struct DirThreads(Arc<Semaphore>);

impl Default for DirThreads {
    fn default() -> DirThreads {
        DirThreads(Arc::new(Semaphore::new(SHARE)))
    }
}

impl DirThreads {
    /// Runs work that may wait for the directory's disk. The error is a panic of the work, or the end of the runtime.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let place = Arc::clone(&self.0).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        tokio::task::spawn_blocking(in_place(place, work)).await
    }

    /// The same for whoever does not wait for its end: at once where the directory has a thread left.
    pub(crate) fn start(&self, work: impl FnOnce() + Send + 'static) {
        match Arc::clone(&self.0).try_acquire_owned() {
            Ok(place) => drop(tokio::task::spawn_blocking(in_place(place, work))),
            Err(_) => {
                let threads = self.clone();
                // A panic has been reported where it happened.
                tokio::spawn(async move { drop(threads.run(work).await) });
            }
        }
    }
}

/// The place is given back by the thread, not by whoever waits for it: it is the thread that is held.
fn in_place<R>(place: OwnedSemaphorePermit, work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    move || {
        let _place = place;
        work()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{DirThreads, SHARE};

    /// A runtime with so many blocking threads as the binary has would be 32; half of them show the same.
    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2 * SHARE)
            .enable_all()
            .build()
            .expect("a runtime")
    }

    #[test]
    fn a_directory_that_hangs_leaves_threads_to_the_others() {
        let runtime = runtime();
        let (hung, well) = (DirThreads::default(), DirThreads::default());
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Arc::new(parking_lot::Mutex::new(released));
        runtime.block_on(async {
            let mut last = Vec::new();
            for job in 0..3 * SHARE {
                let released = std::sync::Arc::clone(&released);
                let wait = move || {
                    let _ = released.lock().recv();
                };
                match job % 2 {
                    0 => hung.start(wait),
                    _ => {
                        let hung = hung.clone();
                        last.push(tokio::spawn(async move { hung.run(wait).await.is_ok() }));
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let ran = tokio::time::timeout(Duration::from_secs(10), well.run(|| 7)).await;
            assert_eq!(ran.expect("there is a thread").expect("no panic"), 7);
            // What waited for a thread runs when the disk is back.
            drop(release);
            for job in last {
                assert!(job.await.expect("no panic"));
            }
        });
    }
}
