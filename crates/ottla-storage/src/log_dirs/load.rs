//! Loading the logs of all directories at start, several at a time.
//!
//! A directory whose files cannot be read goes offline; the other directories stay online. If file
//! handles or memory are missing, loading waits for them. In the end, a log without them is loaded
//! later; a directory or the copy of a move without them refuses the start. An unrecognisable
//! directory name refuses the start, as in Kafka: `log.dirs` may be wrong.
//!
//! Kafka: `LogManager.loadLogs`.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ottla_config::TopicConfig;
use ottla_log::checkpoint::{OffsetCheckpoint, PartitionMetadata};
use ottla_log::file_names::{DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX};
use ottla_log::{
    CleanLogs, Handles, Log, LogError, MayLack, OpenParams, RecoveryProgress, StorageError,
    retry_lacking,
};
use ottla_sync::Mutex;
use ottla_sync::atomic::{AtomicUsize, Ordering};
use ottla_types::{DirectoryId, Offset, Timestamp, TopicId, TopicName, TopicPartition};

use super::dir_names;
use super::known_logs::{FailedLog, LoadedLog};
use super::log_dir::LogDir;
use super::read_dir::{DirFiles, Listing, ReadDir, ReadDirError, read_all};
use super::recovery_progress::{
    DirProgress, Loading, MOST_MEASURED, ProgressLogger, bytes_to_recover,
};
use super::{LogDirs, OpenSettings};

/// How long a directory is left alone after a log could not be loaded.
pub(super) const RELOAD_PAUSE: Duration = Duration::from_secs(5);

/// How logs are loaded.
pub struct LoadSettings<'a> {
    /// The settings of a topic, from the metadata at the last stop.
    pub topic_config: &'a (dyn Fn(&str) -> Arc<TopicConfig> + Sync),
    /// The topic ID and the assigned directory of a replica, from the same metadata.
    pub assigned: &'a (dyn Fn(&TopicPartition) -> Option<(TopicId, DirectoryId)> + Sync),
    pub producer_id_expiration_ms: i64,
    /// `num.recovery.threads.per.data.dir`
    pub threads_per_dir: usize,
    /// The progress, readable by other threads.
    pub loading: &'a Loading,
    pub now: Timestamp,
}

/// State for loading a directory.
struct DirLoad {
    dir: Arc<LogDir>,
    clean_shutdown: bool,
    files: DirFiles,
    partitions: Vec<(TopicPartition, PathBuf)>,
    next: AtomicUsize,
    progress: Arc<DirProgress>,
    rebuilt: Mutex<RebuiltIndexes>,
    handles: Arc<Handles>,
}

/// Segments of a directory with rebuilt indexes, logged in one line, because a killed broker leaves
/// one in each log.
#[derive(Default)]
struct RebuiltIndexes {
    segments: usize,
    /// The first such log and the segment's base offset.
    first: Option<(TopicPartition, Offset)>,
}

impl LogDirs {
    /// Reads what [`LogDirs::load`] needs first, and changes nothing: with very many logs this takes
    /// long, and a start has something else to do meanwhile. Blocks.
    pub fn read_ahead(&self) {
        let read = read_all(&self.dirs);
        *self.read.lock() = Some(read);
    }

