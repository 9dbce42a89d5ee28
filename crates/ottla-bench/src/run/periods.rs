//! Ten-second periods of a round, with more figures than the plotted intervals.

use crate::results::{Period, Quantiles};
use crate::workload::latencies::Latencies;

/// The period length of the OpenMessaging Benchmark, on which its charts rely.
const SECONDS: f64 = 10.0;
/// Maximum number of periods; longer rounds keep the first ones.
const MOST: usize = 10_000;

/// The counts of one interval of a round.
pub struct Interval<'a> {
    /// The interval's end, and its length, in seconds.
    pub second: f64,
    pub seconds: f64,
    pub produced: u64,
    pub consumed: u64,
    pub failed: u64,
    pub backlog: u64,
    pub ack: &'a Latencies,
    pub send_delay: &'a Latencies,
    pub e2e: &'a Latencies,
}

/// The periods of a round; the last one is open.
#[derive(Default)]
pub struct Periods {
    closed: Vec<Period>,
    open: OpenPeriod,
}

#[derive(Default)]
struct OpenPeriod {
    second: f64,
    seconds: f64,
    produced: u64,
    consumed: u64,
    failed: u64,
    backlog: u64,
    ack: Latencies,
    send_delay: Latencies,
    e2e: Latencies,
}

impl Periods {
    pub fn add(&mut self, interval: Interval<'_>) {
        let open = &mut self.open;
        open.second = interval.second;
        open.seconds += interval.seconds;
        open.produced += interval.produced;
        open.consumed += interval.consumed;
        open.failed += interval.failed;
        open.backlog = interval.backlog;
        open.ack.add(interval.ack);
        open.send_delay.add(interval.send_delay);
        open.e2e.add(interval.e2e);
        if open.seconds >= SECONDS {
            self.close();
        }
    }

    fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        let per_second = |records: u64| records as f64 / open.seconds;
        if self.closed.len() < MOST {
            self.closed.push(Period {
                second: open.second,
                produced_per_second: per_second(open.produced),
                failed_per_second: per_second(open.failed),
                consumed_per_second: per_second(open.consumed),
                backlog: open.backlog,
                ack: Quantiles::of(&open.ack),
                send_delay: Quantiles::of(&open.send_delay),
                e2e: Quantiles::of(&open.e2e),
            });
        }
    }

    /// All periods, including the last partial one if it is long enough for a rate, or if it is the
    /// only one.
    pub fn finish(mut self) -> Vec<Period> {
        if self.open.seconds >= SECONDS / 2.0 || (self.closed.is_empty() && self.open.seconds > 0.0)
        {
            self.close();
        }
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(seconds: &[f64]) -> Vec<Period> {
        let mut periods = Periods::default();
        let mut ack = Latencies::default();
        ack.record_ns(1_000_000);
        let none = Latencies::default();
        let mut second = 0.0;
        for length in seconds {
            second += length;
            periods.add(Interval {
                second,
                seconds: *length,
                produced: 100,
                consumed: 50,
                failed: 0,
                backlog: 7,
                ack: &ack,
                send_delay: &none,
                e2e: &none,
            });
        }
        periods.finish()
    }

    #[test]
    fn a_period_is_ten_seconds_and_a_short_remainder_is_omitted() {
        let periods = intervals(&[4.0, 6.0, 5.0, 5.0, 1.0]);
        assert_eq!(periods.len(), 2);
        assert_eq!((periods[1].second, periods[1].backlog), (20.0, 7));
        assert_eq!(periods[0].produced_per_second, 20.0);
        assert!((periods[0].ack.p99_us - 1000.0).abs() < 2.0);
        assert_eq!(periods[0].e2e, Quantiles::default());
    }

    #[test]
    fn a_shorter_round_is_one_period() {
        let periods = intervals(&[1.0, 1.0]);
        assert_eq!(periods.len(), 1);
        assert_eq!(periods[0].consumed_per_second, 50.0);
        assert!(intervals(&[]).is_empty());
    }
}
