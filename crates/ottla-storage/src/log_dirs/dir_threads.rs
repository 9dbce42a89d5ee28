//! Limits on the blocking threads that one log directory may hold at once.
//!
//! The threads are shared by all directories, recompression and metrics. A disk that hangs without
//! failing holds every thread that waits for it: without limits it would eventually hold them all,
//! and healthy directories would wait too. Work over the limit waits without a thread, in order of
//! arrival.
//!
//! A directory has a limit for each kind of work, so that a consumer reading old records does not
//! delay flushes, nor flushes the appends they are for.

use std::sync::Arc;

use ottla_sync::task::JoinError;
use ottla_sync::{OwnedSemaphorePermit, Semaphore};

/// More concurrent flushes do not help a disk.
const JOBS: usize = 8;
const READS: usize = 12;
/// Writers of one disk wait for each other.
const APPENDS: usize = 4;
const TOPIC_IDS: usize = 4;

/// Number of threads that each log directory can hold. The process needs more than the sum for all
/// directories.
pub const THREADS_PER_DIRECTORY: usize = JOBS + READS + APPENDS + TOPIC_IDS;

/// The limits of one log directory.
#[derive(Clone, Debug)]
pub struct DirThreads {
    /// Flushes, writeback, unlinking, checkpoints.
    pub jobs: ThreadLimit,
    /// Reads that are not in the page cache.
    pub reads: ThreadLimit,
    /// Appends, while the kernel throttles them.
    pub appends: ThreadLimit,
    /// Writes of `partition.metadata`, which the first append to a log waits for.
    pub topic_ids: ThreadLimit,
}

impl Default for DirThreads {
    fn default() -> DirThreads {
        DirThreads {
            jobs: ThreadLimit::of(JOBS),
            reads: ThreadLimit::of(READS),
            appends: ThreadLimit::of(APPENDS),
            topic_ids: ThreadLimit::of(TOPIC_IDS),
        }
    }
}

/// The limit for one kind of work.
#[derive(Clone, Debug)]
pub struct ThreadLimit(Arc<Semaphore>);

impl ThreadLimit {
    fn of(threads: usize) -> ThreadLimit {
        ThreadLimit(Arc::new(Semaphore::new(threads)))
    }

    /// Whether both are the same limit.
    pub fn is(&self, other: &ThreadLimit) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Runs work that may wait for the directory's disk. The error is a panic of the work, or the
    /// end of the runtime.
    pub async fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, JoinError> {
        let place = Arc::clone(&self.0).acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        ottla_sync::task::spawn_blocking(in_place(place, work)).await
    }

    /// The same without waiting for the end: starts at once if a thread is free.
    pub fn start(&self, work: impl FnOnce() + Send + 'static) {
        match Arc::clone(&self.0).try_acquire_owned() {
            Ok(place) => drop(ottla_sync::task::spawn_blocking(in_place(place, work))),
            Err(_) => {
                let threads = self.clone();
                // A panic was reported where it happened.
                ottla_sync::task::spawn(async move { drop(threads.run(work).await) });
            }
        }
    }
}

/// The thread releases the permit, not the waiting caller, because the permits limit the number of
/// threads.
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

    use super::{DirThreads, THREADS_PER_DIRECTORY};

    /// Like the binary, with threads for all directories and some more.
    fn runtime(directories: usize) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(directories * THREADS_PER_DIRECTORY)
            .enable_all()
            .build()
            .expect("a runtime")
    }

    #[test]
    fn a_hanging_directory_does_not_use_up_the_threads() {
        let runtime = runtime(2);
        let (hung, well) = (DirThreads::default(), DirThreads::default());
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Arc::new(ottla_sync::Mutex::new(released));
        runtime.block_on(async {
            let mut last = Vec::new();
            for job in 0..3 * THREADS_PER_DIRECTORY {
                let share = [&hung.jobs, &hung.reads, &hung.appends][job % 3].clone();
                let released = std::sync::Arc::clone(&released);
                let wait = move || {
                    let _ = released.lock().recv();
                };
                match job % 2 {
                    0 => share.start(wait),
                    _ => last.push(ottla_sync::task::spawn(async move {
                        share.run(wait).await.is_ok()
                    })),
                }
            }
            ottla_sync::time::sleep(Duration::from_millis(100)).await;
            for share in [&well.jobs, &well.reads, &well.appends] {
                let ran = ottla_sync::time::timeout(Duration::from_secs(60), share.run(|| 7)).await;
                assert_eq!(ran.expect("there is a thread").expect("no panic"), 7);
            }
            // The waiting work runs when the disk is back.
            drop(release);
            for job in last {
                assert!(job.await.expect("no panic"));
            }
        });
    }
}
