//! A redrive in progress: the records read and found, the acknowledged ones, and the ones still to
//! be sent.
//!
//! Invariant: each found record is in `queue` or in the ledger from the moment at which it is
//! found. So however the redrive ends, the fate of each record is known.

use std::collections::{BTreeMap, VecDeque};

use ottla_client::{ClientError, Delivery, Producer, ProducerRecord, RecordMetadata};
use ottla_types::ErrorCode;

use super::plan::Plan;
use crate::audit::AuditNote;
use crate::problem::Problem;
use crate::records::ranges::{self, Ranges};
use crate::records::scan::{Next, Scan};
use crate::records::selection::Range;

/// Sent records whose result is awaited.
const IN_FLIGHT: usize = 10_000;
/// The size of the records that are copied before they are sent.
const STEP_BYTES: usize = 1 << 20;

/// What became of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The cluster has acknowledged it.
    Sent,
    /// It was certainly not written.
    Unsent,
    /// The cluster may have written it, and its answer is missing or says neither.
    Unknown,
}

impl Fate {
    fn of(result: &Result<RecordMetadata, ClientError>) -> Fate {
        match result {
            Ok(_) => Fate::Sent,
            Err(ClientError::Broker { code, .. }) if is_refusal(*code) => Fate::Unsent,
            Err(_) => Fate::Unknown,
        }
    }
}

/// Whether a broker that answers so has not written the batch. After other errors, some replicas
/// may have it, or an earlier attempt.
fn is_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::MessageTooLarge
            | ErrorCode::RecordListTooLarge
            | ErrorCode::InvalidRecord
            | ErrorCode::InvalidTimestamp
            | ErrorCode::InvalidTopicException
            | ErrorCode::PolicyViolation
            | ErrorCode::TopicAuthorizationFailed
    )
}

/// The fates of records, as ranges of offsets of the topic that they are read from.
#[derive(Default)]
pub(super) struct Ledger {
    /// Of each partition in the order of offsets. Neighbours have different fates.
    spans: BTreeMap<i32, Vec<(Range, Fate)>>,
    sent: u64,
    unknown: u64,
}

impl Ledger {
    /// The offsets of a partition come in their order. Offsets between two of them have no record
    /// that was found.
    fn settle(&mut self, partition: i32, offset: i64, fate: Fate) {
        self.sent += u64::from(fate == Fate::Sent);
        self.unknown += u64::from(fate == Fate::Unknown);
        let spans = self.spans.entry(partition).or_default();
        let end = offset.saturating_add(1);
        match spans.last_mut() {
            Some((range, last)) if *last == fate => range.end = end,
            _ => spans.push((Range { start: offset, end }, fate)),
        }
    }

    fn of(&self, fate: Fate) -> Ranges {
        let of_partition = |spans: &Vec<(Range, Fate)>| -> Vec<Range> {
            let spans = spans.iter().filter(|(_, it)| *it == fate);
            spans.map(|(range, _)| *range).collect()
        };
        let all = self.spans.iter();
        all.map(|(partition, spans)| (*partition, of_partition(spans)))
            .collect()
    }

    /// The parts of a plan with records that were not sent. It was read up to these positions.
    fn unsent(&self, planned: &Ranges, positions: &BTreeMap<i32, i64>) -> Ranges {
        let mut unsent = self.of(Fate::Unsent);
        for (partition, position) in positions {
            unsent.entry(*partition).or_default().push(Range {
                start: *position,
                end: i64::MAX,
            });
        }
        ranges::common(planned, &unsent)
    }

    fn unknown(&self, planned: &Ranges) -> Ranges {
        ranges::common(planned, &self.of(Fate::Unknown))
    }
}

/// A record whose fate is open.
struct Open {
    partition: i32,
    offset: i64,
    /// `None` until it is given to the producer.
    delivery: Option<Delivery>,
}