    /// Opens all logs, which partitions then claim with [`LogDirs::open_log`]. The error is one
    /// sentence. Blocks.
    pub fn load(&self, settings: &LoadSettings<'_>) -> Result<(), String> {
        // All are read and listed before the first clean shutdown marker is removed, so that a
        // refused start causes no recovery.
        let ahead = self.read.lock().take();
        let read = ahead.unwrap_or_else(|| read_all(&self.dirs));
        let (mut listed, mut files_of_listed) = (Vec::new(), Vec::new());
        for (dir, read) in self.dirs.iter().zip(read) {
            match read {
                Ok(ReadDir { listing, files }) => match begin(listing, dir) {
                    Ok(partitions) => {
                        listed.push((dir, partitions));
                        files_of_listed.push(files);
                    }
                    Err(error) => self.on_unusable(dir, &error)?,
                },
                Err(ReadDirError::Refused(sentence)) => return Err(sentence),
                Err(ReadDirError::Failed(error)) => self.on_unusable(dir, &error)?,
            }
        }
        for (number, index) in superseded(&listed, settings)?.into_iter().rev() {
            let (dir, partitions) = &mut listed[number];
            let (topic_partition, path) = partitions.remove(index);
            if let Err(error) = set_superseded_aside(dir, &topic_partition, &path) {
                self.on_storage_error(dir, &error);
            }
        }
        let mut loads = Vec::new();
        for ((dir, partitions), files) in listed.into_iter().zip(files_of_listed) {
            let threads = settings.threads_per_dir.max(1);
            match DirLoad::begin(dir, partitions, files, threads, &self.handles) {
                Ok(load) => loads.push(load),
                Err(error) => self.on_unusable(dir, &error)?,
            }
        }
        let progress = loads.iter().map(|load| Arc::clone(&load.progress));
        settings.loading.store(Arc::new(progress.collect()));
        let progress_logger = ProgressLogger::default();
        ottla_sync::thread::scope(|scope| {
            let dirs = loads.iter().map(|load| &*load.progress);
            scope.spawn(|| progress_logger.run(dirs, || loads.iter().for_each(DirLoad::measure)));
            let mut threads = Vec::new();
            for load in &loads {
                for progress in &load.progress.threads {
                    threads.push(scope.spawn(|| self.load_some(load, progress, settings)));
                }
            }
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            progress_logger.stop();
            if let Some(panic) = results.into_iter().find_map(Result::err) {
                std::panic::resume_unwind(panic);
            }
        });
        settings.loading.store(Arc::default());
        loads.iter().for_each(DirLoad::tell_of_rebuilt_indexes);
        self.load_futures(settings)?;
        let failed = self.failed.lock();
        for load in &loads {
            // With a log that could not be loaded, the checkpoint stays unchanged.
            if !failed.values().any(|log| Arc::ptr_eq(&log.dir, &load.dir)) {
                load.dir.set_loaded();
            }
        }
        drop(failed);
        match self.online().next() {
            Some(_) => Ok(()),
            None => Err("all log directories have failed; see the errors above".to_owned()),
        }
    }

    /// Handles a directory that cannot be put into use. A temporary error refuses the start: the
    /// directory would stay online without its logs, and get new, empty ones of their names.
    fn on_unusable(&self, dir: &Arc<LogDir>, error: &StorageError) -> Result<(), String> {
        if error.is_temporary() {
            let path = dir.path.display();
            return Err(format!(
                "log directory {path} cannot be read for now: {error}; raise the limit of open files (ulimit -n, \
                 LimitNOFILE) or free disk space, and start again"
            ));
        }
        self.on_storage_error(dir, error);
        Ok(())
    }

    /// Opens logs until none is left.
    fn load_some(&self, load: &DirLoad, progress: &RecoveryProgress, settings: &LoadSettings<'_>) {
        let mut last: Option<(&TopicName, Arc<TopicConfig>)> = None;
        while load.dir.is_online() {
            let number = load.next.fetch_add(1, Ordering::Relaxed);
            let Some((topic_partition, path)) = load.partitions.get(number) else {
                return;
            };
            // Resolved once for the partitions of a topic, which follow each other.
            let topic = &topic_partition.topic;
            let config = match last.take().filter(|(name, _)| *name == topic) {
                Some((_, config)) => config,
                None => (settings.topic_config)(topic),
            };
            last = Some((topic, Arc::clone(&config)));
            let opened = load.open(topic_partition, path, config, settings, progress);
            load.progress.on_log();
            match opened {
                Ok(loaded) => {
                    let mut all = self.loaded.lock();
                    all.insert(topic_partition.clone(), loaded);
                }
                Err(error) => {
                    tracing::error!(%topic_partition, "the log could not be loaded: {error}");
                    let failed = load.failed(topic_partition, &error);
                    load.dir.pause_reloads(RELOAD_PAUSE);
                    self.failed.lock().insert(topic_partition.clone(), failed);
                    self.on_log_error(&load.dir, &error);
                }
            }
        }
    }
}

