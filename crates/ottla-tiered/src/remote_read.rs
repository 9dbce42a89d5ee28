//! A read of records in remote storage: the segments that it visits, and, for `read_committed`, the
//! source of the aborted transactions of the records read.
//!
//! A segment is found by the epoch of an offset. After an unclean election it may continue with
//! records of another history: a former leader copied more of the epoch than this log has. Such
//! records are not read. Kafka returns them.
//!
//! Kafka: `RemoteLogManager.read`, `addAbortedTransactions`, `findOffsetByTimestamp`.

use std::collections::BTreeSet;

use ottla_types::{Offset, Timestamp};

use crate::leader_epochs::{EpochEntry, LeaderEpochs};
use crate::lineage::{common_end, is_within_leader_epochs};
use crate::log_view::LogView;
use crate::metadata_cache::{RemoteLogMetadataCache, TimeSearch};
use crate::remote_index::AbortedTransaction;
use crate::remote_segment::RemoteSegment;

/// A read from an offset that is no longer on the local disk.
#[derive(Debug)]
pub struct RemoteRead {
    offset: Offset,
    is_read_committed: bool,
    leader_epochs: LeaderEpochs,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Reading {
        segment: RemoteSegment,
        /// Where the segment ends, or another history begins in it (exclusive).
        end: Offset,
    },
    Collecting {
        segment: RemoteSegment,
        /// As above.
        end: Offset,
        range: AbortedRange,
        aborted: BTreeSet<AbortedTransaction>,
    },
    CollectingLocally(BTreeSet<AbortedTransaction>),
    Done,
}

/// The offsets whose aborted transactions are requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AbortedRange {
    /// The base offset of the first batch.
    pub from: Offset,
    /// An offset after the last batch.
    pub upper_bound: Offset,
}

/// The next request of the read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadEffect {
    /// Read from the first batch of the segment whose last offset is at least `offset`. The offset
    /// index tells from where to search. Batches that begin at or after `end` are not part of the
    /// log.
    ReadSegment {
        segment: RemoteSegment,
        offset: Offset,
        end: Offset,
    },
    /// Search the transaction index of the segment (`collect_aborted`). The segment may have been
    /// uploaded without it: then there are none.
    CollectAborted {
        segment: RemoteSegment,
        range: AbortedRange,
    },
    /// Search the transaction indexes of the local segments, from the oldest until one is
    /// complete.
    CollectLocalAborted { range: AbortedRange },
    /// The read has come to its end, with the aborted transactions for `read_committed`.
    Finished {
        has_records: bool,
        aborted: Option<Vec<AbortedTransaction>>,
    },
}

/// The answer to an effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadEvent {
    /// Batches were read. `upper_bound` is the bound that the offset index gives for the bytes
    /// read, if it has one.
    BatchesRead {
        base_offset: Offset,
        upper_bound: Option<Offset>,
    },
    /// The segment has no batch at or after the offset and before the end.
    NoBatch,
    AbortedCollected {
        aborted: Vec<AbortedTransaction>,
        is_complete: bool,
    },
}

impl RemoteRead {
    /// Begins a read of a log with these epochs. `None` if remote storage does not have the
    /// offset: the answer is `OFFSET_OUT_OF_RANGE`.
    pub fn begin(
        offset: Offset,
        is_read_committed: bool,
        leader_epochs: &LeaderEpochs,
        cache: &RemoteLogMetadataCache,
    ) -> Option<(RemoteRead, ReadEffect)> {
        let epoch = leader_epochs.epoch_for(offset)?;
        let segment = cache.segment(epoch, offset)?;
        let end = common_end(&segment, epoch, leader_epochs);
        let effect = ReadEffect::ReadSegment {
            segment: segment.clone(),
            offset,
            end,
        };
        let read = RemoteRead {
            offset,
            is_read_committed,
            leader_epochs: leader_epochs.clone(),
            phase: Phase::Reading { segment, end },
        };
        Some((read, effect))
    }

    /// Processes an answer and returns what comes next.
    pub fn step(&mut self, event: ReadEvent, cache: &RemoteLogMetadataCache) -> ReadEffect {
        match (std::mem::replace(&mut self.phase, Phase::Done), event) {
            (Phase::Reading { end, .. }, ReadEvent::NoBatch) => self.read_after(end, cache),
            (Phase::Reading { .. }, ReadEvent::BatchesRead { .. }) if !self.is_read_committed => {
                ReadEffect::Finished {
                    has_records: true,
                    aborted: None,
                }
            }
            (
                Phase::Reading { segment, end },
                ReadEvent::BatchesRead {
                    base_offset,
                    upper_bound,
                },
            ) => {
                let range = AbortedRange {
                    from: base_offset,
                    upper_bound: upper_bound.map_or(end, |bound| bound.min(end)),
                };
                if segment.is_txn_index_empty {
                    return self.collect_after(end, range, BTreeSet::new(), cache);
                }
                self.collect(segment, end, range, BTreeSet::new())
            }
            (
                Phase::Collecting {
                    segment,
                    end,
                    range,
                    mut aborted,
                },
                ReadEvent::AbortedCollected {
                    aborted: found,
                    is_complete,
                },
            ) => {
                // The marker of another history says nothing about this one.
                aborted.extend(found.into_iter().filter(|it| it.last_offset < end));
                if is_complete && end == segment.next_offset() {
                    return finished(aborted);
                }
                self.collect_after(end, range, aborted, cache)
            }
            (
                Phase::CollectingLocally(mut aborted),
                ReadEvent::AbortedCollected { aborted: found, .. },
            ) => {
                aborted.extend(found);
                finished(aborted)
            }
            (phase, event) => panic!("{event:?} is no answer to a read that is {phase:?}"),
        }
    }