/// The audit log has the fates of all records, however the redrive ends.
pub(super) struct Sending<'a> {
    plan: &'a Plan,
    scan: Scan,
    ledger: Ledger,
    /// In the order in which they were found.
    queue: VecDeque<Open>,
    found: u64,
    /// The first one. Nothing more is sent after it.
    failure: Option<Problem>,
    note: AuditNote,
}

impl<'a> Sending<'a> {
    pub(super) fn new(plan: &'a Plan, scan: Scan, note: AuditNote) -> Sending<'a> {
        Sending {
            plan,
            scan,
            ledger: Ledger::default(),
            queue: VecDeque::new(),
            found: 0,
            failure: None,
            note,
        }
    }

    /// Reads a part of the topic, and sends the matching records. Returns whether there may be
    /// more.
    pub(super) async fn step(&mut self, producer: &Producer) -> bool {
        let first = self.queue.len();
        let mut records = Vec::new();
        let mut bytes = 0;
        let Sending {
            plan,
            scan,
            queue,
            found,
            ..
        } = &mut *self;
        let next = scan
            .step(&mut |batch, record, _decoded| {
                if !plan.wants(batch, record) {
                    return Next::More;
                }
                queue.push_back(Open {
                    partition: batch.partition,
                    offset: record.offset.0,
                    delivery: None,
                });
                records.push(plan.converted(batch, record));
                bytes += record.size_in_bytes;
                *found += 1;
                if *found >= plan.limit {
                    Next::Stop
                } else if bytes >= STEP_BYTES {
                    Next::Pause
                } else {
                    Next::More
                }
            })
            .await;
        self.send(producer, first, &records).await;
        self.settle_until(IN_FLIGHT).await;
        match next {
            Ok(next) => self.failure.is_none() && next != Next::Stop && !self.scan.is_done(),
            Err(problem) => {
                self.failure.get_or_insert(problem);
                false
            }
        }
    }

    /// Sends records whose places in the queue begin at `first`.
    async fn send(&mut self, producer: &Producer, first: usize, records: &[ProducerRecord]) {
        for (index, record) in records.iter().enumerate() {
            if self.failure.is_some() {
                return;
            }
            match producer.send_ref(record.as_ref()).await {
                Ok(delivery) => self.queue[first + index].delivery = Some(delivery),
                Err(error) => {
                    let Open {
                        partition, offset, ..
                    } = self.queue[first + index];
                    self.fail(partition, offset, error);
                }
            }
        }
    }

    fn fail(&mut self, partition: i32, offset: i64, error: ClientError) {
        let what = format!("partition {partition}, offset {offset}");
        self.failure
            .get_or_insert_with(|| Problem::from(error).of(&what));
    }

    /// Waits until the fates of at most `most` records are open.
    async fn settle_until(&mut self, most: usize) {
        while self.queue.len() > most {
            let delivery = self.queue.front().and_then(|it| it.delivery.clone());
            // It stays in the queue during the wait, for a redrive that ends here.
            let result = match delivery {
                Some(delivery) => Some(delivery.wait().await),
                None => None,
            };
            self.settle_first(result);
        }
    }

    /// `None` if it was not given to the producer.
    fn settle_first(&mut self, result: Option<Result<RecordMetadata, ClientError>>) {
        let Some(Open {
            partition, offset, ..
        }) = self.queue.pop_front()
        else {
            return;
        };
        let fate = result.as_ref().map_or(Fate::Unsent, Fate::of);
        self.ledger.settle(partition, offset, fate);
        if let Some(Err(error)) = result {
            self.fail(partition, offset, error);
        }
    }

    /// Waits for the fates of all records. Returns why it broke off, if it did.
    pub(super) async fn finish(&mut self) -> Result<(), Problem> {
        self.settle_until(0).await;
        match self.failure.take() {
            Some(problem) => Err(problem),
            None => Ok(()),
        }
    }

    pub(super) fn scan(&self) -> &Scan {
        &self.scan
    }

    pub(super) fn found(&self) -> u64 {
        self.found
    }

    /// Records that the cluster has acknowledged.
    pub(super) fn sent(&self) -> u64 {
        self.ledger.sent
    }

    /// The number of records that may have been sent, and their ranges.
    pub(super) fn unknown(&self) -> (u64, Ranges) {
        (self.ledger.unknown, self.ledger.unknown(&self.plan.ranges))
    }

    /// Where the records are that were not sent.
    pub(super) fn unsent(&self) -> Ranges {
        let positions = self.scan.positions();
        self.ledger.unsent(&self.plan.ranges, positions)
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        while let Some(first) = self.queue.front() {
            let result = first.delivery.as_ref().map(Delivery::outcome);
            match result {
                None => self.settle_first(None),
                Some(Some(result)) => self.settle_first(Some(result)),
                Some(None) => {
                    let (partition, offset) = (first.partition, first.offset);
                    self.ledger.settle(partition, offset, Fate::Unknown);
                    self.queue.pop_front();
                }
            }
        }
        let mut line = format!("{} records were sent to {}", self.sent(), self.plan.to);
        let unsent = self.unsent();
        if !unsent.is_empty() {
            line += &format!("; not sent: {}", ranges::text(&unsent));
        }
        let (count, unknown) = self.unknown();
        if count > 0 {
            let unknown = ranges::text(&unknown);
            line += &format!("; unknown of {count} records: {unknown}");
        }
        self.note.later(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: i64, end: i64) -> Range {
        Range { start, end }
    }

    #[test]
    fn sent_records_are_not_sent_again() {
        let planned = Ranges::from([(0, vec![range(0, 100)]), (1, vec![range(5, 9)])]);
        let mut ledger = Ledger::default();
        for (offset, fate) in [
            (2, Fate::Sent),
            (4, Fate::Sent),
            (7, Fate::Unsent),
            (9, Fate::Unsent),
            (12, Fate::Sent),
            (13, Fate::Unknown),
            (15, Fate::Unsent),
        ] {
            ledger.settle(0, offset, fate);
        }
        ledger.settle(1, 6, Fate::Sent);
        assert_eq!((ledger.sent, ledger.unknown), (4, 1));
        let positions = BTreeMap::from([(0, 20), (1, 9)]);
        let left = vec![range(7, 10), range(15, 16), range(20, 100)];
        assert_eq!(
            ledger.unsent(&planned, &positions),
            Ranges::from([(0, left)])
        );
        assert_eq!(
            ledger.unknown(&planned),
            Ranges::from([(0, vec![range(13, 14)])])
        );
    }

    #[test]
    fn offsets_between_those_that_were_named_are_not_left() {
        let planned = Ranges::from([(0, vec![range(3, 4), range(8, 9), range(12, 13)])]);
        let mut ledger = Ledger::default();
        ledger.settle(0, 3, Fate::Unsent);
        ledger.settle(0, 8, Fate::Unsent);
        let positions = BTreeMap::from([(0, 9)]);
        assert_eq!(ledger.unsent(&planned, &positions), planned);
    }

    #[test]
    fn only_a_refusal_says_that_nothing_was_written() {
        let of = |error| Fate::of(&Err(error));
        let refused = |code: ErrorCode| ClientError::broker("t-0", code.code(), None::<&str>);
        assert_eq!(of(refused(ErrorCode::MessageTooLarge)), Fate::Unsent);
        assert_eq!(of(refused(ErrorCode::RequestTimedOut)), Fate::Unknown);
        let last = Box::new(refused(ErrorCode::MessageTooLarge));
        let gave_up = ClientError::GaveUp {
            what: "producing".into(),
            after: std::time::Duration::from_secs(1),
            last,
        };
        assert_eq!(of(gave_up), Fate::Unknown);
    }
}
