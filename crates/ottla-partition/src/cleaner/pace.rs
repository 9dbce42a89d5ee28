//! `log.cleaner.io.max.bytes.per.second`: the I/O rate limit of all cleaner threads together.
//!
//! Kafka: `Throttler`, with the same check interval.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_log::{CleaningStopped, IoPace};
use ottla_sync::Mutex;

use ottla_context::NodeContext;
use ottla_storage::log_dirs::{CleaningClaim, DiskSpace};

/// How often the rate is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(300);
/// How often a sleeping thread checks whether it should stop.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Throttle(Mutex<Period>);

#[derive(Debug)]
struct Period {
    started: Instant,
    bytes: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle(Mutex::new(Period {
            started: ottla_sync::time::now(),
            bytes: 0,
        }))
    }
}

impl Throttle {
    /// Adds `bytes` read or written. Returns how long to wait.
    pub(super) fn on_io(&self, bytes: u64, now: Instant, bytes_per_second: f64) -> Duration {
        let mut period = self.0.lock();
        period.bytes += bytes;
        let elapsed = now.saturating_duration_since(period.started);
        if elapsed <= CHECK_INTERVAL {
            return Duration::ZERO;
        }
        let due_seconds = period.bytes as f64 / bytes_per_second;
        let wait_seconds = (due_seconds - elapsed.as_secs_f64()).max(0.0);
        let wait = Duration::try_from_secs_f64(wait_seconds).unwrap_or(Duration::MAX);
        // The next period starts after the wait.
        period.started = now.checked_add(wait).unwrap_or(now);
        period.bytes = 0;
        wait
    }
}

/// The throttle of one cleaning.
pub(super) struct Pace<'a> {
    pub(super) context: &'a NodeContext,
    pub(super) throttle: &'a Throttle,
    pub(super) claim: &'a CleaningClaim<'a>,
    /// Of the log's directory: cleaned segments exist beside the old ones for a while and must not
    /// use up the reserve.
    pub(super) space: Arc<DiskSpace>,
}

impl IoPace for Pace<'_> {
    fn on_io(&self, bytes: u64) -> Result<(), CleaningStopped> {
        let bytes_per_second = self.context.config().log_cleaner_io_max_bytes_per_second;
        let mut wait = self
            .throttle
            .on_io(bytes, ottla_sync::time::now(), bytes_per_second);
        loop {
            if self.claim.is_to_stop() {
                return Err(CleaningStopped);
            }
            if wait.is_zero() {
                return Ok(());
            }
            let sleep = wait.min(LONGEST_SLEEP);
            ottla_sync::thread::sleep(sleep);
            wait -= sleep;
        }
    }

    fn on_write(&self, bytes: u64) -> Result<(), CleaningStopped> {
        match self.space.take(bytes) {
            true => Ok(()),
            false => Err(CleaningStopped),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ottla_config::{BrokerConfig, single_node_properties};
    use ottla_context::NodeContext;
    use ottla_log::IoPace;
    use ottla_storage::log_dirs::LogCleaner;
    use ottla_types::TopicPartition;

    use super::{Pace, Throttle};

    #[test]
    fn the_rate_is_that_of_the_setting() {
        for (bytes_per_second, is_slow) in [("1.7976931348623157E308", false), ("10000", true)] {
            let mut properties = single_node_properties("data", "127.0.0.1:0", "127.0.0.1:0");
            properties.set("log.cleaner.io.max.bytes.per.second", bytes_per_second);
            let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
            let started = ottla_sync::time::now();
            let cleaner = LogCleaner::default();
            let claim = cleaner.take(&TopicPartition::new("orders", 0)).unwrap();
            let pace = Pace {
                context: &NodeContext::new(config),
                throttle: &Throttle::default(),
                claim: &claim,
                space: Default::default(),
            };
            ottla_sync::thread::sleep(super::CHECK_INTERVAL + Duration::from_millis(10));
            // The bytes of three seconds at 10,000 bytes a second.
            pace.on_io(30_000).unwrap();
            let took = started.elapsed();
            assert_eq!(took >= Duration::from_secs(3), is_slow, "{took:?}");
        }
    }

    #[test]
    fn the_throttle_waits_at_the_end_of_an_interval_that_was_too_fast() {
        let throttle = Throttle::default();
        let start = ottla_sync::time::now();
        let at = |ms| start + Duration::from_millis(ms);
        throttle.on_io(0, at(10_000), 1000.0);
        assert_eq!(throttle.on_io(400, at(10_200), 1000.0), Duration::ZERO);
        let wait = throttle.on_io(600, at(10_400), 1000.0).as_millis();
        assert!((599..=601).contains(&wait), "{wait}");
        // The bytes that the wait covered do not count again.
        assert_eq!(throttle.on_io(100, at(11_100), 1000.0), Duration::ZERO);
        assert_eq!(throttle.on_io(100, at(11_500), 1000.0), Duration::ZERO);
        assert_eq!(
            throttle.on_io(u64::MAX, at(12_000), f64::MAX),
            Duration::ZERO
        );
    }
}
