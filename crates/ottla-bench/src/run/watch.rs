//! Counters of a round's clients, updated while they run.
//!
//! The measured window starts when the warm-up ends. Rates count the records that were acknowledged
//! or consumed within it; latencies cover the records that were due within it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use ottla_client::{DeliveredBatch, DeliveryListener};

use crate::workload::latencies::Latencies;
use crate::workload::pacing::RunClock;
use crate::workload::tag;

/// The measured window, in nanoseconds of the round's clock.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub start: u64,
    /// `u64::MAX` if a record count ends it.
    pub end: u64,
}

impl Window {
    pub fn holds(&self, now: u64) -> bool {
        (self.start..self.end).contains(&now)
    }
}

/// Counters of one client's records.
pub struct Watch {
    /// Set when the round begins, after the clients have connected.
    clock: OnceLock<RunClock>,
    window: Window,
    /// Whether records have due times.
    has_schedule: bool,
    distributions: Mutex<Distributions>,
    /// Acknowledged or consumed records, warm-up included.
    records: AtomicU64,
    bytes: AtomicU64,
    /// Records completed within the window.
    records_in_window: AtomicU64,
    bytes_in_window: AtomicU64,
    /// Records completed since the start of the window, also after its end.
    records_since_start: AtomicU64,
    bytes_since_start: AtomicU64,
    last: AtomicU64,
    failed: AtomicU64,
    first_error: OnceLock<String>,
}

#[derive(Default)]
struct Distributions {
    from_due: Latencies,
    from_send: Latencies,
    /// From due to sent.
    send_delay: Latencies,
    /// Latencies since the last call of `take_interval`: from due, and the send delay.
    interval: Latencies,
    interval_delay: Latencies,
}

impl Watch {
    pub fn new(window: Window, has_schedule: bool) -> Watch {
        Watch {
            clock: OnceLock::new(),
            window,
            has_schedule,
            distributions: Mutex::default(),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            records_in_window: AtomicU64::new(0),
            bytes_in_window: AtomicU64::new(0),
            records_since_start: AtomicU64::new(0),
            bytes_since_start: AtomicU64::new(0),
            last: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            first_error: OnceLock::new(),
        }
    }

