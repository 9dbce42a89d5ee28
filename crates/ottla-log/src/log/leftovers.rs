//! Leftovers of interrupted work in a partition's directory, and their treatment.
//!
//! | file | meaning | decision |
//! | --- | --- | --- |
//! | `*.deleted` | scheduled for unlinking, or an unused spare | deleted |
//! | `*.cleaned` | incomplete output of the cleaner | deleted |
//! | `*.swap`, at or after the first `.cleaned` | incomplete split of a segment | deleted |
//! | other `*.swap` | complete; was to replace older segments | those are deleted, it is renamed into place |
//! | `*.index`, `*.timeindex`, `*.txnindex` without `.log` | its segment is gone | deleted |
//!
//! Kafka: `LogLoader.removeTempFilesAndCollectSwapFiles`, `LogLoader.load`, `LogLoader.loadSegmentFiles`.

use ottla_sync::fs::File;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use ottla_types::Offset;

use crate::batch_scan::{BatchScanner, LOOKUP_WINDOW};
use crate::checkpoint::{PARTITION_METADATA, sync_dir};
use crate::disk;
use crate::error::StorageError;
use crate::file_names::{
    CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, OFFSET_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name, offset_from_file_name,
};
use crate::leader_epochs::LEADER_EPOCH_CHECKPOINT;
use crate::listing::{Listed, list};

/// The largest base offset of a segment; above it, the offsets of its records might overflow.
const MAX_BASE_OFFSET: Offset = Offset(i64::MAX - (1 << 32));

/// The files in a partition's directory, ascending.
pub(super) struct Found {
    pub(super) base_offsets: Vec<Offset>,
    /// Offsets of the producer snapshots.
    pub(super) snapshots: Vec<Offset>,
    /// The base offsets of the segments with a transaction index.
    transaction_indexes: Vec<Offset>,
    has_leader_epochs: bool,
    /// `partition.metadata`
    pub(super) has_topic_id: bool,
    /// All names are known. Otherwise files count as there, and opening them tells more.
    is_complete: bool,
}

impl Found {
    /// The files of a log with one segment and no transaction index, whose leader epochs are known.
    pub(super) fn of_clean_log(base_offset: Offset, snapshots: &[Offset]) -> Found {
        Found {
            base_offsets: vec![base_offset],
            snapshots: snapshots.to_vec(),
            transaction_indexes: Vec::new(),
            has_leader_epochs: false,
            has_topic_id: true,
            is_complete: true,
        }
    }

    pub(super) fn may_have_leader_epochs(&self) -> bool {
        self.has_leader_epochs || !self.is_complete
    }

    pub(super) fn may_have_transaction_index(&self, base_offset: Offset) -> bool {
        self.transaction_indexes.contains(&base_offset) || !self.is_complete
    }
}

/// Cleans the directory up and returns the remaining files. A start visits very many directories,
/// nearly all of them clean; those are listed only once.
pub(super) fn clean(dir: &Path) -> Result<Found, StorageError> {
    let Listed {
        mut files,
        mut is_complete,
    } = list(dir)?;
    let mut is_changed = false;
    let ends = |name: &str, suffix: &str| name.ends_with(suffix);
    let first_cleaned = files
        .iter()
        .filter(|name| ends(name, CLEANED_SUFFIX))
        .filter_map(|name| offset_from_file_name(name))
        .min()
        .unwrap_or(Offset(i64::MAX));
    let mut swaps: Vec<String> = Vec::new();
    let is_segment = |name: &String| {
        ends(name, DELETED_SUFFIX)
            && name.contains(LOG_SUFFIX)
            && offset_from_file_name(name).is_some()
    };
    if files.iter().any(is_segment) {
        force_truncation(dir, &files)?;
    }
    for name in &files {
        is_changed |= [DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX]
            .iter()
            .any(|suffix| ends(name, suffix));
        if ends(name, DELETED_SUFFIX) || ends(name, CLEANED_SUFFIX) {
            delete(dir, name)?;
        } else if ends(name, SWAP_SUFFIX) {
            match offset_from_file_name(name) {
                Some(offset) if offset < first_cleaned => swaps.push(name.clone()),
                Some(_) => delete(dir, name)?,
                None => {}
            }
        }
    }
    if !swaps.is_empty() {
        complete_swaps(dir, &swaps)?;
    }

    if is_changed {
        Listed { files, is_complete } = list(dir)?;
    }
    let mut base_offsets = BTreeSet::new();
    for name in files.iter().filter(|name| ends(name, LOG_SUFFIX)) {
        match offset_from_file_name(name).filter(|offset| *offset <= MAX_BASE_OFFSET) {
            Some(offset) => {
                base_offsets.insert(offset);
            }
            None => {
                let error = io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the name of a .log file is not the offset that it starts with",
                );
                return Err(StorageError::new("load", &dir.join(name), error));
            }
        }
    }
    for name in &files {
        let is_index = [
            OFFSET_INDEX_SUFFIX,
            TIME_INDEX_SUFFIX,
            TRANSACTION_INDEX_SUFFIX,
        ]
        .iter()
        .any(|suffix| ends(name, suffix));
        if is_index
            && let Some(offset) = offset_from_file_name(name)
            && !base_offsets.contains(&offset)
        {
            delete(dir, name)?;
        }
    }
    let offsets_of = |suffix: &str| {
        let named = files.iter().filter(|name| ends(name, suffix));
        let offsets = named.filter_map(|name| offset_from_file_name(name));
        let mut offsets: Vec<Offset> = offsets.collect();
        offsets.sort_unstable();
        offsets
    };
    let has = |searched: &str| files.iter().any(|name| name == searched);
    Ok(Found {
        base_offsets: base_offsets.into_iter().collect(),
        snapshots: offsets_of(PRODUCER_SNAPSHOT_SUFFIX),
        transaction_indexes: offsets_of(TRANSACTION_INDEX_SUFFIX),
        has_leader_epochs: has(LEADER_EPOCH_CHECKPOINT),
        has_topic_id: has(PARTITION_METADATA),
        is_complete,
    })
}

