//! Bringing a copy of a log closer to it: unchanged batches, truncations and the log start offset.
//! Runs on a thread that may block; independent of the rest of a move.

use std::sync::Arc;

use ottla_log::{AppendErrorReason, JobOutcome, Log, LogError, LogReader, ReadError, StorageError};
use ottla_records::legacy::AnyBatch;
use ottla_records::{BatchError, RecordBatch};
use ottla_types::{Offset, Timestamp};

/// Number of bytes that may be missing when appends are held to copy the rest.
pub(super) const MAX_LAST_BYTES: u64 = 256 * 1024;

/// The result of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    /// The copy has nearly caught up.
    pub(super) is_at_end: bool,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error("the disk is full up to its reserve")]
    NoSpace,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the log contains bytes that are not a batch: {0}")]
    Batch(#[from] BatchError),
    #[error("the log contains a batch that cannot be copied: {0}")]
    Append(AppendErrorReason),
    #[error(
        "the producer snapshot at offset {0}, where the local segments begin, is not on disk yet"
    )]
    NoSnapshot(Offset),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl CopyError {
    /// Another attempt would fail the same way: the log holds something that cannot be copied.
    pub(super) fn is_final(&self) -> bool {
        match self {
            CopyError::Batch(_) | CopyError::Read(ReadError::Corrupt { .. }) => true,
            CopyError::Append(reason) => !matches!(
                reason,
                AppendErrorReason::Storage(_) | AppendErrorReason::Temporary(_)
            ),
            CopyError::NoSpace
            | CopyError::Read(_)
            | CopyError::NoSnapshot(_)
            | CopyError::Log(_)
            | CopyError::Storage(_) => false,
        }
    }

    /// The file operation that failed, if the error concerns a directory.
    pub(super) fn storage(&self) -> Option<&StorageError> {
        match self {
            CopyError::Read(ReadError::Storage(error))
            | CopyError::Append(
                AppendErrorReason::Storage(error) | AppendErrorReason::Temporary(error),
            )
            | CopyError::Log(LogError::Storage(error))
            | CopyError::Storage(error) => Some(error),
            CopyError::NoSpace
            | CopyError::Read(_)
            | CopyError::Batch(_)
            | CopyError::Append(_)
            | CopyError::NoSnapshot(_)
            | CopyError::Log(LogError::Checkpoint(_)) => None,
        }
    }
}

/// Copies up to `max_bytes` and follows truncations and the log start offset.
pub(super) fn copy_round(
    future: &mut Log,
    current: &LogReader,
    max_bytes: u64,
    now: Timestamp,
) -> Result<Copied, CopyError> {
    cut_to(future, current, now)?;
    let start = future.log_end_offset();
    let mut bytes = 0;
    let mut last_read = 0;
    while bytes < max_bytes && future.log_end_offset() < current.log_end_offset() {
        let from = future.log_end_offset();
        let read = current.read(from, max_bytes - bytes, current.log_end_offset(), true)?;
        let Some(region) = read.region else {
            break;
        };
        let records = match region.read() {
            // The log was just truncated. The next round removes the records it lost.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            read => read,
        };
        let records = records
            .map_err(|error| StorageError::new("read", &current.dir(), error))
            .map_err(ReadError::Storage)?;
        last_read = append(future, from, records, now)?;
        bytes += last_read;
        if last_read == 0 {
            break;
        }
    }
    follow(future, current, now)?;
    if future.log_end_offset() > start || future.has_jobs() {
        run_jobs(future)?;
    }
    let is_at_end =
        future.log_end_offset() >= current.log_end_offset() && last_read <= MAX_LAST_BYTES;
    Ok(Copied { bytes, is_at_end })
}

