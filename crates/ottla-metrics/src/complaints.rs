//! Rate limit for log lines about misbehaving peers: one a minute, so that a broken client cannot
//! fill the disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(60);

/// Lets one log line through in each interval.
#[derive(Debug)]
pub struct Complaints {
    since: Instant,
    /// The index of the interval after the one that last logged, counted from 1; 0 if nothing was
    /// logged.
    next_interval: AtomicU64,
}

impl Default for Complaints {
    fn default() -> Self {
        Complaints {
            since: ottla_sync::time::now(),
            next_interval: AtomicU64::new(0),
        }
    }
}

impl Complaints {
    /// Runs `complaint`, unless one already ran in this interval. Returns whether it ran.
    pub fn say(&self, complaint: impl FnOnce()) -> bool {
        self.say_after(ottla_sync::time::elapsed(self.since), complaint)
    }

    fn say_after(&self, elapsed: Duration, complaint: impl FnOnce()) -> bool {
        let interval = elapsed.as_secs() / INTERVAL.as_secs();
        let is_new = self
            .next_interval
            .fetch_max(interval + 1, Ordering::Relaxed)
            <= interval;
        if is_new {
            complaint();
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_complaint_a_minute_is_heard() {
        let complaints = Complaints::default();
        let heard = [0, 1, 59, 60, 61, 300, 301]
            .map(|seconds| complaints.say_after(Duration::from_secs(seconds), || ()));
        assert_eq!(heard, [true, false, false, true, false, true, false]);
    }
}
