//! Reads partitions for a Fetch: which records each gives, within the limits of the request.
//!
//! Nothing is copied: what is read is a region of a segment file. Where the index that tells a position, or
//! the region itself, is not in the page cache, a blocking thread looks it up or brings it in, so that no
//! thread that serves connections waits for the disk. That a page leaves the cache between the look and
//! the sending cannot be excluded.
//!
//! Kafka does the same in `ReplicaManager.readFromLog` and `Partition.readRecords`.

use std::os::fd::AsFd;
use std::sync::Arc;

use ottla_log::{LogReader, ReadError, ReadResult};
use ottla_protocol::messages::fetch_request::FetchPartition;
use ottla_protocol::messages::fetch_response::{AbortedTransaction, EpochEndOffset, PartitionData};
use ottla_protocol::{FileRegion, Records};
use ottla_types::{ErrorCode, LeaderEpoch, Offset};
use rustix::io::ReadWriteFlags;

use crate::partition::Partition;
use crate::stalls;

/// One page is looked at in so many bytes of a region.
const PROBE_STRIDE_BYTES: u64 = 128 * 1024;
/// What is not in the page cache is read in pieces of this size.
const READ_AHEAD_BYTES: usize = 128 * 1024;

/// Up to where a reader may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Isolation {
    HighWatermark,
    /// Up to the first open transaction, with the aborted ones named.
    LastStableOffset,
}

impl Isolation {
    /// Exclusive.
    pub(crate) fn upper_bound(self, reader: &LogReader) -> Offset {
        match self {
            Isolation::HighWatermark => reader.high_watermark(),
            Isolation::LastStableOffset => reader.last_stable_offset(),
        }
    }
}

/// The limits of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    pub(crate) isolation: Isolation,
    /// Over all partitions; the first batch of the first partition that has one may exceed it.
    pub(crate) max_bytes: u64,
}

/// What is known of a partition before it is read: it, or why it cannot be.
pub(crate) type Target = Result<Arc<Partition>, ErrorCode>;

/// All that a request reads.
#[derive(Debug)]
pub(crate) struct ReadOutcome {
    pub(crate) answers: Vec<PartitionData>,
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// A partition has an error or a diverging epoch, of which the client must learn at once.
    pub(crate) must_answer: bool,
}

/// How the positions of a read are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lookup {
    /// In memory and in what the page cache holds of the files.
    Cached,
    /// The disk may be waited for.
    Any,
}

/// Why a partition has no records to answer with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Miss {
    Refused(ErrorCode),
    /// Only with [`Lookup::Cached`].
    NotCached,
}

impl From<ErrorCode> for Miss {
    fn from(code: ErrorCode) -> Self {
        Miss::Refused(code)
    }
}

