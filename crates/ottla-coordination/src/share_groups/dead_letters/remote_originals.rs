//! The originals of letters that only remote storage has, read by Fetch requests of this broker to
//! itself, because remote storage is not reached from here.
//!
//! Where that fails, the letters have only headers, as in `originals.rs`.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use ottla_coordinator::share_partition::DeadLetters;
use ottla_net::BrokerPeers;
use ottla_partition::partition::Partition;
use ottla_protocol::Records;
use ottla_protocol::messages::FetchRequest;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_records::RecordBatch;
use ottla_types::{ErrorCode, Offset};

use super::originals::{Originals, READ_BYTES};
use super::size_limits::SizeLimits;
use crate::surroundings::Surroundings;

/// How long a Fetch waits for remote storage, if `remote.fetch.max.wait.ms` is less.
const WAIT_MS: i32 = 500;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);
/// The maximum number of fetches for one batch that return no record. A slow store may answer the
/// next fetch in time. An unavailable store must not hold the slot of the batch, and the letters of
/// the queue, once for each letter.
const FAILURES: usize = 5;

/// Whether only remote storage has the original of the first letter.
pub(super) fn has_first(partition: &Partition, pending: &VecDeque<DeadLetters>) -> bool {
    let first = pending.front();
    first.is_some_and(|first| partition.reader().is_only_remote(first.first_offset))
}

/// Reads the originals of letters, in their order, up to the start of the local log, or until there
/// are `batch_bytes` of them. The next batch continues after the last record.
pub(super) async fn read(
    surroundings: &Surroundings,
    peers: &BrokerPeers,
    partition: &Partition,
    pending: &VecDeque<DeadLetters>,
    limits: SizeLimits,
) -> Originals {
    let local_start = partition.reader().local_log_start_offset();
    let mut reading = Reading::new(pending, local_start, limits);
    while let Some(offset) = reading.wanted() {
        let fetched = fetch(surroundings, peers, partition, offset).await;
        reading.on_fetched(fetched);
    }
    match reading.originals.letters {
        // The log has changed since it was looked at.
        0 => Originals::none(),
        _ => reading.originals,
    }
}

/// The records read for one batch.
struct Reading<'a> {
    pending: &'a VecDeque<DeadLetters>,
    local_start: Offset,
    limits: SizeLimits,
    originals: Originals,
    /// The index of the range that is read.
    range: usize,
    /// The next offset of it.
    next: Offset,
    failures_left: usize,
    /// The next batch continues.
    is_over: bool,
}

impl<'a> Reading<'a> {
    fn new(
        pending: &'a VecDeque<DeadLetters>,
        local_start: Offset,
        limits: SizeLimits,
    ) -> Reading<'a> {
        Reading {
            pending,
            local_start,
            limits,
            originals: Originals {
                letters: 0,
                ..Originals::none()
            },
            range: 0,
            next: pending.front().map_or(Offset::ZERO, |it| it.first_offset),
            failures_left: FAILURES,
            is_over: false,
        }
    }

    /// The offset to fetch from; `None` at the end.
    fn wanted(&self) -> Option<Offset> {
        let is_wanted = !self.is_over && self.current().is_some();
        is_wanted.then_some(self.next)
    }

    /// The first and the last offset of the range that only remote storage has.
    fn current(&self) -> Option<(Offset, Offset)> {
        let range = self.pending.get(self.range)?;
        let last = Offset(range.last_offset.0.min(self.local_start.0 - 1));
        (range.first_offset <= last).then_some((range.first_offset, last))
    }

    /// A fetch from the wanted offset has ended.
    fn on_fetched(&mut self, fetched: Fetched) {
        let Some((first, last)) = self.current() else {
            return;
        };
        let bytes = match fetched {
            Fetched::Records(bytes) => bytes,
            Fetched::Nothing => {
                self.failures_left = self.failures_left.saturating_sub(1);
                if self.failures_left == 0 {
                    self.end_ranges();
                }
                return;
            }
            // The log may still have the others of the range.
            Fetched::Expired { log_start } if log_start > self.next && log_start <= last => {
                self.next = log_start;
                return;
            }
            Fetched::Expired { .. } => return self.end_ranges(),
        };
        let before = self.next;
        for batch in RecordBatch::read_all(bytes) {
            // The last batch may be cut off; the next read starts with it.
            let Ok(batch) = batch else {
                break;
            };
            let taken = self
                .originals
                .take_from(&batch, self.next, last, self.limits);
            if let ControlFlow::Break(offset) = taken {
                self.originals.letters += offset.0 - first.0;
                self.is_over = true;
                return;
            }
            self.next = self.next.max(batch.header.next_offset());
        }
        if self.next == before || self.next > last {
            self.end_ranges();
        }
    }

    /// Continues with the next range. After the last failure, no range is read any more: the
    /// letters have only headers.
    fn end_ranges(&mut self) {
        while let Some((first, last)) = self.current() {
            self.originals.letters += last.0 - first.0 + 1;
            // The rest of the range is in the local log.
            if last < self.pending[self.range].last_offset {
                self.is_over = true;
                return;
            }
            self.range += 1;
            if let Some(next) = self.pending.get(self.range) {
                self.next = next.first_offset;
            }
            if self.failures_left > 0 {
                return;
            }
        }
    }
}

