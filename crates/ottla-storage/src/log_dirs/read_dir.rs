//! Reading a log directory at start, before it is in use: what is in it, and what it says about all
//! of its logs. Changes nothing, and waits for file handles.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ottla_log::checkpoint::{
    FAILED_FSYNC_FILE, LOG_START_OFFSET_CHECKPOINT, OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
};
use ottla_log::{CheckpointError, CleanLogs, StorageError, retry_lacking};
use ottla_types::{TopicName, TopicPartition};

use super::dir_names::DirKind;
use super::log_dir::LogDir;

pub(super) struct ReadDir {
    pub(super) listing: Listing,
    pub(super) files: DirFiles,
}

/// What is in a directory.
pub(super) struct Listing {
    /// Sorted.
    pub(super) partitions: Vec<(TopicPartition, PathBuf)>,
    /// Those whose deletion was in progress.
    pub(super) deleted: Vec<PathBuf>,
    /// The copies of replicas that are being moved.
    pub(super) futures: Vec<(TopicPartition, PathBuf)>,
    /// An fsync failed before the last stop ([`FailedFsync`](ottla_log::checkpoint::FailedFsync)).
    pub(super) has_failed_fsync: bool,
}

pub(super) enum ReadDirError {
    Refused(String),
    Failed(StorageError),
}

/// What a directory says about its logs, in one file about all of them.
pub(super) struct DirFiles {
    /// The logs that need not be read.
    pub(super) clean_logs: CleanLogs,
    pub(super) recovery_points: OffsetCheckpoint,
    pub(super) log_start_offsets: OffsetCheckpoint,
    pub(super) high_watermarks: OffsetCheckpoint,
}

/// Reads directories, in this order. Blocks.
pub(super) fn read_all(dirs: &[Arc<LogDir>]) -> Vec<Result<ReadDir, ReadDirError>> {
    ottla_sync::thread::scope(|scope| {
        let files = scope.spawn(|| {
            let files = dirs.iter().map(|dir| DirFiles::read(dir));
            files.collect::<Vec<_>>()
        });
        let listings: Vec<_> = dirs.iter().map(|dir| list(dir)).collect();
        let files = files.join();
        let files = files.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let read = listings.into_iter().zip(files);
        read.map(|(listing, files)| -> Result<ReadDir, ReadDirError> {
            Ok(ReadDir {
                listing: listing?,
                files: files.map_err(ReadDirError::Failed)?,
            })
        })
        .collect()
    })
}

impl DirFiles {
    fn read(dir: &LogDir) -> Result<DirFiles, StorageError> {
        let read = |name: &str| {
            let path = dir.path.join(name);
            retry_lacking(|| read_checkpoint(&path))
        };
        // All but one have an entry for nearly every log.
        ottla_sync::thread::scope(|scope| {
            let clean_logs = scope.spawn(|| dir.clean_logs());
            // After an error, the others would wait for file handles, too, each as long.
            let recovery_points = read(RECOVERY_POINT_CHECKPOINT)?;
            let log_start_offsets = read(LOG_START_OFFSET_CHECKPOINT)?;
            let high_watermarks = read(REPLICATION_OFFSET_CHECKPOINT)?;
            let clean_logs = clean_logs.join();
            Ok(DirFiles {
                clean_logs: clean_logs.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                recovery_points,
                log_start_offsets,
                high_watermarks,
            })
        })
    }
}

/// An unreadable checkpoint counts as empty, as in Kafka: recovery then scans everything. One for
/// which no file handle or memory is left is an error: without its start offset, a log would show
/// deleted records again.
pub(super) fn read_checkpoint(path: &Path) -> Result<OffsetCheckpoint, StorageError> {
    match OffsetCheckpoint::read(path) {
        Ok(read) => Ok(read),
        Err(CheckpointError::Storage(error)) if error.is_lack_of_resources() => Err(error),
        Err(error) => {
            tracing::warn!("{error}; continuing without it");
            Ok(OffsetCheckpoint::default())
        }
    }
}

fn list(dir: &LogDir) -> Result<Listing, ReadDirError> {
    let failed = |error| ReadDirError::Failed(StorageError::new("list", &dir.path, error));
    let (mut partitions, mut deleted, mut futures) = (Vec::new(), Vec::new(), Vec::new());
    let mut has_failed_fsync = false;
    let entries = retry_lacking(|| ottla_sync::fs::read_dir(&dir.path));
    for entry in entries.map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_type().map_err(failed)?.is_dir() {
            has_failed_fsync |= entry.file_name() == FAILED_FSYNC_FILE;
            continue;
        }
        let path = entry.path();
        match DirKind::of(&entry.file_name().to_string_lossy()) {
            Some(DirKind::Partition(partition)) => partitions.push((partition, path)),
            Some(DirKind::Deleted) => deleted.push(path),
            Some(DirKind::Future(partition)) => futures.push((partition, path)),
            Some(DirKind::Stray | DirKind::Other) => {}
            None => {
                return Err(ReadDirError::Refused(format!(
                    "{} is in a log directory but is not a partition; log directories must contain only files of Kafka or Ottla: move it away, or set other log.dirs",
                    path.display()
                )));
            }
        }
    }
    partitions.sort();
    share_topic_names(&mut partitions);
    Ok(Listing {
        partitions,
        deleted,
        futures,
        has_failed_fsync,
    })
}

/// Lets the partitions of a topic share its name. They are sorted.
fn share_topic_names(partitions: &mut [(TopicPartition, PathBuf)]) {
    let mut shared: Option<TopicName> = None;
    for (partition, _) in partitions {
        match &shared {
            Some(name) if *name == partition.topic => partition.topic = name.clone(),
            _ => shared = Some(partition.topic.clone()),
        }
    }
}
