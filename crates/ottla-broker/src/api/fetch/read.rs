//! Reads partitions for a Fetch, within the limits of the request.
//!
//! Nothing is copied: the result of a read is a region of a segment file. If the index that is
//! needed to find the position, or the region itself, is not in the page cache, a thread of the
//! directory reads it, so that no thread that serves connections waits for the disk. A page can
//! still be evicted between this check and the sending.
//!
//! Kafka: `ReplicaManager.readFromLog`, `Partition.readRecords`.

use std::sync::Arc;

use ottla_log::{LogReader, ReadError, ReadResult, StorageError};
use ottla_partition::partition::Isolation;
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response::{AbortedTransaction, EpochEndOffset, PartitionData};
use ottla_protocol::{FileRegion, Records};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};

use ottla_metrics::stalls;
use ottla_partition::partition::{LateTurns, Partition};
use ottla_remote::RemoteRequest;
use ottla_storage::log_dirs::ThreadLimit;
use ottla_sync::OwnedSemaphorePermit;

/// One page per this many bytes of a region is checked.
const PROBE_STRIDE_BYTES: u64 = 128 * 1024;
/// Data that is not in the page cache is read in pieces of this size.
const READ_AHEAD_BYTES: usize = 128 * 1024;

/// The limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) isolation: Isolation,
    /// Over all partitions. The first batch of the first partition that has one may exceed it.
    pub(crate) max_bytes: u64,
    /// Followers serve only consumers that support it (KIP-392).
    pub(crate) only_from_leader: bool,
}

/// The partition to be read, or the answer if it cannot be read.
pub(crate) type Target = Result<Arc<Partition>, Box<PartitionData>>;

/// A partition of a request.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) target: Target,
    pub(crate) requested: FetchPartition,
    /// The replica is throttled and gets no records now.
    pub(crate) is_held_back: bool,
    /// The leader has not decided yet whether it serves the follower, which gets no records until
    /// then.
    pub(crate) undecided: Option<LateTurns>,
}

impl Wanted {
    /// Whether a follower that was left without a decision may have one by now.
    pub(crate) fn is_decided_by_now(&self) -> bool {
        let (Ok(partition), Some(before)) = (&self.target, self.undecided) else {
            return false;
        };
        partition.follower_turns.has_moved_since(before)
    }

    /// How many bytes a read of this partition alone would find by now; `None` if it would have to be
    /// answered at once, or only a read that may wait for the disk can tell.
    pub(crate) fn readable_bytes(&self, limits: ReadLimits) -> Option<u64> {
        let partition = self.target.as_ref().ok()?;
        let requested = &self.requested;
        check_readable(partition, requested, limits).ok()?;
        if self.is_held_back || self.undecided.is_some() {
            return Some(0);
        }
        let reader = partition.reader();
        if !matches!(diverging_epoch(&reader, requested), Ok(None)) {
            return None;
        }
        let (from, upper_bound) = (
            Offset(requested.fetch_offset),
            limits.isolation.upper_bound(&reader),
        );
        let max_bytes = requested.partition_max_bytes.max(0) as u64;
        let read = reader.read_cached(from, max_bytes.min(limits.max_bytes), upper_bound, true);
        let read = read.ok().filter(|read| !read.is_in_older_segment);
        read.map(|read| read.len())
    }

    /// Whether another read would return the same answer. Compares a few published numbers and does
    /// not access the log, because a follower that waits at thousands of partitions has all of them
    /// checked again and again.
    fn is_current(&self, answer: &PartitionData, limits: ReadLimits) -> bool {
        let Ok(partition) = &self.target else {
            return true;
        };
        let reader = partition.reader();
        let requested = &self.requested;
        let is_readable = || limits.isolation.upper_bound(&reader).0 > requested.fetch_offset;
        answer.error_code == 0
            && check_readable(partition, requested, limits).is_ok()
            && reader.high_watermark().0 == answer.high_watermark
            && reader.last_stable_offset().0 == answer.last_stable_offset
            && reader.log_start_offset().0 == answer.log_start_offset
            && (self.is_held_back || self.undecided.is_some() || !is_readable())
    }
}

