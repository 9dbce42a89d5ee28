//! What the product runs on: other crates' types under this crate's names.

pub use arc_swap::{ArcSwap, ArcSwapOption};
pub use parking_lot::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
pub use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
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

pub mod thread {
    pub use std::thread::{
        Builder, JoinHandle, Scope, ScopedJoinHandle, scope, sleep, spawn, yield_now,
    };
}

pub mod task {
    pub use tokio::runtime::Handle;
    pub use tokio::spawn;
    pub use tokio::task::{AbortHandle, JoinError, JoinHandle, JoinSet, spawn_blocking, yield_now};
}

pub mod time {
    use std::time::{Instant, SystemTime};

    pub use tokio::time::error::Elapsed;
    pub use tokio::time::{Sleep, Timeout, sleep, timeout};

    /// Instead of `Instant::now`.
    #[inline(always)]
    pub fn now() -> Instant {
        Instant::now()
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

/// Random numbers, each for a named consumer: in a simulation, each has a stream of its own.
pub mod random {
    use rand::distr::{Distribution, StandardUniform};

    /// Instead of `rand::random`.
    #[inline]
    pub fn random<T>(_consumer: &'static str) -> T
    where
        StandardUniform: Distribution<T>,
    {
        rand::random()
    }
}

/// Files, as the standard library has them, and some calls that it does not have.
pub mod fs {
    pub use std::fs::{
        DirEntry, File, FileType, Metadata, OpenOptions, ReadDir, create_dir, create_dir_all,
        metadata, read, read_dir, remove_dir, remove_file, rename,
    };

    pub use crate::kernel::{
        Dir, Writeback, forget_cached, read_cached_at, reserve, sync_file_range, write_vectored_at,
    };
}
