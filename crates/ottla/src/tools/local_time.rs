//! Moments as Kafka's tools print them: in the time zone of the machine.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, as `2026-01-31 23:59:59,999`.
pub(super) fn now() -> String {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = libc::time_t::try_from(since.as_secs()).unwrap_or(libc::time_t::MAX);
    shown(&broken_down(seconds), since.subsec_millis())
}

/// A moment by the calendar and the clock of the machine's time zone.
pub(super) fn broken_down(seconds: libc::time_t) -> libc::tm {
    // SAFETY: all zeroes is a value of this struct of numbers and one pointer, which is read by nobody here.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that live through the call, and the tools that call this change
    // no environment variable while they run. Where a moment is out of range, `time` stays as it is.
    unsafe {
        libc::localtime_r(&raw const seconds, &raw mut time);
    }
    time
}

fn shown(time: &libc::tm, millis: u32) -> String {
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02},{millis:03}",
        time.tm_year + 1900,
        time.tm_mon + 1,
        time.tm_mday,
        time.tm_hour,
        time.tm_min,
        time.tm_sec
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_a_fixed_width() {
        let mut time = broken_down(0);
        (time.tm_year, time.tm_mon, time.tm_mday) = (126, 0, 2);
        (time.tm_hour, time.tm_min, time.tm_sec) = (3, 4, 5);
        assert_eq!(shown(&time, 6), "2026-01-02 03:04:05,006");
        assert!(now().starts_with("2"), "{}", now());
    }
}
