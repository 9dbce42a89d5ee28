//! What the product runs on: other crates' types under this crate's names.

pub use arc_swap::{ArcSwap, ArcSwapOption, Guard};
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
pub use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit, SetOnce};
pub use tokio::sync::{mpsc, oneshot, watch};

/// A lock that is held across an `await`.
pub mod async_lock {
    pub use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};
}

/// Channels between threads that may wait.
pub mod thread_channel {
    pub use std::sync::mpsc::{
        Receiver, RecvError, RecvTimeoutError, SendError, Sender, TryRecvError, channel,
    };
}

/// Atomics by which one thread hands something over to another. A counter that nobody decides by is `std`'s.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        Ordering, fence,
    };
}

/// Tables whose order is by chance, and under a simulation by its seed.
pub mod collections {
    pub use hashbrown::{DefaultHashBuilder as RandomState, HashMap, HashSet};
}

pub mod thread {
    pub use std::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, scope, sleep, spawn, yield_now,
    };

    pub use crate::kernel::thread_waits as waits;
}

pub mod task {
    pub use tokio::runtime::{EnterGuard, Handle, TryCurrentError};
    pub use tokio::spawn;
    pub use tokio::task::{AbortHandle, JoinError, JoinHandle, JoinSet, spawn_blocking, yield_now};

    /// How many threads poll the tasks of the caller's runtime, and how long all of them together have been busy.
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

    /// Instead of `Instant::now`.
    #[inline(always)]
    pub fn now() -> Instant {
        Instant::now()
    }

    /// Instead of `Instant::elapsed`.
    #[inline(always)]
    pub fn elapsed(since: Instant) -> Duration {
        since.elapsed()
    }

    /// Instead of `SystemTime::now`.
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

    pub use crate::kernel::open_files_limit;
}

/// What this process may use of its machine.
pub mod machine {
    pub use crate::kernel::machine::{Machine, anonymous_bytes};

    /// Reads the limits of the machine and of the control groups.
    pub fn read() -> Machine {
        Machine::read()
    }
}

/// Random numbers, each for a named consumer: in a simulation, each has a stream of its own.
pub mod random {
    use rand::distr::uniform::{SampleRange, SampleUniform};
    use rand::distr::{Distribution, StandardUniform};

    /// Instead of `rand::random`.
    #[inline]
    pub fn random<T>(_consumer: &'static str) -> T
    where
        StandardUniform: Distribution<T>,
    {
        rand::random()
    }

    /// Instead of `rand::random_range`.
    #[inline]
    pub fn random_range<T: SampleUniform>(
        _consumer: &'static str,
        range: impl SampleRange<T>,
    ) -> T {
        rand::random_range(range)
    }
}

/// Sockets, as tokio has them, and some calls that it does not have.
pub mod net {
    pub use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
    pub use tokio::net::{TcpListener, TcpStream, lookup_host};

    pub use crate::kernel::sockets::{
        ListenOptions, connect_with_buffers, has_ipv6, listen, resolve, send_file, send_vectored,
        set_keepalive, set_send_buffer_size,
    };
}

/// Files, as the standard library has them, and some calls that it does not have.
pub mod fs {
    pub use std::fs::{
        DirEntry, File, FileType, Metadata, OpenOptions, ReadDir, canonicalize, create_dir,
        create_dir_all, metadata, read, read_dir, read_to_string, remove_dir, remove_dir_all,
        remove_file, rename,
    };

    pub use crate::kernel::{
        Dir, LockHolder, Space, Writeback, check_dir_access, check_file_access, forget_cached,
        is_cached_at, lock_holder, open_cached, read_cached_at, reserve, space, sync_file_range,
        try_lock, write_vectored_at,
    };
}