/// Reads the partitions in their order; `None` where a position cannot be found by such a lookup.
pub(crate) fn read_all(
    targets: &[(Target, FetchPartition)],
    limits: ReadLimits,
    lookup: Lookup,
) -> Option<ReadOutcome> {
    let mut outcome = ReadOutcome {
        answers: Vec::with_capacity(targets.len()),
        bytes: 0,
        must_answer: false,
    };
    let mut watched = stalls::watch_parts();
    let mut is_cached = true;
    for (target, requested) in targets {
        let rest = limits.max_bytes.saturating_sub(outcome.bytes);
        let max_bytes = rest.min(requested.partition_max_bytes.max(0) as u64);
        // As long as nothing was read, one batch goes through whatever its size, or a consumer could
        // not get past it.
        let min_one_message = outcome.bytes == 0;
        let read = match target {
            Ok(partition) => {
                let size = ReadSize {
                    max_bytes,
                    min_one_message,
                };
                let read = read_one(partition, requested, limits.isolation, size, lookup);
                watched.end_part(&partition.topic_partition);
                read
            }
            Err(code) => Err(Miss::Refused(*code)),
        };
        let answer = match read {
            Ok(answer) => answer,
            Err(Miss::Refused(code)) => error_answer(requested.partition, code),
            Err(Miss::NotCached) => {
                is_cached = false;
                break;
            }
        };
        outcome.bytes += answer.records.as_ref().map_or(0, Records::len);
        outcome.must_answer |= answer.error_code != 0 || answer.diverging_epoch.end_offset >= 0;
        outcome.answers.push(answer);
    }
    watched.end("finding what to fetch");
    is_cached.then_some(outcome)
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

/// How much one partition may give.
#[derive(Clone, Copy)]
struct ReadSize {
    max_bytes: u64,
    /// The first batch comes whatever its size is.
    min_one_message: bool,
}

fn read_one(
    partition: &Partition,
    requested: &FetchPartition,
    isolation: Isolation,
    size: ReadSize,
    lookup: Lookup,
) -> Result<PartitionData, Miss> {
    partition.check_leader(requested.current_leader_epoch)?;
    let reader = partition.reader();
    let fetch_offset = Offset(requested.fetch_offset);
    // Taken before the read, so that what is appended meanwhile does not make it look complete.
    let mut answer = PartitionData {
        partition_index: requested.partition,
        high_watermark: reader.high_watermark().0,
        last_stable_offset: reader.last_stable_offset().0,
        log_start_offset: reader.log_start_offset().0,
        // Told of to those who read what is committed, and to no others.
        aborted_transactions: None,
        records: Some(Records::Bytes(bytes::Bytes::new())),
        ..Default::default()
    };
    if let Some(diverging) = diverging_epoch(&reader, requested)? {
        answer.diverging_epoch = diverging;
        return Ok(answer);
    }
    let upper_bound = isolation.upper_bound(&reader);
    let (max_bytes, min_one_message) = (size.max_bytes, size.min_one_message);
    let read = match lookup {
        Lookup::Cached => reader.read_cached(fetch_offset, max_bytes, upper_bound, min_one_message),
        Lookup::Any => reader.read(fetch_offset, max_bytes, upper_bound, min_one_message),
    };
    let read = read.map_err(|error| on_read_error(partition, error))?;
    if isolation == Isolation::LastStableOffset {
        if lookup == Lookup::Cached && reader.has_aborted_transactions() {
            return Err(Miss::NotCached);
        }
        let aborted = aborted_transactions(&reader, fetch_offset, &read);
        answer.aborted_transactions = Some(aborted.map_err(|e| on_read_error(partition, e))?);
    }
    // A batch that is cut off would be thrown away by the client: nothing says the same with less.
    if let Some(region) = read.region.filter(|_| !read.first_entry_incomplete) {
        answer.records = Some(Records::File(FileRegion {
            file: region.file,
            position: region.position,
            len: region.len,
        }));
    }
    Ok(answer)
}

fn on_read_error(partition: &Partition, error: ReadError) -> Miss {
    match &error {
        ReadError::NotCached => return Miss::NotCached,
        ReadError::OffsetOutOfRange { .. } => {}
        ReadError::Corrupt { .. } | ReadError::Storage(_) => {
            tracing::error!(partition = %partition.topic_partition, "read failed: {error}");
        }
    }
    Miss::Refused(error.error_code())
}

/// Whether the epoch of the last record that the client has ended earlier here than it believes
/// (KIP-320, KIP-595); it then has to truncate before it goes on.
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

/// The regions of the answers of which not every page looked at is in the page cache.
pub(crate) fn cold_regions(answers: &[PartitionData]) -> Vec<FileRegion> {
    let regions = answers.iter().filter_map(|answer| match &answer.records {
        Some(Records::File(region)) => Some(region),
        Some(Records::Bytes(_)) | None => None,
    });
    regions
        .filter(|region| !is_cached(region))
        .cloned()
        .collect()
}

/// Looks at single bytes of the region without waiting for the disk.
fn is_cached(region: &FileRegion) -> bool {
    let end = region.position + region.len;
    let mut position = region.position;
    loop {
        if !is_byte_cached(region, position) {
            return false;
        }
        if position + 1 >= end {
            return true;
        }
        position = (position + PROBE_STRIDE_BYTES).min(end - 1);
    }
}

fn is_byte_cached(region: &FileRegion, position: u64) -> bool {
    let mut byte = [0];
    let mut buffers = [std::io::IoSliceMut::new(&mut byte)];
    let read = rustix::io::preadv2(
        region.file.as_fd(),
        &mut buffers,
        position,
        ReadWriteFlags::NOWAIT,
    );
    match read {
        Ok(_) => true,
        Err(rustix::io::Errno::AGAIN) => false,
        // A file system that cannot tell is taken at its word: sending finds out.
        Err(_) => true,
    }
}

/// Brings regions into the page cache. Waits for the disk.
pub(crate) fn warm(regions: &[FileRegion]) {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; READ_AHEAD_BYTES];
    for region in regions {
        let end = region.position + region.len;
        let mut position = region.position;
        while position < end {
            let wanted = (end - position).min(READ_AHEAD_BYTES as u64) as usize;
            match region.file.read_at(&mut buffer[..wanted], position) {
                // Sending the region meets the same end or error, and handles it.
                Ok(0) | Err(_) => break,
                Ok(read) => position += read as u64,
            }
        }
    }
}