impl LogDirs {
    /// Loads a log that could not be loaded at start because the disk was full, or no file handle
    /// or memory was left. `None` if it cannot be loaded now, or is not such a log. Once a load
    /// fails, its directory is left alone for [`RELOAD_PAUSE`]. Blocks.
    pub(super) fn reload(
        &self,
        topic_partition: &TopicPartition,
        settings: &OpenSettings,
    ) -> Option<LoadedLog> {
        let failed = self.failed.lock().get(topic_partition).cloned()?;
        if !failed.is_temporary || !failed.dir.is_online() || failed.dir.pauses_reloads() {
            return None;
        }
        match self.load_again(topic_partition, &failed, settings) {
            Ok(loaded) => {
                tracing::info!(%topic_partition, "the log is loaded, which was not possible at start");
                let mut all = self.failed.lock();
                all.remove(topic_partition);
                let is_in_dir = |log: &FailedLog| Arc::ptr_eq(&log.dir, &failed.dir);
                if !all.values().any(is_in_dir) {
                    failed.dir.set_loaded();
                }
                Some(loaded)
            }
            Err(error) => {
                if let Some(log) = self.failed.lock().get_mut(topic_partition) {
                    log.is_temporary = is_temporary(&error);
                }
                failed.dir.pause_reloads(RELOAD_PAUSE);
                match is_not_found(&error) {
                    // Somebody deleted it; the directory is fine.
                    true => tracing::error!(%topic_partition, "the log is gone: {error}"),
                    false => self.on_log_error(&failed.dir, &error),
                }
                None
            }
        }
    }

    /// Deletes a log that could not be loaded. [`LogDir::force_deletions`] is to follow. Blocks.
    pub(super) fn delete_failed(&self, topic_partition: &TopicPartition) {
        let Some(failed) = self.failed.lock().get(topic_partition).cloned() else {
            return;
        };
        let name = dir_names::suffixed(
            topic_partition,
            ottla_sync::random::random("directory names"),
            DELETE_DIR_SUFFIX,
        );
        let from = failed.dir.path.join(topic_partition.dir_name());
        let to = failed.dir.path.join(name);
        let renamed = match ottla_sync::fs::rename(&from, &to) {
            Ok(()) => true,
            // Somebody deleted it; the directory is fine.
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => {
                let error = StorageError::new("rename", &from, error);
                self.on_storage_error(&failed.dir, &error);
                // A new log of the name would contain its records.
                if error.is_temporary() {
                    return;
                }
                false
            }
        };
        let mut all = self.failed.lock();
        all.remove(topic_partition);
        let is_in_dir = |log: &FailedLog| Arc::ptr_eq(&log.dir, &failed.dir);
        if !all.values().any(is_in_dir) {
            failed.dir.set_loaded();
        }
        drop(all);
        if renamed {
            let delay = Duration::ZERO;
            failed.dir.note_deleted(topic_partition, to, delay, None);
        }
    }

    fn load_again(
        &self,
        topic_partition: &TopicPartition,
        failed: &FailedLog,
        settings: &OpenSettings,
    ) -> Result<LoadedLog, LogError> {
        let path = failed.dir.path.join(topic_partition.dir_name());
        // Without this check, the open would create an empty log, and the other replicas would
        // delete their records.
        ottla_sync::fs::metadata(&path).map_err(|error| StorageError::new("find", &path, error))?;
        let metadata = PartitionMetadata::read(&path)?;
        let offset = |known: Option<Offset>| known.unwrap_or_default().max(Offset::ZERO);
        let settings = settings.clone();
        let recovery_point = offset(failed.recovery_point);
        failed.dir.force_log_again(&path, recovery_point)?;
        let (mut log, _) = Log::open(OpenParams {
            recovery_point,
            log_start_offset: offset(failed.log_start_offset),
            ..settings.without_checkpoints(path, topic_partition, &failed.dir, &self.handles)
        })?;
        log.set_high_watermark(offset(failed.high_watermark));
        Ok(LoadedLog {
            log,
            dir: Arc::clone(&failed.dir),
            topic_id: metadata.map(|metadata| metadata.topic_id),
        })
    }
}

fn is_not_found(error: &LogError) -> bool {
    let kind = error.storage().map(|storage| storage.error.kind());
    kind == Some(ErrorKind::NotFound)
}

fn is_temporary(error: &LogError) -> bool {
    error.storage().is_some_and(StorageError::is_temporary)
}

