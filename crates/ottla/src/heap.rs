//! The allocator of this binary, and how a server returns freed memory to the system.
//!
//! mimalloc holds freed memory for a second and returns it during a later allocator call. After a
//! burst there may be no such call, so the heap would keep its peak size. A thread also keeps
//! blocks freed by other threads until it allocates again. Therefore every thread that serves
//! requests returns its freed memory before it sleeps, once per [`PERIOD`], and is woken for this
//! ([`keep_small`]). This takes a few hundred microseconds each time.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// Without transparent huge pages (`no_thp`): with them, the heap of an idle broker grows in steps
/// of 2 MiB and holds ten megabytes of zeros; producing is not measurably slower without them
/// (`docs/benchmarks.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How often freed memory is returned. Memory that is reused within this period is not returned;
/// otherwise each large request would be read into newly faulted pages.
const PERIOD: Duration = Duration::from_secs(5);
/// Sampling interval of the process size, and the growth that starts a period at once, because
/// memory freed during growth would otherwise add to the peak.
const LOOK: Duration = Duration::from_secs(1);
const GROWN_BYTES: u64 = 64 * 1024 * 1024;

/// The number of periods started.
static PERIODS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The period in which this thread last returned memory.
    static RETURNED: Cell<u64> = const { Cell::new(0) };
}

/// Called by each thread of a runtime before it parks.
pub fn on_thread_park() {
    let period = PERIODS.load(Ordering::Relaxed);
    if RETURNED.replace(period) != period {
        return_memory();
    }
}

/// Starts a period every few seconds and wakes the threads of the runtimes for it: of the caller's,
/// and of that for work at remote storage. Never returns.
pub async fn keep_small(store_threads: Option<Handle>) {
    let runtimes: Vec<Handle> = [Handle::current()]
        .into_iter()
        .chain(store_threads)
        .collect();
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
        // A task wakes a parked thread; without further work the thread parks again and returns its
        // memory first.
        for runtime in &runtimes {
            for _ in 0..runtime.metrics().num_workers() {
                runtime.spawn(async {});
            }
        }
    }
}

/// 0 if the kernel does not report it.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages: u64 = pages.unwrap_or(0);
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// Returns the freed memory held by the calling thread to the system.
fn return_memory() {
    // SAFETY: the function takes no pointer and may be called at any time by any thread.
    unsafe { libmimalloc_sys::mi_collect(true) }
}
