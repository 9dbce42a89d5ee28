//! How long appends to a log directory take, and whether threads that serve connections may do
//! them.
//!
//! An append goes into the page cache and takes microseconds, unless the kernel throttles the
//! writer because of too many dirty pages. One such stall delays the other connections of the
//! thread; a directory where stalls repeat would stop all of them. Stalls are therefore counted,
//! and after several in a row the directory's appends move to threads of their own for a while.
//!
//! A thread that was preempted did not wait for the disk, and another thread would not help. The
//! two are distinguished by the thread's voluntary context switches. Reading them is a system call,
//! so it is done only for a while after a long append, and that append itself is not counted.

use std::time::{Duration, Instant};

use ottla_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use ottla_sync::thread;

/// An append of at least this duration is long.
const STALL: Duration = Duration::from_millis(10);
/// A directory with this many stalls, and fewer than `FORGIVEN_BY` quick appends between them, is
/// slow.
const STALLS: u32 = 3;
/// This many quick appends undo one stall.
const FORGIVEN_BY: u32 = 64;
/// How long a directory stays slow after its last stall, and how long context switches are checked
/// after a long append.
const SLOW_MS: u64 = 10_000;

/// The append times of one log directory, shared by its partitions.
#[derive(Debug, Default)]
pub struct AppendPace {
    stalls: AtomicU32,
    quick: AtomicU32,
    /// Both on the broker's clock.
    slow_until_ms: AtomicU64,
    suspect_until_ms: AtomicU64,
}

/// A running append of this thread.
#[derive(Debug)]
pub struct TimedAppend {
    started: Instant,
    /// The thread's voluntary context switches at the start, if they are checked.
    waits: Option<i64>,
}

/// How long an append took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendTime {
    Quick,
    /// Long for an unknown reason or because of preemption.
    Long,
    /// The thread had to wait.
    Stalled(Duration),
}

impl AppendPace {
    pub fn begin(&self, now_ms: impl FnOnce() -> u64) -> TimedAppend {
        let suspect_until_ms = self.suspect_until_ms.load(Ordering::Relaxed);
        let is_suspect = suspect_until_ms > 0 && now_ms() < suspect_until_ms;
        TimedAppend {
            started: ottla_sync::time::now(),
            waits: is_suspect.then(thread::waits).flatten(),
        }
    }

    /// Ends an append and classifies its time.
    pub fn end(&self, append: &TimedAppend, now_ms: impl FnOnce() -> u64) -> AppendTime {
        let took = ottla_sync::time::now() - append.started;
        let time = match append.waits {
            _ if took < STALL => AppendTime::Quick,
            Some(before) if thread::waits().is_some_and(|waits| waits > before) => {
                AppendTime::Stalled(took)
            }
            _ => AppendTime::Long,
        };
        self.note(time, now_ms);
        time
    }

    /// Counts an append. The clock is not read for a quick one.
    pub fn note(&self, time: AppendTime, now_ms: impl FnOnce() -> u64) {
        if time == AppendTime::Quick {
            if self.stalls.load(Ordering::Relaxed) > 0
                && self.quick.fetch_add(1, Ordering::Relaxed) + 1 >= FORGIVEN_BY
            {
                self.quick.store(0, Ordering::Relaxed);
                self.stalls.fetch_sub(1, Ordering::Relaxed);
            }
            return;
        }
        let now_ms = now_ms();
        self.suspect_until_ms
            .store(now_ms + SLOW_MS, Ordering::Relaxed);
        if time == AppendTime::Long {
            return;
        }
        self.quick.store(0, Ordering::Relaxed);
        // Capped, so that not more has to be forgiven than makes a directory slow.
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
    }

    /// Whether appends must not run on threads that serve connections.
    pub fn is_slow(&self, now_ms: impl FnOnce() -> u64) -> bool {
        let slow_until_ms = self.slow_until_ms.load(Ordering::Relaxed);
        slow_until_ms > 0 && now_ms() < slow_until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALLED: AppendTime = AppendTime::Stalled(Duration::from_millis(30));

    #[test]
    fn single_stalls_are_forgiven_and_a_row_of_them_is_not() {
        let pace = AppendPace::default();
        for _ in 0..5 {
            pace.note(STALLED, || 0);
            for _ in 0..FORGIVEN_BY {
                pace.note(AppendTime::Quick, || unreachable!("it needs no time"));
            }
        }
        assert!(!pace.is_slow(|| 0));
        for now_ms in [100, 110, 120] {
            pace.note(STALLED, || now_ms);
        }
        assert!(pace.is_slow(|| 120 + SLOW_MS - 1));
        assert!(!pace.is_slow(|| 120 + SLOW_MS));
    }

    /// An append at `now_ms` that does nothing but `work`.
    fn append(pace: &AppendPace, now_ms: u64, work: impl FnOnce()) -> AppendTime {
        let append = pace.begin(|| now_ms);
        work();
        pace.end(&append, || now_ms)
    }

    fn wait() {
        ottla_sync::thread::sleep(STALL);
    }

    fn compute() {
        let started = ottla_sync::time::now();
        while started.elapsed() < STALL {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_stall_is_counted_only_after_a_long_append_that_waited() {
        let pace = AppendPace::default();
        assert_eq!(append(&pace, 1, || ()), AppendTime::Quick);
        assert_eq!(append(&pace, 1, wait), AppendTime::Long, "not measured");
        assert_eq!(append(&pace, 2, compute), AppendTime::Long);
        let stalled = append(&pace, 3, wait);
        assert!(matches!(stalled, AppendTime::Stalled(took) if took >= STALL));
        assert_eq!(
            append(&pace, 3 + SLOW_MS, wait),
            AppendTime::Long,
            "forgotten"
        );
    }

    #[test]
    fn threads_that_compete_for_a_processor_do_not_make_a_directory_slow() {
        let pace = AppendPace::default();
        for now_ms in 1..10 {
            append(&pace, now_ms, compute);
        }
        assert!(!pace.is_slow(|| 10));
        for now_ms in 10..13 {
            append(&pace, now_ms, wait);
        }
        assert!(pace.is_slow(|| 13));
    }
}