/// The result of reading all partitions of a request.
pub(crate) struct ReadOutcome {
    pub(crate) answers: Vec<PartitionData>,
    /// The size of the records in bytes.
    pub(crate) bytes: u64,
    /// The answers without records because their first batch does not fit, and the bytes of it that
    /// would. Kafka sends that many, which the client cannot use, and counts them.
    pub(crate) too_large: Vec<(usize, u64)>,
    /// The responses whose records are only in remote storage, and the position to read there.
    pub(crate) remote: Vec<(usize, RemoteRequest)>,
    /// The memory of the records from remote storage, until the response leaves.
    pub(crate) remote_memory: Vec<OwnedSemaphorePermit>,
    /// A partition has an error, a diverging epoch or a preferred read replica, which the client
    /// must learn at once, or it has records in later segments, for which the client must fetch again.
    pub(crate) must_answer: bool,
    /// Logs that could not be read, with the errors of their directories.
    pub(crate) failed: Vec<(LogReader, StorageError)>,
    /// Partitions whose records cannot be read although the disk works.
    pub(crate) damaged: Vec<(Arc<Partition>, ReadError)>,
}

impl ReadOutcome {
    pub(crate) fn new(partitions: usize) -> ReadOutcome {
        ReadOutcome {
            answers: Vec::with_capacity(partitions),
            bytes: 0,
            too_large: Vec::new(),
            remote: Vec::new(),
            remote_memory: Vec::new(),
            must_answer: false,
            failed: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// The bytes that count for `min_bytes`: all bytes that could be sent.
    pub(crate) fn counted_bytes(&self) -> u64 {
        let too_large = self.too_large.iter().map(|(_, bytes)| bytes);
        self.bytes + too_large.sum::<u64>()
    }

    /// Whether reading everything again would return the same.
    pub(crate) fn is_current(&self, targets: &[Wanted], limits: ReadLimits) -> bool {
        let mut pairs = targets.iter().zip(&self.answers);
        self.answers.len() == targets.len()
            && pairs.all(|(wanted, answer)| wanted.is_current(answer, limits))
    }

    /// The outcome of a request without partitions, and of a read that panicked.
    pub(crate) fn without_answers() -> ReadOutcome {
        ReadOutcome {
            must_answer: true,
            ..ReadOutcome::new(0)
        }
    }
}

/// How the positions of a read are found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup<'a> {
    /// In memory and in the page cache.
    Cached,
    /// May wait for the disk of this directory, and of no other.
    In(&'a ThreadLimit),
}

/// Why a partition has no records to answer with.
#[derive(Debug)]
enum Miss {
    Refused(ErrorCode),
    Failed(StorageError),
    Damaged(ReadError),
    /// Only remote storage has the offset. The answer is complete but for the records.
    Remote(Box<PartitionData>),
    /// The first batch does not fit. The answer is complete but for the records. With whether the
    /// request must be answered, as with records.
    TooLarge(Box<PartitionData>, bool),
    /// This kind of lookup cannot find the position.
    NotFound,
}

impl From<ErrorCode> for Miss {
    fn from(code: ErrorCode) -> Self {
        Miss::Refused(code)
    }
}

impl From<ReadError> for Miss {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotCached => Miss::NotFound,
            ReadError::Storage(error) => Miss::Failed(error),
            ReadError::OffsetOutOfRange { .. } => Miss::Refused(error.error_code()),
            ReadError::Corrupt { .. } | ReadError::RecordTooLarge { .. } => Miss::Damaged(error),
        }
    }
}