impl DirLoad {
    /// Removes the clean shutdown marker: from here on the directory is in use.
    fn begin(
        dir: &Arc<LogDir>,
        partitions: Vec<(TopicPartition, PathBuf)>,
        mut files: DirFiles,
        threads: usize,
        handles: &Arc<Handles>,
    ) -> Result<DirLoad, StorageError> {
        let clean_shutdown = dir.take_clean_shutdown()?;
        if dir.forces_again() {
            files.clean_logs = CleanLogs::default();
        }
        let threads = threads.min(partitions.len());
        let progress =
            DirProgress::new(dir.path.clone(), !clean_shutdown, partitions.len(), threads);
        Ok(DirLoad {
            progress: Arc::new(progress),
            clean_shutdown,
            files,
            partitions,
            next: AtomicUsize::new(0),
            rebuilt: Mutex::default(),
            dir: Arc::clone(dir),
            handles: Arc::clone(handles),
        })
    }

    fn tell_of_rebuilt_indexes(&self) {
        let rebuilt = self.rebuilt.lock();
        if let Some((topic_partition, base_offset)) = &rebuilt.first {
            tracing::warn!(
                dir = %self.dir.path.display(), segments = rebuilt.segments,
                "indexes were missing or corrupt and were rebuilt, the first one of segment {base_offset} of {topic_partition}"
            );
        }
    }

    /// Measures how much there is to recover: what was recovered, and the logs that are not loaded
    /// yet. Those are taken for the last ones, because the threads take the logs in order. After a
    /// clean stop there is nothing, and no file is looked at.
    fn measure(&self) {
        let logs = self.partitions.len();
        let first = match self.clean_shutdown {
            true => logs,
            false => logs.saturating_sub(self.progress.remaining_logs()),
        };
        if logs - first > MOST_MEASURED {
            return;
        }
        let recovered = self.progress.recovered_bytes();
        let bytes = self.partitions[first..].iter().map(|(partition, path)| {
            let recovery_point = self.files.recovery_points.offsets.get(partition);
            bytes_to_recover(path, recovery_point.copied().unwrap_or_default())
        });
        let remaining: u64 = bytes.sum();
        self.progress.set_bytes_to_recover(recovered + remaining);
    }

    fn failed(&self, topic_partition: &TopicPartition, error: &LogError) -> FailedLog {
        let offset =
            |checkpoint: &OffsetCheckpoint| checkpoint.offsets.get(topic_partition).copied();
        FailedLog {
            dir: Arc::clone(&self.dir),
            is_temporary: is_temporary(error),
            recovery_point: offset(&self.files.recovery_points),
            log_start_offset: offset(&self.files.log_start_offsets),
            high_watermark: offset(&self.files.high_watermarks),
        }
    }

    fn open(
        &self,
        topic_partition: &TopicPartition,
        path: &Path,
        config: Arc<TopicConfig>,
        settings: &LoadSettings<'_>,
        progress: &RecoveryProgress,
    ) -> Result<LoadedLog, LogError> {
        let offset = |checkpoint: &OffsetCheckpoint| {
            let offset = checkpoint.offsets.get(topic_partition).copied();
            offset.unwrap_or_default().max(Offset::ZERO)
        };
        let clean = self.files.clean_logs.get(topic_partition);
        let clean = clean.filter(|clean| clean.is_unchanged(path));
        let read = || PartitionMetadata::read(path).map_err(LogError::from);
        let topic_id = match clean {
            Some(clean) => Some(clean.topic_id()),
            None => retry_lacking(read)?.map(|metadata| metadata.topic_id),
        };
        let params = OpenParams {
            dir: path.to_owned(),
            topic_partition: topic_partition.clone(),
            config,
            recovery_point: offset(&self.files.recovery_points),
            log_start_offset: offset(&self.files.log_start_offsets),
            clean_shutdown: self.clean_shutdown,
            now: settings.now,
            producer_id_expiration_ms: settings.producer_id_expiration_ms,
            random_seed: ottla_sync::random::random("log"),
            handles: Arc::clone(&self.handles),
            checkpoint_marks: Arc::clone(&self.dir.checkpoint_marks),
        };
        retry_lacking(|| self.dir.force_log_again(path, params.recovery_point))?;
        let open = || match clean {
            Some(clean) => Log::open_clean(params.clone(), clean),
            None => Log::open_with_progress(params.clone(), progress),
        };
        let (mut log, report) = retry_lacking(open)?;
        if report.bytes_truncated > 0 || report.segments_deleted > 0 {
            tracing::warn!(%topic_partition, ?report, "the log was recovered");
        }
        if let Some(base_offset) = report.first_rebuilt {
            let mut rebuilt = self.rebuilt.lock();
            rebuilt.segments += report.indexes_rebuilt;
            let first = || (topic_partition.clone(), base_offset);
            rebuilt.first.get_or_insert_with(first);
        }
        log.set_high_watermark(offset(&self.files.high_watermarks));
        // Files are opened on use; most logs are idle.
        log.close_files();
        Ok(LoadedLog {
            log,
            dir: Arc::clone(&self.dir),
            topic_id,
        })
    }
}

