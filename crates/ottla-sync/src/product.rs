//! The real types under this crate's names.

pub use arc_swap::{ArcSwap, ArcSwapOption, Guard};
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
pub use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, SetOnce};
pub use tokio::sync::{mpsc, oneshot, watch};

/// A lock that may be held across an `await`.
pub mod async_lock {
    pub use tokio::sync::{Mutex, MutexGuard};
}

/// Channels between threads that may block.
pub mod thread_channel {
    pub use std::sync::mpsc::{
        Receiver, RecvError, RecvTimeoutError, SendError, Sender, TryRecvError, channel,
    };
}

/// Atomics for synchronisation between threads. Plain counters use `std`'s.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };
}

/// Hash tables with a random order; in a simulation the seed determines it.
pub mod collections {
    pub use hashbrown::{DefaultHashBuilder as RandomState, HashMap, HashSet};
}

pub mod thread {
    pub use std::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, scope, sleep, spawn, yield_now,
    };

    pub use crate::kernel::{thread_cpu_time as cpu_time, thread_waits as waits};
}

pub mod task {
    use std::fmt;
    use std::ops::{Deref, DerefMut};

    pub use tokio::runtime::{EnterGuard, Handle, TryCurrentError};
    pub use tokio::task::{AbortHandle, JoinError, JoinHandle, yield_now};

    use crate::BoxFuture;

    /// As `tokio::spawn`. The future is boxed, so that the runtime's code is generated for each type of result, not for each
    /// task.
    #[track_caller]
    pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let future: BoxFuture<'static, F::Output> = Box::pin(future);
        tokio::spawn(future)
    }

    /// As `tokio::task::spawn_blocking`. The closure is boxed, as the future of [`spawn`].
    #[track_caller]
    pub fn spawn_blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let work: Box<dyn FnOnce() -> T + Send> = Box::new(work);
        tokio::task::spawn_blocking(work)
    }

    /// As `tokio::task::JoinSet`. Its futures are boxed, as those of [`spawn`].
    pub struct JoinSet<T>(tokio::task::JoinSet<T>);

    impl<T: Send + 'static> JoinSet<T> {
        pub fn new() -> JoinSet<T> {
            JoinSet(tokio::task::JoinSet::new())
        }

        #[track_caller]
        pub fn spawn(&mut self, future: impl Future<Output = T> + Send + 'static) -> AbortHandle {
            let future: BoxFuture<'static, T> = Box::pin(future);
            self.0.spawn(future)
        }

        pub async fn join_all(self) -> Vec<T> {
            self.0.join_all().await
        }
    }

    impl<T: Send + 'static> Default for JoinSet<T> {
        fn default() -> Self {
            JoinSet::new()
        }
    }

    impl<T> Deref for JoinSet<T> {
        type Target = tokio::task::JoinSet<T>;

        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }

    impl<T> DerefMut for JoinSet<T> {
        fn deref_mut(&mut self) -> &mut Self::Target {
            &mut self.0
        }
    }

    impl<T> fmt::Debug for JoinSet<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    /// The number of worker threads of the caller's runtime and their total busy time.
    pub fn worker_busy_time() -> Option<(usize, std::time::Duration)> {
        let metrics = Handle::current().metrics();
        let workers = 0..metrics.num_workers();
        let busy = workers
            .clone()
            .map(|n| metrics.worker_total_busy_duration(n));
        Some((workers.len(), busy.sum()))
    }
}

pub mod time {
    use std::time::{Duration, Instant, SystemTime};

    pub use tokio::time::error::Elapsed;
    pub use tokio::time::{Interval, MissedTickBehavior, Sleep, Timeout, interval, sleep, timeout};

    pub use crate::kernel::processor_ticks;

    /// Replaces `Instant::now`.
    #[inline(always)]
    pub fn now() -> Instant {
        Instant::now()
    }

    /// Replaces `Instant::elapsed`.
    #[inline(always)]
    pub fn elapsed(since: Instant) -> Duration {
        since.elapsed()
    }

    /// Replaces `SystemTime::now`.
    #[inline(always)]
    pub fn wall_clock() -> SystemTime {
        SystemTime::now()
    }

    pub fn sleep_until(deadline: Instant) -> Sleep {
        tokio::time::sleep_until(deadline.into())
    }

    pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
        tokio::time::timeout_at(deadline.into(), future)
    }
}

pub mod process {
    pub use std::process::abort;

    pub use crate::kernel::{effective_user, open_files_limit};
}

/// The resources of this process.
pub mod machine {
    pub use crate::kernel::machine::{Machine, anonymous_bytes, meminfo_bytes};
    pub use crate::kernel::memory::{Memory, memory};

    /// Reads the limits of the machine and the control groups.
    pub fn read() -> Machine {
        Machine::read()
    }
}

/// Random numbers for a named consumer; in a simulation each consumer has its own stream.
pub mod random {
    use rand::distr::uniform::{SampleRange, SampleUniform};
    use rand::distr::{Distribution, StandardUniform};

    /// Replaces `rand::random`.
    #[inline]
    pub fn random<T>(_consumer: &'static str) -> T
    where
        StandardUniform: Distribution<T>,
    {
        rand::random()
    }

    /// Replaces `rand::random_range`.
    #[inline]
    pub fn random_range<T: SampleUniform>(
        _consumer: &'static str,
        range: impl SampleRange<T>,
    ) -> T {
        rand::random_range(range)
    }
}

/// tokio's sockets and additional calls.
pub mod net {
    pub use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
    pub use tokio::net::{TcpListener, TcpStream, lookup_host};

    pub use crate::kernel::sockets::{
        BoundSocket, ListenOptions, bind, connect_with_buffers, has_ipv6, is_closed_by_peer,
        resolve, send_file, send_vectored, set_keepalive, set_send_buffer_size,
    };
    pub use crate::kernel::tls::{attach_tls, loopback_pair, send_tls_record, set_tls_send_key};
}

/// The standard library's files and additional calls.
pub mod fs {
    pub use std::fs::{
        DirEntry, File, FileType, Metadata, OpenOptions, ReadDir, canonicalize, create_dir,
        create_dir_all, metadata, read, read_dir, read_to_string, remove_dir, remove_dir_all,
        remove_file, rename,
    };

    pub use crate::kernel::{
        ChangeTime, Dir, LockHolder, Space, Status, Writeback, check_dir_access, closed_file_in,
        forget_cached, is_cached_at, lock_holder, open_cached, read_cached_at, read_if_cached_at,
        reserve, space, status, sync_file_range, try_lock, write_vectored_at,
    };
}
