//! The same names for callers that may be simulated threads.

mod arc_swap;
pub mod async_lock;
pub mod atomic;
pub mod collections;
mod condvar;
pub mod fs;
mod lock;
pub mod machine;
pub mod mpsc;
pub mod net;
mod notify;
pub mod oneshot;
pub mod process;
pub mod random;
mod rw_lock;
mod semaphore;
pub mod task;
pub mod thread;
pub mod thread_channel;
pub mod time;
pub mod watch;

pub use self::arc_swap::{ArcSwap, ArcSwapOption};
pub use ::arc_swap::Guard;
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lock::{Mutex, MutexGuard};
pub use notify::Notify;
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
pub use tokio::sync::SetOnce;
