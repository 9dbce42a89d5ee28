//! The rate of the traffic of throttled replicas, and whether it must wait (KIP-73).
//!
//! The topics' settings name the throttled replicas; `leader.replication.throttled.rate` and
//! `follower.replication.throttled.rate` limit the rate. If no topic names a replica, nothing is
//! counted.
//!
//! Kafka: `ReplicationQuotaManager`, with the rate calculation of `SimpleRate`.

use std::collections::VecDeque;

use ottla_config::BrokerConfig;
use ottla_replica::is_replication_throttled;
use ottla_sync::Mutex;

/// The traffic in one direction: to followers or from leaders.
#[derive(Debug, Default)]
pub struct ReplicationThrottle {
    samples: Mutex<VecDeque<Sample>>,
}

/// The bytes of one time window.
#[derive(Clone, Copy, Debug)]
struct Sample {
    since_ms: u64,
    bytes: u64,
}

/// `replication.quota.window.*`.
#[derive(Clone, Copy, Debug)]
struct Windows {
    count: usize,
    length_ms: u64,
}

impl Windows {
    fn of(config: &BrokerConfig) -> Windows {
        Windows {
            count: config.replication_quota_window_num.max(1) as usize,
            length_ms: config.replication_quota_window_size_seconds.max(1) as u64 * 1_000,
        }
    }
}

impl ReplicationThrottle {
    /// Counts bytes of a throttled replica, on the broker's clock.
    pub fn record(&self, config: &BrokerConfig, bytes: u64, now_ms: u64) {
        self.record_in(Windows::of(config), bytes, now_ms);
    }

    /// Whether a throttled replica must wait, given the quota in bytes per second.
    pub fn holds_back(
        &self,
        config: &BrokerConfig,
        is_in_sync: bool,
        quota_byte_rate: i64,
        now_ms: u64,
    ) -> bool {
        let byte_rate = self.byte_rate(Windows::of(config), now_ms);
        is_replication_throttled(is_in_sync, true, byte_rate, quota_byte_rate as f64)
    }

    fn record_in(&self, windows: Windows, bytes: u64, now_ms: u64) {
        let mut samples = self.samples.lock();
        match samples.back_mut() {
            Some(last) if now_ms.saturating_sub(last.since_ms) < windows.length_ms => {
                last.bytes += bytes;
            }
            _ => samples.push_back(Sample {
                since_ms: now_ms,
                bytes,
            }),
        }
        while samples.len() > windows.count {
            samples.pop_front();
        }
    }

    /// The rate since the oldest sample within the windows, over at least one window length.
    fn byte_rate(&self, windows: Windows, now_ms: u64) -> f64 {
        let oldest_ms = now_ms.saturating_sub(windows.count as u64 * windows.length_ms);
        let mut samples = self.samples.lock();
        while samples.front().is_some_and(|it| it.since_ms < oldest_ms) {
            samples.pop_front();
        }
        let Some(first) = samples.front() else {
            return 0.0;
        };
        let lasted_ms = now_ms.saturating_sub(first.since_ms).max(windows.length_ms);
        let bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
        bytes as f64 * 1_000.0 / lasted_ms as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_looks_back_over_the_windows() {
        let windows = Windows {
            count: 3,
            length_ms: 1_000,
        };
        let throttle = ReplicationThrottle::default();
        assert_eq!(throttle.byte_rate(windows, 5_000), 0.0);
        throttle.record_in(windows, 400, 5_000);
        throttle.record_in(windows, 600, 5_999);
        // A window that has just begun counts whole.
        assert_eq!(throttle.byte_rate(windows, 5_999), 1_000.0);
        throttle.record_in(windows, 1_000, 6_500);
        assert_eq!(throttle.byte_rate(windows, 7_000), 1_000.0);
        assert_eq!(throttle.byte_rate(windows, 8_000), 2_000.0 / 3.0);
        // The first window is forgotten, and then all of it.
        assert_eq!(throttle.byte_rate(windows, 8_500), 500.0);
        assert_eq!(throttle.byte_rate(windows, 10_000), 0.0);
    }
}
