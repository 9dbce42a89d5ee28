//! Produce load: threads that send the records of a workload, each at its time or as fast as the client takes them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ottla_client::{ClientError, Producer, RecordRef, TrySendError};
use tokio::runtime::Handle;

use crate::workload::keys::{KeyDistribution, Keys};
use crate::workload::pacing::{Pacer, RunClock, Schedule};
use crate::workload::tag::tag;
use crate::workload::values::ValueSource;

/// What is sent.
#[derive(Clone, Debug)]
pub struct ProduceLoad {
    pub topic: String,
    pub records: u64,
    /// Of the records, those sent first that belong to the warm-up.
    pub warmup_records: u64,
    /// One where there are transactions.
    pub threads: u64,
    /// How long each transaction takes; nothing for none.
    pub transaction_duration: Option<Duration>,
    /// Of all threads together; nothing for as fast as possible.
    pub records_per_second: Option<f64>,
    pub values: ValueSource,
    pub keys: KeyDistribution,
    pub seed: u64,
}

/// How far the threads are, for others to look at while they run.
#[derive(Debug)]
pub struct Handed(Box<[OfThread]>);

/// On cache lines of its own, because its thread writes it for every record.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OfThread {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Handed {
    pub fn new(threads: u64) -> Handed {
        Handed((0..threads).map(|_| OfThread::default()).collect())
    }

    /// Records handed to the client.
    pub fn records(&self) -> u64 {
        self.0.iter().map(|it| it.records.load(Relaxed)).sum()
    }

    /// Of their values.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|it| it.bytes.load(Relaxed)).sum()
    }

    /// Of a value, so far.
    pub fn average_value_bytes(&self) -> f64 {
        // Bytes first, so that a thread that writes meanwhile does not make the values seem larger.
        let bytes = self.bytes() as f64;
        match self.records() {
            0 => 0.0,
            records => bytes / records as f64,
        }
    }
}

/// Sends everything and returns when the client has taken the last record. What became of the records, the producer's
/// listener hears, by their tags ([`crate::workload::tag`]); of a record that the client refuses, `on_refused` is told.
/// Everything that the threads need is there before the clock is asked.
pub fn run(
    producer: &Producer,
    runtime: &Handle,
    load: &ProduceLoad,
    clock: RunClock,
    handed: &Handed,
    on_refused: &(dyn Fn(&ClientError) + Sync),
) -> Result<(), ClientError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..load.threads)
            .map(|thread| {
                let generator = Generator {
                    producer,
                    runtime,
                    load,
                    clock,
                    thread,
                    handed: &handed.0[thread as usize],
                    on_refused,
                };
                scope.spawn(move || generator.send_all())
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a generator does not panic"))
    })
}

struct Generator<'a> {
    producer: &'a Producer,
    runtime: &'a Handle,
    load: &'a ProduceLoad,
    clock: RunClock,
    thread: u64,
    handed: &'a OfThread,
    on_refused: &'a (dyn Fn(&ClientError) + Sync),
}

impl Generator<'_> {
    fn send_all(&self) -> Result<(), ClientError> {
        let load = self.load;
        let mut values = load.values.values(load.seed, self.thread);
        let mut keys = Keys::new(load.keys, load.seed, self.thread);
        let schedule = load
            .records_per_second
            .map(|rate| Schedule::new(rate, load.threads, self.thread));
        let mut pacer = Pacer::new(self.clock, schedule);
        let mut transaction = load.transaction_duration.map(Transaction::new);
        let (mut records, mut bytes) = (0, 0);
        let mut number = self.thread;
        while number < load.records {
            let value = values.next(number);
            let record = RecordRef {
                key: keys.next(number),
                ..RecordRef::new(&load.topic, value)
            };
            records += 1;
            bytes += value.len() as u64;
            if let Some(transaction) = &mut transaction {
                transaction.begin(self.producer, &self.clock)?;
            }
            let moment = pacer.wait_for_turn();
            self.handed.records.store(records, Relaxed);
            self.handed.bytes.store(bytes, Relaxed);
            if self.send(record, tag(moment, number >= load.warmup_records)) {
                pacer.read_again();
            }
            if let Some(transaction) = &mut transaction
                && transaction.is_over(moment.sent)
            {
                transaction.commit(self.producer, self.runtime)?;
                pacer.read_again();
            }
            number += load.threads;
        }
        match &mut transaction {
            Some(transaction) => transaction.commit(self.producer, self.runtime),
            None => Ok(()),
        }
    }

    /// True if that took long: the client had no memory left, or did not know the topic, or refused.
    #[inline]
    fn send(&self, record: RecordRef<'_>, tag: u64) -> bool {
        match self.producer.try_send_tagged(record, tag) {
            Ok(()) => false,
            Err(TrySendError::Failed(error)) => {
                (self.on_refused)(&error);
                true
            }
            Err(TrySendError::BufferFull | TrySendError::UnknownTopic) => {
                let sent = self.producer.send_tagged(record, tag);
                if let Err(error) = self.runtime.block_on(sent) {
                    (self.on_refused)(&error);
                }
                true
            }
        }
    }
}

/// The transactions of a run, one after the other.
struct Transaction {
    duration_ns: u64,
    /// When the one that is open began.
    begun: Option<u64>,
}

impl Transaction {
    fn new(duration: Duration) -> Transaction {
        Transaction {
            duration_ns: duration.as_nanos() as u64,
            begun: None,
        }
    }

    fn begin(&mut self, producer: &Producer, clock: &RunClock) -> Result<(), ClientError> {
        if self.begun.is_none() {
            producer.begin_transaction()?;
            self.begun = Some(clock.now());
        }
        Ok(())
    }

    fn is_over(&self, now: u64) -> bool {
        self.begun
            .is_some_and(|begun| now >= begun + self.duration_ns)
    }

    fn commit(&mut self, producer: &Producer, runtime: &Handle) -> Result<(), ClientError> {
        match self.begun.take() {
            Some(_) => runtime.block_on(producer.commit_transaction()),
            None => Ok(()),
        }
    }
}
