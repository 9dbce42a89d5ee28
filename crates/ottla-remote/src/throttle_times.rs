//! How long a quota held transfers back: average and maximum of the last minute.
//!
//! Kafka: `RLMQuotaMetrics`, whose sensor has `metrics.num.samples` and
//! `metrics.sample.window.ms` of their defaults.

/// Kafka's default of `metrics.sample.window.ms`.
const WINDOW_MS: u64 = 30_000;

/// The current window and the one before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThrottleTimes {
    windows: [Window; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// Since the start of the clock, in windows.
    number: u64,
    count: u64,
    sum_ms: u64,
    max_ms: u64,
}

/// In milliseconds; 0 if nothing was held back.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ThrottleTime {
    pub average: f64,
    pub max: f64,
}

impl ThrottleTimes {
    /// `now_ms` is of a clock that does not go back.
    pub fn record(&mut self, throttle_ms: u64, now_ms: u64) {
        let number = now_ms / WINDOW_MS;
        let window = &mut self.windows[(number % 2) as usize];
        if window.number != number {
            *window = Window {
                number,
                ..Window::default()
            };
        }
        window.count += 1;
        window.sum_ms += throttle_ms;
        window.max_ms = window.max_ms.max(throttle_ms);
    }

    pub fn read(&self, now_ms: u64) -> ThrottleTime {
        let number = now_ms / WINDOW_MS;
        let windows = self.windows.iter();
        let recent = windows.filter(|window| number.saturating_sub(window.number) <= 1);
        let (mut count, mut sum_ms, mut max_ms) = (0, 0, 0);
        for window in recent {
            count += window.count;
            sum_ms += window.sum_ms;
            max_ms = max_ms.max(window.max_ms);
        }
        ThrottleTime {
            average: sum_ms as f64 / count.max(1) as f64,
            max: max_ms as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_forgotten_after_a_minute() {
        let mut times = ThrottleTimes::default();
        let read = |times: &ThrottleTimes, now_ms| {
            let time = times.read(now_ms);
            (time.average, time.max)
        };
        assert_eq!(read(&times, 5), (0.0, 0.0));
        times.record(100, 1_000);
        times.record(200, 29_999);
        assert_eq!(read(&times, 30_000), (150.0, 200.0));
        times.record(30, 59_999);
        assert_eq!(read(&times, 59_999), (110.0, 200.0));
        assert_eq!(read(&times, 60_000), (30.0, 30.0));
        // The window before is older.
        times.record(7, 120_000);
        assert_eq!(read(&times, 120_000), (7.0, 7.0));
        assert_eq!(read(&times, 1_000_000), (0.0, 0.0));
    }
}