/// Continues to read the partitions in order, after the partitions that have responses. Returns the
/// partition at which it stopped because this kind of lookup cannot find its position.
pub(crate) fn read_all<'t>(
    targets: &'t [Wanted],
    limits: ReadLimits,
    lookup: Lookup<'_>,
    outcome: &mut ReadOutcome,
) -> Option<&'t Arc<Partition>> {
    let mut watched = stalls::watch_parts();
    let mut stopped_at = None;
    // Kafka counts the bytes that a partition may get from remote storage as already returned.
    let planned = outcome
        .remote
        .iter()
        .map(|(_, request)| request.max_bytes as u64);
    let mut remote_bytes: u64 = planned.sum();
    for wanted in &targets[outcome.answers.len()..] {
        let (target, requested) = (&wanted.target, &wanted.requested);
        let rest = match wanted.is_held_back {
            true => 0,
            false => limits
                .max_bytes
                .saturating_sub(outcome.bytes + remote_bytes),
        };
        let max_bytes = rest.min(requested.partition_max_bytes.max(0) as u64);
        // If nothing was read so far, one batch of any size is returned. Otherwise a consumer could
        // never read past it.
        let min_one_message = outcome.bytes + remote_bytes == 0 && !wanted.is_held_back;
        let size = ReadSize {
            max_bytes,
            min_one_message,
        };
        let answer = match target {
            Err(answer) => PartitionData::clone(answer),
            Ok(partition) => {
                let size = Some(size).filter(|_| wanted.undecided.is_none());
                let read = read_one(partition, requested, limits, size, lookup);
                watched.end_part(&partition.topic_partition);
                match read {
                    Ok((answer, must_answer)) => {
                        outcome.must_answer |= must_answer;
                        answer
                    }
                    Err(Miss::Refused(code)) => error_answer(requested.partition, code),
                    Err(Miss::Failed(error)) => {
                        let code = ErrorCode::KafkaStorageError;
                        outcome.failed.push((partition.reader().clone(), error));
                        error_answer(requested.partition, code)
                    }
                    Err(Miss::Damaged(error)) => {
                        let code = error.error_code();
                        outcome.damaged.push((Arc::clone(partition), error));
                        error_answer(requested.partition, code)
                    }
                    // Other partitions have used up the response. A read of the segment would
                    // return nothing.
                    Err(Miss::Remote(answer)) if max_bytes == 0 && !min_one_message => *answer,
                    Err(Miss::Remote(answer)) => {
                        let request = RemoteRequest {
                            offset: Offset(requested.fetch_offset),
                            max_bytes: max_bytes.min(i32::MAX as u64) as usize,
                            min_one: min_one_message,
                            is_read_committed: limits.isolation == Isolation::LastStableOffset,
                        };
                        remote_bytes += max_bytes.max(1);
                        outcome.remote.push((outcome.answers.len(), request));
                        outcome.must_answer = true;
                        *answer
                    }
                    Err(Miss::TooLarge(answer, must_answer)) => {
                        outcome.must_answer |= must_answer;
                        outcome.too_large.push((outcome.answers.len(), max_bytes));
                        *answer
                    }
                    Err(Miss::NotFound) => {
                        stopped_at = Some(partition);
                        break;
                    }
                }
            }
        };
        outcome.bytes += answer.records.as_ref().map_or(0, Records::len);
        outcome.must_answer |= answer.error_code != 0
            || answer.diverging_epoch.end_offset >= 0
            || answer.preferred_read_replica >= 0;
        outcome.answers.push(answer);
    }
    watched.end("lookup of the records to fetch");
    stopped_at
}

/// The answer for a partition that cannot be read.
pub(crate) fn error_answer(partition: i32, code: ErrorCode) -> PartitionData {
    PartitionData {
        partition_index: partition,
        error_code: code.code(),
        high_watermark: -1,
        records: Some(Records::Bytes(bytes::Bytes::new())),
        ..Default::default()
    }
}

/// How many bytes one partition may return.
#[derive(Clone, Copy)]
struct ReadSize {
    max_bytes: u64,
    /// Returns the first batch, of any size.
    min_one_message: bool,
}

