//! The interface of a log for tiered storage (KIP-405): its segments, their files, and their
//! deletion without a change of the log start offset.
//!
//! The segments of a tiered log are deleted while remote storage has their records. The log start
//! offset, the leader epochs and the producer state cover the whole log, in both tiers.
//!
//! Kafka: `UnifiedLog.localLogStartOffset`, `UnifiedLog.highestOffsetInRemoteStorage`.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use ottla_types::{Offset, Timestamp};

use super::Log;
use super::truncate::Beginning;
use crate::error::{LogError, StorageError};
use crate::file_names::{PRODUCER_SNAPSHOT_SUFFIX, file_name};
use crate::leader_epochs::LeaderEpochs;
use crate::producer_state::is_whole_snapshot;
use crate::reader::LogReader;
use crate::segment_file::SegmentFile;

/// A segment of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalSegment {
    pub base_offset: Offset,
    pub size_bytes: u64,
    /// The largest timestamp of its records, or the file's modification time if there is none.
    pub largest_timestamp: Timestamp,
    pub is_txn_index_empty: bool,
    /// The segment is closed, and its index files and the producer snapshot at its end are on disk.
    pub are_files_complete: bool,
}

/// The files of a closed segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClosedSegmentFiles {
    pub log: PathBuf,
    pub offset_index: PathBuf,
    pub time_index: PathBuf,
    pub transaction_index: PathBuf,
    /// The producers at the end of the segment.
    pub producer_snapshot: PathBuf,
}

/// The state with which a replica continues after records that are only in remote storage.
#[derive(Clone, PartialEq, Debug)]
pub struct RemoteState {
    /// The local log starts and ends here.
    pub next_offset: Offset,
    /// The start of the leader's log, in either tier.
    pub log_start_offset: Offset,
    /// All epochs of the records before.
    pub leader_epochs: LeaderEpochs,
    /// The content of the producer snapshot at `next_offset`, if there are records before it.
    pub producer_snapshot: Option<Vec<u8>>,
}

impl LogReader {
    /// The state with which another log can begin at the first local segment of this one. If the
    /// producer snapshot of that segment is missing, the log begins at a later segment, provided
    /// that remote storage has the records before it: a snapshot that a crash has truncated is not
    /// written again. `None` if there is no usable snapshot: it is being written, or its segment
    /// has just been deleted. Blocks.
    pub fn state_before_local_segments(&self) -> Result<Option<RemoteState>, StorageError> {
        let log_start_offset = self.log_start_offset();
        let highest_remote_offset = self.highest_remote_offset();
        for (index, next_offset) in self.segment_base_offsets().into_iter().enumerate() {
            if index > 0 && next_offset.plus(-1) > highest_remote_offset {
                break;
            }
            let Some(snapshot) = self.whole_snapshot(next_offset)? else {
                continue;
            };
            let mut leader_epochs = self.leader_epochs();
            leader_epochs.truncate_from_end(next_offset);
            return Ok(Some(RemoteState {
                next_offset,
                log_start_offset,
                leader_epochs,
                producer_snapshot: Some(snapshot),
            }));
        }
        Ok(None)
    }

    /// The producer snapshot at an offset, if it is complete on disk. Without its producers, a log
    /// would begin without its open transactions.
    fn whole_snapshot(&self, offset: Offset) -> Result<Option<Vec<u8>>, StorageError> {
        let snapshot = file_name(offset, PRODUCER_SNAPSHOT_SUFFIX);
        let snapshot = self.dir().join(snapshot);
        match ottla_sync::fs::read(&snapshot) {
            Ok(bytes) => Ok(Some(bytes).filter(|bytes| is_whole_snapshot(bytes))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::new("read", &snapshot, error)),
        }
    }
}