/// Continues interrupted deletions, and returns the partitions.
fn begin(listing: Listing, dir: &LogDir) -> Result<Vec<(TopicPartition, PathBuf)>, StorageError> {
    if listing.has_failed_fsync {
        dir.set_forces_again();
    }
    if !listing.deleted.is_empty() || listing.has_failed_fsync {
        // Without this fsync:
        // 1. A process renames a log, and is killed before it has fsynced the new name.
        // 2. The next one removes the files.
        // 3. After a power loss, the log has its old name again, but not all of its files.
        // If it was this fsync that failed, an old checkpoint or marker may come back instead.
        dir.sync_names()?;
    }
    for path in listing.deleted {
        dir.remove_later(path, Duration::ZERO);
    }
    dir.futures_found.lock().extend(listing.futures);
    Ok(listing.partitions)
}

/// The logs that were replaced by another, by directory and index, ascending. A move between
/// directories renames the copy first, which is complete by then and in the directory reported to
/// the controller; a crash may come before the old log is renamed. Any other two logs of one name
/// refuse the start.
fn superseded(
    listed: &[(&Arc<LogDir>, Vec<(TopicPartition, PathBuf)>)],
    settings: &LoadSettings<'_>,
) -> Result<Vec<(usize, usize)>, String> {
    let mut superseded = Vec::new();
    // The names in one directory differ.
    if listed.len() < 2 {
        return Ok(superseded);
    }
    let mut seen: BTreeMap<&TopicPartition, (usize, usize)> = BTreeMap::new();
    for (number, (_, partitions)) in listed.iter().enumerate() {
        for (index, (partition, path)) in partitions.iter().enumerate() {
            let Some(other) = seen.insert(partition, (number, index)) else {
                continue;
            };
            let (other_dir, others) = &listed[other.0];
            let other_path = &others[other.1].1;
            let mut topic_ids = Vec::new();
            for path in [path, other_path] {
                match retry_lacking(|| PartitionMetadata::read(path)) {
                    Ok(metadata) => topic_ids.push(metadata.map(|metadata| metadata.topic_id)),
                    // Not the sentence below, which has somebody delete one of them.
                    Err(error) if error.is_lack_of_resources() => {
                        return Err(format!(
                            "partition {partition} lies in two directories, and its topic ID cannot be read for now: {error}"
                        ));
                    }
                    Err(_) => topic_ids.push(None),
                }
            }
            let assigned = (settings.assigned)(partition)
                .filter(|(topic_id, _)| topic_ids.iter().all(|it| *it == Some(*topic_id)));
            let directory = assigned.map(|(_, directory)| directory);
            if directory == Some(listed[number].0.directory_id) {
                superseded.push(other);
            } else if directory == Some(other_dir.directory_id) {
                superseded.push((number, index));
                seen.insert(partition, other);
            } else {
                return Err(format!(
                    "partition {partition} lies in both {} and {}, and the metadata names neither; delete the one in the directory that failed last",
                    other_path.display(),
                    path.display()
                ));
            }
        }
    }
    superseded.sort_unstable();
    Ok(superseded)
}

/// Renames a replaced log to a `-stray` name: nothing is deleted because of the state after a
/// crash.
fn set_superseded_aside(
    dir: &LogDir,
    topic_partition: &TopicPartition,
    path: &Path,
) -> Result<(), StorageError> {
    let name = dir_names::suffixed(
        topic_partition,
        ottla_sync::random::random("directory names"),
        STRAY_DIR_SUFFIX,
    );
    let renamed = retry_lacking(|| ottla_sync::fs::rename(path, dir.path.join(&name)));
    renamed.map_err(|error| StorageError::new("rename", path, error))?;
    // After a power loss, a start must not find it beside a later log of the name.
    dir.sync_names()?;
    tracing::warn!(
        %topic_partition, dir = %dir.path.display(), renamed_to = name,
        "the partition was moved to another directory, and the node crashed before the old log was deleted; it was set aside and can be removed"
    );
    Ok(())
}
