//! Sums over the most recent windows of time, and rates.
//!
//! Kafka: `metrics.stats.SampledStat`, `WindowedSum`, `Rate`.

use std::collections::VecDeque;

/// The number of windows and the length of one: `quota.window.num` and `quota.window.size.seconds`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Windows {
    pub count: u32,
    pub length_ms: u64,
}

impl Windows {
    /// At least one window of one second.
    pub fn new(count: i32, seconds: i32) -> Windows {
        Windows {
            count: count.max(1) as u32,
            length_ms: seconds.max(1) as u64 * 1_000,
        }
    }

    /// The length of all windows.
    pub fn span_ms(self) -> u64 {
        u64::from(self.count) * self.length_ms
    }
}

/// One window.
#[derive(Clone, Copy, Debug)]
struct Sample {
    since_ms: u64,
    last_ms: u64,
    sum: f64,
}

/// The sum over the most recent windows.
#[derive(Clone, Debug, Default)]
pub struct WindowedSum {
    /// Oldest first. One more than `count`, for the sample that overlaps the start of the windows.
    samples: VecDeque<Sample>,
}

impl WindowedSum {
    pub fn record(&mut self, windows: Windows, value: f64, now_ms: u64) {
        match self.samples.back_mut() {
            Some(last) if now_ms.saturating_sub(last.since_ms) < windows.length_ms => {
                last.sum += value;
                last.last_ms = last.last_ms.max(now_ms);
            }
            _ => self.samples.push_back(Sample {
                since_ms: now_ms,
                last_ms: now_ms,
                sum: value,
            }),
        }
        while self.samples.len() > windows.count as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// The sum, without samples whose last record is older than all windows.
    pub fn sum(&mut self, windows: Windows, now_ms: u64) -> f64 {
        self.forget(windows, now_ms);
        self.samples.iter().map(|sample| sample.sum).sum()
    }

    /// The age of the oldest sample.
    pub fn age_ms(&mut self, windows: Windows, now_ms: u64) -> u64 {
        self.forget(windows, now_ms);
        let oldest = self.samples.front();
        oldest.map_or(0, |oldest| now_ms.saturating_sub(oldest.since_ms))
    }

    fn forget(&mut self, windows: Windows, now_ms: u64) {
        let is_old = |sample: &Sample| now_ms.saturating_sub(sample.last_ms) >= windows.span_ms();
        while self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
    }
}

/// An amount per second. A burst after an idle time is averaged over all windows but one, so it
/// passes.
#[derive(Clone, Debug, Default)]
pub struct Rate {
    sum: WindowedSum,
}

impl Rate {
    pub fn record(&mut self, windows: Windows, value: f64, now_ms: u64) {
        self.sum.record(windows, value, now_ms);
    }

    /// The rate per second.
    pub fn measure(&mut self, windows: Windows, now_ms: u64) -> f64 {
        let sum = self.sum.sum(windows, now_ms);
        sum * 1_000.0 / self.window_ms(windows, now_ms) as f64
    }

    /// The time over which the rate is measured. Kafka: `Rate.windowSize`.
    pub fn window_ms(&mut self, windows: Windows, now_ms: u64) -> u64 {
        let elapsed_ms = self.sum.age_ms(windows, now_ms);
        let full = elapsed_ms / windows.length_ms;
        let wanted = u64::from(windows.count - 1);
        (elapsed_ms + wanted.saturating_sub(full) * windows.length_ms).max(1)
    }

