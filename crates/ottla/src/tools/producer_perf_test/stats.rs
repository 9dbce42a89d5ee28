//! Counters of completed records, and the output lines of Kafka's tool
//! (`ProducerPerformance.Stats`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ottla_bench::drive::produce::SendProgress;
use ottla_bench::workload::latencies::Latencies;
use ottla_bench::workload::pacing::RunClock;
use ottla_bench::workload::tag::{Elapsed, elapsed};
use ottla_client::{ClientError, DeliveredBatch, DeliveryListener};

use crate::tools::java_exceptions;
use crate::tools::java_numbers::fixed;

const NS_PER_MS: f64 = 1e6;
const BYTES_PER_MB: f64 = 1024.0 * 1024.0;
/// Maximum number of distinct failures; further ones are combined.
const MOST_KINDS: usize = 16;

/// Shared by the client's threads, which report batches, and the tool.
pub(super) struct Stats {
    clock: RunClock,
    reporting_interval_ns: u64,
    handed: Arc<SendProgress>,
    has_warmup: bool,
    counted: Mutex<Counted>,
}

struct Counted {
    whole: Tally,
    /// Records after the warm-up; `None` until there are any.
    steady: Option<Tally>,
    failed: u64,
    failures: BTreeMap<String, u64>,
}

/// The counters of one summary and its windows.
struct Tally {
    start: u64,
    from_due: Latencies,
    from_sent: Latencies,
    window: Window,
    /// Whether no window has been printed.
    is_first_window: bool,
}

struct Window {
    start: u64,
    count: u64,
    latency_ns: u64,
    longest_ns: u64,
}

impl Window {
    fn new(start: u64) -> Window {
        Window {
            start,
            count: 0,
            latency_ns: 0,
            longest_ns: 0,
        }
    }
}

impl Tally {
    fn new(start: u64) -> Tally {
        Tally {
            start,
            from_due: Latencies::default(),
            from_sent: Latencies::default(),
            window: Window::new(start),
            is_first_window: true,
        }
    }

    /// Counts several records with the same moment.
    fn record(&mut self, elapsed: Elapsed, count: u64) {
        self.from_due.record_many_ns(elapsed.since_due_ns, count);
        self.from_sent.record_many_ns(elapsed.since_sent_ns, count);
        self.window.count += count;
        self.window.latency_ns += elapsed.since_due_ns * count;
        self.window.longest_ns = self.window.longest_ns.max(elapsed.since_due_ns);
    }

    /// The line of the window that ends now.
    fn window_line(&self, now: u64, value_bytes: f64) -> String {
        let window = &self.window;
        let seconds = (now - window.start) as f64 / 1e9;
        let count = window.count as f64;
        format!(
            "{} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency.",
            window.count,
            fixed(count / seconds, 1),
            fixed(count * value_bytes / seconds / BYTES_PER_MB, 2),
            fixed(window.latency_ns as f64 / count / NS_PER_MS, 1),
            fixed(window.longest_ns as f64 / NS_PER_MS, 1)
        )
    }

    fn total_line(&self, now: u64, value_bytes: f64, which: &str) -> String {
        let count = self.from_due.count() as f64;
        // If nothing has arrived, no time has passed either, and the rate is 0.
        let seconds = match now - self.start {
            0 => f64::INFINITY,
            ns => ns as f64 / 1e9,
        };
        let mean = match self.from_due.count() {
            0 => f64::NAN,
            _ => self.from_due.mean_ns() / NS_PER_MS,
        };
        let percentile = |quantile| self.from_due.at_quantile_ns(quantile) / 1_000_000;
        format!(
            "{}{which} records sent, {} records/sec ({} MB/sec), {} ms avg latency, {} ms max latency, {} ms 50th, \
             {} ms 95th, {} ms 99th, {} ms 99.9th.",
            self.from_due.count(),
            fixed(count / seconds, 6),
            fixed(count * value_bytes / seconds / BYTES_PER_MB, 2),
            fixed(mean, 2),
            fixed(self.from_due.max_ns() as f64 / NS_PER_MS, 2),
            percentile(0.5),
            percentile(0.95),
            percentile(0.99),
            percentile(0.999)
        )
    }
}