/// Whether this broker serves the partition to the client in the leader epoch of the request.
fn check_readable(
    partition: &Partition,
    requested: &FetchPartition,
    limits: ReadLimits,
) -> Result<(), ErrorCode> {
    match limits.only_from_leader {
        true => partition.check_leader(requested.current_leader_epoch),
        false => partition.check_replica(requested.current_leader_epoch),
    }
}

/// Returns also whether the request must be answered although there are too few records: a read does
/// not go past the end of a segment, so waiting for more would be in vain. Without a size, reads no
/// records and does not access the disk.
fn read_one(
    partition: &Partition,
    requested: &FetchPartition,
    limits: ReadLimits,
    size: Option<ReadSize>,
    lookup: Lookup<'_>,
) -> Result<(PartitionData, bool), Miss> {
    let isolation = limits.isolation;
    check_readable(partition, requested, limits)?;
    if let Lookup::In(directory) = lookup
        && !partition.log_location().threads.reads.is(directory)
    {
        return Err(Miss::NotFound);
    }
    let reader = partition.reader();
    let fetch_offset = Offset(requested.fetch_offset);
    // Taken before the read, so that a concurrent append does not make the read look complete.
    let mut answer = PartitionData {
        partition_index: requested.partition,
        high_watermark: reader.high_watermark().0,
        last_stable_offset: reader.last_stable_offset().0,
        log_start_offset: reader.log_start_offset().0,
        // Only readers of committed records get these.
        aborted_transactions: None,
        records: Some(Records::Bytes(bytes::Bytes::new())),
        ..Default::default()
    };
    let Some(size) = size else {
        return Ok((answer, false));
    };
    if let Some(diverging) = diverging_epoch(&reader, requested)? {
        answer.diverging_epoch = diverging;
        return Ok((answer, false));
    }
    let upper_bound = isolation.upper_bound(&reader);
    let (max_bytes, min_one_message) = (size.max_bytes, size.min_one_message);
    let read = match lookup {
        Lookup::Cached => reader.read_cached(fetch_offset, max_bytes, upper_bound, min_one_message),
        Lookup::In(_) => reader.read(fetch_offset, max_bytes, upper_bound, min_one_message),
    };
    let read = match read {
        Err(ReadError::OffsetOutOfRange { .. }) if reader.is_only_remote(fetch_offset) => {
            return Err(match isolation {
                // The follower rebuilds its state from remote storage and continues after the
                // tiered offsets.
                Isolation::LogEnd => Miss::Refused(ErrorCode::OffsetMovedToTieredStorage),
                Isolation::HighWatermark | Isolation::LastStableOffset => {
                    Miss::Remote(Box::new(answer))
                }
            });
        }
        // The regions of this answer keep their file handles until they are sent. The next fetch
        // continues here, as if the answer had reached its maximum size.
        Err(ReadError::Storage(error)) if error.is_lack_of_resources() && !min_one_message => {
            return Ok((answer, false));
        }
        read => read?,
    };
    if isolation == Isolation::LastStableOffset {
        if matches!(lookup, Lookup::Cached) && reader.has_aborted_transactions(fetch_offset) {
            return Err(Miss::NotFound);
        }
        let aborted = match aborted_transactions(&reader, fetch_offset, &read) {
            // The segment was deleted after the read, because remote storage has it.
            Err(ReadError::OffsetOutOfRange { .. }) if reader.is_only_remote(fetch_offset) => {
                return Err(Miss::Remote(Box::new(answer)));
            }
            aborted => aborted?,
        };
        answer.aborted_transactions = Some(aborted);
    }
    // The client would discard a truncated batch. An empty answer has the same effect.
    if read.first_entry_incomplete {
        return Err(Miss::TooLarge(Box::new(answer), read.is_in_older_segment));
    }
    if let Some(region) = read.region {
        answer.records = Some(Records::File(FileRegion {
            file: region.file,
            position: region.position,
            len: region.len,
        }));
    }
    Ok((answer, read.is_in_older_segment))
}