/// The renamed segments may be those of a truncation that was interrupted, and the log may go on in
/// the file that it has cut. Both has to be on disk before the names are gone: a power loss would
/// bring segments back, or old records at the end of the file, among what is appended from here on.
fn force_truncation(dir: &Path, files: &[String]) -> Result<(), StorageError> {
    let segments = files.iter().filter(|name| name.ends_with(LOG_SUFFIX));
    if let Some(last) = segments
        .filter_map(|name| offset_from_file_name(name))
        .max()
    {
        let path = dir.join(file_name(last, LOG_SUFFIX));
        let file = File::open(&path).map_err(|error| StorageError::new("open", &path, error))?;
        disk::sync_data(&file).map_err(|error| StorageError::fsync(&path, error))?;
    }
    sync_dir(dir)
}

/// Replaces segments by complete output of the cleaner.
fn complete_swaps(dir: &Path, swaps: &[String]) -> Result<(), StorageError> {
    let log_swap = format!("{LOG_SUFFIX}{SWAP_SUFFIX}");
    let is_log = |name: &str| name.ends_with(&log_swap);
    let mut covered = Offset(i64::MAX)..Offset(i64::MIN);
    for name in swaps.iter().filter(|name| is_log(name)) {
        let Some(base_offset) = offset_from_file_name(name) else {
            continue;
        };
        covered.start = covered.start.min(base_offset);
        covered.end = covered.end.max(next_offset(&dir.join(name), base_offset)?);
    }
    for name in list(dir)?.files {
        if !name.ends_with(SWAP_SUFFIX)
            && offset_from_file_name(&name).is_some_and(|offset| covered.contains(&offset))
        {
            delete(dir, &name)?;
        }
    }
    // The log files first, as in the swap itself: a start that still finds one under its `.swap` name
    // deletes the indexes that have their regular names already.
    let (logs, indexes): (Vec<_>, Vec<_>) = swaps.iter().partition(|name| is_log(name));
    for name in logs.into_iter().chain(indexes) {
        let from = dir.join(name);
        let to = dir.join(name.trim_end_matches(SWAP_SUFFIX));
        disk::rename(&from, &to).map_err(|error| StorageError::new("rename", &from, error))?;
    }
    Ok(())
}

/// The offset after the last batch of a file; `base_offset` if there is no batch.
fn next_offset(path: &Path, base_offset: Offset) -> Result<Offset, StorageError> {
    let read = |error| StorageError::new("read", path, error);
    let file = File::open(path).map_err(read)?;
    let size = file.metadata().map_err(read)?.len();
    let mut scanner = BatchScanner::new(&file, 0, size, LOOKUP_WINDOW);
    let mut next = base_offset;
    while let Ok(Some(batch)) = scanner.next_batch() {
        next = batch.next_offset();
    }
    Ok(next)
}

fn delete(dir: &Path, name: &str) -> Result<(), StorageError> {
    let path = dir.join(name);
    disk::remove_file_if_there(&path).map_err(|error| StorageError::new("delete", &path, error))
}

#[cfg(test)]
mod tests {
    use ottla_records::{Compression, RecordBatchBuilder};
    use ottla_types::Timestamp;

    use super::*;
    use crate::disk::trace;

    #[test]
    fn a_start_that_ends_between_two_renames_keeps_the_new_indexes() {
        let suffixes = [
            TRANSACTION_INDEX_SUFFIX,
            LOG_SUFFIX,
            OFFSET_INDEX_SUFFIX,
            TIME_INDEX_SUFFIX,
        ];
        for renamed in 0..=suffixes.len() {
            let dir = tempfile::tempdir().unwrap();
            let mut batch = RecordBatchBuilder::new(Compression::None);
            batch.append(Timestamp(1), None, Some(b"value"), &[]);
            let content = batch.build().to_bytes();
            // Directories are listed in any order.
            let swaps = suffixes.map(|suffix| format!("{:020}{suffix}{SWAP_SUFFIX}", 0));
            for swap in &swaps {
                std::fs::write(dir.path().join(swap), &content).unwrap();
            }
            trace::start(dir.path());
            trace::fail_in(renamed);
            let completed = complete_swaps(dir.path(), &swaps);
            assert_eq!(completed.is_ok(), renamed == suffixes.len());
            trace::stop();
            clean(dir.path()).unwrap();
            for suffix in suffixes {
                let path = dir.path().join(format!("{:020}{suffix}", 0));
                assert_eq!(std::fs::read(path).unwrap(), content, "{renamed} {suffix}");
            }
        }
    }
}
