//! A sensor: average, extremes and rates over the last windows, and totals
//! (`org.apache.kafka.common.metrics.stats`: `SampledStat`, `Avg`, `Max`, `Min`, `Rate`,
//! `CumulativeSum`).
//!
//! Pure: the time is an argument. Kafka has samples for each statistic. The statistics of one
//! sensor are recorded together, so one set of samples serves all of them.

use std::time::Duration;

/// The windows of averages, extremes and rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Windows {
    pub(crate) count: usize,
    pub(crate) length_ms: u64,
}

/// The time of a recording or reading, and the windows that apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Milliseconds since an arbitrary start.
    pub(crate) ms: u64,
    pub(crate) windows: Windows,
}

impl Moment {
    /// Windows of one hour, for events that happen a few times a day, such as rebalances.
    pub(crate) fn hourly(mut self) -> Moment {
        self.windows.length_ms = 3_600_000;
        self
    }
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    start_ms: u64,
    last_event_ms: u64,
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
}

impl Sample {
    fn new(now_ms: u64) -> Sample {
        Sample {
            start_ms: now_ms,
            last_event_ms: now_ms,
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        }
    }
}

/// All moments of a sensor must have the same windows.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sensor {
    /// One more than the number of windows: the oldest overlaps the measured time.
    samples: Vec<Sample>,
    current: usize,
    total: f64,
    count: u64,
    last: Option<f64>,
}

/// The values of a sensor at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// NaN if nothing was recorded recently; so are the extremes.
    pub(crate) avg: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The sum of the values per second.
    pub(crate) rate: f64,
    /// The number of recordings per second.
    pub(crate) event_rate: f64,
    /// The sum of all values.
    pub(crate) total: f64,
    /// The number of all recordings.
    pub(crate) count: f64,
    /// NaN before the first recording.
    pub(crate) last: f64,
}

impl Sensor {
    /// Records a time, in milliseconds.
    pub(crate) fn record_time(&mut self, time: Duration, now: Moment) {
        self.record(time.as_secs_f64() * 1000.0, now);
    }

    pub(crate) fn record(&mut self, value: f64, now: Moment) {
        let Moment { ms, windows } = now;
        let is_complete = match self.samples.get(self.current) {
            None => {
                self.samples.push(Sample::new(ms));
                false
            }
            Some(sample) => ms.saturating_sub(sample.start_ms) >= windows.length_ms,
        };
        if is_complete {
            self.current = (self.current + 1) % (windows.count + 1);
            match self.samples.get_mut(self.current) {
                Some(oldest) => *oldest = Sample::new(ms),
                None => self.samples.push(Sample::new(ms)),
            }
        }
        let sample = &mut self.samples[self.current];
        sample.last_event_ms = ms;
        sample.count += 1;
        sample.sum += value;
        sample.min = sample.min.min(value);
        sample.max = sample.max.max(value);
        self.total += value;
        self.count += 1;
        self.last = Some(value);
    }

    pub(crate) fn measure(&mut self, now: Moment) -> Measured {
        let Moment { ms, windows } = now;
        let reach = windows.count as u64 * windows.length_ms;
        for sample in &mut self.samples {
            if ms.saturating_sub(sample.last_event_ms) >= reach {
                *sample = Sample::new(ms);
            }
        }
        let mut all = Sample::new(ms);
        for sample in &self.samples {
            all.start_ms = all.start_ms.min(sample.start_ms);
            all.count += sample.count;
            all.sum += sample.sum;
            all.min = all.min.min(sample.min);
            all.max = all.max.max(sample.max);
        }
        let seconds = measured_ms(all.start_ms, now) as f64 / 1000.0;
        let known = |value: f64| if all.count == 0 { f64::NAN } else { value };
        Measured {
            avg: known(all.sum / all.count as f64),
            min: known(all.min),
            max: known(all.max),
            rate: all.sum / seconds,
            event_rate: all.count as f64 / seconds,
            total: self.total,
            count: self.count as f64,
            last: self.last.unwrap_or(f64::NAN),
        }
    }
}

/// The period of a rate. All windows except the last count as complete, so that a rate does not
/// jump in the first second.
fn measured_ms(start_ms: u64, Moment { ms, windows }: Moment) -> u64 {
    let elapsed = ms.saturating_sub(start_ms);
    let whole = elapsed / windows.length_ms.max(1);
    let least = windows.count.saturating_sub(1) as u64;
    let missing = least.saturating_sub(whole) * windows.length_ms;
    (elapsed + missing).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        let windows = Windows {
            count: 2,
            length_ms: 30_000,
        };
        Moment { ms, windows }
    }

    #[test]
    fn an_empty_sensor_has_no_average_and_rate_zero() {
        let measured = Sensor::default().measure(at(5));
        assert!(measured.avg.is_nan() && measured.max.is_nan() && measured.last.is_nan());
        assert_eq!((measured.rate, measured.total), (0.0, 0.0));
    }

    /// The expected values come from Kafka's `Avg`, `Max` and `Rate` for the same events.
    #[test]
    fn old_windows_expire() {
        let mut sensor = Sensor::default();
        sensor.record(10.0, at(0));
        sensor.record(20.0, at(1_000));
        let first = sensor.measure(at(1_000));
        assert_eq!((first.avg, first.min, first.max), (15.0, 10.0, 20.0));
        // One whole window is assumed to have passed before.
        assert_eq!(first.rate, 30.0 / 31.0);
        assert_eq!(first.event_rate, 2.0 / 31.0);
        sensor.record(60.0, at(30_000));
        let second = sensor.measure(at(40_000));
        assert_eq!((second.avg, second.max), (30.0, 60.0));
        assert_eq!(second.rate, 90.0 / 40.0);
        // The last event of the first window is 60 seconds ago.
        let third = sensor.measure(at(61_000));
        assert_eq!((third.avg, third.min, third.count), (60.0, 60.0, 3.0));
        assert_eq!((third.total, third.last), (90.0, 60.0));
        let late = sensor.measure(at(1_000_000));
        assert!(late.avg.is_nan());
        assert_eq!((late.rate, late.total), (0.0, 90.0));
    }

    #[test]
    fn at_most_one_extra_window_is_kept() {
        let mut sensor = Sensor::default();
        for second in 0..1_000 {
            sensor.record(f64::from(second), at(u64::from(second as u32) * 1_000));
        }
        assert_eq!(sensor.samples.len(), 3);
        let measured = sensor.measure(at(999_000));
        assert_eq!(measured.max, 999.0);
        assert!(measured.min >= 999.0 - 90.0, "{}", measured.min);
        assert!(
            (measured.event_rate - 1.0).abs() < 0.05,
            "{}",
            measured.event_rate
        );
    }
}