/// Whether the client's last fetched epoch ends earlier here than the client believes (KIP-320,
/// KIP-595). If so, the client must truncate.
fn diverging_epoch(
    reader: &LogReader,
    requested: &FetchPartition,
) -> Result<Option<EpochEndOffset>, ErrorCode> {
    if requested.last_fetched_epoch < 0 {
        return Ok(None);
    }
    let last_fetched_epoch = LeaderEpoch(requested.last_fetched_epoch);
    let known = reader.end_offset_for_epoch(last_fetched_epoch);
    let (epoch, end_offset) = known.ok_or(ErrorCode::OffsetOutOfRange)?;
    if requested.fetch_offset < reader.log_start_offset().0 {
        return Err(ErrorCode::OffsetOutOfRange);
    }
    let diverges = epoch < last_fetched_epoch || end_offset.0 < requested.fetch_offset;
    Ok(diverges.then(|| EpochEndOffset {
        epoch: epoch.0,
        end_offset: end_offset.0,
        ..Default::default()
    }))
}

fn aborted_transactions(
    reader: &LogReader,
    fetch_offset: Offset,
    read: &ReadResult,
) -> Result<Vec<AbortedTransaction>, ReadError> {
    let aborted = reader.aborted_transactions_of(fetch_offset, read)?;
    let aborted = aborted.iter().map(|transaction| AbortedTransaction {
        producer_id: transaction.producer_id.0,
        first_offset: transaction.first_offset.0,
        ..Default::default()
    });
    Ok(aborted.collect())
}

/// The regions of the answers that are not entirely in the page cache, as far as checked.
pub(crate) fn cold_regions(
    targets: &[Wanted],
    answers: &[PartitionData],
) -> Vec<(Arc<Partition>, FileRegion)> {
    let regions = targets.iter().zip(answers).filter_map(|(wanted, answer)| {
        match (&wanted.target, &answer.records) {
            (Ok(partition), Some(Records::File(region))) => Some((partition, region)),
            _ => None,
        }
    });
    regions
        .filter(|(_, region)| !is_cached(region))
        .map(|(partition, region)| (Arc::clone(partition), region.clone()))
        .collect()
}

/// Probes single bytes of the region without waiting for the disk.
fn is_cached(region: &FileRegion) -> bool {
    let end = region.position + region.len;
    let mut position = region.position;
    loop {
        if !ottla_sync::fs::is_cached_at(&*region.file, position) {
            return false;
        }
        if position + 1 >= end {
            return true;
        }
        position = (position + PROBE_STRIDE_BYTES).min(end - 1);
    }
}