impl Stats {
    /// The clock was just started.
    pub(super) fn new(
        clock: RunClock,
        reporting_interval_ms: u64,
        has_warmup: bool,
        handed: Arc<SendProgress>,
    ) -> Stats {
        Stats {
            clock,
            reporting_interval_ns: reporting_interval_ms.saturating_mul(1_000_000),
            handed,
            has_warmup,
            counted: Mutex::new(Counted {
                whole: Tally::new(0),
                steady: None,
                failed: 0,
                failures: BTreeMap::new(),
            }),
        }
    }

    fn locked(&self) -> MutexGuard<'_, Counted> {
        self.counted
            .lock()
            .expect("no thread panics while it counts")
    }

    fn on_written(&self, tags: &[u64]) {
        let now = self.clock.now();
        let mut counted = self.locked();
        let counted = &mut *counted;
        // Records sent with the same clock reading have the same tag and are adjacent.
        for same in tags.chunk_by(|one, other| one == other) {
            let (elapsed, count) = (elapsed(same[0], now), same.len() as u64);
            counted.whole.record(elapsed, count);
            if self.has_warmup && elapsed.after_warmup {
                let sent = now.saturating_sub(elapsed.since_sent_ns);
                let steady = counted.steady.get_or_insert_with(|| Tally::new(sent));
                steady.record(elapsed, count);
            }
        }
        let is_over = |tally: &Tally| now >= tally.window.start + self.reporting_interval_ns;
        if is_over(&counted.whole) {
            // After the warm-up, the steady-state windows are printed instead.
            if counted.steady.is_none() {
                self.print_window(&counted.whole, now);
            }
            counted.whole.window = Window::new(now);
        }
        if let Some(steady) = &mut counted.steady
            && is_over(steady)
        {
            if steady.is_first_window {
                println!("In steady state.");
                steady.is_first_window = false;
            }
            self.print_window(steady, now);
            steady.window = Window::new(now);
        }
    }

    fn print_window(&self, tally: &Tally, now: u64) {
        println!(
            "{}",
            tally.window_line(now, self.handed.average_value_bytes())
        );
    }

    /// Prints the first failure of each kind. Kafka's tool prints every one and counts none.
    pub(super) fn on_failed(&self, count: u64, error: &ClientError) {
        let mut counted = self.locked();
        counted.failed += count;
        let mut kind = java_exceptions::shown(error);
        if !counted.failures.contains_key(&kind) {
            if counted.failures.len() >= MOST_KINDS {
                kind = "others".into();
            } else {
                eprintln!("{kind}");
            }
        }
        *counted.failures.entry(kind).or_default() += count;
    }

    /// Kafka's last lines.
    pub(super) fn print_totals(&self) {
        let now = self.clock.now();
        let counted = self.locked();
        let value_bytes = self.handed.average_value_bytes();
        println!("{}", counted.whole.total_line(now, value_bytes, ""));
        if let Some(steady) = &counted.steady {
            println!("{}", steady.total_line(now, value_bytes, " steady state"));
        } else if self.has_warmup {
            // No record sent after the warm-up has arrived.
            let none = Tally::new(now);
            println!("{}", none.total_line(now, value_bytes, " steady state"));
        }
    }

    pub(super) fn show_failures(&self) {
        let counted = self.locked();
        if counted.failed == 0 {
            return;
        }
        eprintln!("{} records could not be sent:", counted.failed);
        for (kind, count) in &counted.failures {
            eprintln!("  {count} times {kind}");
        }
    }

    /// Prints the latencies from due and from send, without the warm-up if there is one.
    pub(super) fn with_latencies<T>(&self, show: impl FnOnce(&Latencies, &Latencies) -> T) -> T {
        let counted = self.locked();
        let tally = counted.steady.as_ref().unwrap_or(&counted.whole);
        show(&tally.from_due, &tally.from_sent)
    }
}

