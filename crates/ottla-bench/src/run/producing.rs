//! The producers of a round: a thread each, which sends its records at their time or as fast as the client takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Interruption;
use super::clients::BenchProducer;
use super::watch::{ProducerWatch, Window};
use crate::scenario::Load;
use crate::scenario::point::{PointSpec, STAMP_BYTES};
use crate::workload::pacing::{Moment, Pacer, RunClock, Schedule};
use crate::workload::tag::tag;
use crate::workload::values::{Content, ValueSizes, ValueSource, Values};

/// How long a load at a rate goes on behind its time, as a multiple of its time, until all that was due is sent.
const GRACE: u64 = 3;
const CLOSE: Duration = Duration::from_secs(30);
const SEED: u64 = 7;

/// What all producers of a round share.
pub struct ProduceLoad {
    pub values: ValueSource,
    /// Of all producers together; `u64::MAX` where time ends the round.
    pub records: u64,
    pub load: Load,
    pub producers: u64,
    pub window: Window,
    /// Values carry their instants.
    pub is_stamped: bool,
    pub transaction: Option<Duration>,
    /// When the last record that was sent was due.
    pub last_due: AtomicU64,
    /// Records of loads at a rate that were never sent, because the producers had fallen too far behind.
    pub given_up: AtomicU64,
}

impl ProduceLoad {
    /// The values are prepared here, before the clock starts.
    pub fn new(spec: &PointSpec, load: Load, window: Window) -> ProduceLoad {
        ProduceLoad {
            values: values_of(spec),
            records: spec.records.count.unwrap_or(u64::MAX),
            load,
            producers: u64::from(spec.producers.count.max(1)),
            window,
            is_stamped: spec.measure.end_to_end,
            transaction: spec.producers.transaction,
            last_due: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    fn schedule(&self, producer: u64) -> Option<Schedule> {
        match self.load {
            Load::Rate { records_per_second } => {
                Some(Schedule::new(records_per_second, self.producers, producer))
            }
            Load::Ramp { from, to } => {
                let seconds = self.window.end as f64 / 1e9;
                Some(Schedule::ramp(from, to, seconds, self.producers, producer))
            }
            _ => None,
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

/// Sends what is this producer's, and returns when all of it has come to its end.
pub fn produce(
    producer: &BenchProducer,
    load: &ProduceLoad,
    watch: &Arc<ProducerWatch>,
    number: u64,
    clock: RunClock,
    interruption: &Interruption,
) -> Result<()> {
    let mut values = load.values.values(SEED, number);
    let schedule = load.schedule(number);
    let mut pacer = Pacer::new(clock, schedule);
    let mut stamped = Vec::new();
    let mut record = number;
    // Records before the end of the warm-up do not count against the number of records.
    let mut left = load.records.div_ceil(load.producers);
    let mut transaction = Transaction::begin(producer, load.transaction)?;
    let mut last_due = 0;
    while left > 0 {
        let moment = pacer.wait_for_turn();
        if moment.due >= load.window.end {
            break;
        }
        let grace = load.window.end.saturating_mul(GRACE);
        if moment.sent > grace {
            load.given_up.fetch_add(given_up(load, moment), Relaxed);
            break;
        }
        if record.is_multiple_of(256) && interruption.is_set() {
            break;
        }
        let is_measured = moment.due >= load.window.start;
        let value = next_value(
            &mut values,
            record,
            &mut stamped,
            load.is_stamped,
            moment,
            is_measured,
        );
        match producer.send(value, tag(moment, is_measured)) {
            Ok(false) => {}
            Ok(true) => pacer.read_again(),
            Err(error) => {
                watch.watch.fail(1, &error);
                // A broker that refuses everything at once would otherwise be asked a million times a second.
                std::thread::sleep(Duration::from_millis(10));
                pacer.read_again();
                if watch.watch.failed() > 1000 && watch.watch.records() == 0 {
                    return Err(error);
                }
            }
        }
        transaction.turn_over(producer)?;
        last_due = moment.due;
        record += load.producers;
        left -= u64::from(is_measured);
    }
    load.last_due.fetch_max(last_due, Relaxed);
    transaction.end(producer)?;
    match interruption.is_set() {
        true => producer.close(Duration::from_secs(1)),
        false => {
            producer.flush();
            producer.close(CLOSE);
        }
    }
    Ok(())
}

/// Records of this producer that were due before the end, and are not sent any more.
fn given_up(load: &ProduceLoad, moment: Moment) -> u64 {
    let left = load.window.end.saturating_sub(moment.due) as f64 / 1e9;
    match load.load {
        Load::Rate { records_per_second } => {
            (left * records_per_second / load.producers as f64) as u64
        }
        _ => 0,
    }
}

fn next_value<'a>(
    values: &'a mut Values,
    record: u64,
    stamped: &'a mut Vec<u8>,
    is_stamped: bool,
    moment: Moment,
    is_measured: bool,
) -> &'a [u8] {
    let value = values.next(record);
    if !is_stamped {
        return value;
    }
    stamped.clear();
    stamped.extend_from_slice(value);
    stamp(stamped, moment, is_measured);
    stamped
}

/// The bit of a stamp that says that the record was due after the warm-up.
const MEASURED: u64 = 1 << 63;

/// Writes the instants into the first bytes of a value.
pub fn stamp(value: &mut [u8], moment: Moment, is_measured: bool) {
    debug_assert!(value.len() as u64 >= STAMP_BYTES);
    let due = moment.due | if is_measured { MEASURED } else { 0 };
    value[..8].copy_from_slice(&due.to_be_bytes());
    value[8..16].copy_from_slice(&moment.sent.to_be_bytes());
}

/// The instants in a value, and whether it was due after the warm-up.
pub fn stamp_of(value: &[u8]) -> Option<(Moment, bool)> {
    let number = |at: usize| Some(u64::from_be_bytes(value.get(at..at + 8)?.try_into().ok()?));
    let (due, sent) = (number(0)?, number(8)?);
    let moment = Moment {
        due: due & !MEASURED,
        sent,
    };
    Some((moment, due & MEASURED != 0))
}

/// The transaction that is open, where the scenario has some.
struct Transaction {
    length: Option<Duration>,
    began: Instant,
    records: u32,
}

impl Transaction {
    fn begin(producer: &BenchProducer, length: Option<Duration>) -> Result<Transaction> {
        if length.is_some() {
            producer.begin_transaction()?;
        }
        Ok(Transaction {
            length,
            began: Instant::now(),
            records: 0,
        })
    }

    /// Commits and begins the next one when it is time; the clock is looked at now and then.
    #[inline]
    fn turn_over(&mut self, producer: &BenchProducer) -> Result<()> {
        let Some(length) = self.length else {
            return Ok(());
        };
        self.records += 1;
        if self.records.is_multiple_of(16) && self.began.elapsed() >= length {
            producer.commit_transaction()?;
            producer.begin_transaction()?;
            self.began = Instant::now();
        }
        Ok(())
    }

    fn end(self, producer: &BenchProducer) -> Result<()> {
        match self.length {
            Some(_) => producer.commit_transaction(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let mut value = vec![b'x'; 20];
        let moment = Moment { due: 5, sent: 9 };
        stamp(&mut value, moment, true);
        assert_eq!(stamp_of(&value), Some((moment, true)));
        assert_eq!(&value[16..], b"xxxx");
        stamp(&mut value, moment, false);
        assert_eq!(stamp_of(&value), Some((moment, false)));
        assert_eq!(stamp_of(b"short"), None);
    }
}
