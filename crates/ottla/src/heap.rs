//! The allocator of this binary, and how a server gives memory back to the system.
//!
//! mimalloc keeps what was freed for a second, and then returns it with the next call that happens to come by: after a
//! burst there is none, and the heap stays as large as it ever was. A thread also keeps blocks that others have freed
//! until it allocates again. Therefore every thread that serves requests returns what it has kept before it sleeps, once
//! per [`PERIOD`], and is woken for that ([`keep_small`]). It costs a few hundred microseconds each time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Without huge pages (`no_thp`): with them, the heap of an idle broker grows 2 MiB at a time and holds ten megabytes
/// of zeros; producing is not measurably slower without them (`docs/benchmarks.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often freed memory is returned. What is freed and needed again within this time is not touched, or large
/// requests would be read into new pages each time.
const PERIOD: Duration = Duration::from_secs(5);
/// How often the size of the process is looked at, and by how much it has to grow for a period to begin at once: what
/// is freed while more is taken would come on top.
const LOOK: Duration = Duration::from_secs(1);
const GROWN_BYTES: u64 = 64 * 1024 * 1024;

/// How many periods have begun.
static PERIODS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The period for which this thread has last returned memory.
    static RETURNED: Cell<u64> = const { Cell::new(0) };
}

/// Called by each thread of the runtime before it sleeps.
pub fn on_thread_park() {
    let period = PERIODS.load(Ordering::Relaxed);
    if RETURNED.replace(period) != period {
        return_memory();
    }
}

/// Begins a period every few seconds, and has the threads of the runtime look at it. Never ends.
pub async fn keep_small() {
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let mut began = Instant::now();
    let mut last_bytes = resident_bytes();
    loop {
        tokio::time::sleep(LOOK).await;
        let bytes = resident_bytes();
        let has_grown = bytes > last_bytes + GROWN_BYTES;
        if !has_grown && began.elapsed() < PERIOD {
            continue;
        }
        began = Instant::now();
        last_bytes = bytes;
        PERIODS.fetch_add(1, Ordering::Relaxed);
        // A task wakes a thread that sleeps; with nothing to do it sleeps again, and returns its memory before.
        for _ in 0..workers {
            tokio::spawn(async {});
        }
    }
}

/// 0 where the kernel does not tell.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages: u64 = pages.unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// Returns to the system what the calling thread, and nobody else, has kept of freed memory.
fn return_memory() {
    // SAFETY: the function takes no pointer and may be called at any time by any thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
