//! The current time in milliseconds, for code that needs it for every record.
//!
//! A system call costs a third of encoding a record of a hundred bytes. The processor's cycle
//! counter is several times cheaper to read. While it shows that hardly any time has passed on this
//! thread, the last result is used again. So the time is late by a few microseconds at most.

use std::cell::Cell;
use std::time::UNIX_EPOCH;

/// For how many cycles a result is used: 2 to 10 microseconds with counters of 1 to 5 GHz.
const TICKS: u64 = 10_000;

thread_local! {
    /// When this thread last read the system clock, in cycles, and the result.
    static LAST: Cell<Option<(u64, i64)>> = const { Cell::new(None) };
}

/// Milliseconds since 1970.
#[inline]
pub(crate) fn now_ms() -> i64 {
    let Some(ticks) = ottla_sync::time::processor_ticks() else {
        return ask();
    };
    match LAST.get() {
        // A counter that went backwards gives a huge difference here, which reads the clock.
        Some((asked, answer)) if ticks.wrapping_sub(asked) < TICKS => answer,
        _ => {
            let answer = ask();
            LAST.set(Some((ticks, answer)));
            answer
        }
    }
}

fn ask() -> i64 {
    let now = ottla_sync::time::wall_clock().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_clock_follows_the_system_time() {
        for _ in 0..50 {
            let before = ask();
            let now = now_ms();
            // The stored result may be slightly older.
            assert!(
                (before - 1..=ask()).contains(&now),
                "{now}, not from {before} on"
            );
            ottla_sync::thread::sleep(Duration::from_micros(300));
        }
        // Time passes also in a thread that never sleeps.
        let (began, mut now) = (now_ms(), now_ms());
        while now < began + 3 {
            now = now_ms();
            assert!(now - ask() <= 0);
        }
    }
}
