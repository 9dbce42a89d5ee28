//! The producers of a round: a thread each, or several that share one, which send until their shares are done or the
//! round's time is over.

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

/// How long a load at a rate may continue after its time, as a multiple of its time, until everything due is
/// sent.
const GRACE: u64 = 3;
const CLOSE: Duration = Duration::from_secs(30);
/// If all of the first records, up to this number, are refused, the round has nothing to measure.
const MOST_REFUSALS: u64 = 1000;
const SEED: u64 = 7;

/// The state shared by all producers of a round.
pub struct RoundLoad {
    pub values: ValueSource,
    pub keys: KeyDistribution,
    /// Of all producers together; `u64::MAX` where time ends the round.
    pub records: u64,
    pub load: Load,
    /// Of each producer.
    pub threads: u64,
    /// Of all producers together.
    pub all_threads: u64,
    pub window: Window,
    /// Values carry their instants.
    pub is_stamped: bool,
    pub transaction: Option<Duration>,
    /// When the last record that was sent was due.
    pub last_due: AtomicU64,
    /// Records of a load with a rate that were never sent, because the producers had fallen too far
    /// behind.
    pub given_up: AtomicU64,
}

impl RoundLoad {
    /// The values are prepared here, before the clock starts.
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

/// Sends this producer's records, and returns when all of them are complete.
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

/// When a thread of a round stops: when its share is sent, its time is over, or the run is stopped.
struct OfRound<'a> {
    load: &'a RoundLoad,
    watch: &'a ProducerWatch,
    interruption: &'a Interruption,
    /// Records before the end of the warm-up do not count against the number of records.
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
        // Otherwise a broker that refuses everything immediately would receive a million requests per
        // second.
        std::thread::sleep(Duration::from_millis(10));
        if watch.failed() > MOST_REFUSALS && watch.records() == 0 {
            Err(error)
        } else {
            Ok(())
        }
    }
}