/// Removes records that the log does not have any more. A copy of a tiered log begins with its local
/// segments: the records before these stay in remote storage.
fn cut_to(future: &mut Log, current: &LogReader, now: Timestamp) -> Result<(), CopyError> {
    let config = current.config();
    if !Arc::ptr_eq(future.config(), &config) {
        future.set_config(config);
    }
    let mut end = current.log_end_offset();
    if let Some(epoch) = future.latest_epoch()
        && let Some((_, of_epoch)) = current.end_offset_for_epoch(epoch)
    {
        end = end.min(of_epoch);
    }
    // A crash may have taken records of the copy that the log has.
    if let Some(doubtful) = future.doubtful_from() {
        end = end.min(doubtful);
    }
    let start = current.log_start_offset();
    let local_start = current.local_log_start_offset();
    // Otherwise the records before the first segment of the copy would not be copied, and the
    // producer state at its end would be unknown.
    let copy_start = future.reader().local_log_start_offset();
    let is_cut_whole = end < copy_start;
    // It began at a later segment, and remote storage has lost records before that since then, or the log
    // is no longer tiered.
    let has_gap = copy_start > local_start && copy_start.plus(-1) > current.highest_remote_offset();
    if current.is_only_remote(local_start.plus(-1)) {
        let is_behind = future.log_end_offset() < local_start;
        // Records before its first segment would be lost with the log.
        let starts_late = future.log_start_offset() > start;
        if is_behind || starts_late || has_gap || is_cut_whole {
            let state = current.state_before_local_segments();
            let state = state.map_err(ReadError::Storage)?;
            let state = state.ok_or(CopyError::NoSnapshot(local_start))?;
            future.start_after_remote(&state, now)?;
            return Ok(());
        }
    } else if future.log_end_offset() < start || has_gap || is_cut_whole {
        future.truncate_fully_and_start_at(start, None, now)?;
        return Ok(());
    }
    if future.log_end_offset() > end {
        future.truncate_to(end.max(Offset::ZERO), now)?;
    }
    Ok(())
}

/// Appends batches unchanged and returns their bytes. After DeleteRecords the log may start inside
/// a batch, which is read whole: an empty copy takes the batch and starts inside it too.
fn append(
    future: &mut Log,
    from: Offset,
    mut records: bytes::Bytes,
    now: Timestamp,
) -> Result<u64, CopyError> {
    let mut batches = Vec::new();
    let mut bytes = 0;
    while !records.is_empty() {
        let batch = match AnyBatch::read(&mut records) {
            Ok(batch) => batch,
            // The last batch may be cut off.
            Err(BatchError::TruncatedHeader { .. } | BatchError::TruncatedBatch { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        let size = batch.size_in_bytes() as u64;
        match batch {
            AnyBatch::Current(batch) => {
                let header = &batch.header;
                let is_empty = bytes == 0 && future.log_start_offset() == from;
                if is_empty && (header.base_offset..=header.last_offset()).contains(&from) {
                    if header.base_offset < from {
                        future.truncate_fully_and_start_at(header.base_offset, Some(from), now)?;
                    }
                } else if header.base_offset < from {
                    continue;
                }
                batches.push(batch);
            }
            AnyBatch::Legacy(message) => {
                if message.offset < from {
                    continue;
                }
                append_batches(future, &mut batches, now)?;
                let appended = future.append_legacy(std::slice::from_ref(&message), now);
                appended.map_err(|error| CopyError::Append(error.reason))?;
            }
        }
        bytes += size;
    }
    append_batches(future, &mut batches, now)?;
    Ok(bytes)
}

fn append_batches(
    future: &mut Log,
    batches: &mut Vec<RecordBatch>,
    now: Timestamp,
) -> Result<(), CopyError> {
    let appended = future.append(batches, now);
    batches.clear();
    appended.map_err(|error| CopyError::Append(error.reason))?;
    Ok(())
}

/// Takes over the log start offset and the high watermark.
fn follow(future: &mut Log, current: &LogReader, now: Timestamp) -> Result<(), LogError> {
    future.set_high_watermark(current.high_watermark());
    // An offset above the copy's high watermark is taken over in a later round.
    let moved = future.increment_log_start_offset(current.log_start_offset());
    // The segments of a tiered log are deleted as its local retention says, after the move. Of others,
    // nothing is deleted that the log still has.
    if moved.unwrap_or(false) && !future.config().remote_storage_enable {
        future.delete_segments_below_start(now)?;
    }
    Ok(())
}

/// Runs the jobs of the copy at once.
fn run_jobs(future: &mut Log) -> Result<(), StorageError> {
    for job in future.take_jobs() {
        match job.run()? {
            JobOutcome::Done | JobOutcome::WrittenBack(_) => {}
            outcome @ JobOutcome::Spare(_) => future.on_job_done(outcome),
            // The copy has no readers.
            JobOutcome::Unlink(unlink) => unlink.run()?,
        }
    }
    Ok(())
}

/// Fsyncs the copy.
pub(super) fn flush(future: &mut Log) -> Result<(), CopyError> {
    if let Some(job) = future.flush_job() {
        job.run()?;
    }
    Ok(())
}
