//! How fast a log directory takes appends, and whether the threads that serve connections may wait for it.
//!
//! An append goes into the page cache and is over in microseconds, unless the kernel makes the writer
//! wait because too much is dirty. One such wait costs the other connections of the thread some time; a
//! directory where they follow each other would stop them all. So waits are counted, and a directory
//! that had several of them in a row gets its appends from threads of their own for a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// From here on an append has waited for the kernel.
const STALL: Duration = Duration::from_millis(10);
/// So many stalls, with fewer quick appends between them than `FORGIVEN_BY`, make a directory slow.
const STALLS: u32 = 3;
/// So many quick appends undo one stall.
const FORGIVEN_BY: u32 = 64;
/// How long a directory stays slow after its last stall.
const SLOW_MS: u64 = 10_000;

/// The pace of one log directory, shared by its partitions.
#[derive(Debug, Default)]
pub(crate) struct AppendPace {
    stalls: AtomicU32,
    quick: AtomicU32,
    /// On the broker's own clock.
    slow_until_ms: AtomicU64,
}

impl AppendPace {
    /// Notes how long an append took; returns whether it is worth telling somebody.
    pub(crate) fn on_append(&self, took: Duration, now_ms: u64) -> bool {
        if took < STALL {
            if self.stalls.load(Ordering::Relaxed) > 0
                && self.quick.fetch_add(1, Ordering::Relaxed) + 1 >= FORGIVEN_BY
            {
                self.quick.store(0, Ordering::Relaxed);
                self.stalls.fetch_sub(1, Ordering::Relaxed);
            }
            return false;
        }
        self.quick.store(0, Ordering::Relaxed);
        // Stays at the limit, so that what is forgiven later is not more than what makes it slow.
        let stalls = self
            .stalls
            .load(Ordering::Relaxed)
            .saturating_add(1)
            .min(STALLS);
        self.stalls.store(stalls, Ordering::Relaxed);
        if stalls >= STALLS {
            self.slow_until_ms
                .store(now_ms + SLOW_MS, Ordering::Relaxed);
        }
        true
    }

    /// Whether appends have to leave the threads that serve connections.
    pub(crate) fn is_slow(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let slow_until_ms = self.slow_until_ms.load(Ordering::Relaxed);
        slow_until_ms > 0 && now_ms() < slow_until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(20);
    const STALLED: Duration = Duration::from_millis(30);

    #[test]
    fn single_stalls_are_forgiven_and_a_row_of_them_is_not() {
        let pace = AppendPace::default();
        for _ in 0..5 {
            assert!(pace.on_append(STALLED, 0));
            for _ in 0..FORGIVEN_BY {
                assert!(!pace.on_append(QUICK, 0));
            }
        }
        assert!(!pace.is_slow(|| 0));
        for now_ms in [100, 110, 120] {
            pace.on_append(STALLED, now_ms);
        }
        assert!(pace.is_slow(|| 120 + SLOW_MS - 1));
        assert!(!pace.is_slow(|| 120 + SLOW_MS));
    }
}
