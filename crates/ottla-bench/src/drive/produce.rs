//! Threads that send a given number of records through one producer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ottla_client::{ClientError, Producer};
use tokio::runtime::Handle;

use super::generator::{Course, Generator};
use crate::workload::keys::{KeyDistribution, Keys};
use crate::workload::pacing::{Moment, Pacer, RunClock, Schedule};
use crate::workload::values::ValueSource;

/// The records to send.
#[derive(Clone, Debug)]
pub struct ProduceLoad {
    pub topic: String,
    pub records: u64,
    /// The number of records at the beginning that belong to the warm-up.
    pub warmup_records: u64,
    /// 1 with transactions.
    pub threads: u64,
    /// The duration of each transaction; `None` without transactions.
    pub transaction_duration: Option<Duration>,
    /// Of all threads together; `None` for as fast as possible.
    pub records_per_second: Option<f64>,
    pub values: ValueSource,
    pub keys: KeyDistribution,
    pub seed: u64,
}

/// The progress of the threads, readable while they run.
#[derive(Debug)]
pub struct SendProgress(Box<[ThreadProgress]>);

/// Aligned to separate cache lines, because its thread writes it for every record.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ThreadProgress {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl SendProgress {
    pub fn new(threads: u64) -> SendProgress {
        SendProgress((0..threads).map(|_| ThreadProgress::default()).collect())
    }

    /// Records passed to the client.
    pub fn records(&self) -> u64 {
        self.0.iter().map(|it| it.records.load(Relaxed)).sum()
    }

    /// Bytes of the values passed to the client.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|it| it.bytes.load(Relaxed)).sum()
    }

    /// The average size of the values so far, in bytes.
    pub fn average_value_bytes(&self) -> f64 {
        // Bytes are read first, so that a concurrent update does not make the values seem larger.
        let bytes = self.bytes() as f64;
        match self.records() {
            0 => 0.0,
            records => bytes / records as f64,
        }
    }
}

/// Sends everything and returns when the client has accepted the last record. The producer's
/// listener identifies the outcome of each record by its tag ([`crate::workload::tag`]);
/// `on_refused` is called for a record that the client refuses. All preparation is done before the
/// clock starts.
pub fn run(
    producer: &Producer,
    runtime: &Handle,
    load: &ProduceLoad,
    clock: RunClock,
    progress: &SendProgress,
    on_refused: &(dyn Fn(&ClientError) + Sync),
) -> Result<(), ClientError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                let mut course = FixedCount {
                    load,
                    progress: &progress.0[thread as usize],
                    records: 0,
                    bytes: 0,
                    on_refused,
                };
                let schedule = load
                    .records_per_second
                    .map(|rate| Schedule::new(rate, load.threads, thread));
                scope.spawn(move || {
                    let generator = Generator {
                        producer,
                        runtime,
                        topic: &load.topic,
                        values: load.values.values(load.seed, thread),
                        keys: Keys::new(load.keys, load.seed, thread),
                        // Created on this thread, because it sets the thread's timer slack.
                        pacer: Pacer::new(clock, schedule),
                        first: thread,
                        stride: load.threads,
                        transaction: load.transaction_duration,
                        is_stamped: false,
                    };
                    generator.run(&mut course)
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a generator does not panic"))
    })
}

/// A run that ends after this number of records.
struct FixedCount<'a> {
    load: &'a ProduceLoad,
    progress: &'a ThreadProgress,
    records: u64,
    bytes: u64,
    on_refused: &'a (dyn Fn(&ClientError) + Sync),
}

impl Course for FixedCount<'_> {
    #[inline]
    fn has_more(&self, number: u64) -> bool {
        number < self.load.records
    }

    #[inline]
    fn take_turn(&mut self, number: u64, value_bytes: u64, _: Moment) -> Option<bool> {
        self.records += 1;
        self.bytes += value_bytes;
        self.progress.records.store(self.records, Relaxed);
        self.progress.bytes.store(self.bytes, Relaxed);
        Some(number >= self.load.warmup_records)
    }

    fn on_refused(&mut self, error: ClientError) -> Result<(), ClientError> {
        (self.on_refused)(&error);
        Ok(())
    }
}