    /// The offset may have been compacted away before the topic was tiered.
    fn read_after(&mut self, end: Offset, cache: &RemoteLogMetadataCache) -> ReadEffect {
        let next = self.leader_epochs.epoch_for(end).and_then(|epoch| {
            let next = cache.segment(epoch, end)?;
            let next_end = common_end(&next, epoch, &self.leader_epochs);
            Some((next, next_end))
        });
        match next {
            Some((next, next_end)) if next_end > end => {
                self.phase = Phase::Reading {
                    segment: next.clone(),
                    end: next_end,
                };
                ReadEffect::ReadSegment {
                    segment: next,
                    offset: self.offset,
                    end: next_end,
                }
            }
            _ => ReadEffect::Finished {
                has_records: false,
                aborted: self.is_read_committed.then(Vec::new),
            },
        }
    }

    fn collect(
        &mut self,
        segment: RemoteSegment,
        end: Offset,
        range: AbortedRange,
        aborted: BTreeSet<AbortedTransaction>,
    ) -> ReadEffect {
        self.phase = Phase::Collecting {
            segment: segment.clone(),
            end,
            range,
            aborted,
        };
        ReadEffect::CollectAborted { segment, range }
    }

    /// A transaction is in the index of the segment that has its marker, which may be a later one,
    /// and may be on the local disk. The segments before `end` have been searched.
    fn collect_after(
        &mut self,
        end: Offset,
        range: AbortedRange,
        aborted: BTreeSet<AbortedTransaction>,
        cache: &RemoteLogMetadataCache,
    ) -> ReadEffect {
        match self.next_with_txn_index(end, cache) {
            Some((next, next_end)) if next_end > end => {
                self.collect(next, next_end, range, aborted)
            }
            _ => {
                self.phase = Phase::CollectingLocally(aborted);
                ReadEffect::CollectLocalAborted { range }
            }
        }
    }

    /// The next segment from `offset` on that has a transaction index, in the epoch of the offset
    /// or in a later one, and where it ends as part of the log.
    fn next_with_txn_index(
        &self,
        offset: Offset,
        cache: &RemoteLogMetadataCache,
    ) -> Option<(RemoteSegment, Offset)> {
        let first = self.leader_epochs.epoch_for(offset)?;
        let epochs = self.leader_epochs.entries().iter();
        let mut later = epochs.filter(|entry| entry.epoch >= first);
        later.find_map(|entry| {
            let from = entry.start_offset.max(offset);
            let segment = cache.next_segment_with_txn_index(entry.epoch, from)?;
            let end = common_end(&segment, entry.epoch, &self.leader_epochs);
            Some((segment, end))
        })
    }
}

fn finished(aborted: BTreeSet<AbortedTransaction>) -> ReadEffect {
    ReadEffect::Finished {
        has_records: true,
        aborted: Some(aborted.into_iter().collect()),
    }
}

/// Where a record of at least a timestamp is searched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TimestampSearch {
    /// In this remote segment; the time index and the offset index tell from where.
    Remote(RemoteSegment),
    /// In the local segments, from the first whose newest record is not older.
    Local,
    /// Not before the segment in which this epoch has this first offset. The search continues there with
    /// another call, because others wait for the cache during a call.
    StoppedAt(EpochEntry),
}

/// The most segments that a call looks at, besides those that are not readable.
const SEARCHED_AT_ONCE: usize = 1024;

/// The first segment that may have a record at or after `from` with at least the timestamp. `None`
/// if remote storage has none; then the local log is searched. `stopped_at` is where the last call with the
/// same arguments stopped.
pub fn find_timestamp(
    timestamp: Timestamp,
    from: Offset,
    stopped_at: Option<EpochEntry>,
    log: &LogView,
    cache: &RemoteLogMetadataCache,
) -> Option<TimestampSearch> {
    search(timestamp, from, stopped_at, SEARCHED_AT_ONCE, log, cache)
}

fn search(
    timestamp: Timestamp,
    from: Offset,
    stopped_at: Option<EpochEntry>,
    at_most: usize,
    log: &LogView,
    cache: &RemoteLogMetadataCache,
) -> Option<TimestampSearch> {
    let first = match stopped_at {
        Some(stopped_at) => stopped_at.epoch,
        None => log.leader_epochs.epoch_for(from)?,
    };
    let lineage = log.leader_epochs.without_empty();
    let is_within =
        |segment: &RemoteSegment| is_within_leader_epochs(segment, log.log_end_offset, &lineage);
    let mut at_most = at_most;
    let entries = log.leader_epochs.entries().iter();
    for &EpochEntry {
        epoch,
        start_offset,
    } in entries.filter(|entry| entry.epoch >= first)
    {
        let stopped_at = stopped_at.filter(|it| it.epoch == epoch);
        let start = stopped_at.map_or(Offset(i64::MIN), |it| it.start_offset);
        let from = from.max(start_offset);
        match cache.search_by_time(epoch, start, from, timestamp, &mut at_most, is_within) {
            TimeSearch::NotFound => {}
            TimeSearch::StoppedAt(start_offset) => {
                return Some(TimestampSearch::StoppedAt(EpochEntry {
                    epoch,
                    start_offset,
                }));
            }
            TimeSearch::Found(segment) => {
                let local = log.segments.first().map(|segment| segment.base_offset);
                return Some(match local {
                    Some(local) if segment.start_offset >= local => TimestampSearch::Local,
                    _ => TimestampSearch::Remote(segment),
                });
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
