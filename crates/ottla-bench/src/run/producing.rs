//! The producers of a round: a thread each, or several threads that share one producer. They send
//! until their share is sent or the round's time is over.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use ottla_client::ClientError;

use super::Interruption;
use super::clients::BenchProducer;
use super::watch::{ProducerWatch, Window};
use crate::drive::generator::{Course, Generator};
use crate::scenario::Load;
use crate::scenario::point::PointSpec;
use crate::workload::keys::{KeyDistribution, Keys};
use crate::workload::pacing::{Moment, Pacer, RunClock, Schedule};
use crate::workload::values::{Content, ValueSizes, ValueSource};

/// How long a load with a rate may exceed its time, as a multiple of its time, to send everything
/// that was due.
const GRACE: u64 = 3;
const CLOSE: Duration = Duration::from_secs(30);
/// If this many records are refused and none was accepted, the round fails.
const MOST_REFUSALS: u64 = 1000;
const SEED: u64 = 7;

/// State shared by all producers of a round.
pub struct RoundLoad {
    pub values: ValueSource,
    pub keys: KeyDistribution,
    /// Records of all producers together; `u64::MAX` if the round ends by time.
    pub records: u64,
    pub load: Load,
    /// Threads of each producer.
    pub threads: u64,
    /// Threads of all producers together.
    pub all_threads: u64,
    pub window: Window,
    /// Whether values carry their due and send times.
    pub is_stamped: bool,
    pub transaction: Option<Duration>,
    /// The due time of the last record that was sent.
    pub last_due: AtomicU64,
    /// Records of a load with a rate that were not sent because the producers were too far behind.
    pub given_up: AtomicU64,
}

impl RoundLoad {
    /// Prepares the values, before the clock starts.
    pub fn new(spec: &PointSpec, load: Load, window: Window) -> RoundLoad {
        RoundLoad {
            values: values_of(spec),
            keys: spec.records.keys,
            records: spec.records.count.unwrap_or(u64::MAX),
            load,
            threads: u64::from(spec.producers.threads),
            all_threads: u64::from(spec.producers.count.max(1) * spec.producers.threads),
            window,
            is_stamped: spec.measure.end_to_end,
            transaction: spec.producers.transaction,
            last_due: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    fn schedule(&self, thread: u64) -> Option<Schedule> {
        match self.load {
            Load::Rate { records_per_second } => {
                Some(Schedule::new(records_per_second, self.all_threads, thread))
            }
            Load::Ramp { from, to } => {
                let seconds = self.window.end as f64 / 1e9;
                Some(Schedule::ramp(from, to, seconds, self.all_threads, thread))
            }
            _ => None,
        }
    }

    /// Records of one thread that are due after this moment and before the end.
    fn due_after(&self, moment: Moment) -> u64 {
        let left = self.window.end.saturating_sub(moment.due) as f64 / 1e9;
        match self.load {
            Load::Rate { records_per_second } => {
                (left * records_per_second / self.all_threads as f64) as u64
            }
            _ => 0,
        }
    }
}

pub fn values_of(spec: &PointSpec) -> ValueSource {
    let sizes = ValueSizes {
        least: spec.records.size.smallest as usize,
        most: spec.records.size.largest as usize,
    };
    let content = match spec.records.value_bound {
        Some(bound) => Content::Numbers { bound },
        None => Content::Letters,
    };
    ValueSource::random(content, sizes, SEED, spec.records.count.unwrap_or(u64::MAX))
}

/// Sends this producer's records, and returns when all of them are acknowledged or have failed.
pub fn produce(
    producer: &BenchProducer,
    load: &RoundLoad,
    watch: &ProducerWatch,
    number: u64,
    clock: RunClock,
    interruption: &Interruption,
) -> Result<()> {
    let first = number * load.threads;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (first..first + load.threads)
            .map(|thread| {
                let course = OfRound {
                    load,
                    watch,
                    interruption,
                    left: load.records.div_ceil(load.all_threads),
                    last_due: 0,
                };
                scope.spawn(move || send_share(producer, course, thread, clock))
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a generator does not panic"))
    })?;
    if interruption.is_set() {
        producer.close(Duration::from_secs(1))
    } else {
        producer.flush();
        producer.close(CLOSE);
    }
    Ok(())
}

fn send_share(
    producer: &BenchProducer,
    mut course: OfRound<'_>,
    thread: u64,
    clock: RunClock,
) -> Result<(), ClientError> {
    let load = course.load;
    let generator = Generator {
        producer: producer.producer(),
        runtime: producer.runtime(),
        topic: producer.topic(),
        values: load.values.values(SEED, thread),
        keys: Keys::new(load.keys, SEED, thread),
        pacer: Pacer::new(clock, load.schedule(thread)),
        first: thread,
        stride: load.all_threads,
        transaction: load.transaction,
        is_stamped: load.is_stamped,
    };
    let outcome = generator.run(&mut course);
    load.last_due.fetch_max(course.last_due, Relaxed);
    outcome
}

/// Ends a thread of a round when its share is sent, its time is over, or the run is interrupted.
struct OfRound<'a> {
    load: &'a RoundLoad,
    watch: &'a ProducerWatch,
    interruption: &'a Interruption,
    /// Remaining records, without the warm-up.
    left: u64,
    last_due: u64,
}

impl Course for OfRound<'_> {
    #[inline]
    fn has_more(&self, _: u64) -> bool {
        self.left > 0 && !self.interruption.is_set()
    }

    #[inline]
    fn take_turn(&mut self, _: u64, _: u64, moment: Moment) -> Option<bool> {
        let window = self.load.window;
        if moment.due >= window.end {
            return None;
        }
        if moment.sent > window.end.saturating_mul(GRACE) {
            let given_up = self.load.due_after(moment);
            self.load.given_up.fetch_add(given_up, Relaxed);
            return None;
        }
        let is_measured = moment.due >= window.start;
        self.left -= u64::from(is_measured);
        self.last_due = moment.due;
        Some(is_measured)
    }

    fn on_refused(&mut self, error: ClientError) -> Result<(), ClientError> {
        let watch = &self.watch.watch;
        watch.fail(1, &error);
        // Without the pause, a broker that refuses everything immediately would receive a million
        // requests per second.
        std::thread::sleep(Duration::from_millis(10));
        if watch.failed() > MOST_REFUSALS && watch.records() == 0 {
            Err(error)
        } else {
            Ok(())
        }
    }
}