/// Reads a region into the page cache. Blocks.
pub(crate) fn warm(region: &FileRegion) {
    let mut buffer = vec![0; region.len.min(READ_AHEAD_BYTES as u64) as usize];
    let end = region.position + region.len;
    let mut position = region.position;
    while position < end {
        let wanted = (end - position).min(buffer.len() as u64) as usize;
        match region.file.read_at(&mut buffer[..wanted], position) {
            // Sending the region meets the same condition and handles it.
            Ok(0) | Err(_) => break,
            Ok(read) => position += read as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Node, create, produce};

    fn wanted(node: &Node, index: i32) -> Wanted {
        let requested = FetchPartition {
            partition: index,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            ..Default::default()
        };
        Wanted {
            target: Ok(node.partition(index)),
            requested,
            is_held_back: false,
            undecided: None,
        }
    }

    const LIMITS: ReadLimits = ReadLimits {
        isolation: Isolation::HighWatermark,
        max_bytes: 1000,
        only_from_leader: true,
    };

    #[tokio::test(flavor = "multi_thread")]
    async fn a_response_is_current_until_its_partition_changes() {
        let node = Node::start(&[]).await;
        let mut client = node.connect().await;
        create(&mut client, 2).await;
        let targets = [wanted(&node, 0), wanted(&node, 1)];
        let read = |limits| {
            let mut outcome = ReadOutcome::new(2);
            assert!(read_all(&targets, limits, Lookup::Cached, &mut outcome).is_none());
            outcome
        };
        let limits = LIMITS;
        let empty = read(limits);
        assert!(empty.is_current(&targets, limits));
        assert_eq!(produce(&mut client, 1, "a").await, ErrorCode::None);
        assert!(!empty.is_current(&targets, limits));
        let with_record = read(limits);
        assert!(with_record.bytes > 0);
        assert!(
            !with_record.is_current(&targets, limits),
            "there may be more"
        );

        // Nothing can be read any more, but the answer contains the previous end of the log.
        let mut caught_up = targets.clone();
        caught_up[1].requested.fetch_offset = 1;
        assert!(!empty.is_current(&caught_up, limits));
        let mut outcome = ReadOutcome::new(2);
        assert!(read_all(&caught_up, limits, Lookup::Cached, &mut outcome).is_none());
        assert!(outcome.is_current(&caught_up, limits));
        caught_up[0].requested.current_leader_epoch = 99;
        assert!(
            !outcome.is_current(&caught_up, limits),
            "it is another epoch"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_directory_thread_reads_only_its_directory() {
        let node = Node::start(&[]).await;
        create(&mut node.connect().await, 4).await;
        let reads = |index: i32| node.partition(index).log_location().threads.reads.clone();
        let first = reads(0);
        // Partitions of the first directory, then partitions of the second.
        let mut order = vec![0, 1, 2, 3];
        order.sort_by_key(|&index| !reads(index).is(&first));
        let in_first = order
            .iter()
            .filter(|&&index| reads(index).is(&first))
            .count();
        let second = reads(order[3]);
        assert!(!second.is(&first));
        let targets: Vec<Wanted> = order.iter().map(|&index| wanted(&node, index)).collect();
        let limits = LIMITS;
        let mut outcome = ReadOutcome::new(4);
        let mut stops = |lookup| {
            let stopped = read_all(&targets, limits, lookup, &mut outcome);
            let stopped = stopped.map(|partition| partition.topic_partition.partition.0);
            (stopped, outcome.answers.len())
        };
        assert_eq!(stops(Lookup::In(&second)), (Some(order[0]), 0));
        assert_eq!(stops(Lookup::In(&first)), (Some(order[in_first]), in_first));
        assert_eq!(stops(Lookup::In(&second)), (None, 4));
        let answered = outcome.answers.iter().map(|answer| answer.partition_index);
        assert_eq!(answered.collect::<Vec<_>>(), order);
        assert!(!outcome.must_answer);
    }

    /// Otherwise a consumer would wait at the end of each segment.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_fetch_in_an_older_segment_is_answered_with_what_is_there() {
        let node = Node::start(&[]).await;
        let mut client = node.connect().await;
        create(&mut client, 1).await;
        // Each fills most of a segment.
        let value = "a".repeat(600_000);
        for _ in 0..2 {
            assert_eq!(produce(&mut client, 0, &value).await, ErrorCode::None);
        }
        let directory = node.partition(0).log_location().threads.reads.clone();
        for (fetch_offset, is_in_older) in [(0, true), (1, false)] {
            let mut wanted = wanted(&node, 0);
            wanted.requested.fetch_offset = fetch_offset;
            let has_to_wait = wanted.readable_bytes(LIMITS).is_some();
            let mut outcome = ReadOutcome::new(1);
            let lookup = Lookup::In(&directory);
            assert!(read_all(&[wanted], LIMITS, lookup, &mut outcome).is_none());
            assert!(outcome.bytes > 0);
            assert_eq!(outcome.must_answer, is_in_older);
            assert_eq!(has_to_wait, !is_in_older);
        }
    }
}