impl Log {
    /// Removes all records, and continues after the records that are only in remote storage.
    /// Blocks. Errors as those of [`Log::truncate_to`].
    pub fn start_after_remote(
        &mut self,
        state: &RemoteState,
        now: Timestamp,
    ) -> Result<(), LogError> {
        let mut leader_epochs = state.leader_epochs.clone();
        leader_epochs.truncate_from_start(state.log_start_offset);
        let beginning = Beginning {
            offset: state.next_offset,
            log_start_offset: state.log_start_offset,
            leader_epochs,
            producer_snapshot: state.producer_snapshot.as_deref(),
        };
        self.begin_anew(beginning, now)?;
        self.set_highest_remote_offset(Offset::UNKNOWN);
        Ok(())
    }

    /// The segments by base offset; the last is the active one.
    pub fn local_segments(&self) -> Result<Vec<LocalSegment>, StorageError> {
        let list = self.segments();
        let nexts = list.segments.iter().skip(1).map(|next| next.base_offset);
        let nexts = nexts.map(Some).chain([None]);
        let segments = list.segments.iter().zip(nexts).map(|(segment, next)| {
            let largest_timestamp = segment
                .largest_timestamp()
                .map_err(|error| StorageError::new("look at a segment of", &self.dir(), error))?;
            Ok(LocalSegment {
                base_offset: segment.base_offset,
                size_bytes: segment.size(),
                largest_timestamp,
                is_txn_index_empty: segment.transaction_index.entries().len() == 0,
                are_files_complete: next.is_some_and(|next| {
                    segment.are_indexes_flushed.load(Ordering::Acquire)
                        && self.is_snapshot_on_disk(next)
                }),
            })
        });
        segments.collect()
    }

    fn is_snapshot_on_disk(&self, offset: Offset) -> bool {
        let mut pending = self.jobs.snapshots().iter();
        let is_pending = pending.any(|it| it.offset == offset && !it.is_done());
        self.producers.has_snapshot(offset) && !is_pending
    }

    /// The files of the closed segment between these offsets. They are renamed when the segment is
    /// deleted.
    pub fn closed_segment_files(&self, base_offset: Offset, next: Offset) -> ClosedSegmentFiles {
        let dir = self.dir();
        let of = |kind: SegmentFile| kind.path_in(&dir, base_offset);
        ClosedSegmentFiles {
            log: of(SegmentFile::Log),
            offset_index: of(SegmentFile::OffsetIndex),
            time_index: of(SegmentFile::TimeIndex),
            transaction_index: of(SegmentFile::TransactionIndex),
            producer_snapshot: dir.join(file_name(next, PRODUCER_SNAPSHOT_SUFFIX)),
        }
    }

    /// Sets the offset up to which remote storage has all records. It may be lower than before. A
    /// truncation lowers it too, so a value found before a truncation must not be set after it
    /// ([`LogReader::truncations`](crate::LogReader::truncations)). Ignored if the log is not
    /// tiered: the value is late, and if the log is tiered again, local segments without a remote
    /// copy would be deleted.
    pub fn set_highest_remote_offset(&self, offset: Offset) {
        if !self.config.remote_storage_enable && offset != Offset::UNKNOWN {
            return;
        }
        let highest = &self.shared.highest_remote_offset;
        highest.store(offset.0, Ordering::Release);
    }

    /// Deletes the first `count` segments, whose records stay in the log because remote storage has
    /// them, or are below its start. If no segment would remain, an empty one is created first.
    pub fn delete_local_segments(&mut self, count: usize, now: Timestamp) -> Result<(), LogError> {
        if count == 0 {
            return Ok(());
        }
        if count >= self.segments().segments.len() {
            self.close_active_segment(now)?;
        }
        let list = self.segments();
        let (deleted, kept) = list.segments.split_at(count);
        self.publish_segments(kept.to_vec(), list.tail.clone());
        self.order_deletion(deleted.to_vec());
        Ok(())
    }

    /// Starts a new segment, unless the active one is empty.
    pub fn close_active_segment(&mut self, now: Timestamp) -> Result<(), LogError> {
        self.roll_at(self.log_end_offset(), now)?;
        Ok(())
    }

    pub(super) fn start_at_local_segments(&mut self) {
        let local = self.reader().local_log_start_offset();
        if local > self.log_start_offset() {
            self.move_log_start_offset(local);
        }
    }
}