    /// How long nothing may be recorded until the rate falls to the limit; 0 if it is not above.
    pub fn throttle_ms(&mut self, windows: Windows, limit: f64, now_ms: u64) -> u64 {
        let rate = self.measure(windows, now_ms);
        if rate <= limit {
            return 0;
        }
        let window_ms = self.window_ms(windows, now_ms) as f64;
        ((rate - limit) / limit * window_ms).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOWS: Windows = Windows {
        count: 11,
        length_ms: 1_000,
    };

    #[test]
    fn a_burst_counts_over_all_windows_but_one() {
        let mut rate = Rate::default();
        rate.record(WINDOWS, 10_000.0, 5_000);
        assert_eq!(rate.measure(WINDOWS, 5_000), 1_000.0);
        assert_eq!(rate.throttle_ms(WINDOWS, 1_000.0, 5_000), 0);
        // A pause of one second compensates for one second's amount.
        rate.record(WINDOWS, 1_000.0, 5_000);
        assert_eq!(rate.throttle_ms(WINDOWS, 1_000.0, 5_000), 1_000);
        // Half a window adds half a window.
        assert_eq!(rate.window_ms(WINDOWS, 5_500), 10_500);
        // Dropped when all windows have passed since the last record.
        assert!((rate.measure(WINDOWS, 15_999) - 11_000.0 / 10.999).abs() < 1e-9);
        assert_eq!(rate.measure(WINDOWS, 16_000), 0.0);
    }

    #[test]
    fn a_reverted_amount_does_not_count() {
        let mut rate = Rate::default();
        rate.record(WINDOWS, 100.0, 0);
        let before = rate.measure(WINDOWS, 300);
        rate.record(WINDOWS, 5_000.0, 300);
        rate.record(WINDOWS, -5_000.0, 300);
        assert_eq!(rate.measure(WINDOWS, 300), before);
    }

    #[test]
    fn a_single_window_and_time_that_stands_still_are_no_trouble() {
        let one = Windows::new(0, 0);
        let mut rate = Rate::default();
        rate.record(one, 1.0, 7);
        // The minimum time is one millisecond.
        assert_eq!(rate.measure(one, 7), 1_000.0);
        assert_eq!(rate.measure(one, 0), 1_000.0);
    }

    proptest! {
        /// A client that pauses as requested stays within the limit over a long time, as long as no
        /// single record is worth more than half a window. (A larger one leaves the windows before
        /// it is compensated, as in Kafka.)
        #[test]
        fn clients_that_obey_the_throttle_time_keep_to_the_limit(
            sizes in prop::collection::vec(1u32..10_000, 200..400),
            limit in 20_000f64..100_000.0,
            latency_ms in 0u64..20,
        ) {
            let mut rate = Rate::default();
            let mut now_ms = 1_000_000;
            let began = now_ms;
            let mut total = 0.0;
            for size in &sizes {
                rate.record(WINDOWS, f64::from(*size), now_ms);
                total += f64::from(*size);
                now_ms += rate.throttle_ms(WINDOWS, limit, now_ms) + latency_ms;
            }
            let seconds = (now_ms - began) as f64 / 1_000.0;
            // The initial burst is the content of ten windows.
            prop_assert!(total <= limit * (seconds + 10.1) + 10_000.0, "{total} in {seconds} s");
            // No pause is longer than needed to compensate for the recorded amount.
            let fair = total / limit + 0.021 * sizes.len() as f64;
            prop_assert!(seconds <= fair, "{total} in {seconds} s");
        }

        /// The result equals that of a list of all records.
        #[test]
        fn the_sum_is_that_of_a_list(
            records in prop::collection::vec((0u64..3_000, 1u32..100), 1..60),
        ) {
            let windows = Windows { count: 3, length_ms: 1_000 };
            let mut sum = WindowedSum::default();
            let mut list: Vec<(u64, u64, f64)> = Vec::new();
            let mut now_ms = 0;
            for (pause_ms, value) in records {
                now_ms += pause_ms;
                let value = f64::from(value);
                sum.record(windows, value, now_ms);
                match list.last_mut() {
                    Some((since, last, sum)) if now_ms - *since < 1_000 => {
                        *last = now_ms;
                        *sum += value;
                    }
                    _ => list.push((now_ms, now_ms, value)),
                }
                let kept = list.len().saturating_sub(4);
                let of_list = list[kept..].iter().filter(|(_, last, _)| now_ms - last < 3_000);
                prop_assert_eq!(sum.sum(windows, now_ms), of_list.map(|(_, _, sum)| sum).sum::<f64>());
            }
        }
    }
}
