//! One thread that sends records, each at its due time or as fast as the client accepts them.
//!
//! This is the only loop that produces through the native client. `producer-perf-test` and the
//! rounds of `ottla bench` differ in their end and in the counted records, which a [`Course`]
//! defines. A record is prepared before it is due, so that only the client's work remains at its
//! due time.

use std::time::Duration;

use ottla_client::{ClientError, Producer, RecordRef, TrySendError};
use tokio::runtime::Handle;

use crate::workload::keys::Keys;
use crate::workload::pacing::{Moment, Pacer, RunClock};
use crate::workload::stamp::stamp;
use crate::workload::tag::tag;
use crate::workload::values::Values;

/// The generator of one thread. The producer's listener identifies the outcome of each record by
/// its tag ([`crate::workload::tag`]).
pub struct Generator<'a> {
    pub producer: &'a Producer,
    /// The client's runtime, on which this thread waits for asynchronous calls.
    pub runtime: &'a Handle,
    pub topic: &'a str,
    pub values: Values,
    pub keys: Keys,
    pub pacer: Pacer,
    /// The number of this thread's first record.
    pub first: u64,
    /// The distance between this thread's record numbers; records are numbered over all threads.
    pub stride: u64,
    /// The duration of each transaction; `None` without transactions.
    pub transaction: Option<Duration>,
    /// Whether values begin with the record's moment ([`crate::workload::stamp`]).
    pub is_stamped: bool,
}

/// Decides when a run ends and which records count. It is called for every record, and therefore
/// inlined.
pub trait Course {
    /// Whether to send the record with this number.
    fn has_more(&self, number: u64) -> bool;

    /// The record is due. Returns whether it counts as measured, or `None` if it is too late for
    /// it.
    fn take_turn(&mut self, number: u64, value_bytes: u64, moment: Moment) -> Option<bool>;

    /// The client refused a record. An error ends the run.
    fn on_refused(&mut self, error: ClientError) -> Result<(), ClientError>;
}

impl Generator<'_> {
    /// Sends until the course ends; returns when the client has accepted the last record.
    pub fn run(mut self, course: &mut impl Course) -> Result<(), ClientError> {
        let mut transaction = self.transaction.map(Transaction::new);
        let mut stamped = Vec::new();
        let mut number = self.first;
        while course.has_more(number) {
            let mut value = self.values.next(number);
            let key = self.keys.next(number);
            if let Some(transaction) = &mut transaction {
                transaction.begin(self.producer, self.pacer.clock())?;
            }
            let moment = self.pacer.wait_for_turn();
            let Some(is_measured) = course.take_turn(number, value.len() as u64, moment) else {
                break;
            };
            if self.is_stamped {
                stamped.clear();
                stamped.extend_from_slice(value);
                stamp(&mut stamped, moment, is_measured);
                value = &stamped;
            }
            let record = RecordRef {
                key,
                ..RecordRef::new(self.topic, value)
            };
            match hand_over(
                self.producer,
                self.runtime,
                record,
                tag(moment, is_measured),
            ) {
                Ok(SendOutcome::Immediate) => {}
                Ok(SendOutcome::AfterWait) => self.pacer.read_again(),
                Err(error) => {
                    course.on_refused(error)?;
                    self.pacer.read_again();
                }
            }
            if let Some(transaction) = &mut transaction
                && transaction.is_over(moment.sent)
            {
                transaction.commit(self.producer, self.runtime)?;
                self.pacer.read_again();
            }
            number += self.stride;
        }
        match &mut transaction {
            Some(transaction) => transaction.commit(self.producer, self.runtime),
            None => Ok(()),
        }
    }
}

/// How the client accepted a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    Immediate,
    /// The calling thread had to wait for buffer memory or for the topic's metadata.
    AfterWait,
}

/// Passes a record to the client, on a thread that may block.
#[inline]
pub fn hand_over(
    producer: &Producer,
    runtime: &Handle,
    record: RecordRef<'_>,
    tag: u64,
) -> Result<SendOutcome, ClientError> {
    match producer.try_send_tagged(record, tag) {
        Ok(()) => Ok(SendOutcome::Immediate),
        Err(TrySendError::Failed(error)) => Err(error),
        Err(TrySendError::BufferFull | TrySendError::UnknownTopic) => {
            runtime.block_on(producer.send_tagged(record, tag))?;
            Ok(SendOutcome::AfterWait)
        }
    }
}

/// The consecutive transactions of a run.
struct Transaction {
    duration_ns: u64,
    /// When the open transaction began, in nanoseconds of the run's clock.
    begun: Option<u64>,
}

impl Transaction {
    fn new(duration: Duration) -> Transaction {
        Transaction {
            duration_ns: duration.as_nanos() as u64,
            begun: None,
        }
    }

    fn begin(&mut self, producer: &Producer, clock: RunClock) -> Result<(), ClientError> {
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