/// The result of a fetch.
enum Fetched {
    Records(Bytes),
    /// The log starts after the offset, or has another history.
    Expired {
        log_start: Offset,
    },
    /// Remote storage was too slow, or failed.
    Nothing,
}

/// Fetches the batches from an offset on.
async fn fetch(
    surroundings: &Surroundings,
    peers: &BrokerPeers,
    partition: &Partition,
    offset: Offset,
) -> Fetched {
    let context = &surroundings.context;
    let topic_partition = &partition.topic_partition;
    let most_bytes = i32::try_from(READ_BYTES).unwrap_or(i32::MAX);
    let request = FetchRequest {
        max_wait_ms: WAIT_MS,
        min_bytes: 1,
        max_bytes: most_bytes,
        topics: vec![FetchTopic {
            topic: topic_partition.topic.clone(),
            topic_id: partition.topic_id,
            partitions: vec![FetchPartition {
                partition: topic_partition.partition.0,
                fetch_offset: offset.0,
                partition_max_bytes: most_bytes,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let connection = peers.connection(context, context.broker_id(), REQUEST_TIMEOUT);
    let fetched = async { connection.await?.send(&request).await };
    let reason = match fetched.await {
        Ok(response) => {
            let topics = response.responses.into_iter();
            let Some(fetched) = topics.flat_map(|topic| topic.partitions).next() else {
                return Fetched::Nothing;
            };
            match (ErrorCode::from_code(fetched.error_code), fetched.records) {
                (ErrorCode::None, Some(Records::Bytes(bytes))) if !bytes.is_empty() => {
                    return Fetched::Records(bytes);
                }
                (ErrorCode::OffsetOutOfRange, _) => {
                    let log_start = partition.reader().log_start_offset();
                    return Fetched::Expired { log_start };
                }
                (code, _) => code.to_string(),
            }
        }
        Err(error) => error.to_string(),
    };
    tracing::debug!(%topic_partition, "the originals of dead letters from offset {offset} on were not fetched: {reason}");
    Fetched::Nothing
}

#[cfg(test)]
mod tests {
    use ottla_coordinator::share_partition::DeadLetterCause;
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::Timestamp;

    use super::*;

    const LIMITS: SizeLimits = SizeLimits {
        batch_bytes: 1 << 20,
        message_bytes: 1 << 20,
    };

    fn letters(ranges: impl IntoIterator<Item = (i64, i64)>) -> VecDeque<DeadLetters> {
        let ranges = ranges.into_iter();
        ranges
            .map(|(first, last)| DeadLetters {
                first_offset: Offset(first),
                last_offset: Offset(last),
                delivery_count: 1,
                cause: DeadLetterCause::Rejected,
            })
            .collect()
    }

    fn batch(base_offset: i64, count: usize) -> Fetched {
        let builder = RecordBatchBuilder::new(Compression::None);
        let mut builder = builder.base_offset(Offset(base_offset));
        for _ in 0..count {
            builder.append(Timestamp(1), None, Some(b"a".as_slice()), &[]);
        }
        Fetched::Records(builder.build().to_bytes())
    }

    #[test]
    fn records_that_a_slow_store_did_not_send_are_fetched_again() {
        let pending = letters([(0, 1), (5, 9)]);
        let mut reading = Reading::new(&pending, Offset(7), LIMITS);
        for (wanted, fetched) in [
            (0, Fetched::Nothing),
            (0, Fetched::Nothing),
            (0, batch(0, 2)),
            (5, batch(4, 2)),
            (6, batch(6, 1)),
        ] {
            assert_eq!(reading.wanted(), Some(Offset(wanted)));
            reading.on_fetched(fetched);
        }
        assert_eq!(reading.wanted(), None, "the others are in the local log");
        let found = reading.originals.by_offset.keys().map(|offset| offset.0);
        assert_eq!(Vec::from_iter(found), [0, 1, 5, 6]);
        assert_eq!(reading.originals.letters, 4);
    }

    #[test]
    fn an_expired_segment_is_no_failure_of_the_store() {
        let ranges = (0..20).map(|number| (number, number)).chain([(20, 29)]);
        let pending = letters(ranges);
        let mut reading = Reading::new(&pending, Offset(50), LIMITS);
        let log_start = Offset(25);
        for offset in 0..=20 {
            assert_eq!(reading.wanted(), Some(Offset(offset)));
            reading.on_fetched(Fetched::Expired { log_start });
        }
        assert_eq!(reading.wanted(), Some(log_start));
        reading.on_fetched(batch(25, 5));
        assert_eq!(reading.wanted(), None);
        assert_eq!(reading.originals.by_offset.len(), 5);
        assert_eq!(reading.originals.letters, 30);
    }

    #[test]
    fn an_unavailable_store_is_not_queried_for_each_letter() {
        let pending = letters((0..1000).map(|number| (2 * number, 2 * number)));
        let mut reading = Reading::new(&pending, Offset(5000), LIMITS);
        let mut requests = 0;
        while reading.wanted().is_some() {
            requests += 1;
            reading.on_fetched(Fetched::Nothing);
        }
        assert_eq!(requests, FAILURES);
        assert_eq!(reading.originals.letters, 1000, "all have only headers");
        assert!(reading.originals.by_offset.is_empty());
    }
}