    /// Adds records that were completed at this instant.
    pub fn add(&self, now: u64, records: u64, bytes: u64) {
        self.records.fetch_add(records, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        if now >= self.window.start {
            self.records_since_start.fetch_add(records, Relaxed);
            self.bytes_since_start.fetch_add(bytes, Relaxed);
        }
        if self.window.holds(now) {
            self.records_in_window.fetch_add(records, Relaxed);
            self.bytes_in_window.fetch_add(bytes, Relaxed);
        }
        self.last.fetch_max(now, Relaxed);
    }

    /// Adds latencies, in nanoseconds, of records that were completed together.
    pub fn record(&self, ages: impl Iterator<Item = Age>) {
        let mut distributions = self
            .distributions
            .lock()
            .expect("no thread panics with the lock");
        for age in ages {
            distributions.interval.record_ns(age.since_due_ns);
            if age.is_measured {
                distributions.from_due.record_ns(age.since_due_ns);
            }
            if self.has_schedule {
                let delay = age.since_due_ns - age.since_sent_ns;
                distributions.interval_delay.record_ns(delay);
                if age.is_measured {
                    distributions.from_send.record_ns(age.since_sent_ns);
                    distributions.send_delay.record_ns(delay);
                }
            }
        }
    }

    pub fn fail(&self, records: u64, error: &dyn std::fmt::Display) {
        self.failed.fetch_add(records, Relaxed);
        self.first_error.get_or_init(|| error.to_string());
    }

    /// Uses this clock from now on.
    pub fn begin(&self, clock: RunClock) {
        let _ = self.clock.set(clock);
    }

    pub fn clock(&self) -> RunClock {
        *self.clock.get_or_init(RunClock::start)
    }

    pub fn records(&self) -> u64 {
        self.records.load(Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn in_window(&self) -> (u64, u64) {
        let records = self.records_in_window.load(Relaxed);
        (records, self.bytes_in_window.load(Relaxed))
    }

    /// Records and bytes completed since the warm-up, whenever they were due: a run that lags at
    /// its end must catch up first.
    pub fn since_start(&self) -> (u64, u64) {
        let records = self.records_since_start.load(Relaxed);
        (records, self.bytes_since_start.load(Relaxed))
    }

    pub fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Relaxed)
    }

    pub fn first_error(&self) -> Option<&str> {
        self.first_error.get().map(String::as_str)
    }

    /// Adds the distributions of latencies from due and from send.
    pub fn add_to(&self, from_due: &mut Latencies, from_send: &mut Latencies) {
        let distributions = self
            .distributions
            .lock()
            .expect("no thread panics with the lock");
        from_due.add(&distributions.from_due);
        from_send.add(&distributions.from_send);
    }

    pub fn add_send_delay_to(&self, send_delay: &mut Latencies) {
        let distributions = self
            .distributions
            .lock()
            .expect("no thread panics with the lock");
        send_delay.add(&distributions.send_delay);
    }

    /// Adds the latencies since the last call: from due to completed, and from due to sent.
    pub fn take_interval(&self, from_due: &mut Latencies, send_delay: &mut Latencies) {
        let mut distributions = self
            .distributions
            .lock()
            .expect("no thread panics with the lock");
        from_due.add(&distributions.interval);
        distributions.interval.clear();
        if self.has_schedule {
            send_delay.add(&distributions.interval_delay);
            distributions.interval_delay.clear();
        }
    }
}

/// The age of a record when it was completed.
#[derive(Clone, Copy, Debug)]
pub struct Age {
    pub since_due_ns: u64,
    pub since_sent_ns: u64,
    /// Whether it was due after the warm-up.
    pub is_measured: bool,
}

/// A producer's watch, which knows the average value size.
pub struct ProducerWatch {
    pub watch: Watch,
    mean_bytes: f64,
    /// Acknowledged records, by partition.
    acknowledged: Mutex<BTreeMap<i32, u64>>,
}

impl ProducerWatch {
    pub fn new(watch: Watch, mean_bytes: f64) -> ProducerWatch {
        ProducerWatch {
            watch,
            mean_bytes,
            acknowledged: Mutex::default(),
        }
    }

    /// Adds the acknowledged records of each partition.
    pub fn add_acknowledged_to(&self, all: &mut BTreeMap<i32, u64>) {
        for (partition, records) in &*self
            .acknowledged
            .lock()
            .expect("no thread panics with the lock")
        {
            *all.entry(*partition).or_default() += records;
        }
    }
}

impl DeliveryListener for ProducerWatch {
    fn on_delivered(&self, delivered: &DeliveredBatch<'_>) {
        let count = delivered.tags.len() as u64;
        if let Err(error) = &delivered.result {
            self.watch.fail(count, error);
            return;
        }
        let mut acknowledged = self
            .acknowledged
            .lock()
            .expect("no thread panics with the lock");
        *acknowledged.entry(delivered.partition).or_default() += count;
        drop(acknowledged);
        let now = self.watch.clock().now();
        self.watch
            .add(now, count, (count as f64 * self.mean_bytes) as u64);
        self.watch.record(delivered.tags.iter().map(|it| {
            let elapsed = tag::elapsed(*it, now);
            Age {
                since_due_ns: elapsed.since_due_ns,
                since_sent_ns: elapsed.since_sent_ns,
                is_measured: elapsed.after_warmup,
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_from_the_end_of_the_warm_up() {
        let watch = Watch::new(Window { start: 10, end: 20 }, true);
        for now in [5, 10, 15, 20, 25] {
            watch.add(now, 2, 100);
        }
        assert_eq!((watch.records(), watch.bytes()), (10, 500));
        assert_eq!(watch.in_window(), (4, 200));
        assert_eq!(watch.since_start(), (8, 400));
        assert_eq!(watch.last(), 25);
    }
}
