//! How fast connections may come: `max.connection.creation.rate`, of the broker and of each listener.
//!
//! The rate is that of the last eleven windows of a second, as Kafka measures it, so that a short burst
//! passes; over the limit a listener lets the next one in later, by a window at most.
//!
//! Kafka: `ConnectionQuotas.recordConnectionAndGetThrottleTimeMs`, `metrics.stats.Rate`, `QuotaUtils`.

use std::collections::VecDeque;
use std::time::Duration;

/// `quota.window.size.seconds`.
const WINDOW_MS: u64 = 1000;
/// `quota.window.num`.
const WINDOWS: u64 = 11;

/// Counts the connections of one listener, or of all.
#[derive(Debug, Default)]
pub(super) struct CreationRate {
    /// When each window began, and how many connections came in it; oldest first.
    windows: VecDeque<(u64, u64)>,
}

impl CreationRate {
    /// Counts one connection, and says how long it has to wait to keep to so many a second.
    pub(super) fn record(&mut self, per_second: i32, now_ms: u64) -> Duration {
        while let Some(&(began, _)) = self.windows.front()
            && now_ms.saturating_sub(began) >= WINDOWS * WINDOW_MS
        {
            self.windows.pop_front();
        }
        match self.windows.back_mut() {
            Some((began, count)) if now_ms.saturating_sub(*began) < WINDOW_MS => *count += 1,
            _ => self.windows.push_back((now_ms, 1)),
        }
        let connections: u64 = self.windows.iter().map(|(_, count)| count).sum();
        // At least all windows but one, or the first connection after a pause would be a high rate.
        let oldest = self.windows.front().map_or(now_ms, |&(began, _)| began);
        let measured_ms = now_ms.saturating_sub(oldest).max((WINDOWS - 1) * WINDOW_MS);
        let allowed_ms = match u64::try_from(per_second) {
            Ok(per_second @ 1..) => connections * 1000 / per_second,
            // Nothing may come; as with Kafka each comes after the longest wait.
            _ => u64::MAX,
        };
        Duration::from_millis(allowed_ms.saturating_sub(measured_ms).min(WINDOW_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_follows_waits() {
        let mut rate = CreationRate::default();
        // Ten windows of two are twenty connections.
        for _ in 0..20 {
            assert_eq!(rate.record(2, 5_000), Duration::ZERO);
        }
        assert_eq!(rate.record(2, 5_000), Duration::from_millis(500));
        // No longer than a window, however many have come.
        for _ in 0..20 {
            rate.record(2, 5_500);
        }
        assert_eq!(rate.record(2, 5_500), Duration::from_millis(WINDOW_MS));
        // Forgotten after all windows.
        assert_eq!(rate.record(2, 17_000), Duration::ZERO);
    }

    #[test]
    fn none_a_second_is_the_longest_wait_for_each() {
        let mut rate = CreationRate::default();
        assert_eq!(rate.record(0, 0), Duration::from_millis(WINDOW_MS));
    }

    #[test]
    fn time_that_stands_still_is_no_trouble() {
        let mut rate = CreationRate::default();
        rate.record(1, 5_000);
        assert_eq!(rate.record(i32::MAX, 0), Duration::ZERO);
    }
}