impl DeliveryListener for Stats {
    fn on_delivered(&self, batch: &DeliveredBatch<'_>) {
        match batch.result {
            Ok(_) => self.on_written(batch.tags),
            Err(error) => self.on_failed(batch.tags.len() as u64, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_bench::workload::pacing::Moment;
    use ottla_bench::workload::tag::tag;
    use ottla_types::ErrorCode;

    use super::*;

    fn stats(has_warmup: bool) -> Stats {
        Stats::new(
            RunClock::start(),
            3_600_000,
            has_warmup,
            Arc::new(SendProgress::new(1)),
        )
    }

    fn batch<'a>(tags: &'a [u64], result: Result<i64, &'a ClientError>) -> DeliveredBatch<'a> {
        DeliveredBatch {
            topic: "t",
            partition: 0,
            result,
            record_count: tags.len() as u32,
            bytes: 0,
            tags,
        }
    }

    #[test]
    fn lines_have_the_format_of_kafka() {
        let mut tally = Tally::new(0);
        for (milliseconds, count) in [(1, 90), (20, 10)] {
            let elapsed = Elapsed {
                since_due_ns: milliseconds * 1_000_000,
                since_sent_ns: 1000,
                after_warmup: false,
            };
            tally.record(elapsed, count);
        }
        assert_eq!(
            tally.window_line(2_000_000_000, 1_048_576.0),
            "100 records sent, 50.0 records/sec (50.00 MB/sec), 2.9 ms avg latency, 20.0 ms max latency."
        );
        assert_eq!(
            tally.total_line(2_000_000_000, 1_048_576.0, ""),
            "100 records sent, 50.000000 records/sec (50.00 MB/sec), 2.90 ms avg latency, 20.00 ms max latency, \
             1 ms 50th, 20 ms 95th, 20 ms 99th, 20 ms 99.9th."
        );
        let of_nothing = Tally::new(7).total_line(7, 0.0, " steady state");
        assert!(
            of_nothing.starts_with("0 steady state records sent, 0.000000 records/sec"),
            "{of_nothing}"
        );
        assert_eq!(
            Tally::new(0).total_line(1_000_000_000, 0.0, ""),
            "0 records sent, 0.000000 records/sec (0.00 MB/sec), NaN ms avg latency, 0.00 ms max latency, 0 ms 50th, \
             0 ms 95th, 0 ms 99th, 0 ms 99.9th."
        );
    }

    #[test]
    fn records_after_the_warm_up_have_their_own_summary() {
        let stats = stats(true);
        let start = Moment { due: 0, sent: 0 };
        for (after_warmup, count) in [(false, 3), (true, 2)] {
            stats.on_delivered(&batch(&vec![tag(start, after_warmup); count], Ok(0)));
        }
        let counted = stats.locked();
        assert_eq!(counted.whole.from_due.count(), 5);
        assert_eq!(counted.steady.as_ref().unwrap().from_due.count(), 2);
    }

    #[test]
    fn failed_records_are_counted_by_error_and_not_as_sent() {
        let stats = stats(false);
        let fail = |code: ErrorCode, records: usize| {
            let error = ClientError::broker("x", code.code(), Some("why"));
            stats.on_delivered(&batch(&vec![0; records], Err(&error)));
        };
        fail(ErrorCode::MessageTooLarge, 2);
        fail(ErrorCode::MessageTooLarge, 1);
        fail(ErrorCode::NotEnoughReplicas, 4);
        let counted = stats.locked();
        assert_eq!((counted.failed, counted.whole.from_due.count()), (7, 0));
        let kinds: Vec<_> = counted.failures.iter().collect();
        assert_eq!(kinds.len(), 2, "{kinds:?}");
        assert!(kinds.iter().any(|(kind, count)| {
            **kind == "org.apache.kafka.common.errors.RecordTooLargeException: why" && **count == 3
        }));
    }
}
