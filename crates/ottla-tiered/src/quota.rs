//! The quota of one direction between this broker and remote storage, over all partitions.
//!
//! Kafka: `RLMQuotaManager` with `SimpleRate` and `WindowedSum`.

/// Bytes of the last windows, and how long to wait until they are within the quota.
#[derive(Clone, Debug)]
pub struct RemoteQuota {
    bytes_per_second: i64,
    windows: usize,
    window_ms: i64,
    /// A ring with one more place than windows, for one that overlaps the first of them.
    samples: Vec<Sample>,
    current: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    start_ms: i64,
    last_event_ms: i64,
    bytes: f64,
}

impl Sample {
    fn new(now_ms: i64) -> Sample {
        Sample {
            start_ms: now_ms,
            last_event_ms: now_ms,
            bytes: 0.0,
        }
    }
}

impl RemoteQuota {
    /// `remote.log.manager.{copy,fetch}.max.bytes.per.second`, `….quota.window.num` and
    /// `….quota.window.size.seconds`, all at least 1.
    pub fn new(bytes_per_second: i64, windows: i32, window_size_seconds: i32) -> RemoteQuota {
        RemoteQuota {
            bytes_per_second,
            windows: windows.max(1) as usize,
            window_ms: i64::from(window_size_seconds.max(1)) * 1000,
            samples: Vec::new(),
            current: 0,
        }
    }

    pub fn set_quota(&mut self, bytes_per_second: i64) {
        self.bytes_per_second = bytes_per_second;
    }

    /// Counts bytes, at a time of a clock that does not go back.
    pub fn record(&mut self, bytes: u64, now_ms: i64) {
        if self.samples.is_empty() {
            self.samples.push(Sample::new(now_ms));
        }
        if now_ms - self.samples[self.current].start_ms >= self.window_ms {
            self.current = (self.current + 1) % (self.windows + 1);
            match self.samples.get_mut(self.current) {
                Some(sample) => *sample = Sample::new(now_ms),
                None => self.samples.push(Sample::new(now_ms)),
            }
        }
        let sample = &mut self.samples[self.current];
        sample.bytes += bytes as f64;
        sample.last_event_ms = now_ms;
    }

    /// How long to wait, 0 if the rate is within the quota.
    pub fn throttle_time_ms(&mut self, now_ms: i64) -> u64 {
        let expired = self.windows as i64 * self.window_ms;
        for sample in &mut self.samples {
            if now_ms - sample.last_event_ms >= expired {
                *sample = Sample::new(now_ms);
            }
        }
        let oldest_ms = self.samples.iter().map(|it| it.start_ms).min();
        let elapsed_ms = now_ms - oldest_ms.unwrap_or(now_ms);
        let measured_ms = elapsed_ms.max(self.window_ms) as f64;
        let bytes: f64 = self.samples.iter().map(|it| it.bytes).sum();
        let rate = bytes / (measured_ms / 1000.0);
        let bound = self.bytes_per_second as f64;
        if rate <= bound {
            return 0;
        }
        ((rate - bound) / bound * measured_ms + 0.5).floor() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::RemoteQuota;

    /// The times and waits were printed by Kafka's class.
    #[test]
    fn waits_are_kafkas() {
        let mut quota = RemoteQuota::new(1000, 3, 1);
        let mut now_ms = 1_000_000;
        for (after_ms, bytes, expected) in PRINTED {
            now_ms += after_ms;
            if bytes > 0 {
                quota.record(bytes, now_ms);
            }
            assert_eq!(quota.throttle_time_ms(now_ms), expected, "at {now_ms}");
        }
    }

    const PRINTED: [(i64, u64, u64); 24] = [
        (0, 500, 0),
        (0, 600, 100),
        (100, 0, 100),
        (400, 900, 1000),
        (500, 0, 1000),
        (0, 3000, 4000),
        (700, 10, 3310),
        (900, 0, 2410),
        (999, 5000, 5411),
        (1, 0, 5410),
        (1500, 0, 3499),
        (1500, 0, 0),
        (10, 1000, 0),
        (990, 1000, 0),
        (1000, 1000, 1000),
        (1000, 1000, 1000),
        (1000, 1, 1),
        (2999, 7, 0),
        (1, 99999, 99006),
        (3000, 0, 0),
        (0, 1001, 1),
        (20000, 0, 0),
        (0, 1500, 500),
        (1, 1, 501),
    ];

    #[test]
    fn a_new_quota_counts_at_once() {
        let mut quota = RemoteQuota::new(i64::MAX, 11, 1);
        quota.record(1 << 40, 0);
        assert_eq!(quota.throttle_time_ms(0), 0);
        quota.set_quota(1 << 40);
        assert_eq!(quota.throttle_time_ms(0), 0);
        quota.set_quota(1 << 39);
        assert_eq!(quota.throttle_time_ms(0), 1000);
    }
}
